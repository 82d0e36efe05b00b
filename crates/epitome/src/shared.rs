//! What engine, worker and condenser hold together: the store, the models, what is remembered between two calls, and how
//! they wake each other.
//!
//! It starts nothing and decides nothing: who works when is the worker's matter, what a program may ask for the engine's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use epitome_core::message::{Timestamp, Tokens};
use tokio::sync::{Notify, watch};

use crate::error::Error;
use crate::hook::Hooks;
use crate::lock::lock;
use crate::model::{Model, Tally};
use crate::pace::Pace;
use crate::price::Money;
use crate::purse::{Purse, Reserved};
use crate::retry::Failure;
use crate::seats::Seats;
use crate::settings::{Patch, Settings, SlotSettings};
use crate::store::{Changes, Load, SessionId, SessionKey, Standing, Store, StoreError, UsageQuery};
use crate::summarizer::{Failed, Memory};
use crate::time::DAY;
use crate::writer::{Writer, unknown_model};

mod caches;
mod listeners;

use caches::Caches;
pub(crate) use caches::TextKey;
pub use listeners::Listener;
use listeners::Listeners;

/// What engine, worker and condenser hold together.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) models: Models,
    /// The settings under those of workspaces and sessions.
    pub(crate) settings: Settings,
    pub(crate) pace: Pace,
    /// This engine among all that work on the store.
    pub(crate) owner: String,
    pub(crate) caches: Caches,
    pub(crate) health: Health,
    pub(crate) signals: Signals,
    pub(crate) activity: Activity,
}

/// Who writes summaries, and what is known of how they fare.
#[derive(Default)]
pub(crate) struct Models {
    pub(crate) named: BTreeMap<String, Arc<dyn Model>>,
    pub(crate) hooks: Hooks,
    /// Providers that failed lately, and what models answered inline.
    pub(crate) memory: Arc<Memory>,
    /// Who waits for which model.
    pub(crate) seats: Arc<Seats>,
    /// What calls under way may cost.
    pub(crate) purse: Arc<Purse>,
}

/// For so long a store that could not be written to is taken for one that cannot. Longer, and nobody would try.
const LATELY: Duration = Duration::from_secs(10);

/// What was wrong lately.
#[derive(Default)]
pub(crate) struct Health {
    /// Why the worker cannot look for work.
    pub(crate) blind: Mutex<Option<StoreError>>,
    /// What else troubles the worker, where that is no single slot's matter. It stays until the next summary is begun.
    pub(crate) trouble: Mutex<Option<String>>,
    /// Why the store could not be written to when that last failed, and when: for a while it counts as not ready.
    unwritable: Mutex<Option<(Instant, StoreError)>>,
    /// What was wrong with hooks when they last ran: the first of it.
    pub(crate) hook_trouble: Mutex<Option<String>>,
}

impl Health {
    /// Notes a write that failed, where that says something of the store itself.
    pub(crate) fn note_write(&self, error: &StoreError) {
        if let StoreError::Full { .. } | StoreError::ReadOnly { .. } | StoreError::Damaged { .. } = error {
            *lock(&self.unwritable) = Some((Instant::now(), error.clone()));
        }
    }

    /// Why the store could not be written to lately.
    pub(crate) fn unwritable(&self) -> Option<StoreError> {
        let noted = lock(&self.unwritable).clone();
        noted.filter(|(when, _)| when.elapsed() < LATELY).map(|(_, error)| error)
    }

    /// What troubles the worker most.
    pub(crate) fn trouble(&self) -> Option<String> {
        let others = [&self.trouble, &self.hook_trouble];
        let blind = lock(&self.blind).as_ref().map(ToString::to_string);
        blind.or_else(|| others.into_iter().find_map(|trouble| lock(trouble).clone()))
    }
}

/// Why an engine cannot be used now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unready {
    /// For anybody who asks: it names no file.
    pub short: String,
    /// For whoever runs it: where, and what to do.
    pub whole: String,
}

impl From<&str> for Unready {
    fn from(reason: &str) -> Self {
        Self { short: reason.to_owned(), whole: reason.to_owned() }
    }
}

