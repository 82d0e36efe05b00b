//! Builds a condenser.

use std::collections::BTreeMap;
use std::hash::RandomState;
use std::sync::{Arc, Mutex};

use epitome_core::economic::Prices;
use epitome_core::message::Tokens;
use epitome_core::tokens::{Counter, Encoding};
use serde_json::Value;

use super::conversation::Rules;
use super::list_summarizer::ListSummarizer;
use super::{Condenser, CondenserInner, MAX_CONVERSATIONS, RecentConversations, next_id};
use crate::error::Error;
use crate::hidden::Hidden;
use crate::hook::{Hook, Hooks};
use crate::model::{self, Local, Model};
use crate::named_model::NamedModel;
use crate::pace::Pace;
use crate::settings::{CondenseSettings, Patch, Price, Settings, SettingsError, undefined_model};
use crate::shared::Shared;
use crate::summarizer::Label;
use crate::table;

/// Assumed input and output price of a summarizer whose price is unknown, in units of the list model's input price: the
/// ratios of a typical model, as if the list's own model wrote the summary.
const UNKNOWN_PRICE: (f64, f64) = (1.0, 5.0);

/// Slot name of a condenser's summaries, in usage records and for hooks.
const SLOT: &str = "condense";

/// Builds a [`Condenser`].
///
/// It is configured by the `condense` section of the settings ([`crate::settings::CondenseSettings`]) and by `models`
/// and `prices`. By default, `local` summarizes all but the newest 6 messages when the request reaches 170,000 tokens,
/// or three quarters of the window of the model it is [for](CondenserBuilder::for_model).
///
/// ```
/// use epitome::Condenser;
/// use epitome::model::Local;
///
/// let condenser = Condenser::builder()
///     .for_model("claude-sonnet-4-5")
///     .model("cheap", Local)
///     .settings(r#"{"condense": {"strategy": "amortized", "threshold": 0.6, "keep_last": 10, "model": "cheap"}}"#)
///     .build()?;
/// # Ok::<(), epitome::Error>(())
/// ```
#[derive(Default)]
#[must_use = "a builder does nothing until it is built"]
pub struct CondenserBuilder {
    models: BTreeMap<String, Arc<dyn Model>>,
    hooks: Hooks,
    settings: Option<Result<Patch, SettingsError>>,
    counter: Option<Counter>,
    agent: Option<String>,
    window: Option<Tokens>,
    reserve: Option<Tokens>,
    tools: Vec<Value>,
    name: Option<Arc<str>>,
    pace: Pace,
    one_shot: bool,
    max_conversations: Option<usize>,
    workspace: Option<(Arc<Shared>, Arc<str>, Arc<Settings>)>,
}

impl CondenserBuilder {
    /// Adds a model under a name, so that `condense.model` can choose it. `local` and the `models` of the settings are
    /// always available; a model added here takes precedence over one of the same name.
    pub fn model(mut self, name: impl Into<String>, model: impl Model) -> Self {
        self.models.insert(name.into(), Arc::new(model));
        self
    }

