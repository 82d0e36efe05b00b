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

/// Assumed input price and output price of a summarizer whose price is unknown. The unit is the input price of the
/// model that receives the list. The numbers assume that this model also writes the summary, and that its output tokens
/// cost five times as much as its input tokens, which is typical.
const UNKNOWN_PRICE: (f64, f64) = (1.0, 5.0);

/// Name of the slot in a condenser's usage records and hook calls.
const SLOT: &str = "condense";

/// Builds a [`Condenser`].
///
/// Three sections of the settings configure the condenser: `condense` ([`crate::settings::CondenseSettings`]), `models`
/// and `prices`. By default, a condensation is due when the request reaches 170,000 tokens or three quarters of the
/// window, whichever is less. This is the window of the model that [`for_model`](CondenserBuilder::for_model) sets.
/// Then `local` summarizes all messages except the newest 6.
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
    /// Adds a model under a name, so that the setting `condense.model` can select it. `local` and the `models` of the
    /// settings are always available. If they have the same name, the model that is added here takes precedence.
    pub fn model(mut self, name: impl Into<String>, model: impl Model) -> Self {
        self.models.insert(name.into(), Arc::new(model));
        self
    }

    /// Adds a hook. The condenser passes the messages that leave the list to the hook, and notifies the hook after the
    /// condensation.
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.hooks = self.hooks.with(hook);
        self
    }

    /// Sets the settings that differ from the defaults. Accepts [`Settings`], a [`Patch`], or a JSON or TOML document.
    pub fn settings<S: TryInto<Patch>>(mut self, settings: S) -> Self
    where
        SettingsError: From<S::Error>,
    {
        self.settings = Some(settings.try_into().map_err(SettingsError::from));
        self
    }

    /// Sets the token counter. By default, the counter uses the encoding of the model, or the `encoding` of the
    /// settings if the model's encoding is unknown.
    pub fn counter(mut self, counter: Counter) -> Self {
        self.counter = Some(counter);
        self
    }

    /// Sets the model that receives the lists. `model` is the provider's name of the model, or a name in the `models`
    /// of the settings. The condenser looks up the window, the output reserve, the prices and the encoding of this
    /// model.
    pub fn for_model(mut self, model: impl Into<String>) -> Self {
        self.agent = Some(model.into());
        self
    }

    /// Sets the context window of the model that receives the lists, in tokens. The window includes input and output.
    /// This value replaces the window in the settings and in the table of models.
    pub fn window(mut self, window: Tokens) -> Self {
        self.window = Some(window);
        self
    }

    /// Sets how many tokens of the model's window are reserved for the model's answer.
    pub fn output_reserve(mut self, reserve: Tokens) -> Self {
        self.reserve = Some(reserve);
        self
    }

    /// Sets the schemas of the tools that are sent with every request. The condenser counts their tokens once and adds
    /// them to the size of each request.
    pub fn tools(mut self, schemas: impl IntoIterator<Item = Value>) -> Self {
        self.tools = schemas.into_iter().collect();
        self
    }

    /// Sets the name of the conversation. Hooks and usage records contain it as the session name.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the timeout and the backoff of model calls. The fields about workers have no effect here.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// Sets how many conversations the condenser remembers. The default is 64. The number should not be smaller than
    /// the number of agents that share the condenser: if an evicted conversation continues, the condenser condenses it
    /// from the start.
    pub fn conversations(mut self, max: usize) -> Self {
        self.max_conversations = Some(max.max(1));
        self
    }

    /// Configures the condenser for a single call. The call waits for the model. If the model fails, `local` writes no
    /// fallback summary. No summary is prepared for a later call.
    pub fn one_shot(mut self) -> Self {
        self.one_shot = true;
        self
    }

    /// Creates a builder with the models and hooks of an engine. The condenser records its spending in the workspace
    /// `name`.
    pub(crate) fn in_workspace(shared: Arc<Shared>, name: Arc<str>, settings: Arc<Settings>) -> Self {
        Self {
            models: shared.models.named.clone(),
            hooks: shared.models.hooks.clone(),
            pace: shared.pace.clone(),
            workspace: Some((shared, name, settings)),
            ..Self::default()
        }
    }

    /// Builds the condenser. If a setting is invalid, returns an error that names the setting.
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
        // This policy applies to calls without a window. If the settings are not valid without a window, the first
        // policy also applies to these calls.
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
            // For `same`, a caller lends the model later. Until then, `local` writes the summaries.
            _ if [Local::NAME, CondenseSettings::SAME].contains(&name) => Ok(NamedModel::local()),
            _ => {
                let names = self.models.keys().chain(settings.models.keys()).map(String::as_str);
                let defined = names.chain([Local::NAME]).collect();
                Err(undefined_model("condense.model", name, &defined, true).into())
            }
        }
    }

    /// Returns whether the model that receives the lists should also write their summaries. Returns false if a model
    /// with the name `same` is configured, because that model writes the summaries.
    fn uses_same_model(&self, settings: &Settings) -> bool {
        let name = settings.condense.model.as_str();
        name == CondenseSettings::SAME
            && !self.models.contains_key(name)
            && !settings.models.contains_key(name)
    }

    /// Returns the provider's name of the model that receives the lists.
    fn provider_name<'a>(&'a self, settings: &'a Settings) -> Option<&'a str> {
        let agent = self.agent.as_deref()?;
        Some(settings.models.get(agent).map_or(agent, |model| model.model.as_str()))
    }

    /// Returns two sizes in tokens: the model's context window, and the maximum input, which is the window minus the
    /// output reserve. Both are `None` if the window is unknown.
    fn window_and_room(&self, settings: &Settings) -> (Option<Tokens>, Option<Tokens>) {
        let own = self.agent.as_deref().and_then(|agent| settings.models.get(agent));
        let entry = self.provider_name(settings).and_then(table::find);
        let specific = self.window.or_else(|| own?.window).or_else(|| Some(entry?.window));
        let window = specific.or(settings.condense.window);
        let reserve = self.reserve.or_else(|| own?.output_reserve);
        let room = window.map(|window| {
            // The output reserve in the table may be larger than a window that was configured by hand.
            let usual = || entry.map_or(0, |entry| entry.output_reserve).min(window / 4);
            window.saturating_sub(reserve.unwrap_or_else(usual)).max(1)
        });
        (window, room)
    }
}

/// Returns token prices in units of the input price of the model that receives the list. `own` is the price of that
/// model. `writer` is the price of the model that writes the summaries. If a price is unknown, typical numbers are
/// used.
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
