//! Writes a flat list and the request around it.
//!
//! [`super::writer`] decides how each message is written.

use std::borrow::Cow;
use std::collections::HashSet;

use epitome_core::message::{CallId, Message, Part};
use epitome_core::view;
use serde_json::Value;

use super::writer::Writer;
use super::{Body, Marks, cached};
use crate::flags;
use crate::raw::{self, FLAGS, Members, replaced};

/// Returns the request with these messages in one flat list.
pub(super) fn rewrite(body: &Body, messages: &[Message], marks: Marks) -> String {
    let mut writer = Writer::new(body);
    let (mut texts, mut summary) = (Vec::new(), None);
    for message in shown(body, messages) {
        if body.origin(message.seq).is_some_and(super::Origin::is_head) {
            continue;
        }
        let spelled = writer.wires(message);
        summary = summary.or(is_new_summary(body, message).then_some(texts.len()));
        let native = body.dialect.0.about().is_native;
        texts.extend(if native { spelled } else { flagged(spelled, message, marks) });
    }
    cached::pass_on(body, &mut texts.iter_mut().collect::<Vec<_>>(), summary);
    replaced(&body.text, vec![(body.list.clone(), list(body, &texts))])
}

/// Returns whether the message is a summary that was not in the request.
pub(super) fn is_new_summary(body: &Body, message: &Message) -> bool {
    body.origin(message.seq).is_none() && view::recognise(message).is_some()
}

/// Returns the list as JSON, byte for byte as received if nothing in it changed.
pub(super) fn list(body: &Body, texts: &[Cow<'_, str>]) -> String {
    let came = body.text.get(body.list.clone()).unwrap_or_default();
    let items = body.texts(0..body.items.len());
    if texts.len() == body.items.len() && texts.iter().map(Cow::as_ref).eq(items) {
        return came.to_owned();
    }
    format!("[{}]", texts.join(","))
}

/// Returns the messages, plus neighbouring messages from which nothing could be read. The core removes
/// messages without content, but if a client sent a message of a type unknown here, its provider expects it.
pub(super) fn shown<'a>(body: &'a Body, messages: &'a [Message]) -> Vec<&'a Message> {
    let says_nothing =
        |message: &&Message| matches!(message.parts.as_slice(), [Part::Text { text }] if text.is_empty());
    let mut out = Vec::with_capacity(messages.len());
    let mut open: HashSet<&CallId> = HashSet::new();
    for (at, message) in messages.iter().enumerate() {
        out.push(message);
        open.extend(message.calls().map(|call| &call.id));
        for result in message.results() {
            open.remove(&result.call);
        }
        let next = messages.get(at + 1).map(|next| next.seq);
        if message.seq == 0 || next == Some(message.seq) {
            continue;
        }
        let first = message.seq.saturating_add(1);
        let silent = (first..).map_while(|seq| body.own(seq).filter(says_nothing));
        let silent: Vec<&Message> = silent.take_while(|silent| next != Some(silent.seq)).collect();
        // If more messages were removed, this one is old as well.
        let after = silent.last().map_or(first, |last| last.seq.saturating_add(1));
        let beside = next.map_or_else(|| body.own(after).is_none(), |next| next == after);
        // Between a call and its result no other message is allowed.
        if beside && (open.is_empty() || silent.iter().all(|silent| is_no_speech(body, silent))) {
            out.extend(silent);
        }
    }
    out
}

/// Returns whether the message belongs to neither side of the conversation.
fn is_no_speech(body: &Body, message: &Message) -> bool {
    let items = body.origin(message.seq).map(|origin| origin.items.clone()).unwrap_or_default();
    let mut texts = body.texts(items).peekable();
    texts.peek().is_some() && texts.all(|item| body.dialect.0.is_aside(item))
}

/// Removes Epitome's own fields from a wire message, and from its blocks if `in_blocks`.
pub(super) fn stripped(item: Cow<'_, str>, in_blocks: bool) -> Cow<'_, str> {
    if !raw::may_have_flags(&item) {
        return item;
    }
    let content = Members::of(&item).get("content").filter(|_| in_blocks);
    let edits = content.map(|content| (raw::place(&item, content), stripped_blocks(content)));
    raw::without(&replaced(&item, edits.into_iter().collect()), FLAGS).into_owned().into()
}

/// Removes Epitome's own fields from a list of blocks. Anything else is returned unchanged.
pub(super) fn stripped_blocks(content: &str) -> String {
    if !raw::may_have_flags(content) {
        return content.to_owned();
    }
    let blocks = raw::items(content).into_iter();
    let edits = blocks.map(|block| (raw::place(content, block), raw::without(block, FLAGS).into_owned()));
    replaced(content, edits.collect())
}

/// Sets the current flags on the texts of a message, or removes all flags.
pub(super) fn flagged<'a>(texts: Vec<Cow<'a, str>>, message: &Message, marks: Marks) -> Vec<Cow<'a, str>> {
    if marks == Marks::Stripped {
        // Blocks with flags do not occur here.
        return texts.into_iter().map(|text| stripped(text, false)).collect();
    }
    if !(message.pinned || message.skip || texts.iter().any(|text| raw::may_have_flags(text))) {
        return texts;
    }
    let mut values: Vec<Value> =
        texts.iter().map(|text| serde_json::from_str(text).unwrap_or_default()).collect();
    let before = values.clone();
    let _ = flags::show(&mut values, message);
    let shown = texts.into_iter().zip(before).zip(values);
    shown.map(|((text, before), now)| if before == now { text } else { now.to_string().into() }).collect()
}
