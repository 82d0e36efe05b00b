//! Renders a conversation as lines, each with its speaker. The lines are shortened to a token budget.

use std::borrow::Cow;
use std::collections::HashMap;

use super::TranscriptEntry;
use crate::excerpt::clip;
use crate::message::{Content, Media, Message, Part, Tokens};
use crate::num::largest;
use crate::redact::redact;
use crate::tokens::Counter;

/// Maximum number of tokens that a summarizer reads of one tool output or of one call's arguments.
const MOST_OUTPUT: Tokens = 1_500;

/// Tool outputs are shortened to this number of tokens before any text of a speaker is shortened.
const LEAST_OUTPUT: Tokens = 90;

/// Tags that mark the start and end of a block: the tags of the prompt, and the tag around a summary in a context.
const TAGS: [&str; 3] = ["conversation", "previous_summary", "summary"];

/// One line of a transcript: a speaker and a text.
struct Line<'a> {
    label: String,
    text: Cow<'a, str>,
    /// Whether the text is a tool output or the arguments of a call. Such text is shortened first.
    output: bool,
}

/// The lines of a conversation, not yet shortened.
pub(super) struct Transcript<'a>(Vec<Line<'a>>);

impl<'a> Transcript<'a> {
    pub(super) fn new(said: impl IntoIterator<Item = TranscriptEntry<'a>>, hide: bool) -> Self {
        let mut lines = Vec::new();
        let mut names: HashMap<&str, &str> = HashMap::new();
        for said in said {
            match said {
                TranscriptEntry::Summary { author, text } => {
                    let label = format!("what {} said and did, in short: ", one_line(author));
                    lines.push(Line { label, text: clean(text, hide), output: false });
                }
                TranscriptEntry::Message(message) if message.skip => {}
                TranscriptEntry::Message(message) => push(message, hide, &mut names, &mut lines),
            }
        }
        lines.retain(|line| !line.text.trim().is_empty());
        Self(lines)
    }

    /// Renders the conversation without shortening it.
    pub(super) fn whole(&self) -> String {
        self.render(|line| Cow::Borrowed(&line.text))
    }

    /// Renders the conversation in at most `room` tokens or, if that is impossible, in as few tokens as possible. Tool
    /// outputs are shortened first, then the longest texts.
    pub(super) fn within(&self, room: Tokens, counter: &Counter) -> String {
        let labels: Tokens = self.0.iter().map(|line| counter.text(&line.label).saturating_add(1)).sum();
        let sizes: Vec<(Tokens, bool)> =
            self.0.iter().map(|line| (size(line, room, counter), line.output)).collect();
        let left = room.saturating_sub(labels);
        let cap = |output, outputs: Tokens, most: Tokens| if output { most.min(outputs) } else { most };
        let sum = |outputs, most| {
            let capped = sizes.iter().map(|(size, output)| (*size).min(cap(*output, outputs, most)));
            capped.fold(0, Tokens::saturating_add)
        };
        let mut outputs = MOST_OUTPUT;
        while outputs > LEAST_OUTPUT && sum(outputs, Tokens::MAX) > left {
            outputs = (outputs / 2).max(LEAST_OUTPUT);
        }
        // The largest size per text at which all texts together fit.
        let mut most = Tokens::MAX;
        if sum(outputs, most) > left {
            let whole = usize::try_from(left).unwrap_or(usize::MAX);
            most = largest(whole, |most| sum(outputs, most as Tokens) <= left) as Tokens;
        }
        // The sum of the pieces' sizes is not always the size of the whole text, so the whole text is counted.
        loop {
            let text = self.render(|line| clip(&line.text, cap(line.output, outputs, most), counter));
            if (outputs == 0 && most == 0) || counter.text(&text) <= room {
                return text;
            }
            most = most.min(left) / 8 * 7;
            outputs = outputs.min(most);
        }
    }

    fn render<'b>(&'b self, show: impl Fn(&'b Line<'a>) -> Cow<'b, str>) -> String {
        let mut out = String::new();
        for line in &self.0 {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(&line.label);
            out.push_str(&show(line));
        }
        out
    }
}

/// Returns the number of tokens of a line. If the line is too long to be shown completely, the number is an estimate.
fn size(line: &Line<'_>, room: Tokens, counter: &Counter) -> Tokens {
    let bytes = line.text.len() as u64;
    let most = if line.output { room.min(MOST_OUTPUT) } else { room };
    if bytes > most.saturating_mul(16) { (bytes / 4).max(most) } else { counter.text(&line.text) }
}