impl From<&StoreError> for Unready {
    fn from(error: &StoreError) -> Self {
        let short = match error {
            StoreError::Busy => "the store is busy",
            StoreError::Unavailable { .. } => "the store cannot be reached",
            StoreError::Moving { .. } => "a file is being moved into the store",
            StoreError::Full { .. } => "the store's disk is full",
            StoreError::ReadOnly { .. } => "the store cannot be written",
            StoreError::Unreachable { .. } | StoreError::Empty { .. } => "the store cannot be opened",
            StoreError::Foreign { .. } | StoreError::Newer { .. } => "the store is not of this release",
            StoreError::Damaged { .. } => "the store is damaged",
            StoreError::Closed => "the store is closed",
            StoreError::Failed { .. } => "the store failed",
        };
        Self { short: short.to_owned(), whole: error.to_string() }
    }
}

/// How those who wait are woken.
#[derive(Default)]
pub(crate) struct Signals {
    /// Something may be due.
    pub(crate) wake: Notify,
    /// Counts up whenever a slot moved: whoever waits for a summary looks again.
    pub(crate) moved: watch::Sender<u64>,
    /// Whoever has a summary written is to stop now.
    pub(crate) give_up: watch::Sender<bool>,
    /// Who waits for events.
    pub(crate) listeners: Arc<Listeners>,
}

/// What was done and is being done.
#[derive(Default)]
pub(crate) struct Activity {
    /// How many appends it has done.
    pub(crate) appends: AtomicU64,
    /// How many summaries this engine is having written.
    pub(crate) working: AtomicUsize,
    /// How often a slot that was worked on here was given back.
    pub(crate) given_back: AtomicU64,
}

impl Shared {
    /// The settings that hold in a session. How large things may be, its own may lower and not raise.
    pub(crate) fn settings_of(&self, workspace: &str, session: &str) -> Result<Arc<Settings>, Error> {
        let documents = (workspace.to_owned(), session.to_owned());
        self.caches.merged.get_or_insert_with(&documents, || {
            let mut settings = self.settings.clone();
            for document in [workspace, session].into_iter().filter(|document| !document.is_empty()) {
                settings = settings.with(&Patch::parse(document)?)?;
            }
            Ok(Arc::new(settings.no_larger_than(&self.settings)))
        })
    }

    /// The settings that hold where a session stands.
    pub(crate) fn settings_at(&self, standing: &Standing) -> Result<Arc<Settings>, Error> {
        let own = standing.session.as_ref().map_or("", |row| &row.settings);
        self.settings_of(&standing.workspace_settings, own)
    }

    /// Refuses what a workspace or session may not set: what is set for the whole program only, and sizes over the engine's.
    ///
    /// Whoever could say where a model is asked could have the program's key sent there, and whoever could say what it
    /// costs could spend as if it cost nothing.
    pub(crate) fn check_own(&self, patch: &Patch) -> Result<(), Error> {
        match ["models", "prices"].into_iter().find(|key| patch.entries().contains_key(*key)) {
            None => Ok(self.settings.check_sizes(patch)?),
            Some(key) => Err(Error::invalid(format!(
                "{key}: are set for the whole program; a workspace or session chooses among models with summarize.models \
                 and condense.model"
            ))),
        }
    }

    /// Refuses settings that name models nobody knows, or measure by a window nobody knows.
    pub(crate) fn check(&self, settings: &Settings) -> Result<(), Error> {
        let named = &self.models.named;
        if let Some((key, unknown)) = settings.unknown_model(|name| named.contains_key(name)) {
            return Err(unknown_model(&key, unknown, named.keys()));
        }
        for slot in &settings.slots {
            let checked = slot.slot.check(self.room(settings, slot));
            checked.map_err(|error| Error::Invalid(format!("slot `{}`: {error}", slot.slot.name)))?;
        }
        Ok(())
    }

    /// Refuses a cap on what may be spent where nobody knows what a model costs: it would not hold.
    pub(crate) fn check_prices(&self, settings: &Settings) -> Result<(), Error> {
        if self.cap(settings).is_none() {
            return Ok(());
        }
        let slots = settings.slots.iter().flat_map(|slot| self.chain(settings, slot));
        let inline = &settings.condense.model;
        let inline = self.models.named.get(inline).map(|model| Writer::new(inline, model));
        match slots.chain(inline).find(|writer| writer.price(settings).is_none()) {
            None => Ok(()),
            Some(writer) => Err(Error::Invalid(format!(
                "summarize.spend_cap_per_day: what `{0}` costs is not known; set prices.{0:?}",
                writer.name
            ))),
        }
    }

