//! Edits JSON text by the positions of its fields and items.
//!
//! A client's JSON is forwarded byte for byte, so it is parsed only to find where each value begins and ends.
//! Only field names are decoded.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// The field in which messages and blocks of other formats contain Epitome's flags.
pub(crate) const FLAGS_FIELD: &str = "epitome";

/// The fields of a JSON object in their order: the name and the JSON text of each value. Contains duplicate
/// names too.
#[derive(Debug)]
pub struct RawFields<'a>(pub(crate) Vec<(String, &'a str)>);

impl<'a> RawFields<'a> {
    /// Returns the fields of this text; empty if it is not an object.
    pub(crate) fn of(text: &'a str) -> Self {
        serde_json::from_str(text).unwrap_or(Self(Vec::new()))
    }

    /// Returns the JSON text of a field's value. If the name occurs several times, the last value is used, as
    /// in other parsers.
    pub fn get(&self, name: &str) -> Option<&'a str> {
        self.0.iter().rev().find(|(key, _)| key == name).map(|(_, text)| *text)
    }
}

impl<'de> Deserialize<'de> for RawFields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = RawFields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawFields<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some((key, text)) = map.next_entry::<String, &'de RawValue>()? {
                    members.push((key, text.get()));
                }
                Ok(RawFields(members))
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

/// Returns the texts of a list's items; empty if it is not a list.
pub(crate) fn items(text: &str) -> Vec<&str> {
    let items: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
    items.into_iter().map(RawValue::get).collect()
}

/// Returns the byte range of `piece` in `whole`. `piece` must be a slice of `whole`.
pub(crate) fn range_of(whole: &str, piece: &str) -> Range<usize> {
    let from = piece.as_ptr().addr().saturating_sub(whole.as_ptr().addr());
    from..from.saturating_add(piece.len())
}

/// Returns the JSON texts of the content's blocks. Content that is a string becomes one block of the type
/// `kind`.
pub(crate) fn blocks<'a>(content: &'a str, kind: &str) -> Vec<Cow<'a, str>> {
    if content.starts_with('"') {
        return vec![format!("{{\"type\":\"{kind}\",\"text\":{content}}}").into()];
    }
    items(content).into_iter().map(Cow::Borrowed).collect()
}

/// Returns an object without the fields of this name. The rest of the text does not change.
pub(crate) fn remove_field<'a>(object: &'a str, name: &str) -> Cow<'a, str> {
    let members = RawFields::of(object);
    if members.get(name).is_none() {
        return object.into();
    }
    // Copies the text before the first field. Then copies each remaining field together with the separator
    // before it.
    let mut before = object.find('{').map_or(0, |at| at + 1);
    let mut out = object.get(..before).unwrap_or_default().to_owned();
    let start = out.len();
    for (key, value) in members.0 {
        let end = range_of(object, value).end;
        let field = object.get(before..end).unwrap_or_default();
        before = end;
        if key != name {
            let is_first = out.len() == start;
            out.push_str(if is_first {
                field.trim_start_matches([',', ' ', '\n', '\r', '\t'])
            } else {
                field
            });
        }
    }
    out.push_str(object.get(before..).unwrap_or_default());
    out.into()
}

/// Returns an object with one more field at its end.
pub(crate) fn append_field(object: &str, name: &str, text: &str) -> String {
    let Some(inner) = object.trim_end().strip_suffix('}') else { return object.to_owned() };
    let comma = if inner.trim_end().ends_with('{') { "" } else { "," };
    format!("{inner}{comma}{}:{text}}}", Value::from(name))
}

/// Returns an object in which the field `name` has the value `text`, which is JSON.
pub(crate) fn set_field(object: &str, name: &str, text: &str) -> String {
    match RawFields::of(object).get(name) {
        Some(before) => apply_edits(object, vec![(range_of(object, before), text.to_owned())]),
        None => append_field(object, name, text),
    }
}

/// Replaces the text in each of these byte ranges.
pub(crate) fn apply_edits(text: &str, mut edits: Vec<(Range<usize>, String)>) -> String {
    edits.sort_by_key(|(range, _)| range.start);
    let mut out = String::with_capacity(text.len());
    let mut before = 0;
    for (range, new) in edits {
        out.push_str(text.get(before..range.start).unwrap_or_default());
        out.push_str(&new);
        before = range.end;
    }
    out.push_str(text.get(before..).unwrap_or_default());
    out
}

/// Checks quickly whether the text may contain Epitome's flags. The result is never false for a text with
/// flags. JSON may contain a letter of the field name as an escape, so the function also searches for these
/// escapes.
pub(crate) fn may_have_flags(text: &str) -> bool {
    text.contains(FLAGS_FIELD) || text.contains("\\u006") || text.contains("\\u007")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_cut_out_and_nothing_else() {
        for (text, expected) in [
            (r#"{"a": 1, "epitome": {"pinned": true}, "b":  1e2}"#, r#"{"a": 1, "b":  1e2}"#),
            (r#"{"epitome": 1 , "a" : 1}"#, r#"{"a" : 1}"#),
            (r#"{ "a" : 1 , "epitome" : 2 }"#, r#"{"a" : 1 }"#),
            (r#"{"epitome":1}"#, "{}"),
            (r#"{"epitome":1,"epitome":2}"#, "{}"),
            (r#"{"\u0065pitome": 1, "a": "epitome"}"#, r#"{"a": "epitome"}"#),
        ] {
            assert_eq!(remove_field(text, FLAGS_FIELD), expected);
        }
    }

    #[test]
    fn a_field_is_added_at_the_end() {
        assert_eq!(append_field("{}", "a", "1"), r#"{"a":1}"#);
        assert_eq!(append_field(r#"{"b": 1.0 } "#, "a", "1"), r#"{"b": 1.0 ,"a":1}"#);
    }
}
