//! What a value shall be, as a table, and how it is read by one.
//!
//! Whoever reads goes on after a fault with `null`, so that all faults are told at once: what was read is given only where
//! there are none ([`Found::give`]).

use std::ops::RangeInclusive;

use serde_json::{Map, Value, json};

use super::MEMBER_FIELDS;
use super::fault::{At, Found, Step, Wrong};
use super::values::{bounded, clean, counted, flag, kept, name, number, text, whole, within, without_nulls};

/// What a value shall be.
pub(crate) enum Shape {
    /// Yes or no.
    Flag,
    /// A text of so many characters.
    Text(RangeInclusive<usize>),
    /// What something is called.
    Name,
    Whole(RangeInclusive<i64>),
    Number(RangeInclusive<f64>),
    /// A moment: a text, at least.
    Moment,
    /// An object, as it is.
    Dict,
    /// Somebody's notes on something.
    Notes,
    /// What is wanted of something.
    Configuration(Of),
    /// When summaries are written.
    Summary,
    /// Who takes part in a session.
    Members,
    /// A list of so many of those.
    List(&'static Shape, RangeInclusive<usize>),
    /// An object whose fields are known. Others are left out.
    Model(&'static [Field]),
}

/// A field that is known.
pub(crate) type Field = (&'static str, Need, Shape);

/// Whether a field has to be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    Must,
    /// It may be left out, or be `null`.
    May,
    /// It may be left out, but not be `null`.
    Or,
}

/// Of what a configuration is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// Of a session or a workspace. A field that is `null` is kept as that: it takes back what was wanted before.
    Session,
    Peer,
    /// Of a message. Summaries are not wanted of it: they are a session's.
    Message,
}

use Need::May;
use Shape::{
    Configuration, Dict, Flag, List, Members, Model, Moment, Name, Notes, Number, Summary, Text, Whole,
};

const SHORT: &str = "messages_per_short_summary";
const LONG: &str = "messages_per_long_summary";

const ENABLED: Field = ("enabled", May, Flag);
const INSTRUCTIONS: Field = ("custom_instructions", May, Text(0..=usize::MAX));
const REASONING: Field = ("reasoning", May, Model(&[ENABLED, INSTRUCTIONS]));
const SUMMARY: &[Field] =
    &[ENABLED, (SHORT, May, Whole(10..=i64::MAX)), (LONG, May, Whole(20..=i64::MAX)), INSTRUCTIONS];

impl Of {
    fn fields(self) -> &'static [Field] {
        match self {
            Self::Session => &[
                INSTRUCTIONS,
                REASONING,
                ("peer_card", May, Model(&[("use", May, Flag), ("create", May, Flag), INSTRUCTIONS])),
                ("summary", May, Summary),
                ("dream", May, Model(&[ENABLED, INSTRUCTIONS])),
                ("dialectic", May, Model(&[INSTRUCTIONS])),
            ],
            Self::Peer => &[("observe_me", May, Flag)],
            Self::Message => &[REASONING],
        }
    }
}

impl Shape {
    /// What a value means.
    pub(crate) fn read(&self, at: &At<'_>, found: &mut Found) -> Value {
        let read = match self {
            Flag => flag(at.value),
            Text(bounds) => text(at.value, bounds).map(clean).map(Value::from),
            Name => name(at.value),
            Whole(bounds) => whole(at.value).and_then(|given| within(given, bounds)),
            Number(bounds) => number(at.value).and_then(|given| within(given, bounds)),
            Moment => match at.value {
                Value::String(_) => Ok(at.value.clone()),
                _ => Err(Wrong::new("datetime_type", "Input should be a valid datetime")),
            },
            Dict => dict(at).map(|_| at.value.clone()),
            Notes => dict(at).map(|notes| {
                bounded(at, found);
                notes.iter().map(|(name, value)| (clean(name), kept(value))).collect()
            }),
            Configuration(of) => configuration(at, *of, found),
            Summary => summary(at, found),
            Members => dict(at).map(|members| {
                let member = |(name, value)| member(&at.inner(name, value), name, found);
                members.iter().map(|(name, value)| (name.as_str(), value)).map(member).collect()
            }),
            List(each, bounds) => list(at, each, bounds, found),
            Model(fields) => model(at).map(|given| known(at, given, fields, found).into()),
        };
        read.unwrap_or_else(|wrong| found.refuse(at, wrong))
    }
}

