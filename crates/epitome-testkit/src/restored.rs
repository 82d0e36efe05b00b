//! Rebuilds request bodies from the messages that were read from them.

use epitome::dialect::format::About;
use epitome::{Dialect, Message};
use serde_json::{Map, Value, json};

/// Returns the fields of the body from which [`Dialect::read`] read these messages. The fields have their received
/// values.
pub fn restore_body(dialect: Dialect, messages: &[Message]) -> Map<String, Value> {
    let About { list_field, system_field, list_may_be_text, encode_block, text_type, .. } =
        *dialect.format().about();
    let mut list = dialect.restore(messages);
    let mut fields = Map::new();
    if let Some(system) = system_field {
        // The system field can contain several system messages only if the field is a list of blocks.
        let max = if encode_block.is_some() { usize::MAX } else { 1 };
        let count = list.iter().take(max).take_while(|wire| system.represents(wire)).count();
        let values = list.drain(..count);
        let values = values.filter_map(|mut wire| Some(wire.get_mut(system.message_field)?.take()));
        let value = joined(values.collect(), text_type);
        fields.extend(value.map(|value| (system.name.to_owned(), value)));
    }
    let list = match list.as_slice() {
        [text @ Value::String(_)] if list_may_be_text => text.clone(),
        _ => Value::Array(list),
    };
    fields.insert(list_field.to_owned(), list);
    fields
}

/// Returns the value of the request's system field. One value stays unchanged. Several values are joined into one
/// list of blocks. `None` if there is no value.
fn joined(mut values: Vec<Value>, text_type: &str) -> Option<Value> {
    if values.len() < 2 {
        return values.pop();
    }
    let blocks = values.into_iter().flat_map(|value| match value {
        Value::Array(blocks) => blocks,
        text => vec![json!({ "type": text_type, "text": text })],
    });
    Some(blocks.collect())
}
