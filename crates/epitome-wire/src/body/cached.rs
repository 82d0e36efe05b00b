//! Marks for the provider's cache: what becomes of those on messages that leave.
//!
//! Whoever marks a place in the history wants everything up to it cached. Where the marked message leaves, the summary stands
//! for it, and so the mark goes to the summary: one, however many left. No mark is ever added beside these, so that a request
//! has no more of them than it came with, and what was within the provider's limit stays within it. Marks on what stays stay.
//!
//! A provider wants marks that last long before those that last shorter. The summary's mark lasts as long as its place allows;
//! and where an answer was moved to its call and took its mark along, those that come to stand after a shorter one are as short.

use std::borrow::Cow;

use super::Body;
use crate::raw::{self, Members, replaced};

const MARK: &str = "cache_control";

/// The mark that lasts shorter, where none of that kind is there to be taken.
const SHORT: &str = r#"{"type":"ephemeral"}"#;

/// Whether marks may stand in it: a quick look.
fn may_be_in(text: &str) -> bool {
    text.contains(MARK)
}

/// Puts a mark on the summary, which is at this place in what is sent, where marks left with what it stands for.
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
            // Some gateways take Anthropic's in other forms.
            marked_message(text, about.text_kind, &mark)
        };
        **text = marked.into();
    }
}

/// The mark that a summary gets: `came` is every message or block as it came, `sent` as they go out, and the one at `summary`
/// is the summary. None where no mark left, or the summary has one.
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

/// A message or block whose marks last no longer than those before it, of which `short` tells whether one is of the shorter kind, and is
/// told of this one's. None where that is so.
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

/// A message with this mark on the last of what it says. Words that are no list become one, of pieces of this kind.
fn marked_message(item: &str, kind: &str, mark: &str) -> String {
    let Some(content) = Members::of(item).get("content") else { return item.to_owned() };
    let mut pieces = raw::blocks(content, kind);
    let Some(last) = pieces.last_mut() else { return item.to_owned() };
    *last = raw::and(last, MARK, mark).into();
    replaced(item, vec![(raw::place(item, content), format!("[{}]", pieces.join(",")))])
}

/// The marks in a message or block, and in what stands inside it, in order.
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
    // Results hold blocks, and so do some documents. What else is called so is somebody's own.
    for inside in ["content", "source"] {
        if let Some(inside) = members.get(inside).filter(|inside| inside.starts_with(['[', '{'])) {
            gather(inside, out);
        }
    }
    out.extend(members.get(MARK).filter(|mark| *mark != "null"));
}

/// Whether it is a mark of the kind that lasts longer.
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
