//! Defines every setting once: its key, its default, its help text and its allowed values.
//!
//! Each section of the settings is a struct. A field is a setting, its doc comment is the help text, its attributes
//! name the schema of its values, and `Default` is its default. Everything else is derived from these structs. serde
//! derives the parsing, and schemars derives the JSON Schema ([`schema`]). The schema is used to validate values. The
//! sample settings file, the names of environment variables and the settings part of the HTTP API description are
//! generated from the schema.
//!
//! [`Settings`] are typed, complete and validated. They are merged from three layers: the program's file and flags, the
//! workspace's settings, and the session's settings. A later layer overrides an earlier layer. Each layer is a
//! [`Patch`] that contains only the keys that it changes. [`Settings::with`] applies one layer over another, key by
//! key.
//!
//! Parsing a patch rejects unknown keys and values that are not allowed; the error contains the full key. This module
//! does not read files, flags, environment variables or API keys of providers.
//!
//! A workspace or session may lower the size limits `context.max_tokens` and `limits`, but not raise them above the
//! engine's limits, because the operator of the engine provides the memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::time::Duration;

use epitome_core::context::Request;
use epitome_core::message::{self, Tokens};
use epitome_core::slot::{CatchUp, Scope, Slot};
use epitome_core::suggest::did_you_mean;
use epitome_core::tokens::Encoding;
use epitome_core::trigger::{Fraction, Trigger};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

mod condense;
pub mod form;
mod line;
mod models;
mod patch;
mod read;
mod slots;
pub mod time;

pub use crate::price::{Money, Price};
pub use condense::{CondenseSettings, drop_other_forms, other_form};
pub use epitome_core::suggest;
use form::is_model_name;
pub use line::line_of;
pub use models::{ModelSettings, Provider};
pub use patch::{Nulls, Patch, overlay};
pub use read::{SettingsError, read};
pub use slots::{Preset, SlotSettings};
pub use time::{StandIn, parse_time, write_time};

use crate::names::LOCAL;
use crate::table;

/// All settings of the engine.
///
/// ```
/// use epitome::settings::{ContextSettings, Settings};
///
/// // A program can build the settings as structs. Fields that are not set keep their defaults.
/// let mut typed = Settings::default();
/// typed.context = ContextSettings { max_tokens: 50_000, ..ContextSettings::default() };
///
/// // The same settings can be parsed from a document that contains only the differences from the defaults.
/// assert_eq!(Settings::parse(r#"{"context": {"max_tokens": 50000}}"#)?, typed);
///
/// assert_eq!(
///     Settings::parse(r#"{"context": {"max_token": 50000}}"#).unwrap_err().to_string(),
///     "context.max_token: no such setting; did you mean max_tokens? allowed here are summary_share, max_tokens",
/// );
/// # Ok::<(), epitome::settings::SettingsError>(())
/// ```
///
/// [`Settings::parse`] and [`Settings::with`] validate each value and the settings as a whole. `Deserialize` alone only
/// checks types.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// The tokenizer encoding that counts tokens. A session keeps the encoding it was created with.
    #[schemars(schema_with = "form::encoding", example = &"cl100k_base")]
    pub encoding: Encoding,
    /// Size of contexts.
    pub context: ContextSettings,
    /// The summary slots: each slot defines one summary that Epitome maintains. Your list replaces the default
    /// list as a whole, so repeat the default slots that you want to keep.
    #[serde(rename = "slot")]
    pub slots: Vec<SlotSettings>,
    /// The trigger of the slot with this name; it overrides the trigger in the list of slots. Any slot name works.
    ///
    /// A layer that sets its own list of slots drops the triggers of the layers below it.
    #[serde(rename = "trigger")]
    #[schemars(schema_with = "form::triggers", example = &"messages(10)")]
    #[schemars(extend("propertyNames" = {"pattern": "^[A-Za-z0-9_-]{1,64}$"}))]
    pub triggers: BTreeMap<String, Trigger>,
    /// How summaries are written, and by which models.
    pub summarize: SummarizeSettings,
    /// How message lists are condensed by `epitome condense`, POST /v1/condense and the proxy. Set only one of
    /// `trigger` and `threshold`, and only one of `keep` and `keep_last`.
    pub condense: CondenseSettings,
    /// Models that are called over the network, under names that you choose.
    #[schemars(example = &"cheap")]
    pub models: BTreeMap<String, ModelSettings>,
    /// What models cost, by the provider's name of the model.
    #[serde(deserialize_with = "read_prices")]
    #[schemars(with = "BTreeMap<String, PriceSettings>", example = &"gpt-5-mini")]
    pub prices: BTreeMap<String, Price>,
    /// Size limits of requests and messages.
    pub limits: Limits,
}

