//! Rebuilds request bodies from the messages that were read from them.

use epitome::dialect::format::About;
use epitome::{Dialect, Message};
use serde_json::{Map, Value, json};

/// Returns the fields of the body that [`Dialect::read`] read, unchanged.
pub fn restore_body(dialect: Dialect, messages: &[Message]) -> Map<String, Value> {
    let About { list: field, head, list_may_be_text, block, text_kind, .. } = *dialect.format().about();
    let mut list = dialect.restore(messages);
    let mut fields = Map::new();
    if let Some(head) = head {
        // Several system messages can be one field only if that field is a list of blocks.
        let most = if block.is_some() { usize::MAX } else { 1 };
        let heads = list.iter().take(most).take_while(|wire| head.stands_for(wire)).count();
        let given = list.drain(..heads).filter_map(|mut wire| Some(wire.get_mut(head.inner)?.take()));
        let given = joined(given.collect(), text_kind);
        fields.extend(given.map(|given| (head.field.to_owned(), given)));
    }
    let list = match list.as_slice() {
        [text @ Value::String(_)] if list_may_be_text => text.clone(),
        _ => Value::Array(list),
    };
    fields.insert(field.to_owned(), list);
    fields
}

/// Returns the head field of a request: one value unchanged, several joined into one list of blocks.
fn joined(mut given: Vec<Value>, text_kind: &str) -> Option<Value> {
    if given.len() < 2 {
        return given.pop();
    }
    let blocks = given.into_iter().flat_map(|given| match given {
        Value::Array(blocks) => blocks,
        text => vec![json!({ "type": text_kind, "text": text })],
    });
    Some(blocks.collect())
}