    /// Adds a hook that is called before messages leave the list, and afterwards.
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.hooks = self.hooks.with(hook);
        self
    }

    /// Changes the defaults. Accepts [`Settings`], a [`Patch`], or a JSON or TOML document of the settings that differ.
    pub fn settings<S: TryInto<Patch>>(mut self, settings: S) -> Self
    where
        SettingsError: From<S::Error>,
    {
        self.settings = Some(settings.try_into().map_err(SettingsError::from));
        self
    }

    /// Sets the token counter, which replaces the encoding of the model and of the settings.
    pub fn counter(mut self, counter: Counter) -> Self {
        self.counter = Some(counter);
        self
    }

    /// Sets the model that lists are made for, by its provider's name or by a name in `models`. Its window, output
    /// reserve, prices and encoding are looked up.
    pub fn for_model(mut self, model: impl Into<String>) -> Self {
        self.agent = Some(model.into());
        self
    }

    /// Sets the context window of that model, in tokens (input and output), if the table of models does not contain it
    /// or is wrong.
    pub fn window(mut self, window: Tokens) -> Self {
        self.window = Some(window);
        self
    }

    /// Sets how many tokens of the window are reserved for the answer.
    pub fn output_reserve(mut self, reserve: Tokens) -> Self {
        self.reserve = Some(reserve);
        self
    }

    /// Sets the schemas of the tools that are sent with every request. They are counted once.
    pub fn tools(mut self, schemas: impl IntoIterator<Item = Value>) -> Self {
        self.tools = schemas.into_iter().collect();
        self
    }

    /// Sets the name of the conversation that hooks get.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets timeouts and backoff of model calls. The fields about workers have no effect here.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Sets how many conversations the condenser remembers, by default 64: at least the number of agents that share it.
    /// A conversation that was evicted is condensed from the start when it continues.
    pub fn conversations(mut self, max: usize) -> Self {
        self.max_conversations = Some(max.max(1));
        self
    }

    /// Condenses a single list once: the call waits for the model, there is no fallback if the model fails, and nothing
    /// is prepared for a next call.
    pub fn one_shot(mut self) -> Self {
        self.one_shot = true;
        self
    }

    /// Creates a builder with an engine's models and settings, which records spending in a workspace.
    pub(crate) fn in_workspace(shared: Arc<Shared>, name: Arc<str>, settings: Arc<Settings>) -> Self {
        Self {
            models: shared.models.named.clone(),
            hooks: shared.models.hooks.clone(),
            pace: shared.pace.clone(),
            workspace: Some((shared, name, settings)),
            ..Self::default()
        }
    }

    /// Builds the condenser. Returns an error with the name of the setting if the configuration cannot work.
    pub fn build(mut self) -> Result<Condenser, Error> {
        let base =
            self.workspace.as_ref().map_or_else(Settings::default, |(_, _, base)| Settings::clone(base));
        let settings = match self.settings.take() {
            Some(patch) => base.with(&patch?)?,
            None => base,
        };
        settings.check()?;
        let writer = self.summarizing_model(&settings)?;
        let (window, room) = self.window_and_room(&settings);
        let invalid = |error| Error::Invalid(format!("condense.{error}"));
        let policy = settings.condense.policy(room).map_err(invalid)?;
        // A call may provide an unknown window later, so parts of the policy that depend on it are checked then.
        let policy_without_room = settings.condense.policy(None).unwrap_or_else(|_| policy.clone());
        let own = self.agent.as_deref().and_then(|agent| settings.price(agent));
        let encoding =
            self.provider_name(&settings).and_then(Encoding::for_model).unwrap_or(settings.encoding);
        let counter = self.counter.take().unwrap_or_else(|| Counter::new(encoding));
        let local = writer.is_local();
        let rules = Rules {
            enabled: settings.condense.enabled,
            uses_same_model: self.uses_same_model(&settings),
            fixed: counter.tools(&self.tools),
            policy,
            policy_without_room,
            counter: counter.clone(),
            room,
            window,
            prices: prices(own, if local { Some(Price::FREE) } else { writer.price(&settings) }),
            prices_of_same: prices(own, own),
            wait: settings.condense.wait || self.one_shot,
            has_next_call: !self.one_shot,
            local,
            backoff: self.pace.backoff,
            key: RandomState::new(),
        };
        let (workspace, shared) = self.workspace.map(|(shared, name, _)| (name, shared)).unzip();
        let label = Label {
            workspace: workspace.unwrap_or_default(),
            session: self.name.unwrap_or_default(),
            slot: SLOT.into(),
            scope: None,
        };
        let summarizer = ListSummarizer {
            writer,
            counter,
            settings: Arc::new(settings),
            hooks: self.hooks,
            label,
            state: shared.as_ref().map(|shared| Arc::clone(&shared.models.memory)).unwrap_or_default(),
            engine: shared,
            pace: self.pace,
            lent: false,
        };
        let inner = CondenserInner {
            id: next_id(),
            rules,
            summarizer: Arc::new(summarizer),
            conversations: Mutex::new(RecentConversations::with_limit(
                self.max_conversations.unwrap_or(MAX_CONVERSATIONS),
            )),
            totals: Mutex::default(),
            loan: None,
        };
        Ok(Condenser { inner: Hidden(Arc::new(inner)) })
    }

    /// Returns the model that writes summaries.
    fn summarizing_model(&self, settings: &Settings) -> Result<NamedModel, Error> {
        let name = settings.condense.model.as_str();
        if let Some(model) = self.models.get(name) {
            return Ok(NamedModel::new(name, model));
        }
        match settings.models.get(name) {
            Some(model) if name != Local::NAME => {
                Ok(NamedModel::new(name, &model::of_settings(name, model)?))
            }
            // For `same`, the real model is lent later.
            _ if [Local::NAME, CondenseSettings::SAME].contains(&name) => Ok(NamedModel::local()),
            _ => {
                let names = self.models.keys().chain(settings.models.keys()).map(String::as_str);
                let defined = names.chain([Local::NAME]).collect();
                Err(undefined_model("condense.model", name, &defined, true).into())
            }
        }
    }

    /// Returns whether the model that lists are for should write their summaries. A model that is configured under the
    /// name `same` takes precedence.
    fn uses_same_model(&self, settings: &Settings) -> bool {
        let name = settings.condense.model.as_str();
        name == CondenseSettings::SAME
            && !self.models.contains_key(name)
            && !settings.models.contains_key(name)
    }

    /// Returns the provider's name of the model that lists are for.
    fn provider_name<'a>(&'a self, settings: &'a Settings) -> Option<&'a str> {
        let agent = self.agent.as_deref()?;
        Some(settings.models.get(agent).map_or(agent, |model| model.model.as_str()))
    }

    /// Returns the model's context window, and its input limit: the window minus the output reserve.
    fn window_and_room(&self, settings: &Settings) -> (Option<Tokens>, Option<Tokens>) {
        let own = self.agent.as_deref().and_then(|agent| settings.models.get(agent));
        let entry = self.provider_name(settings).and_then(table::find);
        let specific = self.window.or_else(|| own?.window).or_else(|| Some(entry?.window));
        let window = specific.or(settings.condense.window);
        let reserve = self.reserve.or_else(|| own?.output_reserve);
        let room = window.map(|window| {
            // The reserve in the table may exceed a window that was configured by hand.
            let usual = || entry.map_or(0, |entry| entry.output_reserve).min(window / 4);
            window.saturating_sub(reserve.unwrap_or_else(usual)).max(1)
        });
        (window, room)
    }
}

/// Returns token prices in units of the list model's input price, with a summarizer of price `writer`. If the price of
/// the list's model is unknown, typical ratios are used.
fn prices(own: Option<Price>, writer: Option<Price>) -> Prices {
    let own = own.map(|price| (price, price.input.get())).filter(|(_, unit)| *unit > 0.0);
    let cache = own.and_then(|(price, unit)| {
        let read = price.cache_read.get() / unit;
        Prices::new(read, (price.cache_write.get() / unit).max(read)).ok()
    });
    let (input, output) = match (writer, own) {
        (Some(Price::FREE), _) => (0.0, 0.0),
        (Some(writer), Some((_, unit))) => (writer.input.get() / unit, writer.output.get() / unit),
        _ => UNKNOWN_PRICE,
    };
    let cache = cache.unwrap_or_default();
    cache.with_summarizer(input, output).unwrap_or(cache)
}