/// Size of contexts, `[context]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ContextSettings {
    /// The largest share of the budget that the summary may use: more than 0 and at most 1. System and pinned
    /// messages are subtracted from the budget first. With `fill`, the summary may use one and a half times
    /// this share.
    #[schemars(schema_with = "form::share", example = 0.25)]
    pub summary_share: Fraction,
    /// The largest budget of a context, in tokens. Requests for more are rejected.
    #[schemars(schema_with = "form::positive", example = 50_000)]
    pub max_tokens: Tokens,
}

/// How summaries are written, and by which models, `[summarize]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SummarizeSettings {
    /// Models that write summaries, in order of preference: if one fails, the next one is called. `local` is the
    /// built-in extractive summarizer; it needs no key and no network.
    #[schemars(schema_with = "form::models", example = ["cheap", "main", "local"])]
    pub models: Vec<String>,
    /// Whether summaries are written automatically when a trigger fires. If false, summaries are written only
    /// on request. Default for slots that do not set `auto`.
    #[schemars(example = false)]
    pub auto: bool,
    /// Extra instructions, passed unchanged to the model. They apply to slots that set no instructions.
    #[schemars(example = &"Answer in French.")]
    pub instructions: String,
    /// How long models may fail before `local` writes a fallback summary: a duration, 0 for immediately, or
    /// "never".
    #[schemars(schema_with = "form::stand_in", example = &"1h")]
    pub stand_in_after: StandIn,
    /// Whether secrets are removed from the text that models read and from the summaries they write.
    #[schemars(example = false)]
    pub redact: bool,
    /// How a slot catches up when more than ten of its summaries are due: "join" writes one summary in place of
    /// several, "step" writes every summary. Default for slots that do not set `catch_up`.
    #[schemars(schema_with = "form::catch_up", example = &"step")]
    pub catch_up: CatchUp,
    /// The most that a workspace may spend on summaries per day (UTC), in the currency of the prices; "none" for
    /// no cap.
    #[schemars(schema_with = "form::cap_or_none", example = 2.5)]
    pub spend_cap_per_day: Option<Money>,
    /// Circuit breaker: after this number of consecutive failures, a provider is not called for `breaker_for`.
    #[schemars(schema_with = "form::positive", example = 3)]
    pub breaker_after: u64,
    /// How long the circuit breaker stays open, that is, how long the provider is not called.
    #[serde(with = "time")]
    #[schemars(schema_with = "form::any_time", example = &"5m")]
    pub breaker_for: Duration,
}

/// The price of one model, `[prices.MODEL]`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PriceSettings {
    /// Price of one million input tokens.
    #[schemars(schema_with = "form::price", example = 0.25)]
    input: Money,
    /// Price of one million output tokens.
    #[schemars(schema_with = "form::price", example = 2.0)]
    output: Money,
    /// Price of one million input tokens read from the prompt cache; `input` unless set.
    #[serde(default)]
    #[schemars(schema_with = "form::price", example = 0.025)]
    cache_read: Option<Money>,
    /// Price of one million input tokens written to the prompt cache; `input` unless set.
    #[serde(default)]
    #[schemars(schema_with = "form::price", example = 0.25)]
    cache_write: Option<Money>,
}

/// Reads all prices. Missing cache prices default to the input price.
fn read_prices<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Price>, D::Error> {
    let complete = |PriceSettings { input, output, cache_read, cache_write }| Price {
        input,
        output,
        cache_read: cache_read.unwrap_or(input),
        cache_write: cache_write.unwrap_or(input),
    };
    let prices = BTreeMap::<String, PriceSettings>::deserialize(deserializer)?;
    Ok(prices.into_iter().map(|(model, price)| (model, complete(price))).collect())
}

