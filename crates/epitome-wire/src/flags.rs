//! Reads and writes Epitome's two flags in messages of other formats. The field is `"epitome": {"pinned": …,
//! "skip": …}`.

use epitome_core::message::Message;
use epitome_core::suggest::similar_names;
use serde_json::{Map, Value, json};

use crate::field::{self, Object, Result};
use crate::raw::FLAGS_FIELD;

/// The names of the flags.
const FLAGS: [&str; 2] = ["pinned", "skip"];

/// Returns the flags `pinned` and `skip` of a wire message.
pub(crate) fn read(fields: &Object) -> Result<(bool, bool)> {
    match fields.get(FLAGS_FIELD) {
        None | Some(Value::Null) => Ok((false, false)),
        _ => field::inner(fields, FLAGS_FIELD, |flags| {
            Ok((field::flag(flags, "pinned")?, field::flag(flags, "skip")?))
        }),
    }
}

/// Returns an error if a wire message contains a key that is probably a mistyped flag. Other keys are ignored and stay
/// in the message.
///
/// Only new messages are checked. A message that is already stored must stay readable.
pub(crate) fn check(fields: &Object) -> Result<()> {
    let Some(Value::Object(flags)) = fields.get(FLAGS_FIELD) else { return Ok(()) };
    let unknown = flags.keys().filter(|key| !FLAGS.contains(&key.as_str()));
    let mut mistyped = unknown.filter(|key| !similar_names(key, FLAGS, 1).is_empty());
    match mistyped.next() {
        None => Ok(()),
        Some(key) => Err(field::unknown_value(FLAGS_FIELD, key, &FLAGS)),
    }
}

/// Returns the flags that are set, as JSON fields.
pub(crate) fn to_fields((pinned, skip): (bool, bool)) -> Map<String, Value> {
    let flags = [("pinned", pinned), ("skip", skip)].into_iter().filter(|(_, set)| *set);
    flags.map(|(flag, _)| (flag.to_owned(), json!(true))).collect()
}

/// Writes a message's flags to the wire messages that represent it. If they already contain these flags, they
/// are not changed. Returns false if they cannot contain the flags.
pub(crate) fn write(items: &mut [Value], message: &Message) -> bool {
    let current = |items: &[Value]| {
        let all = items.iter().filter_map(Value::as_object).map(|item| read(item).unwrap_or_default());
        all.fold((false, false), |all, one| (all.0 | one.0, all.1 | one.1))
    };
    let target = (message.pinned, message.skip);
    if current(items) == target {
        return true;
    }
    // The flags are written to the first item and removed from all other items.
    let mut set = to_fields(target);
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        let mut flags = match item.get_mut(FLAGS_FIELD) {
            Some(Value::Object(flags)) => std::mem::take(flags),
            _ => Map::new(),
        };
        flags.retain(|flag, _| flag != "pinned" && flag != "skip");
        flags.append(&mut set);
        if flags.is_empty() {
            item.shift_remove(FLAGS_FIELD);
        } else {
            item.insert(FLAGS_FIELD.to_owned(), Value::Object(flags));
        }
    }
    current(items) == target
}
