//! Every setting, its default and its meaning, stated once.
//!
//! Each section is a struct: a field is a setting, its doc comment the help text, its attributes the form in which it is
//! written, and `Default` what holds where it is not set. Everything else is derived from that: how it is read and
//! refused (serde), its JSON Schema ([`schema`], by schemars), and from the schema the settings file, the names of
//! environment variables and the description of the HTTP API.
//!
//! [`Settings`] are typed, complete and checked. They come from layers, each a [`Patch`] that names only what it
//! changes: the program's file and flags, then the workspace's, then the session's. [`Settings::with`] applies one layer
//! over another, key by key.
//!
//! A name that no setting has and a value that is not allowed are refused when a patch is read, by their full name. Files,
//! flags and the environment are not known here, and neither are the keys of providers.
//!
//! Limits of size may be lowered by a workspace or session and not raised over the engine's: `context.max_tokens` and
//! `limits`. Whoever runs the engine provides the memory.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::time::Duration;

use epitome_core::context::Request;
use epitome_core::message::{self, Tokens};
use epitome_core::slot::{CatchUp, Scope, Slot};
use epitome_core::tokens::Encoding;
use epitome_core::trigger::{Fraction, Trigger};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

mod condense;
pub mod form;
mod models;
pub mod near;
mod patch;
mod read;
mod slots;
pub mod time;

pub use crate::price::{Money, Price};
pub use condense::{CondenseSettings, give_way, other_form};
use form::is_model_name;
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
/// // In a program: structs, whose other fields keep their defaults.
/// let mut typed = Settings::default();
/// typed.context = ContextSettings { max_tokens: 50_000, ..ContextSettings::default() };
///
/// // The same as a document of what differs from the defaults.
/// assert_eq!(Settings::parse(r#"{"context": {"max_tokens": 50000}}"#)?, typed);
///
/// assert_eq!(
///     Settings::parse(r#"{"context": {"max_token": 50000}}"#).unwrap_err().to_string(),
///     "context.max_token: no such setting; did you mean max_tokens? allowed here are summary_share, max_tokens",
/// );
/// # Ok::<(), epitome::settings::SettingsError>(())
/// ```
///
/// [`Settings::parse`] and [`Settings::with`] check what is allowed and how settings fit together; `Deserialize` alone only reads
/// values of the right kind.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// How tokens are counted. It is fixed for a session when that is created.
    #[schemars(schema_with = "form::encoding", example = &"cl100k_base")]
    pub encoding: Encoding,
    /// What a context may hold.
    pub context: ContextSettings,
    /// The summaries that are kept. The list is taken as a whole: with one slot of your own, the default ones
    /// are gone unless you write them down too.
    #[serde(rename = "slot")]
    pub slots: Vec<SlotSettings>,
    /// When slots of that name are due, whatever the list of slots says of them. Any slot's name will do.
    ///
    /// A layer that names a list of its own begins again without them.
    #[serde(rename = "trigger")]
    #[schemars(schema_with = "form::triggers", example = &"messages(10)")]
    #[schemars(extend("propertyNames" = {"pattern": "^[A-Za-z0-9_-]{1,64}$"}))]
    pub triggers: BTreeMap<String, Trigger>,
    /// Who writes summaries, and how.
    pub summarize: SummarizeSettings,
    /// How lists are condensed inline. Of `trigger` and `threshold`, and of `keep` and `keep_last`, set one.
    pub condense: CondenseSettings,
    /// Models that are asked over a network, by names of your own.
    #[schemars(example = &"cheap")]
    pub models: BTreeMap<String, ModelSettings>,
    /// What models cost, by the names their providers give them.
    #[serde(deserialize_with = "read_prices")]
    #[schemars(with = "BTreeMap<String, PriceSettings>", example = &"gpt-5-mini")]
    pub prices: BTreeMap<String, Price>,
    /// How large things may be.
    pub limits: Limits,
}

/// What a context may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ContextSettings {
    /// How much of what pinned messages leave of a context its summary may take, more than 0 and at most 1;
    /// half as much again where the context is filled.
    #[schemars(schema_with = "form::share", example = 0.25)]
    pub summary_share: Fraction,
    /// How large a context may be; whoever asks for more is refused.
    #[schemars(schema_with = "form::positive", example = 50_000)]
    pub max_tokens: Tokens,
}