type Read<T> = Result<T, Wrong>;

/// As an object whose fields are known.
fn model<'a>(at: &At<'a>) -> Read<&'a Map<String, Value>> {
    let wanted = "Input should be a valid dictionary or object to extract fields from";
    at.value.as_object().ok_or_else(|| Wrong::new("model_attributes_type", wanted))
}

/// As an object with whatever names.
fn dict<'a>(at: &At<'a>) -> Read<&'a Map<String, Value>> {
    at.value.as_object().ok_or_else(|| Wrong::new("dict_type", "Input should be a valid dictionary"))
}

/// The known fields alone.
fn known(at: &At<'_>, given: &Map<String, Value>, fields: &[Field], found: &mut Found) -> Map<String, Value> {
    let mut read = Map::new();
    for (name, need, shape) in fields {
        match given.get(*name).filter(|value| *need != May || !value.is_null()) {
            Some(value) => {
                read.insert((*name).to_owned(), shape.read(&at.inner(*name, value), found));
            }
            // What is repeated is what it was left out of.
            None if *need == Need::Must => {
                found.refuse(&at.inner(*name, at.value), Wrong::missing());
            }
            None => {}
        }
    }
    read
}

/// Every field: the known ones as what they mean, the others as they are, since they may mean something to whoever sent
/// them. One that is `null` says nothing. In a table of it there is nothing but what is known: the client takes no answer
/// that holds more.
fn configuration(at: &At<'_>, of: Of, found: &mut Found) -> Read<Value> {
    let given = if of == Of::Peer { dict(at) } else { model(at) }?;
    bounded(at, found);
    let fields = of.fields();
    let mut read = known(at, given, fields, found);
    for (name, value) in given {
        if value.is_null() && of == Of::Session {
            read.insert(clean(name), Value::Null);
        } else if !value.is_null() && !fields.iter().any(|(known, ..)| known == name) {
            read.insert(clean(name), without_nulls(kept(value)));
        }
    }
    Ok(read.into())
}

fn summary(at: &At<'_>, found: &mut Found) -> Read<Value> {
    let before = found.len();
    let table = known(at, model(at)?, SUMMARY, found);
    let every = |name| table.get(name).and_then(Value::as_i64);
    // The short summary is written more often than the long one.
    match (every(SHORT), every(LONG)) {
        (Some(short), Some(long)) if short >= long && found.len() == before => {
            Err(Wrong::rule(&format!("{SHORT} must be less than {LONG}")))
        }
        _ => Ok(table.into()),
    }
}

/// One who takes part, and how.
fn member(at: &At<'_>, called: &str, found: &mut Found) -> (String, Value) {
    Name.read(&at.inner("[key]", &called.into()), found);
    let how = if at.value.is_null() { json!({}) } else { Model(MEMBER_FIELDS).read(at, found) };
    (called.to_owned(), how)
}

fn list(at: &At<'_>, each: &Shape, bounds: &RangeInclusive<usize>, found: &mut Found) -> Read<Value> {
    let Some(items) = at.value.as_array() else {
        return Err(Wrong::new("list_type", "Input should be a valid list"));
    };
    let (given, least, most) = (items.len(), *bounds.start(), *bounds.end());
    let wrong = |kind, words: &str, bound: &str, count| {
        let msg =
            format!("List should have {words} {} after validation, not {given}", counted(count, "item"));
        Wrong::bound(kind, msg, json!({"field_type": "List", bound: count, "actual_length": given}))
    };
    if given < least {
        return Err(wrong("too_short", "at least", "min_length", least));
    }
    if given > most {
        // Their own faults are not told: most of them will be sent otherwise.
        return Err(wrong("too_long", "at most", "max_length", most));
    }
    let items = items.iter().enumerate();
    Ok(items.map(|(nr, item)| each.read(&at.inner(Step::Nr(nr), item), found)).collect())
}