    /// The models that write a slot's summaries, first choice first.
    pub(crate) fn chain(&self, settings: &Settings, slot: &SlotSettings) -> Vec<Writer> {
        let names = settings.models_of(slot).iter();
        names.filter_map(|name| Some(Writer::new(name, self.models.named.get(name)?))).collect()
    }

    /// What a workspace may spend in a day. Its own settings may lower what the engine's allow, not raise it.
    pub(crate) fn cap(&self, settings: &Settings) -> Option<Money> {
        let caps = [self.settings.summarize.spend_cap_per_day, settings.summarize.spend_cap_per_day];
        caps.into_iter().flatten().min()
    }

    /// Reserves what a call of a model may cost, where there is a cap for the day and it allows that.
    pub(crate) async fn reserve(
        &self,
        workspace: &Arc<str>,
        settings: &Settings,
        writer: &Writer,
        most: &Tally,
        now: Timestamp,
    ) -> Result<Option<Reserved>, Failed> {
        let Some(cap) = self.cap(settings) else { return Ok(None) };
        let Some(price) = writer.price(settings) else {
            return Err(Failure::Unpriced { model: writer.name.clone() }.into());
        };
        let more = price.cost(most);
        let day = now.0.rem_euclid(DAY);
        let since = Timestamp(now.0.saturating_sub(day));
        let query = UsageQuery { workspace: Arc::clone(workspace), session: None, since, by_session: false };
        let rows = self.store.usage(query).await.map_err(|error| Failed::Store(error.into()))?;
        let spent: Money = rows.iter().filter_map(|row| row.cost).map(Money::millionths).sum();
        let reserved = self.models.purse.reserve(workspace, spent, more, cap).map_err(|held| {
            let wait = Duration::from_millis(u64::try_from(DAY.saturating_sub(day)).unwrap_or(0));
            Failure::Spent { cap, spent: spent + held, more, wait }
        })?;
        Ok(Some(reserved))
    }

    /// What is wrong where the settings name a model for this slot that this engine does not have. Another one
    /// may.
    pub(crate) fn lacking(&self, settings: &Settings, slot: &SlotSettings) -> Option<String> {
        let lacks = settings.models_of(slot).iter().find(|name| !self.models.named.contains_key(*name))?;
        Some(format!("the settings name the model `{lacks}`, which this engine does not have"))
    }

    /// The window, less its output reserve, that a slot's fractions are measured by: its first model's.
    pub(crate) fn room(&self, settings: &Settings, slot: &SlotSettings) -> Option<Tokens> {
        self.chain(settings, slot).first()?.model.room()
    }

    /// Changes a session, as [`crate::store::Store::change`] does, for a decision that may fail and has something to tell.
    /// Returns that, and the number of the session where something was written.
    pub(crate) async fn change<T, F>(
        &self,
        key: &SessionKey,
        load: Load,
        decide: F,
    ) -> Result<(T, Option<SessionId>), Error>
    where
        T: Send + 'static,
        F: Fn(&Standing) -> Result<(Option<Changes>, T), Error> + Send + Sync + 'static,
    {
        let told = Told::new();
        let tell = Arc::clone(&told);
        let decide = move |standing: &Standing| tell.split(decide(standing));
        let changed = self.store.change(key, load, Box::new(decide)).await;
        let changed = changed.inspect_err(|error| self.health.note_write(error))?;
        if changed.is_some() {
            self.signals.listeners.wake(&key.workspace);
        }
        Ok((told.take()?, changed))
    }

    /// Tells whoever waits that a slot moved.
    pub(crate) fn tell_moved(&self) {
        self.signals.moved.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// Where a decision that is made inside a store leaves what it has to tell.
pub(crate) struct Told<T>(Mutex<Option<Result<T, Error>>>);

impl<T> Told<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(None)))
    }

    /// Leaves what a decision has to tell, and returns what is to be written.
    pub(crate) fn split<C>(&self, decided: Result<(Option<C>, T), Error>) -> Option<C> {
        let (changes, answer) = match decided {
            Ok((changes, answer)) => (changes, Ok(answer)),
            Err(error) => (None, Err(error)),
        };
        *lock(&self.0) = Some(answer);
        changes
    }

    /// What the last decision told. A store that was closed asks for none.
    pub(crate) fn take(&self) -> Result<T, Error> {
        lock(&self.0).take().unwrap_or(Err(Error::Closed))
    }
}

/// A name no other engine has.
pub(crate) fn owner() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(std::process::id()))
}