/// Who writes summaries, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SummarizeSettings {
    /// Who writes summaries: the first that can. `local` needs no key and no network.
    #[schemars(schema_with = "form::models", example = ["cheap", "main", "local"])]
    pub models: Vec<String>,
    /// Whether slots that do not say themselves fire by themselves.
    #[schemars(example = false)]
    pub auto: bool,
    /// Said to models as they are, for slots that have no instructions of their own.
    #[schemars(example = &"Answer in French.")]
    pub instructions: String,
    /// When `local` stands in for models that fail: a time, 0 for at once, or "never".
    #[schemars(schema_with = "form::stand_in", example = &"1h")]
    pub stand_in_after: StandIn,
    /// Whether secrets are taken out of what models are shown and write.
    #[schemars(example = false)]
    pub redact: bool,
    /// What a slot does that is far behind: "join" its windows, or "step" through them.
    #[schemars(schema_with = "form::catch_up", example = &"step")]
    pub catch_up: CatchUp,
    /// What a workspace may spend on summaries in a day (UTC), in the prices' money; "none" for no cap.
    #[schemars(schema_with = "form::cap_or_none", example = 2.5)]
    pub spend_cap_per_day: Option<Money>,
    /// After so many failures in a row a provider is left alone ...
    #[schemars(schema_with = "form::positive", example = 3)]
    pub breaker_after: u64,
    /// ... for so long.
    #[serde(with = "time")]
    #[schemars(schema_with = "form::any_time", example = &"5m")]
    pub breaker_for: Duration,
}

/// A price, `[prices.MODEL]`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PriceSettings {
    /// What it reads, per million tokens.
    #[schemars(schema_with = "form::price", example = 0.25)]
    input: Money,
    /// What it writes.
    #[schemars(schema_with = "form::price", example = 2.0)]
    output: Money,
    /// What it reads from a cache; `input` unless set.
    #[serde(default)]
    #[schemars(schema_with = "form::price", example = 0.025)]
    cache_read: Option<Money>,
    /// What it puts into a cache; `input` unless set.
    #[serde(default)]
    #[schemars(schema_with = "form::price", example = 0.25)]
    cache_write: Option<Money>,
}

/// Reads all prices.
fn read_prices<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, Price>, D::Error> {
    let complete = |PriceSettings { input, output, cache_read, cache_write }| Price {
        input,
        output,
        cache_read: cache_read.unwrap_or(input),
        cache_write: cache_write.unwrap_or(input),
    };
    let written = BTreeMap::<String, PriceSettings>::deserialize(deserializer)?;
    Ok(written.into_iter().map(|(model, price)| (model, complete(price))).collect())
}

/// How large things may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Bytes of one message's parts.
    #[schemars(schema_with = "form::positive", example = 262_144)]
    pub message: u64,
    /// Messages in one append.
    #[schemars(schema_with = "form::positive", example = 100)]
    pub batch: u64,
    /// Bytes of one request.
    #[schemars(schema_with = "form::positive", example = 1_048_576)]
    pub body: u64,
    /// Bytes of one message's metadata, as JSON.
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
    /// Those that one message is measured by.
    pub fn of_message(&self) -> message::Limits {
        message::Limits { message: self.message, metadata: self.metadata }
    }
}

impl Settings {
    /// The defaults with what a JSON or TOML document changes.
    pub fn parse(document: &str) -> Result<Self, SettingsError> {
        Self::default().with(&Patch::parse(document)?)
    }

    /// These, with what the patch changes.
    ///
    /// Keys it does not name stay, and so do those it sets to null. The list of slots is taken as a whole, prices model
    /// by model. What a patch says alone was checked when it was read; this checks what comes of both.
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
    pub fn to_value(&self) -> Value {
        Value::Object(self.patch().0)
    }

    /// The same as a patch. Applied over the defaults it gives these settings; applied over others it leaves
    /// their prices for models that are not priced here.
    pub fn patch(&self) -> Patch {
        match serde_json::to_value(self) {
            Ok(Value::Object(entries)) => Patch(entries),
            // No value of settings fails to be written.
            _ => Patch::default(),
        }
    }

    /// Refuses what a program set by hand and could not have been read.
    pub fn check(&self) -> Result<(), SettingsError> {
        Self::read(self.patch().0).map(|_| ())
    }