/// Size limits of requests and messages, `[limits]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest size of one message's parts, in bytes.
    #[schemars(schema_with = "form::positive", example = 262_144)]
    pub message: u64,
    /// Largest number of messages in one append.
    #[schemars(schema_with = "form::positive", example = 100)]
    pub batch: u64,
    /// Largest size of one request body, in bytes.
    #[schemars(schema_with = "form::positive", example = 1_048_576)]
    pub body: u64,
    /// Largest size of one message's metadata, in bytes of JSON.
    #[schemars(schema_with = "form::positive", example = 4_096)]
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
    /// Returns the limits that apply to a single message.
    pub fn of_message(&self) -> message::Limits {
        message::Limits { message: self.message, metadata: self.metadata }
    }
}

impl Settings {
    /// Returns the defaults, changed by a JSON or TOML document.
    pub fn parse(document: &str) -> Result<Self, SettingsError> {
        Self::default().with(&Patch::parse(document)?)
    }

    /// Returns these settings, changed by the patch.
    ///
    /// Keys that the patch does not contain, or that it sets to null, do not change. The list of slots is replaced as a
    /// whole, and prices are replaced model by model. The patch alone was validated when it was parsed. This function
    /// validates the combined settings.
    pub fn with(&self, patch: &Patch) -> Result<Self, SettingsError> {
        self.overlaid(patch.entries())
    }

    /// Returns all settings as a JSON object. If the object is parsed, the result is the same settings.
    ///
    /// ```
    /// use epitome::settings::{Patch, Settings};
    ///
    /// let settings = Settings::default();
    /// assert_eq!(settings.to_value()["slot"][0]["trigger"], "messages(20)");
    /// assert_eq!(Settings::default().with(&settings.patch())?, settings);
    /// # Ok::<(), epitome::settings::SettingsError>(())
    /// ```
    pub fn to_value(&self) -> Value {
        Value::Object(self.patch().0)
    }

    /// Returns all settings as a patch. If you apply the patch over the defaults, the result is these settings. If you
    /// apply it over other settings, those settings retain their prices for models that have no price here.
    pub fn patch(&self) -> Patch {
        match serde_json::to_value(self) {
            Ok(Value::Object(entries)) => Patch(entries),
            // Cannot happen: every value of `Settings` serializes to an object.
            _ => Patch::default(),
        }
    }

    /// Validates settings that a program built by hand, with the same rules as parsing.
    pub fn check(&self) -> Result<(), SettingsError> {
        Self::read(self.patch().0).map(|_| ())
    }

    /// Returns the slot with this name in this scope.
    pub fn slot(&self, scope: &Scope, name: &str) -> Option<&SlotSettings> {
        self.slots.iter().find(|slot| slot.slot.name == name && slot.slot.scope == *scope)
    }

