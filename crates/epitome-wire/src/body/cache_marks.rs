//! Moves the cache marks of removed messages to the summary that replaces these messages.
//!
//! A cache mark is the field `cache_control`. With a mark, a client requests that the provider caches the
//! history up to the position of the mark. If messages with marks are removed, the summary gets one mark,
//! however many marks the removed messages had. No other mark is added. So the outgoing request never has more
//! marks than the received request, and stays within the provider's limit. The marks on remaining messages
//! stay.
//!
//! Providers require that marks with a long lifetime come before marks with a short lifetime. The summary's
//! mark gets a long lifetime if two conditions are met: all marks before the summary are long, and a removed
//! mark or a later mark is long. A result may have been moved to its call together with its mark. So a long
//! mark may come after a short mark. Such a long mark is replaced with a short mark.

use std::borrow::Cow;

use super::Body;
use crate::raw::{self, RawFields, apply_edits};

const MARK: &str = "cache_control";

/// A mark with a short lifetime. It is used if the received request contains no mark that can be copied.
const SHORT: &str = r#"{"type":"ephemeral"}"#;

/// Checks quickly whether the text may contain marks. The result may be true for a text without marks.
fn may_be_in(text: &str) -> bool {
    text.contains(MARK)
}

/// Adds a mark to the summary if marks were removed together with messages. `sent` are the outgoing messages or
/// blocks. `summary` is the index of the summary in `sent`; `None` if `sent` contains no new summary.
pub(super) fn move_to_summary(body: &Body, sent: &mut [&mut Cow<'_, str>], summary: Option<usize>) {
    let Some(summary) = summary.filter(|_| may_be_in(&body.text)) else { return };
    let about = body.dialect.0.about();
    let system = about.system_field.and_then(|system| body.field(system.name));
    let received = system.into_iter().chain(body.texts(0..body.items.len()));
    let texts: Vec<&str> = sent.iter().map(|text| &***text).collect();
    let Some(mark) = summary_mark(received, &texts, summary) else { return };
    if let Some(text) = sent.get_mut(summary) {
        let marked = if about.encode_block.is_some() {
            raw::append_field(text, MARK, &mark)
        } else {
            // Some gateways accept Anthropic's marks in other formats.
            message_with_mark(text, about.text_type, &mark)
        };
        **text = marked.into();
    }
}

/// Returns the mark for a summary. `received` are the received messages or blocks, and `sent` are the outgoing
/// messages or blocks. `summary` is the index of the summary in `sent`. `None` if no mark was removed, or if
/// the summary already has a mark.
fn summary_mark<'a>(
    received: impl IntoIterator<Item = &'a str>,
    sent: &[&'a str],
    summary: usize,
) -> Option<String> {
    let marks =
        |texts: &[&'a str]| -> Vec<&'a str> { texts.iter().flat_map(|text| marks_in(text)).collect() };
    let received: Vec<&str> = received.into_iter().flat_map(marks_in).collect();
    let before = marks(sent.get(..summary).unwrap_or_default());
    let after = marks(sent.get(summary..).unwrap_or_default());
    let own = sent.get(summary).is_none_or(|text| !marks_in(text).is_empty());
    if own || received.len() <= before.len() + after.len() {
        return None;
    }
    let count_long = |marks: &[&str]| marks.iter().filter(|mark| is_long(mark)).count();
    let long_removed = count_long(&received) > count_long(&before) + count_long(&after);
    let long = before.iter().all(|mark| is_long(mark)) && (long_removed || count_long(&after) > 0);
    let reused = received.iter().rev().find(|mark| is_long(mark) == long).copied();
    Some(reused.unwrap_or(SHORT).to_owned())
}

/// Gives a short lifetime to each mark in this text that comes after a mark with a short lifetime. The text is
/// a message or a block. `after_short` says whether an earlier text contained a mark with a short lifetime, and
/// is updated. Returns `None` if nothing changes.
pub(super) fn shorten_after_short(text: &str, after_short: &mut bool) -> Option<String> {
    let mut edits = Vec::new();
    for mark in marks_in(text) {
        *after_short |= !is_long(mark);
        if *after_short && is_long(mark) {
            edits.push((raw::range_of(text, mark), SHORT.to_owned()));
        }
    }
    (!edits.is_empty()).then(|| apply_edits(text, edits))
}

/// Returns a message with this mark on its last content piece. Content that is a string becomes a list with one
/// piece of the type `kind`.
fn message_with_mark(item: &str, kind: &str, mark: &str) -> String {
    let Some(content) = RawFields::of(item).get("content") else { return item.to_owned() };
    let mut pieces = raw::blocks(content, kind);
    let Some(last) = pieces.last_mut() else { return item.to_owned() };
    *last = raw::append_field(last, MARK, mark).into();
    apply_edits(item, vec![(raw::range_of(item, content), format!("[{}]", pieces.join(",")))])
}

/// Returns the marks in a message or block, including nested blocks, in order.
fn marks_in(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    collect_marks(text, &mut out);
    out
}

fn collect_marks<'a>(text: &'a str, out: &mut Vec<&'a str>) {
    if !may_be_in(text) {
        return;
    }
    if text.starts_with('[') {
        return raw::items(text).into_iter().for_each(|item| collect_marks(item, out));
    }
    let fields = RawFields::of(text);
    // Tool results and some documents contain blocks, which may have marks. In other inner fields,
    // `cache_control` is the client's data and not a mark.
    for inside in ["content", "source"] {
        if let Some(inside) = fields.get(inside).filter(|inside| inside.starts_with(['[', '{'])) {
            collect_marks(inside, out);
        }
    }
    out.extend(fields.get(MARK).filter(|mark| *mark != "null"));
}

/// Returns whether the mark has the long lifetime.
fn is_long(mark: &str) -> bool {
    RawFields::of(mark).get("ttl") == Some("\"1h\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mark_lasts_longer_than_one_before_it() {
        let long = r#"{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}"#;
        let short = r#"{"type":"text","text":"a","cache_control":{"type":"ephemeral"}}"#;
        let inside = format!(r#"{{"type":"tool_result","tool_use_id":"x","content":[{short},{long}]}}"#);
        let mut seen = false;
        assert_eq!((shorten_after_short(long, &mut seen), seen), (None, false));
        assert_eq!((shorten_after_short(short, &mut seen), seen), (None, true));
        assert_eq!(shorten_after_short(long, &mut seen).as_deref(), Some(short));
        let mut seen = false;
        assert_eq!(shorten_after_short(&inside, &mut seen), Some(inside.replace(long, short)));
        assert!(seen);
    }
}
