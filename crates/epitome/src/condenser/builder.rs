//! Making a condenser.

use std::collections::BTreeMap;
use std::hash::RandomState;
use std::sync::{Arc, Mutex};

use epitome_core::economic::Prices;
use epitome_core::message::Tokens;
use epitome_core::tokens::{Counter, Encoding};
use serde_json::Value;

use super::conversation::Rules;
use super::scribe::Scribe;
use super::{Condenser, Inner, Known, MOST_CONVERSATIONS, number};
use crate::error::Error;
use crate::hidden::Hidden;
use crate::hook::{Hook, Hooks};
use crate::model::{self, Local, Model};
use crate::pace::Pace;
use crate::settings::{CondenseSettings, Patch, Price, Settings, SettingsError};
use crate::shared::Shared;
use crate::summarizer::Label;
use crate::table;
use crate::writer::{Writer, unknown_model};

/// What a summarizer costs whose price nobody knows, in units of the model's own input price: as if it were the same
/// model.
const UNKNOWN_PRICE: (f64, f64) = (1.0, 5.0);

/// The slot name of a condenser's summaries, in records and for hooks.
const SLOT: &str = "condense";

/// Makes a condenser.
///
/// What can be set is `condense` of the settings ([`crate::settings::CondenseSettings`]), with `models` and `prices`. With
/// nothing set, `local` writes summaries of all but the newest 6 messages when the request reaches 170,000 tokens, or three
/// quarters of the window of the model it is [for](CondenserBuilder::for_model).
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
    at_once: bool,
    conversations: Option<usize>,
    workspace: Option<(Arc<Shared>, Arc<str>, Arc<Settings>)>,
}

impl CondenserBuilder {
    /// Names a model, so that `condense.model` can choose it. `local` is always there, and so are those of `models` in
    /// the settings; one of the same name that is given here goes before them.
    pub fn model(mut self, name: impl Into<String>, model: impl Model) -> Self {
        self.models.insert(name.into(), Arc::new(model));
        self
    }

    /// Has a hook told before messages leave, and after.
    pub fn hook(mut self, hook: impl Hook) -> Self {
        self.hooks = self.hooks.with(hook);
        self
    }

    /// Changes the defaults. Takes [`Settings`], a [`Patch`], or a JSON or TOML document of the settings that differ.
    pub fn settings<S: TryInto<Patch>>(mut self, settings: S) -> Self
    where
        SettingsError: From<S::Error>,
    {
        self.settings = Some(settings.try_into().map_err(SettingsError::from));
        self
    }

    /// Counts tokens with this, in place of the model's own encoding or that of the settings.
    pub fn counter(mut self, counter: Counter) -> Self {
        self.counter = Some(counter);
        self
    }

    /// The model that lists are made for, by its provider's name or by one of `models`: its window, what it keeps free for
    /// its answer, its prices and its encoding are looked up.
    pub fn for_model(mut self, model: impl Into<String>) -> Self {
        self.agent = Some(model.into());
        self
    }

    /// How many tokens that model reads and writes in all, where the table of models does not know or is wrong.
    pub fn window(mut self, window: Tokens) -> Self {
        self.window = Some(window);
        self
    }

    /// How many of those are kept free for its answer.
    pub fn output_reserve(mut self, reserve: Tokens) -> Self {
        self.reserve = Some(reserve);
        self
    }

    /// The schemas of the tools that come with every request. They are counted once.
    pub fn tools(mut self, schemas: impl IntoIterator<Item = Value>) -> Self {
        self.tools = schemas.into_iter().collect();
        self
    }

    /// What hooks are told the conversation is called.
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// How long models are waited for, and how waiting grows after failures. What is said of workers is nothing to it.
    pub fn pace(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }

    /// How many conversations it knows at a time, 64 unless told: as many as there are agents that share it. One that is
    /// forgotten is condensed anew when it goes on.
    pub fn conversations(mut self, most: usize) -> Self {
        self.conversations = Some(most.max(1));
        self
    }

    /// For one list, once: it waits for the model, nobody stands in where that fails, and nothing is prepared for a next
    /// time.
    pub fn at_once(mut self) -> Self {
        self.at_once = true;
        self
    }

    /// Spends in the name of a workspace, with an engine's models and settings.
    pub(crate) fn in_workspace(shared: Arc<Shared>, name: Arc<str>, settings: Arc<Settings>) -> Self {
        Self {
            models: shared.models.named.clone(),
            hooks: shared.models.hooks.clone(),
            pace: shared.pace.clone(),
            workspace: Some((shared, name, settings)),
            ..Self::default()
        }
    }