fn push<'a>(
    message: &'a Message,
    hide: bool,
    names: &mut HashMap<&'a str, &'a str>,
    lines: &mut Vec<Line<'a>>,
) {
    let number = if message.seq > 0 { format!("[{}] ", message.seq) } else { String::new() };
    let by = message.author.as_deref().map(|author| format!(" ({})", one_line(author))).unwrap_or_default();
    let speaker = if message.role.is_system() {
        format!("note ({})", message.role)
    } else {
        format!("{}{by}", message.role)
    };
    for part in &message.parts {
        let (label, text, output) = match part {
            Part::Thinking { .. } => continue,
            Part::Text { text } => (format!("{speaker}: "), clean(text.trim(), hide), false),
            Part::Media(media) => (format!("{speaker}: "), shown(media), false),
            Part::ToolCall(call) => {
                for id in [Some(&call.id), call.item_id.as_ref()].into_iter().flatten() {
                    names.insert(id, &call.name);
                }
                let arguments = if call.arguments.trim().is_empty() { "{}" } else { call.arguments.trim() };
                (format!("{speaker} calls {}: ", one_line(&call.name)), clean(arguments, hide), true)
            }
            Part::ToolResult(result) => {
                let name = names.get(&*result.call).map_or(Cow::Borrowed("a tool"), |name| one_line(name));
                let label = if result.error { "error from" } else { "result of" };
                (format!("{label} {name}: "), answer(&result.content, hide), true)
            }
        };
        lines.push(Line { label: format!("{number}{label}"), text, output });
    }
}

fn answer(content: &[Content], hide: bool) -> Cow<'_, str> {
    match content {
        [] => Cow::Borrowed("(nothing)"),
        [Content::Text { text }] if text.trim().is_empty() => Cow::Borrowed("(nothing)"),
        [Content::Text { text }] => clean(text.trim(), hide),
        many => {
            let pieces = many.iter().map(|content| match content {
                Content::Text { text } => clean(text.trim(), hide),
                Content::Media(media) => shown(media),
            });
            Cow::Owned(pieces.collect::<Vec<_>>().join("\n"))
        }
    }
}

fn shown(media: &Media) -> Cow<'static, str> {
    Cow::Owned(format!("[{}]", one_line(&media.mime)))
}

/// Returns a name that fits in one line and cannot close a tag.
fn one_line(name: &str) -> Cow<'_, str> {
    let plain = |c: char| !c.is_control() && !matches!(c, '<' | '>' | '\u{2028}' | '\u{2029}');
    if name.len() <= 80 && name.chars().all(plain) {
        return Cow::Borrowed(name);
    }
    Cow::Owned(name.chars().take(80).map(|c| if plain(c) { c } else { ' ' }).collect())
}

/// Returns text that is safe to insert into a prompt. It cannot open or close a block or imitate the line of another
/// speaker. If `hide` is true, secrets are redacted too.
pub(super) fn clean(text: &str, hide: bool) -> Cow<'_, str> {
    let text = if hide { redact(text) } else { Cow::Borrowed(text) };
    match text {
        Cow::Borrowed(text) => escaped(text),
        Cow::Owned(text) => match escaped(&text) {
            Cow::Owned(escaped) => Cow::Owned(escaped),
            Cow::Borrowed(_) => Cow::Owned(text),
        },
    }
}

fn escaped(text: &str) -> Cow<'_, str> {
    let bytes = text.as_bytes();
    let mut out = String::new();
    let mut done = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let insert = match byte {
            b'<' if is_tag(text.get(at + 1..).unwrap_or("")) => "\\",
            b'\n' | b'\r' if is_label(bytes.get(at + 1..).unwrap_or(&[])) => " ",
            _ => continue,
        };
        out.push_str(text.get(done..=at).unwrap_or(""));
        out.push_str(insert);
        done = at + 1;
    }
    if done == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(text.get(done..).unwrap_or(""));
    Cow::Owned(out)
}

/// Returns whether the text after a `<` starts with a reserved tag, in any spelling.
pub(crate) fn is_tag(rest: &str) -> bool {
    // Only the first 16 characters are searched for the name of the tag. Otherwise a text with many spaces would take
    // too long.
    let blank = |c: char| c.is_whitespace() || c == '/';
    let skipped: usize = rest.chars().take(16).take_while(|c| blank(*c)).map(char::len_utf8).sum();
    let name = rest.get(skipped..).unwrap_or("");
    TAGS.iter().any(|tag| name.get(..tag.len()).is_some_and(|start| start.eq_ignore_ascii_case(tag)))
}

/// Returns whether a line starts like a transcript line: with `[12] `, or with `user: ` if the messages have no
/// numbers.
fn is_label(rest: &[u8]) -> bool {
    if matches!(rest, [b'[', digit, ..] if digit.is_ascii_digit()) {
        return true;
    }
    let said = |speaker: &&str| {
        let name = rest.get(..speaker.len()).unwrap_or_default();
        name.eq_ignore_ascii_case(speaker.as_bytes()) && matches!(rest.get(name.len()), Some(b':' | b' '))
    };
    // A label is short. If the first colon of a line comes late, the line is a sentence and not a label.
    let labelled = || rest.iter().take(200).take_while(|byte| **byte != b'\n').any(|byte| *byte == b':');
    SPEAKERS.iter().any(said) && labelled()
}

/// The beginnings of labels without a number.
const SPEAKERS: [&str; 9] =
    ["user", "assistant", "peer", "tool", "note", "system", "result of", "error from", "what"];
