//! The forms in which values stand in settings: how each is read, written and described.
//!
//! A field names its form in one attribute, `#[serde(with = "Positive")]`, from which serde takes the reading and the
//! writing and schemars the description. Values whose own `Deserialize` says everything need none.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt::Display;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use epitome_core::keep::Keep;
use epitome_core::prompt::{ProfileSetting, Template};
use epitome_core::strategy::Strategy;
use epitome_core::tokens::Encoding;
use epitome_core::trigger::{Fraction, Trigger};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error, Unexpected};
use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::time::{self, StandIn, write_time};
use crate::price::Money;

/// The longest name of a model, in bytes.
const LONGEST_NAME: usize = 128;

/// A form of values.
pub trait Form {
    /// What it is read as.
    type Value: Serialize;

    /// What is allowed, as it follows "allowed is".
    fn allowed() -> String {
        "a text".to_owned()
    }

    /// Reads a value.
    fn read(value: &Value) -> Result<Self::Value, Refused>;

    /// Writes it so that it reads back the same.
    fn write(value: &Self::Value) -> Value {
        json!(value)
    }

    /// Its JSON Schema. The first type that it names is how the value is written where everything is text.
    fn schema() -> Value;
}

/// Why a value was not read.
#[derive(Debug)]
pub enum Refused {
    /// It does not have the form; the error repeats it and says what is allowed.
    Form,
    /// This is wrong with it. The error does not repeat the value, which may be a secret.
    Because(String),
}

/// A [`Form`] as serde and schemars want it: `#[serde(with = "As::<Time>")]`.
#[derive(Debug)]
pub struct As<F>(PhantomData<F>);

impl<F: Form> As<F> {
    /// Reads a field of this form.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<F::Value, D::Error> {
        let value = Value::deserialize(deserializer)?;
        F::read(&value).map_err(|refused| match refused {
            Refused::Form => D::Error::invalid_value(Unexpected::Other("this"), &F::allowed().as_str()),
            Refused::Because(problem) => D::Error::custom(problem),
        })
    }

    /// Writes a field of this form.
    pub fn serialize<S: Serializer>(value: &F::Value, serializer: S) -> Result<S::Ok, S::Error> {
        F::write(value).serialize(serializer)
    }
}

impl<F: Form> JsonSchema for As<F> {
    fn schema_name() -> Cow<'static, str> {
        std::any::type_name::<F>().into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        Schema::try_from(F::schema()).unwrap_or_default()
    }
}

/// A whole number from 1.
pub type Positive = As<Whole<u64, 1>>;

/// A share: more than 0 and at most 1.
pub type Share = As<ShareForm>;

/// What is written as a text and parses itself.
pub type Text<T> = As<TextForm<T>>;

/// A whole number in bounds.
#[derive(Debug)]
pub struct Whole<T, const MIN: u64, const MAX: u64 = { u64::MAX }>(PhantomData<T>);

impl<T, const MIN: u64, const MAX: u64> Form for Whole<T, MIN, MAX>
where
    T: TryFrom<u64> + Copy + Serialize,
{
    type Value = T;

    fn allowed() -> String {
        match (MIN, MAX) {
            (0, u64::MAX) => "a whole number".to_owned(),
            (_, u64::MAX) => format!("a whole number from {MIN}"),
            _ => format!("a whole number from {MIN} to {MAX}"),
        }
    }

    fn read(value: &Value) -> Result<T, Refused> {
        let whole = value.as_u64().filter(|whole| (MIN..=MAX).contains(whole));
        whole.and_then(|whole| T::try_from(whole).ok()).ok_or(Refused::Form)
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": MIN, "maximum": MAX})
    }
}

/// The form of a [`Share`].
#[derive(Debug)]
pub struct ShareForm;

impl Form for ShareForm {
    type Value = Fraction;

    fn allowed() -> String {
        "a number more than 0 and at most 1, such as 0.4".to_owned()
    }

    fn read(value: &Value) -> Result<Fraction, Refused> {
        value.as_f64().and_then(|share| Fraction::new(share).ok()).ok_or(Refused::Form)
    }

    fn schema() -> Value {
        json!({"type": "number", "minimum": 0.000_001, "maximum": 1})
    }
}

