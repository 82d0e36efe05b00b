//! Removes everything around a summary: reasoning, tags, code fences, introductions and closing phrases.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

use crate::pattern::pattern;
use crate::prompt::is_tag;
use crate::view::HISTORY;

/// The result of stripping a reply.
pub(super) struct Stripped {
    pub(super) text: String,
    /// Whether the reply consists only of reasoning that is never closed.
    pub(super) only_reasoning: bool,
}

/// A reasoning tag, with at most 64 characters of attributes. Longer text in angle brackets is not a tag.
static THOUGHT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"(?x) < (?<closes> / )? (?-u:\s)* (?i-u: think | thinking | thought | thoughts | reasoning | scratchpad
            | analysis | reflection | inner_monologue ) /* (?: (?-u:\s) [^>]{0,64} )? >",
    )
});

/// Removes everything around the summary in a reply.
pub(super) fn strip(reply: &str) -> Stripped {
    // These characters have no meaning in a text: control characters, and replacements for invalid bytes.
    let rubbish =
        |c: char| c == char::REPLACEMENT_CHARACTER || (c.is_control() && !matches!(c, '\n' | '\t' | '\r'));
    let reply =
        if reply.contains(rubbish) { Cow::Owned(reply.replace(rubbish, "")) } else { Cow::Borrowed(reply) };
    let (text, only_reasoning) = without_thoughts(&reply);
    let text = without_tags(&text);
    let mut rest = text.as_str();
    loop {
        let inner = unfenced(rest).unwrap_or(rest);
        let inner = after_preamble(inner).unwrap_or(inner);
        let inner = before_farewell(inner).unwrap_or(inner).trim();
        if inner.len() == rest.len() {
            return Stripped { only_reasoning: only_reasoning && rest.is_empty(), text: rest.to_owned() };
        }
        rest = inner;
    }
}

/// Removes the text between reasoning tags. If only the closing tag is present, all text before it is reasoning. If
/// only the opening tag is present, and it is at the start of a line, all text after it is reasoning. Also returns
/// whether such an opening tag was found.
fn without_thoughts(reply: &str) -> (String, bool) {
    let mut out = String::new();
    let mut depth = 0usize;
    let mut done = 0;
    // Position after the outermost tag that is still open.
    let mut opened = 0;
    let mut at_line_start = false;
    for tag in THOUGHT.captures_iter(reply) {
        let whole = tag.get_match();
        let closes = tag.name("closes").is_some();
        if depth == 0 {
            out.push_str(reply.get(done..whole.start()).unwrap_or(""));
            at_line_start = out.trim_end_matches([' ', '\t']).is_empty() || out.ends_with('\n');
            opened = whole.end();
        }
        if closes && depth == 0 {
            out.clear();
        }
        depth = if closes { depth.saturating_sub(1) } else { depth + 1 };
        done = whole.end();
    }
    if depth == 0 {
        out.push_str(reply.get(done..).unwrap_or(""));
        return (out, false);
    }
    if !at_line_start {
        // The reply mentions such a tag in the middle of a line. The tag is removed, and the text after it stays.
        out.push_str(&THOUGHT.replace_all(reply.get(opened..).unwrap_or(""), ""));
    }
    (out, at_line_start)
}

/// Removes the tags of the prompt, and the line after the opening tag of a summary. A model may repeat them in its
/// reply.
fn without_tags(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((head, tail)) = rest.split_once('<') {
        out.push_str(head);
        let end = tail.bytes().take(80).position(|byte| byte == b'>').filter(|_| is_tag(tail));
        if let Some(after) = end.and_then(|end| tail.get(end + 1..)) {
            rest = after;
        } else {
            out.push('<');
            rest = tail;
        }
    }
    out.push_str(rest);
    let text = out.trim();
    text.strip_prefix(HISTORY).unwrap_or(text).trim().to_owned()
}

/// Returns the content of a code fence that encloses the whole text.
fn unfenced(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("```")?.strip_suffix("```")?;
    let (language, inner) = inner.split_once('\n')?;
    let plain = ["", "text", "txt", "markdown", "md", "plaintext", "summary"].contains(&language.trim());
    (plain && !inner.contains("```")).then_some(inner)
}

/// Translations of `summary`.
const SUMMARY: &str =
    "summary|summarized|zusammenfassung|résumé|resumen|resumo|riassunto|резюме|摘要|总结|要約|요약";

/// Returns the text after an introductory first line such as `Here is the summary:`.
fn after_preamble(text: &str) -> Option<&str> {
    let (first, rest) = text.split_once('\n')?;
    let line = first.trim().trim_matches(['#', '*', '_', ' ']);
    if line.chars().count() > 160 || rest.trim().is_empty() {
        return None;
    }
    let lower = line.to_lowercase();
    let bare = lower.trim_end_matches([':', '：', '*', ' ']);
    let announced = lower.ends_with([':', '：']) || first.trim_start().starts_with(['#', '*']);
    if announced
        && (SUMMARY.split('|').any(|word| word == bare)
            || ["updated summary", "new summary", "conversation summary"].contains(&bare))
    {
        return Some(rest);
    }
    const OPENINGS: &str = "here is|here's|here’s|here are|sure|certainly|of course|okay|below is|this is|hier ist|\
        hier die|voici|aquí|aqui|ecco|вот|以下|以下は|다음은";
    let opens = OPENINGS.split('|').any(|opening| lower.starts_with(opening));
    let names = SUMMARY.split('|').any(|word| lower.contains(word));
    (opens && names && lower.ends_with([':', '：', '.', '!', '。'])).then_some(rest)
}

/// Returns the text before a closing line such as `Let me know if you need more`.
fn before_farewell(text: &str) -> Option<&str> {
    let (head, last) = text.trim_end().rsplit_once('\n')?;
    if last.len() > 200 {
        return None;
    }
    let lower = last.trim().to_lowercase();
    let said = ["let me know if", "i hope this", "feel free to", "please let me know"];
    (said.iter().any(|start| lower.starts_with(start))).then_some(head)
}
