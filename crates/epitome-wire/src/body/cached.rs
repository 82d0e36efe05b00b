//! Moves cache marks of removed messages to the summary that replaces them.
//!
//! A client that marks a position wants the history up to it cached. If the marked message is removed, the
//! summary replaces it, so the summary gets the mark: one mark, even if several messages are removed. No
//! other mark is ever added. A request therefore never has more marks than it had originally, and stays
//! within the provider's limit. Marks on remaining messages are preserved.
//!
//! Providers require marks with a long lifetime before marks with a short one. The summary's mark gets the
//! longest lifetime that its position allows. If a result was moved to its call together with its mark, long
//! marks after a short one become short.

use std::borrow::Cow;

use super::Body;
use crate::raw::{self, Members, replaced};

const MARK: &str = "cache_control";

/// The short-lived mark, used if the request contains none that can be reused.
const SHORT: &str = r#"{"type":"ephemeral"}"#;

/// Returns whether the text may contain marks: a quick check.
fn may_be_in(text: &str) -> bool {
    text.contains(MARK)
}

/// Adds a mark to the summary at index `summary` of the outgoing messages, if marks were removed with the
/// messages it replaces.
pub(super) fn pass_on(body: &Body, sent: &mut [&mut Cow<'_, str>], summary: Option<usize>) {
    let Some(summary) = summary.filter(|_| may_be_in(&body.text)) else { return };
    let about = body.dialect.0.about();
    let head = about.head.and_then(|head| body.field(head.field));
    let came = head.into_iter().chain(body.texts(0..body.items.len()));
    let texts: Vec<&str> = sent.iter().map(|text| &***text).collect();
    let Some(mark) = left(came, &texts, summary) else { return };
    if let Some(text) = sent.get_mut(summary) {
        let marked = if about.block.is_some() {
            raw::and(text, MARK, &mark)
        } else {
            // Some gateways accept Anthropic's marks in other formats.
            marked_message(text, about.text_kind, &mark)
        };
        **text = marked.into();
    }
}

/// Returns the mark for a summary. `came` are the received messages or blocks, `sent` the outgoing ones, and
/// `summary` is the index of the summary in `sent`. `None` if no mark was removed or the summary already has
/// one.
fn left<'a>(came: impl IntoIterator<Item = &'a str>, sent: &[&'a str], summary: usize) -> Option<String> {
    let marks = |texts: &[&'a str]| -> Vec<&'a str> { texts.iter().flat_map(|text| of(text)).collect() };
    let came: Vec<&str> = came.into_iter().flat_map(of).collect();
    let before = marks(sent.get(..summary).unwrap_or_default());
    let after = marks(sent.get(summary..).unwrap_or_default());
    let own = sent.get(summary).is_none_or(|text| !of(text).is_empty());
    if own || came.len() <= before.len() + after.len() {
        return None;
    }
    let count = |marks: &[&str]| marks.iter().filter(|mark| lasts(mark)).count();
    let long_left = count(&came) > count(&before) + count(&after);
    let long = before.iter().all(|mark| lasts(mark)) && (long_left || count(&after) > 0);
    let found = came.iter().rev().find(|mark| lasts(mark) == long).copied();
    Some(found.unwrap_or(SHORT).to_owned())
}

/// Shortens the lifetimes of marks in a message or block that come after a short-lived mark. `short` says
/// whether such a mark came before, and is updated. Returns `None` if nothing changes.
pub(super) fn in_order(text: &str, short: &mut bool) -> Option<String> {
    let mut edits = Vec::new();
    for mark in of(text) {
        *short |= !lasts(mark);
        if *short && lasts(mark) {
            edits.push((raw::place(text, mark), SHORT.to_owned()));
        }
    }
    (!edits.is_empty()).then(|| replaced(text, edits))
}

/// Returns a message with this mark on its last piece. Content that is a string becomes a list with one piece
/// of this kind.
fn marked_message(item: &str, kind: &str, mark: &str) -> String {
    let Some(content) = Members::of(item).get("content") else { return item.to_owned() };
    let mut pieces = raw::blocks(content, kind);
    let Some(last) = pieces.last_mut() else { return item.to_owned() };
    *last = raw::and(last, MARK, mark).into();
    replaced(item, vec![(raw::place(item, content), format!("[{}]", pieces.join(",")))])
}

/// Returns the marks in a message or block, including nested blocks, in order.
fn of(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    gather(text, &mut out);
    out
}

fn gather<'a>(text: &'a str, out: &mut Vec<&'a str>) {
    if !may_be_in(text) {
        return;
    }
    if text.starts_with('[') {
        return raw::items(text).into_iter().for_each(|item| gather(item, out));
    }
    let members = Members::of(text);
    // Results contain blocks, and so do some documents. A mark's name in other fields is the client's own
    // data.
    for inside in ["content", "source"] {
        if let Some(inside) = members.get(inside).filter(|inside| inside.starts_with(['[', '{'])) {
            gather(inside, out);
        }
    }
    out.extend(members.get(MARK).filter(|mark| *mark != "null"));
}

/// Returns whether the mark has the long lifetime.
fn lasts(mark: &str) -> bool {
    Members::of(mark).get("ttl") == Some("\"1h\"")
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
        assert_eq!((in_order(long, &mut seen), seen), (None, false));
        assert_eq!((in_order(short, &mut seen), seen), (None, true));
        assert_eq!(in_order(long, &mut seen).as_deref(), Some(short));
        let mut seen = false;
        assert_eq!(in_order(&inside, &mut seen), Some(inside.replace(long, short)));
        assert!(seen);
    }
}
