//! Every knob, its default, checked once.
//!
//! [`Settings`] are what holds: typed, complete, and right by the time anybody sees them. They come
//! from layers, each a [`Patch`] that names only what it changes: the program's file and flags, then
//! the workspace's, then the session's. [`Settings::with`] lays one over the other, key by key.
//!
//! The names are those of the settings file, `context.max_tokens` say. A name that is not known and a
//! value that is not allowed are refused when a patch is read, by their full name and with what would
//! be allowed. Files, flags and the environment are not known here, and neither are the keys of
//! providers.
//!
//! | key | default | meaning |
//! |---|---|---|
//! | `encoding` | `"o200k_base"` | how tokens are counted |
//! | `context.summary_share` | `0.4` | how much of what pinned messages leave of a context its summary may take; with `fill` half as much again |
//! | `context.max_tokens` | `100000` | how large a context may be¹ |
//! | `slot` | `short` and `long` | the summaries that are kept, see [`SlotSettings`] |
//! | `trigger.SLOT` | the slot's own | when slots of that name are due, without naming the whole list again |
//! | `summarize.models` | `["local"]` | who writes them: the first that can |
//! | `summarize.auto` | `true` | whether slots that do not say fire by themselves |
//! | `summarize.instructions` | none | said to models as they are, for slots that have none of their own |
//! | `summarize.stand_in_after` | `"10m"` | when `local` stands in for models that fail; `"never"` |
//! | `summarize.redact` | `true` | whether secrets are taken out |
//! | `summarize.catch_up` | `"join"` | what slots do that are far behind and do not say: `"step"` |
//! | `summarize.spend_cap_per_day` | none | what a workspace may spend on summaries in a day (UTC), in the prices' money |
//! | `summarize.breaker_after`, `summarize.breaker_for` | `5`, `"60s"` | after so many failures in a row a provider is left alone, for so long |
//! | `condense` | | how lists are condensed inline, see [`CondenseSettings`] |
//! | `models.NAME` | none | models over a network, see [`ModelSettings`]; set for the whole program only |
//! | `prices.MODEL` | the shipped table | `input`, `output`, `cache_read`, `cache_write`, per million tokens |
//! | `limits.message`, `limits.metadata` | 1 MiB, 64 KiB | bytes of one message¹ |
//! | `limits.batch` | `1000` | messages in one append¹ |
//! | `limits.body` | 16 MiB | bytes of one request¹ |
//!
//! ¹ A workspace or session may lower it, not raise it over what the engine was given: whoever runs the engine has to find
//! the memory. What was stored before the engine's was lowered holds as if it were lowered too.

use std::collections::BTreeMap;
use std::time::Duration;

use epitome_core::context::Request;
use epitome_core::message::{self, Tokens};
use epitome_core::slot::{CatchUp, Scope, Slot};
use epitome_core::tokens::Encoding;
use epitome_core::trigger::{Fraction, Trigger};
use serde_json::{Map, Value, json};

mod condense;
mod models;
mod patch;
mod price;
mod read;
mod sizes;
mod slots;
mod time;

pub use crate::price::{Money, Price};
pub use condense::{CondenseSettings, other_form};
pub use models::{ModelSettings, Provider};
pub use patch::Patch;
use read::Table;
pub use slots::{Preset, SlotSettings};
pub use time::{StandIn, parse_time, write_time};

use crate::names::LOCAL;
use crate::table;

/// Everything that can be set.
///
/// ```
/// use epitome::settings::{Patch, Settings};
///
/// let workspace = Patch::parse(r#"{
///     "context": {"max_tokens": 50000},
///     "slot": [{"preset": "frequent"}, {"name": "long", "trigger": "turns(50)", "max_tokens": 3000}]
/// }"#)?;
/// let settings = Settings::default().with(&workspace)?;
/// assert_eq!(settings.context.max_tokens, 50_000);
/// assert_eq!(settings.slots[1].slot.trigger.to_string(), "turns(50)");
///
/// assert_eq!(
///     Patch::parse(r#"{"context": {"max_token": 50000}}"#).unwrap_err().to_string(),
///     "context.max_token: no such setting; allowed here are summary_share, max_tokens",
/// );
/// # Ok::<(), epitome::settings::SettingsError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// How tokens are counted. Fixed when a session is created.
    pub encoding: Encoding,
    /// What a context may hold.
    pub context: ContextSettings,
    /// The summaries that are kept; the key is `slot`.
    pub slots: Vec<SlotSettings>,
    /// When slots of these names are due, whatever the list says. A layer that names a list of its own begins anew.
    pub triggers: BTreeMap<String, Trigger>,
    /// Who writes them, and how.
    pub summarize: SummarizeSettings,
    /// How lists are condensed inline.
    pub condense: CondenseSettings,
    /// Models that are asked over a network, by the names they are chosen by.
    pub models: BTreeMap<String, ModelSettings>,
    /// What models cost, by their names. See [`Settings::price`].
    pub prices: BTreeMap<String, Price>,
    /// How large things may be.
    pub limits: Limits,
}

