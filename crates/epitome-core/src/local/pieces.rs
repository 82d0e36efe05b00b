//! Splits a message into the pieces from which a summary may be built.
//!
//! A piece is a sentence or a line, selected or left out as a whole. A text by a user, a peer or the assistant
//! contributes up to 40 sentences. A tool's output contributes at most twelve lines: the first and last ones, lines
//! about errors, and lines with many names. Most of a tool's output is never needed again.

use crate::words::count_words;

/// Maximum number of pieces from one text of a message: for a text by a user, a peer or the assistant, and for tool
/// output.
pub(super) const OF_SPEECH: usize = 40;
pub(super) const OF_OUTPUT: usize = 12;

/// Number of characters above which a piece is cut, and the maximum length of each part that is cut off.
const LONGEST: usize = 400;
const CUT: usize = 240;

/// Maximum number of characters of a call's arguments. The beginning of a long command identifies it.
const CALL: usize = 120;

/// Returns the sentences of a text by a user, a peer or the assistant.
pub(super) fn of_speech(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    for line in text.lines() {
        let line = bare(line);
        if line.starts_with("```") {
            continue;
        }
        sentences(line, &mut out);
        if out.len() >= OF_SPEECH {
            break;
        }
    }
    out.retain(|piece| has_content(piece));
    out.truncate(OF_SPEECH);
    out
}

/// Returns the informative lines of a tool's output, in their order.
pub(super) fn of_output(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines() {
        let line = line.trim();
        if has_content(line) {
            chunks(line, &mut lines);
        }
    }
    if lines.len() <= OF_OUTPUT {
        return lines;
    }
    let last = lines.len() - OF_OUTPUT / 3;
    let mut taken: Vec<usize> = (0..OF_OUTPUT / 3).chain(last..lines.len()).collect();
    let middle = || lines.iter().enumerate().take(last).skip(OF_OUTPUT / 3);
    taken.extend(middle().filter(|(_, line)| is_about_error(line)).map(|(at, _)| at).take(OF_OUTPUT / 3));
    let mut thick: Vec<(usize, usize)> =
        middle().filter(|(at, _)| !taken.contains(at)).map(|(at, line)| (name_bytes(line), at)).collect();
    thick.sort_by(|a, b| b.0.cmp(&a.0).then(a.1.cmp(&b.1)));
    taken.extend(thick.iter().map(|(_, at)| *at).take(OF_OUTPUT - taken.len()));
    taken.sort_unstable();
    taken.into_iter().filter_map(|at| lines.get(at).copied()).collect()
}

/// Appends the first line of an argument, cut if it is long, to the description of a call.
pub(super) fn add_argument(description: &mut String, value: &str) {
    let Some(line) = value.lines().map(str::trim).find(|line| !line.is_empty()) else { return };
    if description.len() >= CALL {
        return;
    }
    if !description.is_empty() {
        description.push(' ');
    }
    match line.char_indices().nth(CALL) {
        Some((at, _)) => {
            let head = line.get(..at).unwrap_or_default();
            description.push_str(head.rsplit_once(' ').map_or(head, |(whole, _)| whole));
            description.push('…');
        }
        None => description.push_str(line),
    }
}

/// Returns a line without its list or heading marks. Outside the list, a number such as `2.` has no meaning.
fn bare(line: &str) -> &str {
    let line = line.trim();
    let marks = line.trim_start_matches(['#', '>', '*', '-', '•', '+']);
    let digits = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = line.len() - digits.len();
    let rest = match digits.strip_prefix(['.', ')']) {
        Some(rest) if (1..=2).contains(&number) => rest,
        _ => marks,
    };
    // `**bold**`, `-x` and `3.5` are not list items.
    if rest.len() < line.len() && rest.starts_with(' ') { rest.trim_start() } else { line }
}

/// Splits a line after `.`, `!`, `?` and similar marks of other scripts, and cuts pieces that are still too long.
fn sentences<'a>(line: &'a str, out: &mut Vec<&'a str>) {
    let mut from = 0;
    let mut chars = line.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        let next = chars.peek().map(|(_, c)| *c);
        let wide = matches!(c, '。' | '！' | '？' | '।' | '؟' | '۔');
        let stop = matches!(c, '.' | '!' | '?' | '…') && next.is_none_or(char::is_whitespace);
        if !(wide || stop)
            || next.is_some_and(|next| matches!(next, '」' | '』' | '”' | '）' | '。' | '！' | '？'))
        {
            continue;
        }
        let end = at + c.len_utf8();
        let piece = line.get(from..end).unwrap_or_default();
        // `1.`, `e.g.` and `Dr.` do not end a sentence.
        if stop && c == '.' && ends_in_abbreviation(piece) && next.is_some() {
            continue;
        }
        chunks(piece.trim(), out);
        from = end;
    }
    chunks(line.get(from..).unwrap_or_default().trim(), out);
}

fn ends_in_abbreviation(piece: &str) -> bool {
    // A dot after a space, as in transcripts, ends a sentence.
    if piece.ends_with(" .") {
        return false;
    }
    let word = piece.trim_end_matches('.').rsplit(char::is_whitespace).next().unwrap_or_default();
    word.len() <= 1
        || word.bytes().all(|b| b.is_ascii_digit()) && word.len() <= 2 && !piece.contains(' ')
        || word.contains('.') && word.len() <= 4
        || matches!(word, "Dr" | "Mr" | "Mrs" | "Ms" | "St" | "vs" | "No" | "etc" | "approx" | "fig" | "Prof")
}