    /// The slot of this name in this scope.
    pub fn slot(&self, scope: &Scope, name: &str) -> Option<&SlotSettings> {
        self.slots.iter().find(|slot| slot.slot.name == name && slot.slot.scope == *scope)
    }

    /// A setting that names a model nobody knows, by its full name, and what it names.
    pub fn unknown_model(&self, is_known: impl Fn(&str) -> bool) -> Option<(String, &str)> {
        let slots = self.slots.iter().enumerate();
        let slots =
            slots.filter_map(|(at, slot)| Some((format!("slot[{at}].models"), slot.models.as_deref()?)));
        let all = ("summarize.models".to_owned(), self.summarize.models.as_slice());
        // What a request's own model is called there.
        let inline = Some(&self.condense.model).filter(|name| *name != CondenseSettings::SAME);
        let inline = inline.map(|name| ("condense.model".to_owned(), std::slice::from_ref(name)));
        slots.chain([all]).chain(inline).find_map(|(key, names)| {
            let unknown = names.iter().find(|name| !is_known(name))?;
            Some((key, unknown.as_str()))
        })
    }

    /// Who writes a slot's summaries: the models it names, or those of `summarize.models`.
    pub fn models_of<'a>(&'a self, slot: &'a SlotSettings) -> &'a [String] {
        slot.models.as_deref().unwrap_or(&self.summarize.models)
    }

    /// What is said to the model that writes a slot's summaries: its own instructions, or those of all.
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
        // Without a schema, which takes most of the start of a command.
        if entries.is_empty() {
            return Ok(self.clone());
        }
        condense::check_forms(entries)?;
        let mut tree = self.patch().0;
        if entries.get("slot").is_some_and(|slots| !slots.is_null()) {
            tree.shift_remove("trigger");
        }
        for (section, value) in entries {
            // A model is changed key by key, a price as a whole.
            overlay(&mut tree, section, value, if section == "models" { 2 } else { 1 }, Nulls::Leave);
        }
        Self::read(tree)
    }

    fn read(tree: Map<String, Value>) -> Result<Self, SettingsError> {
        // Made once: it takes longer than the reading.
        static SCHEMA: LazyLock<Value> = LazyLock::new(schema::<Settings>);
        let mut settings: Self = read(Value::Object(tree), &SCHEMA)?;
        settings.condense.settle()?;
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
        if let Some(odd) = models.chain(priced).find(|[_, name]| !is_model_name(name)) {
            return Err(wrong(&odd, "no model can be called so; 1 to 128 bytes are allowed"));
        }
        for (name, model) in &mut settings.models {
            model.settle(name)?;
        }
        Ok(settings)
    }
}

/// Sizes that whoever runs the engine answers for, with its memory: workspaces and sessions may lower them, not raise them.
impl Settings {
    /// Refuses a patch that asks for larger things than these settings allow.
    pub(crate) fn check_sizes(&self, patch: &Patch) -> Result<(), SettingsError> {
        let (mut wanted, mut own) = (self.with(patch)?, self.clone());
        let over = wanted.sizes().into_iter().zip(own.sizes()).find(|((_, given), (_, most))| given > most);
        match over {
            None => Ok(()),
            Some(((key, given), (_, most))) => {
                let problem = format!("{given} given; at most {most}, as the engine's settings say");
                Err(SettingsError::wrong(key, problem))
            }
        }
    }

    /// These, with nothing larger than others allow, which may have been lowered since these were set.
    pub(crate) fn no_larger_than(mut self, others: &Self) -> Self {
        for ((_, size), (_, most)) in self.sizes().into_iter().zip(others.clone().sizes()) {
            *size = (*most).min(*size);
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

/// A problem with the setting at this path.
fn wrong(path: &[&str], problem: impl Into<String>) -> SettingsError {
    SettingsError::wrong(path.iter().fold(String::new(), |key, name| read::join(&key, name)), problem)
}

/// The JSON Schema of a section, or of all [`Settings`]: names, help texts, defaults, examples, what is allowed.
///
/// ```
/// use epitome::settings::{Settings, schema};
///
/// let schema = schema::<Settings>();
/// let max_tokens = &schema["properties"]["context"]["properties"]["max_tokens"];
/// assert_eq!(max_tokens["description"], "How large a context may be; whoever asks for more is refused.");
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
