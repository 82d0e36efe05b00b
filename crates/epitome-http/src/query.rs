//! Parses query parameters strictly. Errors name the parameter.
//!
//! An unknown parameter is an error, because it is usually a typing mistake. A duplicate parameter and a parameter that
//! is not UTF-8 are errors too.

use std::borrow::Cow;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use epitome::settings::suggest::did_you_mean;
use percent_encoding::percent_decode_str;
use serde::de::value::{Error as ParamError, MapDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;

use crate::problem::Problem;
use crate::suggest::suggestion;

/// A query without parameters.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoParams {}

/// Extractor of a request's query parameters.
#[derive(Debug)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parse(parts.uri.query().unwrap_or_default()).map(Self).map_err(Problem::invalid)
    }
}

fn parse<T: DeserializeOwned>(query: &str) -> Result<T, String> {
    let mut pairs = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unzip();
        let name = decode(name.unwrap_or(pair))?;
        let param =
            RawParam { name: name.clone(), value: decode(value.unwrap_or_default())?, bare: value.is_none() };
        pairs.push((name, param));
    }
    let to_text = |error: ParamError| {
        let text = error.to_string();
        match text.split_once("unknown field") {
            Some(("", rest)) => format!(
                "unknown parameter{}{}",
                rest.replace("expected one of", "allowed are")
                    .replace("expected", "allowed are")
                    .replace("there are no fields", "none are allowed here"),
                suggestion(&text)
            ),
            _ => text
                .replace("duplicate field", "duplicate parameter")
                .replace("missing field", "missing parameter"),
        }
    };
    T::deserialize(MapDeserializer::new(pairs.into_iter())).map_err(to_text)
}

/// Decodes the name or the value of a parameter.
fn decode(raw: &str) -> Result<String, String> {
    let spaced = raw.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().map(Cow::into_owned);
    decoded.map_err(|_| "a query parameter is not UTF-8; percent-encode it as UTF-8".to_owned())
}

/// A parameter's value, as it was sent.
struct RawParam {
    name: String,
    value: String,
    /// Whether the parameter has no `=` and no value.
    bare: bool,
}

/// Maximum number of characters of an invalid value that an error text repeats.
const MAX_SHOWN: usize = 60;

impl RawParam {
    fn error(&self, expected: &str) -> ParamError {
        let value: String = self.value.chars().take(MAX_SHOWN).collect();
        ParamError::custom(format!("{}: {value:?} is not allowed; {expected}", self.name))
    }
}

impl<'de> IntoDeserializer<'de, ParamError> for RawParam {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for RawParam {
    type Error = ParamError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamError> {
        visitor.visit_string(self.value)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamError> {
        visitor.visit_some(self)
    }

    /// Parses a boolean. A parameter without `=` and without a value is true.
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamError> {
        match self.value.as_str() {
            "true" => visitor.visit_bool(true),
            "" if self.bare => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            _ => Err(self.error("expected true or false")),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ParamError> {
        match variants.contains(&self.value.as_str()) {
            true => visitor.visit_enum(self.value.into_deserializer()),
            false => {
                let similar = did_you_mean(&self.value, variants.iter().copied());
                Err(self.error(&format!("{similar}expected one of {}", variants.join(", "))))
            }
        }
    }

    /// Parses a whole number. Refuses numbers that are larger than an integer in the database can be.
    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ParamError> {
        let plain = self.value.bytes().all(|byte| byte.is_ascii_digit());
        match self.value.parse::<i64>().map(u64::try_from) {
            Ok(Ok(number)) if plain => visitor.visit_u64(number),
            _ => Err(self.error("expected a whole number")),
        }
    }

    // Of these types, parameters use only texts.
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
    enum Mode {
        Clip,
        Empty,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Params {
        tokens: Option<u64>,
        #[serde(default)]
        fill: bool,
        scope: Option<String>,
        oversize: Option<Mode>,
    }

    fn params(query: &str) -> Result<Params, String> {
        parse(query)
    }

    #[test]
    fn parameters_are_parsed_as_their_types() {
        let all = params("tokens=40&fill&scope=a+b%C3%A9&oversize=clip").unwrap();
        assert_eq!((all.tokens, all.fill, all.scope.as_deref()), (Some(40), true, Some("a bé")));
        assert_eq!(all.oversize, Some(Mode::Clip));
        let none = params("").unwrap();
        assert_eq!((none.tokens, none.fill, none.scope), (None, false, None));
    }

    #[test]
    fn errors_name_the_parameter() {
        let refused = |query: &str| params(query).unwrap_err();
        assert_eq!(refused("tokens=many"), "tokens: \"many\" is not allowed; expected a whole number");
        assert_eq!(refused("tokens=+5"), "tokens: \" 5\" is not allowed; expected a whole number");
        assert_eq!(refused("fill=yes"), "fill: \"yes\" is not allowed; expected true or false");
        assert_eq!(refused("fill="), "fill: \"\" is not allowed; expected true or false");
        assert_eq!(refused("oversize=cut"), "oversize: \"cut\" is not allowed; expected one of clip, empty");
        assert_eq!(
            refused("oversize=clp"),
            "oversize: \"clp\" is not allowed; did you mean `clip`? expected one of clip, empty"
        );
        assert_eq!(
            refused("token=5"),
            "unknown parameter `token`, allowed are `tokens`, `fill`, `scope`, `oversize`; did you mean `tokens`?"
        );
        assert!(!refused("zzz=5").contains("did you mean"), "{}", refused("zzz=5"));
        assert_eq!(refused("fill&fill=true"), "duplicate parameter `fill`");
        assert_eq!(refused("scope=%ff"), "a query parameter is not UTF-8; percent-encode it as UTF-8");
    }
}
