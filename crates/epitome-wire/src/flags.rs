//! Our two flags on a foreign wire: a message's `epitome: {pinned, skip}`.

use epitome_core::message::Message;
use serde_json::{Map, Value, json};

use crate::field::{self, Object, Result};
use crate::raw::FLAGS as FIELD;

/// The flags `pinned` and `skip` of a wire message.
pub(crate) fn of(fields: &Object) -> Result<(bool, bool)> {
    match fields.get(FIELD) {
        None | Some(Value::Null) => Ok((false, false)),
        _ => field::inner(fields, FIELD, |flags| {
            Ok((field::flag(flags, "pinned")?, field::flag(flags, "skip")?))
        }),
    }
}

/// Those of the flags that are set, as they are written.
pub(crate) fn set((pinned, skip): (bool, bool)) -> Map<String, Value> {
    let flags = [("pinned", pinned), ("skip", skip)].into_iter().filter(|(_, set)| *set);
    flags.map(|(flag, _)| (flag.to_owned(), json!(true))).collect()
}

/// Makes the items that stand for a message say its flags, and changes nothing where they do.
///
/// False where an item has no room for them.
#[must_use]
pub(crate) fn show(items: &mut [Value], message: &Message) -> bool {
    let said = |items: &[Value]| {
        let all = items.iter().filter_map(Value::as_object).map(|item| of(item).unwrap_or_default());
        all.fold((false, false), |all, one| (all.0 | one.0, all.1 | one.1))
    };
    let wanted = (message.pinned, message.skip);
    if said(items) == wanted {
        return true;
    }
    for item in items.iter_mut().filter_map(Value::as_object_mut) {
        if let Some(flags) = item.get_mut(FIELD).and_then(Value::as_object_mut) {
            flags.shift_remove("pinned");
            flags.shift_remove("skip");
            if flags.is_empty() {
                item.shift_remove(FIELD);
            }
        }
    }
    let Some(first) = items.first_mut().and_then(Value::as_object_mut) else { return false };
    let set = set(wanted);
    if !set.is_empty() {
        match first.get_mut(FIELD) {
            Some(Value::Object(flags)) => flags.extend(set),
            _ => {
                first.insert(FIELD.to_owned(), Value::Object(set));
            }
        }
    }
    said(items) == wanted
}
