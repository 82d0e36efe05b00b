//! What comes around a summary and is none of it: reasoning, tags, fences, a word before.

use std::borrow::Cow;

use crate::prompt::is_tag;
use crate::view::HISTORY;

/// What is left of a reply.
pub(super) struct Stripped {
    pub(super) text: String,
    /// Whether it opened its reasoning and never closed it.
    pub(super) only_reasoning: bool,
}

/// Tags between which models think.
const THOUGHT: &str =
    "think|thinking|thought|thoughts|reasoning|scratchpad|analysis|reflection|inner_monologue";

/// The reply without all that.
pub(super) fn strip(reply: &str) -> Stripped {
    // What no writer means: controls, and what stands for bytes that were no text.
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

/// A tag of ours or of a thinking model.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Tag {
    /// Of the whole, brackets included.
    length: usize,
    closes: bool,
}

/// The tag of thought that starts with this `<`.
fn thought(rest: &str) -> Option<Tag> {
    let name = rest.strip_prefix('<')?;
    let (name, closes) = name.strip_prefix('/').map_or((name, false), |name| (name, true));
    let end = name.bytes().take(80).position(|byte| byte == b'>')?;
    let inside = name.get(..end)?;
    let word = inside.split_whitespace().next()?.trim_end_matches('/');
    let known = THOUGHT.split('|').any(|tag| word.eq_ignore_ascii_case(tag));
    known.then_some(Tag { length: 2 + usize::from(closes) + end, closes })
}

/// Without what stands between tags of thought. Where only the closing one is there, the thought
/// began with the reply; where only the opening one is, at the start of a line, it goes on to the end.
fn without_thoughts(reply: &str) -> (String, bool) {
    let mut out = String::new();
    let mut depth = 0usize;
    let mut done = 0;
    // Where the outermost open thought began, in what is kept.
    let mut opened = 0;
    let mut at_line_start = false;
    for (at, _) in reply.match_indices('<') {
        if at < done {
            continue;
        }
        let Some(tag) = reply.get(at..).and_then(thought) else { continue };
        if depth == 0 {
            out.push_str(reply.get(done..at).unwrap_or(""));
        }
        if tag.closes {
            if depth == 0 {
                out.clear();
            }
            depth = depth.saturating_sub(1);
        } else {
            if depth == 0 {
                opened = at + tag.length;
                at_line_start = out.trim_end_matches([' ', '\t']).is_empty() || out.ends_with('\n');
            }
            depth += 1;
        }
        done = at + tag.length;
    }
    if depth == 0 {
        out.push_str(reply.get(done..).unwrap_or(""));
        return (out, false);
    }
    if at_line_start {
        return (out, true);
    }
    // Somebody spoke of such a tag; it is the tag that leaves, and what it was said with stays.
    let (rest, _) =
        without_marks(reply.get(opened..).unwrap_or(""), |rest| thought(rest).map(|tag| tag.length));
    out.push_str(&rest);
    (out, false)
}

/// Without the tags of ours that a model repeats, and the line that goes with them.
fn without_tags(text: &str) -> String {
    let frame = |rest: &str| {
        let inside = rest.strip_prefix('<')?;
        let end = inside.bytes().take(80).position(|byte| byte == b'>')?;
        is_tag(inside).then_some(end + 2)
    };
    let (text, found) = without_marks(text, frame);
    let text = text.trim();
    if found || text.starts_with(HISTORY) {
        return text.strip_prefix(HISTORY).unwrap_or(text).trim().to_owned();
    }
    text.to_owned()
}

/// Without every mark that starts with `<` and has a length.
fn without_marks(text: &str, length: impl Fn(&str) -> Option<usize>) -> (String, bool) {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut found = false;
    while let Some(at) = rest.find('<') {
        let (head, tail) = rest.split_at_checked(at).unwrap_or((rest, ""));
        out.push_str(head);
        if let Some(after) = length(tail).and_then(|length| tail.get(length..)) {
            found = true;
            rest = after;
        } else {
            out.push('<');
            rest = tail.get(1..).unwrap_or("");
        }
    }
    out.push_str(rest);
    (out, found)
}

/// What is inside a fence around the whole.
fn unfenced(text: &str) -> Option<&str> {
    let inner = text.trim().strip_prefix("```")?.strip_suffix("```")?;
    let (language, inner) = inner.split_once('\n')?;
    let plain = ["", "text", "txt", "markdown", "md", "plaintext", "summary"].contains(&language.trim());
    (plain && !inner.contains("```")).then_some(inner)
}

/// Words for what we asked for.
const SUMMARY: &str =
    "summary|summarized|zusammenfassung|résumé|resumen|resumo|riassunto|резюме|摘要|总结|要約|요약";

/// What comes after a line that only says what comes after it.
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

/// What comes before a last line that says goodbye.
fn before_farewell(text: &str) -> Option<&str> {
    let (head, last) = text.trim_end().rsplit_once('\n')?;
    if last.len() > 200 {
        return None;
    }
    let lower = last.trim().to_lowercase();
    let said = ["let me know if", "i hope this", "feel free to", "please let me know"];
    (said.iter().any(|start| lower.starts_with(start))).then_some(head)
}