/// What a context may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextSettings {
    /// How much of it the summary may take.
    pub summary_share: Fraction,
    /// How large it may be; whoever asks for more is refused.
    pub max_tokens: Tokens,
}

/// Who writes summaries, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummarizeSettings {
    /// Their names: the first that can writes.
    pub models: Vec<String>,
    /// Whether slots that do not say themselves fire by themselves.
    pub auto: bool,
    /// Said to models as they are, for slots that have no instructions of their own.
    pub instructions: String,
    /// When `local` stands in for models that fail.
    pub stand_in_after: StandIn,
    /// Whether secrets are taken out of what models are shown and write.
    pub redact: bool,
    /// What slots do that have fallen far behind and do not say themselves.
    pub catch_up: CatchUp,
    /// What a workspace may spend in a day, by UTC.
    pub spend_cap_per_day: Option<Money>,
    /// After so many failures in a row a provider is left alone.
    pub breaker_after: u64,
    /// For so long it is.
    pub breaker_for: Duration,
}

/// How large things may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message's parts.
    pub message: u64,
    /// Messages in one append.
    pub batch: u64,
    /// Bytes of one request.
    pub body: u64,
    /// Bytes of a message's metadata, as JSON.
    pub metadata: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            encoding: Encoding::default(),
            context: ContextSettings::default(),
            slots: vec![Slot::short().into(), Slot::long().into()],
            triggers: BTreeMap::new(),
            summarize: SummarizeSettings::default(),
            condense: CondenseSettings::default(),
            models: BTreeMap::new(),
            prices: BTreeMap::new(),
            limits: Limits::default(),
        }
    }
}

impl Default for ContextSettings {
    fn default() -> Self {
        let request = Request::default();
        Self { summary_share: request.share, max_tokens: request.max_tokens }
    }
}

impl Default for SummarizeSettings {
    fn default() -> Self {
        Self {
            models: vec![LOCAL.to_owned()],
            auto: true,
            instructions: String::new(),
            stand_in_after: StandIn::default(),
            redact: true,
            catch_up: CatchUp::default(),
            spend_cap_per_day: None,
            breaker_after: 5,
            breaker_for: Duration::from_secs(60),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let message::Limits { message, metadata } = message::Limits::default();
        Self { message, batch: 1_000, body: 16 << 20, metadata }
    }
}

impl Limits {
    /// Those that one message is measured by.
    #[must_use]
    pub fn of_message(&self) -> message::Limits {
        message::Limits { message: self.message, metadata: self.metadata }
    }
}

impl Settings {
    /// These, with what the patch changes.
    ///
    /// Keys it does not name stay. The list of slots is taken as a whole, prices model by model.
    /// What a patch says alone was judged when it was read; this judges what comes of both.
    pub fn with(&self, patch: &Patch) -> Result<Self, SettingsError> {
        self.overlaid(patch.entries())
    }

    /// Everything that is set, as it would be written. Read again, it gives the same settings.
    ///
    /// ```
    /// use epitome::settings::{Patch, Settings};
    ///
    /// let settings = Settings::default();
    /// assert_eq!(settings.to_value()["slot"][0]["trigger"], "messages(20)");
    /// assert_eq!(Settings::default().with(&settings.patch())?, settings);
    /// # Ok::<(), epitome::settings::SettingsError>(())
    /// ```
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Object(self.written())
    }

    /// The same as a patch. Laid over the defaults it gives these settings; laid over others it leaves
    /// their prices for models that are not priced here.
    #[must_use]
    pub fn patch(&self) -> Patch {
        Patch::believed(self.written())
    }

    /// Refuses what was set by hand in a program and could not have been read.
    pub fn check(&self) -> Result<(), SettingsError> {
        Self::default().overlaid(&self.written()).map(|_| ())
    }

