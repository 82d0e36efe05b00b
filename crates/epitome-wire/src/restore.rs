//! Restores wire messages as they were received.

use epitome_core::message::Message;
use serde_json::Value;

use crate::reader::join_reply;
use crate::{Dialect, blank_if_nothing, flags, native, residue};

impl Dialect {
    /// Returns the wire messages of these messages. A message that was received in this dialect and has not
    /// changed is returned as received. Other messages are encoded.
    ///
    /// The wire messages contain the current flags of the messages. In Anthropic's dialect, a system prompt
    /// that was received in a request field becomes a message with the role `system`. In the Responses dialect,
    /// it becomes the item `{"instructions": …}`.
    ///
    /// ```
    /// use epitome_wire::Dialect;
    /// use serde_json::json;
    ///
    /// let came = json!([{ "id": 7, "role": "user", "content": [{ "type": "text", "text": "Hello", "new": null }] }]);
    /// let mut messages = Dialect::OPENAI.read(&came)?;
    /// assert_eq!(json!(Dialect::OPENAI.restore(&messages)), came);
    ///
    /// messages[0].pinned = true;
    /// assert_eq!(Dialect::OPENAI.restore(&messages)[0]["epitome"], json!({ "pinned": true }));
    /// # Ok::<(), epitome_wire::DialectError>(())
    /// ```
    pub fn restore(self, messages: &[Message]) -> Vec<Value> {
        messages.iter().flat_map(|message| restored(self, message).0).collect()
    }

    /// Returns the same wire messages as [`Dialect::restore`], but as JSON text. In a message that was read by
    /// [`crate::Reader::push_text`], every number has the same digits as in the text that was read.
    pub fn restore_text(self, messages: &[Message]) -> Vec<String> {
        let texts = |message| {
            let (values, texts) = restored(self, message);
            texts.unwrap_or_else(|| values.iter().map(Value::to_string).collect())
        };
        messages.iter().flat_map(texts).collect()
    }
}

/// Returns the wire messages of a message. They are encoded if the message came in another dialect or has
/// changed; otherwise they are returned as received. Also returns the received texts, if they were stored and
/// are still accurate.
pub(crate) fn restored(dialect: Dialect, message: &Message) -> (Vec<Value>, Option<Vec<String>>) {
    as_received(dialect, message).unwrap_or_else(|| {
        let mut encoded = dialect.0.encode(message);
        write_current(dialect, &mut encoded, message);
        (encoded, None)
    })
}

fn as_received(dialect: Dialect, message: &Message) -> Option<(Vec<Value>, Option<Vec<String>>)> {
    let residue = message.wire.as_deref()?.get(dialect.name())?;
    let texts = residue.get("raw").and_then(Value::as_array).map(|texts| {
        let texts = texts.iter().filter_map(Value::as_str).map(str::to_owned);
        texts.collect::<Vec<_>>()
    });
    let mut received: Vec<Value> = match &texts {
        Some(texts) => texts.iter().map(|text| serde_json::from_str(text).ok()).collect::<Option<_>>()?,
        None => residue::apply(&dialect.0.encode(message), residue)?,
    };
    let before = texts.is_some().then(|| received.clone());
    // The message may have changed since it was read, and a residue may come from any client. So the restored
    // JSON is used only if the dialect reads the same message from it.
    let same = reads_as(dialect, &received, message) && write_current(dialect, &mut received, message);
    let texts = texts.filter(|_| before.as_ref() == Some(&received));
    same.then_some((received, texts))
}

/// Returns whether the dialect reads the content of the message from these items. Flags and positions are not
/// compared.
fn reads_as(dialect: Dialect, items: &[Value], message: &Message) -> bool {
    let mut all = items.iter().map(|item| dialect.read_message(item));
    let Some(Ok(mut read)) = all.next() else { return false };
    for next in all {
        let Ok(next) = next else { return false };
        join_reply(&mut read, next);
    }
    if dialect.0.about().reply_is_items {
        read.parts = blank_if_nothing(read.parts);
    }
    read.role == message.role
        && read.parts == message.parts
        && read.author == message.author
        && (!dialect.0.about().is_native || read.metadata == message.metadata)
}

/// Writes the message's current flags to the items. Returns false if the items cannot contain the flags.
fn write_current(dialect: Dialect, items: &mut [Value], message: &Message) -> bool {
    if dialect.0.about().is_native {
        native::write_current(items, message);
        return true;
    }
    flags::write(items, message)
}