/// Cuts a long piece at commas and spaces.
fn chunks<'a>(piece: &'a str, out: &mut Vec<&'a str>) {
    let mut rest = piece;
    while rest.len() > LONGEST && rest.chars().nth(LONGEST).is_some() {
        let limit = rest.char_indices().nth(CUT).map_or(rest.len(), |(at, _)| at);
        let head = rest.get(..limit).unwrap_or_default();
        let half = head.len() / 2;
        let cut = head
            .rfind([',', ';', '，', '、'])
            .filter(|at| *at > half)
            .or_else(|| head.rfind(char::is_whitespace).filter(|at| *at > half))
            .and_then(|at| head.get(at..).and_then(|tail| tail.chars().next()).map(|c| at + c.len_utf8()))
            .unwrap_or(limit);
        let Some((chunk, left)) = rest.split_at_checked(cut) else { break };
        out.push(chunk.trim());
        rest = left.trim_start();
    }
    if !rest.is_empty() {
        out.push(rest);
    }
}

/// Returns whether a piece has content: a few letters, or a number.
fn has_content(piece: &str) -> bool {
    let (mut letters, mut digits) = (0, 0);
    for c in piece.chars() {
        letters += u32::from(c.is_alphabetic());
        digits += u32::from(c.is_numeric());
        if letters >= 4 || letters + digits >= 3 && digits > 0 {
            return true;
        }
    }
    count_words(piece) >= 2 && letters > 1
}

/// Returns whether a line of output is about an error.
pub(super) fn is_about_error(line: &str) -> bool {
    #[rustfmt::skip]
    const SIGNS: [&str; 12] = [
        "error", "Error", "ERROR", "FAIL", "failed", "Failed", "Exception", "panic", "Traceback", "fatal",
        "denied", "not found",
    ];
    SIGNS.iter().any(|sign| line.contains(sign))
}

/// Returns the number of bytes in a line that are typical of names.
fn name_bytes(line: &str) -> usize {
    line.bytes().filter(|b| matches!(b, b'/' | b'_' | b'.' | b'0'..=b'9' | b'A'..=b'Z')).count()
}

/// Returns the pieces of a line of a summary that was written elsewhere. A short line is one piece, and a long line is
/// split into sentences.
pub(super) fn of_summary(line: &str) -> Vec<&str> {
    let mut out = Vec::new();
    let line = line.trim();
    if line.chars().count() <= 120 {
        out.extend((!line.is_empty()).then_some(line));
    } else {
        sentences(line, &mut out);
    }
    out.retain(|piece| has_content(piece));
    out
}

/// Returns the day of a date in brackets at the head of a text, and the text after the brackets: `[8 May, 2023] …`,
/// `[Mon 3 March, 08:52] …`. A time is left out.
pub(super) fn head_date(text: &str) -> Option<(&str, &str)> {
    let (inside, rest) = text.strip_prefix('[')?.split_once(']')?;
    let short = inside.len() <= 48 && inside.contains(|c: char| c.is_numeric()) && !rest.starts_with('(');
    if !short || !is_dated(inside) || inside.contains('\n') {
        return None;
    }
    let day = inside.rsplit_once(" on ").map_or(inside, |(_, day)| day);
    let timed = |tail: &str| tail.contains(':') && !tail.contains(|c: char| c.is_alphabetic());
    let day = day.rsplit_once([',', ' ']).filter(|(_, tail)| timed(tail)).map_or(day, |(day, _)| day);
    Some((day.trim_matches([' ', ',']), rest.trim_start()))
}

/// Returns whether the text contains a day: a month or a weekday by name, or a year with a month or a day. `[JIRA-123]`
/// is not a date, `[12]` is a footnote, and `[12:30]` contains no day.
fn is_dated(inside: &str) -> bool {
    let mut words = inside.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    if words.clone().any(crate::names::is_of_calendar) || inside.contains('月') {
        return true;
    }
    // `2023-05-08`, `08.05.2023`, `8 mai 2023`. A word that looks like an id next to a year is not a month.
    let number = |word: &str| word.parse::<u32>().ok();
    let year = words.clone().filter_map(number).filter(|n| (1_900..2_200).contains(n)).count() == 1;
    let day = words.clone().filter_map(number).any(|n| (1..=31).contains(&n));
    let plain = words.all(|word| {
        word.chars().all(char::is_numeric)
            || (!word.is_ascii() || word.bytes().any(|b| b.is_ascii_lowercase()))
                && !word.contains(char::is_numeric)
            || word.starts_with(|c: char| c.is_numeric())
    });
    year && day && plain
}

/// Returns the piece without filler words such as `uh`.
pub(super) fn without_fillers(piece: &str) -> std::borrow::Cow<'_, str> {
    // In German, Danish or Portuguese `um` and `er` are ordinary words.
    let english = || {
        let common =
            ["the", "The", "I", "I'm", "you", "it", "It", "it's", "we", "We", "that", "they", "this"];
        piece.split([' ', ',', '.']).any(|word| common.contains(&word))
    };
    let filler = |word: &str| match word.trim_matches([',', '.', ' ']) {
        "uh" | "mm" | "hmm" | "Uh" | "Mm" | "Hmm" | "Mm-hmm" | "uhm" => true,
        "um" | "Um" | "er" => english(),
        _ => false,
    };
    if !piece.split(' ').any(filler) {
        return piece.into();
    }
    let words: Vec<&str> = piece.split(' ').filter(|word| !filler(word) || word.is_empty()).collect();
    words.join(" ").into()
}