    /// The slot of this name in this scope.
    #[must_use]
    pub fn slot(&self, scope: &Scope, name: &str) -> Option<&SlotSettings> {
        self.slots.iter().find(|slot| slot.slot.name == name && slot.slot.scope == *scope)
    }

    /// Who writes a slot's summaries: the models it names, or those of `summarize.models`.
    #[must_use]
    pub fn models_of<'a>(&'a self, slot: &'a SlotSettings) -> &'a [String] {
        slot.models.as_deref().unwrap_or(&self.summarize.models)
    }

    /// What is said to the model that writes a slot's summaries: its own instructions, or those of all.
    #[must_use]
    pub fn instructions_of<'a>(&'a self, slot: &'a SlotSettings) -> &'a str {
        if slot.instructions.is_empty() { &self.summarize.instructions } else { &slot.instructions }
    }

    /// What a model costs, where it is known: as `prices` say, by the name it has in `models` or by its own, else as the
    /// shipped table says. `local` costs nothing.
    ///
    /// ```
    /// use epitome::settings::{Price, Settings};
    /// assert_eq!(Settings::default().price("local"), Some(Price::FREE));
    /// assert!(Settings::default().price("gpt-5-mini").is_some());
    /// assert_eq!(Settings::default().price("my-own-model"), None);
    /// ```
    #[must_use]
    pub fn price(&self, model: &str) -> Option<Price> {
        if let Some(price) = self.prices.get(model) {
            return Some(*price);
        }
        match self.models.get(model) {
            _ if model == LOCAL => Some(Price::FREE),
            Some(ModelSettings { provider: Provider::Local, .. }) => Some(Price::FREE),
            // Whoever serves it at an address of one's own has prices of their own.
            Some(own) if own.base_url.is_some() => self.prices.get(&own.model).copied(),
            Some(ModelSettings { model, .. }) => {
                self.prices.get(model).copied().or_else(|| table::find(model)?.price)
            }
            None => table::find(model)?.price,
        }
    }

    fn overlaid(&self, entries: &Map<String, Value>) -> Result<Self, SettingsError> {
        let mut new = self.clone();
        let top = Table::top(entries);
        top.only("encoding, context, slot, trigger, summarize, condense, models, prices, limits")?;
        top.parsed("encoding")?.set(&mut new.encoding);
        if let Some(context) = top.table("context")? {
            context.only("summary_share, max_tokens")?;
            context.fraction("summary_share")?.set(&mut new.context.summary_share);
            context.whole("max_tokens")?.set(&mut new.context.max_tokens);
        }
        if let Some(slots) = top.list("slot")? {
            new.slots = slots::read(&slots)?;
            new.triggers.clear();
        }
        if let Some(triggers) = top.table("trigger")? {
            for slot in triggers.keys() {
                if let Some(trigger) = triggers.parsed::<Trigger>(slot)? {
                    slots::check_trigger(&triggers, slot, &trigger)?;
                    new.triggers.insert(slot.to_owned(), trigger);
                }
            }
        }
        if let Some(summarize) = top.table("summarize")? {
            summarize.only(
                "models, auto, instructions, stand_in_after, redact, catch_up, spend_cap_per_day, breaker_after, \
                 breaker_for",
            )?;
            summarize.models("models")?.set(&mut new.summarize.models);
            summarize.yes_or_no("auto")?.set(&mut new.summarize.auto);
            summarize.text("instructions")?.map(str::to_owned).set(&mut new.summarize.instructions);
            summarize.stand_in("stand_in_after")?.set(&mut new.summarize.stand_in_after);
            summarize.yes_or_no("redact")?.set(&mut new.summarize.redact);
            summarize.catch_up("catch_up")?.set(&mut new.summarize.catch_up);
            summarize.cap("spend_cap_per_day")?.set(&mut new.summarize.spend_cap_per_day);
            summarize.whole("breaker_after")?.set(&mut new.summarize.breaker_after);
            summarize.time("breaker_for")?.set(&mut new.summarize.breaker_for);
        }
        if let Some(condense) = top.table("condense")? {
            new.condense.overlay(&condense)?;
        }
        if let Some(models) = top.table("models")? {
            for name in models.keys() {
                if !read::is_name(name) {
                    return Err(models.wrong(name, "no model can be called so; 1 to 128 bytes are allowed"));
                }
                if let Some(model) = models.table(name)? {
                    if name == LOCAL {
                        return Err(
                            models.wrong(name, "is always there and needs no settings; take another name")
                        );
                    }
                    let model = ModelSettings::read(new.models.get(name), &model)?;
                    new.models.insert(name.to_owned(), model);
                }
            }
        }
        if let Some(prices) = top.table("prices")? {
            for model in prices.keys() {
                if !read::is_name(model) {
                    return Err(prices.wrong(model, "no model can be called so; 1 to 128 bytes are allowed"));
                }
                if let Some(price) = prices.table(model)? {
                    new.prices.insert(model.to_owned(), Price::read(&price)?);
                }
            }
        }
        if let Some(limits) = top.table("limits")? {
            limits.only("message, batch, body, metadata")?;
            limits.whole("message")?.set(&mut new.limits.message);
            limits.whole("batch")?.set(&mut new.limits.batch);
            limits.whole("body")?.set(&mut new.limits.body);
            limits.whole("metadata")?.set(&mut new.limits.metadata);
        }
        for slot in &mut new.slots {
            slot.slot.catch_up = slot.catch_up.unwrap_or(new.summarize.catch_up);
            slot.slot.auto = slot.auto.unwrap_or(new.summarize.auto);
            new.triggers.get(&slot.slot.name).cloned().set(&mut slot.slot.trigger);
        }
        Ok(new)
    }