/// A time within bounds in milliseconds; at most a year.
#[derive(Debug)]
pub struct Time<const MIN: u64 = 0, const MAX: u64 = { time::YEAR }>;

impl<const MIN: u64, const MAX: u64> Form for Time<MIN, MAX> {
    type Value = Duration;

    fn allowed() -> String {
        match (MIN, MAX) {
            (0, time::YEAR) => {
                "a time of at most a year such as \"10m\", \"30s\", \"2h\", \"500ms\" or 600 for seconds"
                    .to_owned()
            }
            _ => {
                let [min, max] = [MIN, MAX].map(|millis| write_time(Duration::from_millis(millis)));
                format!("a time from \"{min}\" to \"{max}\" such as \"10m\" or 600 for seconds")
            }
        }
    }

    fn read(value: &Value) -> Result<Duration, Refused> {
        let bounds = Duration::from_millis(MIN)..=Duration::from_millis(MAX);
        time::read(value).filter(|time| bounds.contains(time)).ok_or(Refused::Form)
    }

    fn write(time: &Duration) -> Value {
        json!(write_time(*time))
    }

    fn schema() -> Value {
        let seconds = |millis: u64| Duration::from_millis(millis).as_secs_f64();
        json!({"anyOf": [
            {"type": "string", "format": "time"},
            {"type": "number", "minimum": seconds(MIN), "maximum": seconds(MAX)},
        ]})
    }
}

impl Form for StandIn {
    type Value = Self;

    fn allowed() -> String {
        format!("\"never\", or {}", Time::<0>::allowed())
    }

    fn read(value: &Value) -> Result<Self, Refused> {
        match value.as_str().map(str::trim) {
            Some("never") => Ok(Self::Never),
            _ => time::read(value).map(Self::After).ok_or(Refused::Form),
        }
    }

    fn schema() -> Value {
        json!({"anyOf": [
            {"type": "string", "format": "time-or-never"},
            {"type": "number", "minimum": 0, "maximum": time::YEAR / 1_000},
        ]})
    }
}

/// An amount of money up to so many units.
#[derive(Debug)]
pub struct Amount<const MAX: u32>;

impl<const MAX: u32> Form for Amount<MAX> {
    type Value = Money;

    fn allowed() -> String {
        format!("an amount from 0 to {MAX}, such as 2.50")
    }

    fn read(value: &Value) -> Result<Money, Refused> {
        let amount = value.as_f64().filter(|amount| (0.0..=f64::from(MAX)).contains(amount));
        amount.map(Money::from).ok_or(Refused::Form)
    }

    fn schema() -> Value {
        json!({"type": "number", "minimum": 0, "maximum": MAX})
    }
}

/// The name of a model.
#[derive(Debug)]
pub struct ModelName;

impl ModelName {
    /// Whether a model can have this name.
    pub(super) fn fits(name: &str) -> bool {
        !name.trim().is_empty() && name.len() <= LONGEST_NAME && !name.contains(char::is_control)
    }
}

impl Form for ModelName {
    type Value = String;

    fn allowed() -> String {
        "the name of a model, such as \"local\"".to_owned()
    }

    fn read(value: &Value) -> Result<String, Refused> {
        value.as_str().filter(|name| Self::fits(name)).map(str::to_owned).ok_or(Refused::Form)
    }

    fn schema() -> Value {
        json!({"type": "string", "format": "model", "minLength": 1, "maxLength": LONGEST_NAME})
    }
}

/// Names of models, each once.
#[derive(Debug)]
pub struct ModelNames;

impl Form for ModelNames {
    type Value = Vec<String>;

    fn allowed() -> String {
        "a list of different models' names, at least one, such as [\"local\"]".to_owned()
    }

    fn read(value: &Value) -> Result<Vec<String>, Refused> {
        let list = value.as_array().ok_or(Refused::Form)?;
        let names = list.iter().map(ModelName::read).collect::<Result<Vec<String>, Refused>>()?;
        let each_once = names.iter().collect::<HashSet<_>>().len() == names.len();
        if each_once && !names.is_empty() { Ok(names) } else { Err(Refused::Form) }
    }

    fn schema() -> Value {
        json!({"type": "array", "minItems": 1, "uniqueItems": true, "items": ModelName::schema()})
    }
}