    /// Makes it. Refused is what could not work, by the name of the setting.
    pub fn build(mut self) -> Result<Condenser, Error> {
        let base =
            self.workspace.as_ref().map_or_else(Settings::default, |(_, _, base)| Settings::clone(base));
        let settings = match self.settings.take() {
            Some(patch) => base.with(&patch?)?,
            None => base,
        };
        settings.check()?;
        let writer = self.summarizer(&settings)?;
        let (window, room) = self.window_and_room(&settings);
        let refused = |error| Error::Invalid(format!("condense.{error}"));
        let policy = settings.condense.policy(room).map_err(refused)?;
        // A call may know the room where nobody did before, so that what needs it is judged then.
        let roomless = settings.condense.policy(None).unwrap_or_else(|_| policy.clone());
        let own = self.agent.as_deref().and_then(|agent| settings.price(agent));
        let encoding =
            self.provider_name(&settings).and_then(Encoding::for_model).unwrap_or(settings.encoding);
        let counter = self.counter.take().unwrap_or_else(|| Counter::new(encoding));
        let local = writer.is_local();
        let rules = Rules {
            enabled: settings.condense.enabled,
            borrows: self.borrows(&settings),
            fixed: counter.tools(&self.tools),
            policy,
            roomless,
            counter: counter.clone(),
            room,
            window,
            prices: prices(own, if local { Some(Price::FREE) } else { writer.price(&settings) }),
            prices_of_same: prices(own, own),
            wait: settings.condense.wait || self.at_once,
            ahead: !self.at_once,
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
        let scribe = Scribe {
            writer,
            counter,
            settings: Arc::new(settings),
            hooks: self.hooks,
            label,
            memory: shared.as_ref().map(|shared| Arc::clone(&shared.models.memory)).unwrap_or_default(),
            workspace: shared,
            pace: self.pace,
            lent: false,
        };
        let inner = Inner {
            id: number(),
            rules,
            scribe: Arc::new(scribe),
            known: Mutex::new(Known::at_most(self.conversations.unwrap_or(MOST_CONVERSATIONS))),
            totals: Mutex::default(),
            loan: None,
        };
        Ok(Condenser { inner: Hidden(Arc::new(inner)) })
    }

    /// Who writes summaries.
    fn summarizer(&self, settings: &Settings) -> Result<Writer, Error> {
        let name = settings.condense.model.as_str();
        if let Some(model) = self.models.get(name) {
            return Ok(Writer::new(name, model));
        }
        match settings.models.get(name) {
            Some(model) if name != Local::NAME => Ok(Writer::new(name, &model::of_settings(name, model)?)),
            // Of the two, the other is lent later.
            _ if [Local::NAME, CondenseSettings::SAME].contains(&name) => Ok(Writer::local()),
            _ => {
                let known = self.models.keys().chain(settings.models.keys());
                Err(unknown_model("condense.model", name, known))
            }
        }
    }

    /// Whether the model that lists are for should write their summaries. One that somebody gave that name goes first.
    fn borrows(&self, settings: &Settings) -> bool {
        let name = settings.condense.model.as_str();
        name == CondenseSettings::SAME
            && !self.models.contains_key(name)
            && !settings.models.contains_key(name)
    }

    /// What the model that lists are for is called by its provider.
    fn provider_name<'a>(&'a self, settings: &'a Settings) -> Option<&'a str> {
        let agent = self.agent.as_deref()?;
        Some(settings.models.get(agent).map_or(agent, |model| model.model.as_str()))
    }

    /// How many tokens it reads and writes in all, and that less its output reserve.
    fn window_and_room(&self, settings: &Settings) -> (Option<Tokens>, Option<Tokens>) {
        let own = self.agent.as_deref().and_then(|agent| settings.models.get(agent));
        let entry = self.provider_name(settings).and_then(table::find);
        let known = self.window.or_else(|| own?.window).or_else(|| Some(entry?.window));
        let window = known.or(settings.condense.window);
        let reserve = self.reserve.or_else(|| own?.output_reserve);
        let room = window.map(|window| {
            // What the table keeps free may be more than a window that was set by hand holds.
            let usual = || entry.map_or(0, |entry| entry.output_reserve).min(window / 4);
            window.saturating_sub(reserve.unwrap_or_else(usual)).max(1)
        });
        (window, room)
    }
}

/// What tokens cost in units of the model's own input price, with a summarizer of this price. Where the model's own is not
/// known, the usual shares.
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