    fn written(&self) -> Map<String, Value> {
        let slots: Vec<Value> = self.slots.iter().map(SlotSettings::to_value).collect();
        let triggers: Map<String, Value> =
            self.triggers.iter().map(|(slot, trigger)| (slot.clone(), json!(trigger.to_string()))).collect();
        let models: Map<String, Value> =
            self.models.iter().map(|(name, model)| (name.clone(), model.to_value())).collect();
        let prices: Map<String, Value> =
            self.prices.iter().map(|(model, price)| (model.clone(), price.to_value())).collect();
        let entries = [
            ("encoding", json!(self.encoding.name())),
            (
                "context",
                json!({
                    "summary_share": self.context.summary_share.get(),
                    "max_tokens": self.context.max_tokens,
                }),
            ),
            ("slot", Value::Array(slots)),
            ("trigger", Value::Object(triggers)),
            (
                "summarize",
                json!({
                    "models": self.summarize.models,
                    "auto": self.summarize.auto,
                    "instructions": self.summarize.instructions,
                    "stand_in_after": self.summarize.stand_in_after.to_string(),
                    "redact": self.summarize.redact,
                    "catch_up": slots::word(self.summarize.catch_up),
                    "spend_cap_per_day": self.summarize.spend_cap_per_day.map(Money::get),
                    "breaker_after": self.summarize.breaker_after,
                    "breaker_for": write_time(self.summarize.breaker_for),
                }),
            ),
            ("condense", self.condense.to_value()),
            ("models", Value::Object(models)),
            ("prices", Value::Object(prices)),
            (
                "limits",
                json!({
                    "message": self.limits.message,
                    "batch": self.limits.batch,
                    "body": self.limits.body,
                    "metadata": self.limits.metadata,
                }),
            ),
        ];
        entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Sets what was given, and leaves what was not.
trait Set<T> {
    fn set(self, place: &mut T);
}

impl<T> Set<T> for Option<T> {
    fn set(self, place: &mut T) {
        if let Some(value) = self {
            *place = value;
        }
    }
}

/// Why settings were refused. All of these mean: mend the setting that is named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The text is not JSON.
    #[error("settings: not JSON: {problem}")]
    NotJson {
        /// What is wrong, and where.
        problem: String,
    },
    /// A name nobody knows.
    #[error("{key}: no such setting; allowed here are {allowed}")]
    Unknown {
        /// Its full name.
        key: String,
        /// The names that are known there.
        allowed: &'static str,
    },
    /// A value that is not allowed.
    #[error("{key}: {given} given; allowed is {allowed}")]
    Value {
        /// The setting's full name.
        key: String,
        /// What was given, its beginning.
        given: String,
        /// What is allowed.
        allowed: &'static str,
    },
    /// Something else is wrong with it.
    #[error("{key}: {problem}")]
    Wrong {
        /// The setting's full name.
        key: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
}

impl SettingsError {
    /// The full name of the setting to be mended, such as `slot[1].trigger`.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::NotJson { .. } => "settings",
            Self::Unknown { key, .. } | Self::Value { key, .. } | Self::Wrong { key, .. } => key,
        }
    }
}

#[cfg(test)]
mod tests;