/// What may be left out. Nothing stands for it.
#[derive(Debug)]
pub struct Maybe<F>(PhantomData<F>);

impl<F: Form> Form for Maybe<F> {
    type Value = Option<F::Value>;

    fn allowed() -> String {
        F::allowed()
    }

    fn read(value: &Value) -> Result<Self::Value, Refused> {
        F::read(value).map(Some)
    }

    fn write(value: &Self::Value) -> Value {
        value.as_ref().map_or(Value::Null, F::write)
    }

    fn schema() -> Value {
        F::schema()
    }
}

/// A value, or `"none"`. Written as null, which is how a program sees that there is none.
#[derive(Debug)]
pub struct OrNone<F>(PhantomData<F>);

impl<F: Form> Form for OrNone<F> {
    type Value = Option<F::Value>;

    fn allowed() -> String {
        format!("{}, or \"none\"", F::allowed())
    }

    fn read(value: &Value) -> Result<Self::Value, Refused> {
        if value == "none" { Ok(None) } else { F::read(value).map(Some) }
    }

    fn write(value: &Self::Value) -> Value {
        value.as_ref().map_or(Value::Null, F::write)
    }

    fn schema() -> Value {
        json!({"anyOf": [F::schema(), {"const": "none"}]})
    }
}

/// A value, or `"default"` for one that depends on other settings.
#[derive(Debug)]
pub struct OrDefault<F>(PhantomData<F>);

impl<F: Form> Form for OrDefault<F> {
    type Value = Option<F::Value>;

    fn allowed() -> String {
        format!("{}, or \"default\"", F::allowed())
    }

    fn read(value: &Value) -> Result<Self::Value, Refused> {
        let default = value.as_str().is_some_and(|text| text.trim() == "default");
        if default { Ok(None) } else { F::read(value).map(Some) }
    }

    fn write(value: &Self::Value) -> Value {
        value.as_ref().map_or_else(|| json!("default"), F::write)
    }

    fn schema() -> Value {
        json!({"anyOf": [F::schema(), {"const": "default"}]})
    }
}

/// The form of a [`Text`].
#[derive(Debug)]
pub struct TextForm<T>(PhantomData<T>);

impl<T: FromStr<Err: Display> + Display + Serialize + Described> Form for TextForm<T> {
    type Value = T;

    fn read(value: &Value) -> Result<T, Refused> {
        let text = value.as_str().ok_or(Refused::Form)?;
        text.parse().map_err(|error: T::Err| Refused::Because(error.to_string()))
    }

    fn write(value: &T) -> Value {
        json!(value.to_string())
    }

    fn schema() -> Value {
        T::described()
    }
}

/// A rule that a text has to follow.
pub trait Rule {
    /// The text as it is kept, or what is wrong with it. The error does not repeat a text that may be a secret.
    fn keep(text: &str) -> Result<String, String>;
}

/// A text that follows a [`Rule`].
#[derive(Debug)]
pub struct Ruled<R>(PhantomData<R>);

impl<R: Rule> Form for Ruled<R> {
    type Value = String;

    fn read(value: &Value) -> Result<String, Refused> {
        R::keep(value.as_str().ok_or(Refused::Form)?).map_err(Refused::Because)
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }
}

/// What parses itself from a text, and says in JSON Schema from which.
pub trait Described {
    /// The schema of the text.
    fn described() -> Value;
}

macro_rules! described {
    ($($type:ty: $schema:tt;)*) => {$(
        impl Described for $type {
            fn described() -> Value {
                json!($schema)
            }
        }
    )*};
}

described! {
    Trigger: {"type": "string", "format": "trigger"};
    Keep: {"type": "string", "format": "keep"};
    Strategy: {"type": "string", "format": "strategy"};
    Template: {"type": "string", "format": "template"};
    Encoding: {"enum": (Encoding::ALL.map(Encoding::name))};
    ProfileSetting: {"enum": ["auto", "general", "coding", "research", "support"]};
}

/// The words of `CatchUp`.
pub(super) fn catch_up(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": ["join", "step"]})
}

/// The words of `SummaryRole`.
pub(super) fn summary_role(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"enum": ["user", "system"]})
}
