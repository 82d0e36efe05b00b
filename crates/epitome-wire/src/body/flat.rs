//! Writes a request whose list is flat: messages of one role may follow each other.
//!
//! [`super::writer`] decides whether each message is written as received or is encoded.

use std::borrow::Cow;
use std::collections::HashSet;

use epitome_core::message::{CallId, Message, Part};
use epitome_core::view;
use serde_json::Value;

use super::writer::Writer;
use super::{Body, OwnFields, cache_marks};
use crate::flags;
use crate::raw::{self, FLAGS_FIELD, RawFields, apply_edits};

/// Returns the request with these messages in its list.
pub(super) fn rewrite(body: &Body, messages: &[Message], own_fields: OwnFields) -> String {
    let mut writer = Writer::new(body);
    let (mut texts, mut summary) = (Vec::new(), None);
    for message in with_unread(body, messages) {
        if body.origin(message.seq).is_some_and(super::Origin::is_system_field) {
            continue;
        }
        let encoded = writer.wire_messages(message);
        summary = summary.or(is_new_summary(body, message).then_some(texts.len()));
        let native = body.dialect.0.about().is_native;
        texts.extend(if native { encoded } else { with_flags(encoded, message, own_fields) });
    }
    cache_marks::move_to_summary(body, &mut texts.iter_mut().collect::<Vec<_>>(), summary);
    apply_edits(&body.text, vec![(body.list.clone(), list(body, &texts))])
}

/// Returns whether the message is a summary that was not in the received request.
pub(super) fn is_new_summary(body: &Body, message: &Message) -> bool {
    body.origin(message.seq).is_none() && view::recognise(message).is_some()
}

/// Returns the list as JSON, byte for byte as received if nothing in it changed.
pub(super) fn list(body: &Body, texts: &[Cow<'_, str>]) -> String {
    let received = body.text.get(body.list.clone()).unwrap_or_default();
    let items = body.texts(0..body.items.len());
    if texts.len() == body.items.len() && texts.iter().map(Cow::as_ref).eq(items) {
        return received.to_owned();
    }
    format!("[{}]", texts.join(","))
}

/// Returns these messages, and adds the received messages of unknown types again. Such a message seems to be
/// empty, because no content was read from it, and `epitome_core` removes empty messages. But the client sent
/// the message, so the provider expects it. The message is added only if the messages directly before and after
/// it are in the list.
pub(super) fn with_unread<'a>(body: &'a Body, messages: &'a [Message]) -> Vec<&'a Message> {
    let is_unread =
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
        let unread = (first..).map_while(|seq| body.message(seq).filter(is_unread));
        let unread: Vec<&Message> = unread.take_while(|unread| next != Some(unread.seq)).collect();
        // If the message after the unread messages was removed, the unread messages were removed together with
        // it.
        let after = unread.last().map_or(first, |last| last.seq.saturating_add(1));
        let is_adjacent = next.map_or_else(|| body.message(after).is_none(), |next| next == after);
        // No user or assistant message may come between a call and its result.
        if is_adjacent && (open.is_empty() || unread.iter().all(|unread| is_neutral(body, unread))) {
            out.extend(unread);
        }
    }
    out
}

/// Returns whether the message is neither a user message nor an assistant message.
fn is_neutral(body: &Body, message: &Message) -> bool {
    let items = body.origin(message.seq).map(|origin| origin.items.clone()).unwrap_or_default();
    let mut texts = body.texts(items).peekable();
    texts.peek().is_some() && texts.all(|item| body.dialect.0.is_neutral(item))
}

/// Removes Epitome's flags from a wire message. If `in_blocks` is true, also removes them from the message's
/// blocks.
pub(super) fn without_flags(item: Cow<'_, str>, in_blocks: bool) -> Cow<'_, str> {
    if !raw::may_have_flags(&item) {
        return item;
    }
    let content = RawFields::of(&item).get("content").filter(|_| in_blocks);
    let edits = content.map(|content| (raw::range_of(&item, content), blocks_without_flags(content)));
    raw::remove_field(&apply_edits(&item, edits.into_iter().collect()), FLAGS_FIELD).into_owned().into()
}

/// Removes Epitome's flags from a list of blocks. Content that is not a list is returned unchanged.
pub(super) fn blocks_without_flags(content: &str) -> String {
    if !raw::may_have_flags(content) {
        return content.to_owned();
    }
    let blocks = raw::items(content).into_iter();
    let edits = blocks
        .map(|block| (raw::range_of(content, block), raw::remove_field(block, FLAGS_FIELD).into_owned()));
    apply_edits(content, edits.collect())
}

/// Writes a message's current flags to its wire messages. [`OwnFields::Strip`] removes all flags instead.
pub(super) fn with_flags<'a>(
    texts: Vec<Cow<'a, str>>,
    message: &Message,
    own_fields: OwnFields,
) -> Vec<Cow<'a, str>> {
    if own_fields == OwnFields::Strip {
        // In a flat list, blocks have no flags of their own.
        return texts.into_iter().map(|text| without_flags(text, false)).collect();
    }
    if !(message.pinned || message.skip || texts.iter().any(|text| raw::may_have_flags(text))) {
        return texts;
    }
    let mut values: Vec<Value> =
        texts.iter().map(|text| serde_json::from_str(text).unwrap_or_default()).collect();
    let before = values.clone();
    let _ = flags::write(&mut values, message);
    let changes = texts.into_iter().zip(before).zip(values);
    changes.map(|((text, before), now)| if before == now { text } else { now.to_string().into() }).collect()
}