    /// Rejects names of models that are not defined. `models` contains the names of the defined models; `local` is
    /// always defined.
    ///
    /// ```
    /// use epitome::settings::Settings;
    ///
    /// let settings = Settings::parse(r#"{"summarize": {"models": ["local", "chep"]}}"#)?;
    /// assert_eq!(
    ///     settings.check_models(["cheap"]).unwrap_err().to_string(),
    ///     "summarize.models[1]: no model named `chep`; did you mean `cheap`? define [models.chep], or use one of: cheap, local",
    /// );
    /// # Ok::<(), epitome::settings::SettingsError>(())
    /// ```
    pub fn check_models<'a>(&self, models: impl IntoIterator<Item = &'a str>) -> Result<(), SettingsError> {
        let defined: BTreeSet<&str> = models.into_iter().chain([LOCAL]).collect();
        match self.undefined_model(&defined) {
            None => Ok(()),
            Some((key, name)) => Err(undefined_model(&key, name, &defined, true)),
        }
    }

    /// Checks names as [`Settings::check_models`] does, for the settings of a workspace or a session. These settings
    /// cannot define models.
    pub(crate) fn check_model_choice<'a>(
        &self,
        models: impl IntoIterator<Item = &'a str>,
    ) -> Result<(), SettingsError> {
        let defined: BTreeSet<&str> = models.into_iter().chain([LOCAL]).collect();
        match self.undefined_model(&defined) {
            None => Ok(()),
            Some((key, name)) => Err(undefined_model(&key, name, &defined, false)),
        }
    }

    /// Returns the first setting that names an undefined model: the setting's full key and the name.
    fn undefined_model(&self, defined: &BTreeSet<&str>) -> Option<(String, &str)> {
        let slots = self.slots.iter().enumerate();
        let slots =
            slots.filter_map(|(at, slot)| Some((format!("slot[{at}].models"), slot.models.as_deref()?)));
        let mut lists = slots.chain([("summarize.models".to_owned(), self.summarize.models.as_slice())]);
        let in_lists = lists.find_map(|(key, names)| {
            let (at, name) = names.iter().enumerate().find(|(_, name)| !defined.contains(name.as_str()))?;
            Some((format!("{key}[{at}]"), name.as_str()))
        });
        // `same` is not the name of a model: it means the model of the request.
        let inline = Some(self.condense.model.as_str());
        let inline = inline.filter(|name| *name != CondenseSettings::SAME && !defined.contains(name));
        in_lists.or_else(|| Some(("condense.model".to_owned(), inline?)))
    }

    /// Returns the models that write a slot's summaries: the slot's own list, or `summarize.models`.
    pub fn models_of<'a>(&'a self, slot: &'a SlotSettings) -> &'a [String] {
        slot.models.as_deref().unwrap_or(&self.summarize.models)
    }

    /// Returns the extra instructions for the model that writes a slot's summaries: the slot's own instructions, or
    /// `summarize.instructions`.
    pub fn instructions_of<'a>(&'a self, slot: &'a SlotSettings) -> &'a str {
        if slot.instructions.is_empty() { &self.summarize.instructions } else { &slot.instructions }
    }

    /// Returns the price of a model, or `None` if it is unknown. A price in `prices` takes precedence. It is found by
    /// the model's name in `models`, or by the provider's name of the model. Otherwise the price comes from the shipped
    /// price table. `local` is free.
    ///
    /// ```
    /// use epitome::settings::{Price, Settings};
    /// assert_eq!(Settings::default().price("local"), Some(Price::FREE));
    /// assert!(Settings::default().price("gpt-5-mini").is_some());
    /// assert_eq!(Settings::default().price("my-own-model"), None);
    /// ```
    pub fn price(&self, model: &str) -> Option<Price> {
        if let Some(price) = self.prices.get(model) {
            return Some(*price);
        }
        match self.models.get(model) {
            _ if model == LOCAL => Some(Price::FREE),
            Some(ModelSettings { provider: Provider::Local, .. }) => Some(Price::FREE),
            // The shipped table lists the prices of the providers. A server at a custom address has other prices.
            Some(own) if own.base_url.is_some() => self.prices.get(&own.model).copied(),
            Some(ModelSettings { model, .. }) => {
                self.prices.get(model).copied().or_else(|| table::find(model)?.price)
            }
            None => table::find(model)?.price,
        }
    }

    fn overlaid(&self, entries: &Map<String, Value>) -> Result<Self, SettingsError> {
        // An empty patch changes nothing. Without this check the schema would be built, which takes most of the startup
        // time of a command.
        if entries.is_empty() {
            return Ok(self.clone());
        }
        condense::check_forms(entries)?;
        let mut tree = self.patch().0;
        if entries.get("slot").is_some_and(|slots| !slots.is_null()) {
            tree.shift_remove("trigger");
        }
        for (section, value) in entries {
            // The settings of a model are merged key by key. The price of a model is replaced as a whole.
            overlay(&mut tree, section, value, if section == "models" { 2 } else { 1 }, Nulls::KeepValue);
        }
        Self::read(tree)
    }

    fn read(tree: Map<String, Value>) -> Result<Self, SettingsError> {
        // The schema is built only once, because building it takes longer than parsing.
        static SCHEMA: LazyLock<Value> = LazyLock::new(schema::<Settings>);
        let mut settings: Self = read(Value::Object(tree), &SCHEMA)?;
        settings.condense.normalize()?;
        for (name, trigger) in &settings.triggers {
            slots::check_trigger(name, trigger)?;
        }
        for slot in &mut settings.slots {
            slot.slot.catch_up = slot.catch_up.unwrap_or(settings.summarize.catch_up);
            slot.slot.auto = slot.auto.unwrap_or(settings.summarize.auto);
            if let Some(trigger) = settings.triggers.get(&slot.slot.name) {
                slot.slot.trigger = trigger.clone();
            }
        }
        slots::check(&settings.slots)?;
        let models = settings.models.keys().map(|name| ["models", name.as_str()]);
        let priced = settings.prices.keys().map(|name| ["prices", name.as_str()]);
        if let Some(invalid) = models.chain(priced).find(|[_, name]| !is_model_name(name)) {
            return Err(invalid_setting(
                &invalid,
                "is not a valid model name: 1 to 128 bytes without control characters",
            ));
        }
        for (name, model) in &mut settings.models {
            model.normalize(name)?;
        }
        Ok(settings)
    }
}

