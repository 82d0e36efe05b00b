//! Giving wire messages back as they came.

use epitome_core::message::Message;
use serde_json::Value;

use crate::reader::join_reply;
use crate::{Dialect, blank_if_nothing, flags, ours, residue};

impl Dialect {
    /// The messages as they came in, where they came in this dialect, and plainly spelled where not.
    ///
    /// Flags are as they are now. A system prompt that was a field of the request is a message of the role `system`
    /// (Anthropic) or an item `{"instructions": …}` (Responses).
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
        messages.iter().flat_map(|message| of(self, message).0).collect()
    }

    /// As [`Dialect::restore`], as text: every number is spelled as it was in what [`crate::Reader::push_text`] took in.
    pub fn restore_text(self, messages: &[Message]) -> Vec<String> {
        let texts = |message| {
            let (values, texts) = of(self, message);
            texts.unwrap_or_else(|| values.iter().map(Value::to_string).collect())
        };
        messages.iter().flat_map(texts).collect()
    }
}

/// A message as it came, or plainly spelled. With it the texts it came as, where it still says what they say.
pub(crate) fn of(dialect: Dialect, message: &Message) -> (Vec<Value>, Option<Vec<String>>) {
    as_it_came(dialect, message).unwrap_or_else(|| {
        let mut plain = dialect.0.spell(message);
        show(dialect, &mut plain, message);
        (plain, None)
    })
}

fn as_it_came(dialect: Dialect, message: &Message) -> Option<(Vec<Value>, Option<Vec<String>>)> {
    let residue = message.wire.as_deref()?.get(dialect.name())?;
    let texts = residue.get("raw").and_then(Value::as_array).map(|texts| {
        let texts = texts.iter().filter_map(Value::as_str).map(str::to_owned);
        texts.collect::<Vec<_>>()
    });
    let mut came: Vec<Value> = match &texts {
        Some(texts) => texts.iter().map(|text| serde_json::from_str(text).ok()).collect::<Option<_>>()?,
        None => residue::apply(&dialect.0.spell(message), residue)?,
    };
    let before = texts.is_some().then(|| came.clone());
    // Parts may have been changed since, and a residue may be anybody's: what is read again must be the message.
    let same = reads_as(dialect, &came, message) && show(dialect, &mut came, message);
    let texts = texts.filter(|_| before.as_ref() == Some(&came));
    same.then_some((came, texts))
}

/// Whether these items say what the message says, flags and places aside.
fn reads_as(dialect: Dialect, items: &[Value], message: &Message) -> bool {
    let mut all = items.iter().map(|item| dialect.understood(item));
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

/// Makes the items say the message's flags. False where they cannot.
fn show(dialect: Dialect, items: &mut [Value], message: &Message) -> bool {
    if dialect.0.about().is_native {
        ours::show(items, message);
        return true;
    }
    flags::show(items, message)
}
