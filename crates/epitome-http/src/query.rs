//! Parses query parameters strictly. Errors name the parameter.
//!
//! An unknown parameter is an error: it is usually a typing mistake, and ignoring it would hide that. A duplicate parameter
//! and one that is not UTF-8 are errors too.

use std::borrow::Cow;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;
use serde::de::value::{Error as Wrong, MapDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::problem::Problem;

/// A query without parameters.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// Extractor of a request's query parameters.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        read(parts.uri.query().unwrap_or_default()).map(Self).map_err(Problem::invalid)
    }
}

fn read<T: DeserializeOwned>(query: &str) -> Result<T, String> {
    let mut pairs = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unzip();
        let name = text(name.unwrap_or(pair))?;
        let given =
            Given { name: name.clone(), value: text(value.unwrap_or_default())?, bare: value.is_none() };
        pairs.push((name, given));
    }
    let told = |wrong: Wrong| {
        let told = wrong.to_string();
        match told.split_once("unknown field") {
            Some(("", rest)) => format!(
                "unknown parameter{}",
                rest.replace("expected one of", "allowed are")
                    .replace("expected", "allowed are")
                    .replace("there are no fields", "none are allowed here")
            ),
            _ => told
                .replace("duplicate field", "duplicate parameter")
                .replace("missing field", "missing parameter"),
        }
    };
    T::deserialize(MapDeserializer::new(pairs.into_iter())).map_err(told)
}

fn text(raw: &str) -> Result<String, String> {
    let spaced = raw.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().map(Cow::into_owned);
    decoded.map_err(|_| "a parameter is not UTF-8".to_owned())
}

/// A parameter's value, as it was sent.
struct Given {
    name: String,
    value: String,
    /// Whether the parameter has no `=` and no value.
    bare: bool,
}

/// Maximum number of characters of an invalid value in an error.
const SHOWN: usize = 60;

impl Given {
    fn wrong(&self, wanted: &str) -> Wrong {
        let given: String = self.value.chars().take(SHOWN).collect();
        Wrong::custom(format!("{}: {given:?} given; {wanted}", self.name))
    }
}

impl<'de> IntoDeserializer<'de, Wrong> for Given {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Given {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_string(self.value)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_some(self)
    }

    /// A name without a value means true.
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.value.as_str() {
            "true" => visitor.visit_bool(true),
            "" if self.bare => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(self.wrong("expected true or false")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match variants.contains(&self.value.as_str()) {
            true => visitor.visit_enum(self.value.into_deserializer()),
            false => Err(self.wrong(&format!("allowed are {}", variants.join(", ")))),
        }
    }

    /// Refuses numbers beyond the database's integer range.
    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        let plain = self.value.bytes().all(|byte| byte.is_ascii_digit());
        match self.value.parse::<i64>().map(u64::try_from) {
            Ok(Ok(number)) if plain => visitor.visit_u64(number),
            _ => Err(self.wrong("expected a whole number")),
        }
    }

    // No parameter has one of these types, except texts.
    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct seq tuple tuple_struct map
        struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize, PartialEq)]
    #[serde(rename_all = "lowercase")]
    enum How {
        Clip,
        Empty,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Asked {
        tokens: Option<u64>,
        #[serde(default)]
        fill: bool,
        scope: Option<String>,
        oversize: Option<How>,
    }

    fn asked(query: &str) -> Result<Asked, String> {
        read(query)
    }

    #[test]
    fn what_is_given_is_read_as_what_is_wanted() {
        let all = asked("tokens=40&fill&scope=a+b%C3%A9&oversize=clip").unwrap();
        assert_eq!((all.tokens, all.fill, all.scope.as_deref()), (Some(40), true, Some("a bé")));
        assert_eq!(all.oversize, Some(How::Clip));
        let none = asked("").unwrap();
        assert_eq!((none.tokens, none.fill, none.scope), (None, false, None));
    }

    #[test]
    fn what_is_wrong_is_refused_by_name() {
        let refused = |query: &str| asked(query).unwrap_err();
        assert_eq!(refused("tokens=many"), "tokens: \"many\" given; expected a whole number");
        assert_eq!(refused("tokens=+5"), "tokens: \" 5\" given; expected a whole number");
        assert_eq!(refused("fill=yes"), "fill: \"yes\" given; expected true or false");
        assert_eq!(refused("fill="), "fill: \"\" given; expected true or false");
        assert_eq!(refused("oversize=cut"), "oversize: \"cut\" given; allowed are clip, empty");
        assert!(
            refused("token=5").starts_with("unknown parameter `token`, allowed are"),
            "{}",
            refused("token=5")
        );
        assert_eq!(refused("fill&fill=true"), "duplicate parameter `fill`");
        assert_eq!(refused("scope=%ff"), "a parameter is not UTF-8");
    }
}