/// Size limits. Workspaces and sessions may lower them but not raise them: the operator of the engine provides the
/// memory.
impl Settings {
    /// Rejects a patch that raises a size limit above these settings.
    pub(crate) fn check_sizes(&self, patch: &Patch) -> Result<(), SettingsError> {
        let (mut patched, mut own) = (self.with(patch)?, self.clone());
        let over = patched.sizes().into_iter().zip(own.sizes()).find(|((_, size), (_, limit))| size > limit);
        match over {
            None => Ok(()),
            Some(((key, size), (_, limit))) => {
                let problem = format!("{size} is not allowed; the engine's settings allow at most {limit}");
                Err(SettingsError::new(key, problem))
            }
        }
    }

    /// Returns these settings with no size limit above the same limit of `others`. The limits of `others` may have been
    /// lowered since these settings were stored.
    pub(crate) fn no_larger_than(mut self, others: &Self) -> Self {
        for ((_, size), (_, limit)) in self.sizes().into_iter().zip(others.clone().sizes()) {
            *size = (*limit).min(*size);
        }
        self
    }

    fn sizes(&mut self) -> [(&'static str, &mut u64); 5] {
        let Limits { message, batch, body, metadata } = &mut self.limits;
        [
            ("context.max_tokens", &mut self.context.max_tokens),
            ("limits.message", message),
            ("limits.batch", batch),
            ("limits.body", body),
            ("limits.metadata", metadata),
        ]
    }
}

/// Returns the error for the name of a model that is not defined. With `can_define` it suggests to define the model.
pub(crate) fn undefined_model(
    key: &str,
    name: &str,
    defined: &BTreeSet<&str>,
    can_define: bool,
) -> SettingsError {
    let same = Some(CondenseSettings::SAME).filter(|_| key == "condense.model");
    let names: Vec<&str> = defined.iter().copied().chain(same).collect();
    let similar = did_you_mean(name, names.iter().copied());
    let define =
        if can_define { format!("define [{}], or ", read::join("models", name)) } else { String::new() };
    let problem = format!("no model named `{name}`; {similar}{define}use one of: {}", names.join(", "));
    SettingsError::new(key, problem)
}

/// Creates an error for the setting at this path.
fn invalid_setting(path: &[&str], problem: impl Into<String>) -> SettingsError {
    SettingsError::new(path.iter().fold(String::new(), |key, name| read::join(&key, name)), problem)
}

/// Returns the JSON Schema of a section, or of all [`Settings`]: keys, help texts, defaults, examples and allowed
/// values.
///
/// ```
/// use epitome::settings::{Settings, schema};
///
/// let schema = schema::<Settings>();
/// let max_tokens = &schema["properties"]["context"]["properties"]["max_tokens"];
/// assert_eq!(max_tokens["description"], "The largest budget of a context, in tokens. Requests for more are rejected.");
/// assert_eq!((&max_tokens["default"], &max_tokens["minimum"]), (&100_000.into(), &1.into()));
/// ```
pub fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    settings.into_generator().into_root_schema_for::<T>().to_value()
}

#[cfg(test)]
mod tests;
