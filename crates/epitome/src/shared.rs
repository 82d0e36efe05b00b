//! State that the engine, the worker and the condenser share: store, models, caches, and signals for waiting tasks.
//!
//! This module starts nothing and decides nothing. The worker decides what runs when, the engine what a program may request.

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

/// State that the engine, the worker and the condenser share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) models: Models,
    /// The engine's settings, which workspaces and sessions may override.
    pub(crate) settings: Settings,
    pub(crate) pace: Pace,
    /// The id of this engine, unique among all engines on the store.
    pub(crate) owner: String,
    pub(crate) caches: Caches,
    pub(crate) health: Health,
    pub(crate) signals: Signals,
    pub(crate) activity: Activity,
}

/// The models, and their state.
#[derive(Default)]
pub(crate) struct Models {
    pub(crate) named: BTreeMap<String, Arc<dyn Model>>,
    pub(crate) hooks: Hooks,
    /// Circuit breakers of providers, and cached answers of inline condensing.
    pub(crate) memory: Arc<Memory>,
    /// Permits for model calls.
    pub(crate) seats: Arc<Seats>,
    /// Money reserved for calls in progress.
    pub(crate) purse: Arc<Purse>,
}

/// How long after a failed write the store counts as not ready. Short, because a node that is not ready gets no requests,
/// and only a new write can show that the store works again.
const LATELY: Duration = Duration::from_secs(10);

/// Recent problems.
#[derive(Default)]
pub(crate) struct Health {
    /// Why the worker cannot look for work.
    pub(crate) blind: Mutex<Option<StoreError>>,
    /// Any other problem of the worker that does not belong to a single slot. It stays until the next summary is started.
    pub(crate) trouble: Mutex<Option<String>>,
    /// The last failed write that reveals a problem of the store, and its time. For a while the store is not ready.
    unwritable: Mutex<Option<(Instant, StoreError)>>,
    /// The first problem of the hooks when they last ran.
    pub(crate) hook_trouble: Mutex<Option<String>>,
}

impl Health {
    /// Notes a failed write, if it reveals a problem of the store itself.
    pub(crate) fn note_write(&self, error: &StoreError) {
        if let StoreError::Full { .. } | StoreError::ReadOnly { .. } | StoreError::Damaged { .. } = error {
            *lock(&self.unwritable) = Some((Instant::now(), error.clone()));
        }
    }

    /// Returns why a recent write failed.
    pub(crate) fn unwritable(&self) -> Option<StoreError> {
        let noted = lock(&self.unwritable).clone();
        noted.filter(|(when, _)| when.elapsed() < LATELY).map(|(_, error)| error)
    }

    /// Returns the worker's most important problem.
    pub(crate) fn trouble(&self) -> Option<String> {
        let others = [&self.trouble, &self.hook_trouble];
        let blind = lock(&self.blind).as_ref().map(ToString::to_string);
        blind.or_else(|| others.into_iter().find_map(|trouble| lock(trouble).clone()))
    }
}

/// Why an engine is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unready {
    /// For every client: contains no file name.
    pub short: String,
    /// For the operator: where the problem is, and what to do.
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
            StoreError::Foreign { .. } | StoreError::Newer { .. } => "the store has an unsupported format",
            StoreError::Damaged { .. } => "the store is damaged",
            StoreError::Closed => "the store is closed",
            StoreError::Failed { .. } => "the store failed",
        };
        Self { short: short.to_owned(), whole: error.to_string() }
    }
}

/// Signals that wake waiting tasks.
#[derive(Default)]
pub(crate) struct Signals {
    /// Something may be due.
    pub(crate) wake: Notify,
    /// Counts up whenever a slot changes. Callers that wait for a summary then read the slot again.
    pub(crate) moved: watch::Sender<u64>,
    /// Every task that writes a summary must stop now.
    pub(crate) give_up: watch::Sender<bool>,
    /// Clients that wait for events.
    pub(crate) listeners: Arc<Listeners>,
}

/// Counters of the engine's activity.
#[derive(Default)]
pub(crate) struct Activity {
    /// Number of appends.
    pub(crate) appends: AtomicU64,
    /// Number of summaries that this engine is writing.
    pub(crate) working: AtomicUsize,
    /// Number of times that this engine released a slot after working on it.
    pub(crate) given_back: AtomicU64,
}

impl Shared {
    /// Returns the effective settings of a session. A session's own settings may lower size limits, but not raise them.
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

    /// Returns the effective settings of a session's snapshot.
    pub(crate) fn settings_at(&self, standing: &Standing) -> Result<Arc<Settings>, Error> {
        let own = standing.session.as_ref().map_or("", |row| &row.settings);
        self.settings_of(&standing.workspace_settings, own)
    }

    /// Rejects what a workspace or session may not set: settings of the whole program, and sizes above the engine's.
    ///
    /// A tenant that could set a model's address could have the program's key sent there. A tenant that could set prices
    /// could spend without limit.
    pub(crate) fn check_own(&self, patch: &Patch) -> Result<(), Error> {
        match ["models", "prices"].into_iter().find(|key| patch.entries().contains_key(*key)) {
            None => Ok(self.settings.check_sizes(patch)?),
            Some(key) => Err(Error::invalid(format!(
                "{key}: can only be set for the whole program; a workspace or session chooses models with summarize.models \
                 and condense.model"
            ))),
        }
    }

    /// Rejects settings that name an unknown model, or that use a fraction of a window that is unknown.
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

    /// Rejects a spend cap if a model has no price: the cap could not be enforced.
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
                "summarize.spend_cap_per_day: `{0}` has no price; set prices.{0:?}",
                writer.name
            ))),
        }
    }

    /// Returns the models that write a slot's summaries, first choice first.
    pub(crate) fn chain(&self, settings: &Settings, slot: &SlotSettings) -> Vec<Writer> {
        let names = settings.models_of(slot).iter();
        names.filter_map(|name| Some(Writer::new(name, self.models.named.get(name)?))).collect()
    }

    /// Returns what a workspace may spend in a day. Its own settings may lower the engine's cap, but not raise it.
    pub(crate) fn cap(&self, settings: &Settings) -> Option<Money> {
        let caps = [self.settings.summarize.spend_cap_per_day, settings.summarize.spend_cap_per_day];
        caps.into_iter().flatten().min()
    }

    /// Reserves what a model call may cost, if a spend cap applies. Fails if the call could exceed the cap.
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

    /// Returns the problem if this slot's settings name a model that this engine does not have. Another engine may have it.
    pub(crate) fn lacking(&self, settings: &Settings, slot: &SlotSettings) -> Option<String> {
        let lacks = settings.models_of(slot).iter().find(|name| !self.models.named.contains_key(*name))?;
        Some(format!("the settings name the model `{lacks}`, which this engine does not have"))
    }

    /// Returns the window minus the output reserve of the slot's first model, which is the base of the slot's fractions.
    pub(crate) fn room(&self, settings: &Settings, slot: &SlotSettings) -> Option<Tokens> {
        self.chain(settings, slot).first()?.model.room()
    }

    /// Changes a session as [`crate::store::Store::change`] does, with a decision that can fail and that returns a result.
    /// Returns that result, and the session's id if something was written.
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

    /// Wakes every caller that waits for a slot to change.
    pub(crate) fn tell_moved(&self) {
        self.signals.moved.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// Carries the result of a decision out of a store's transaction.
pub(crate) struct Told<T>(Mutex<Option<Result<T, Error>>>);

impl<T> Told<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(None)))
    }

    /// Saves the result of a decision, and returns the changes to be written.
    pub(crate) fn split<C>(&self, decided: Result<(Option<C>, T), Error>) -> Option<C> {
        let (changes, answer) = match decided {
            Ok((changes, answer)) => (changes, Ok(answer)),
            Err(error) => (None, Err(error)),
        };
        *lock(&self.0) = Some(answer);
        changes
    }

    /// Returns the result of the last decision. If the store was closed, no decision was made.
    pub(crate) fn take(&self) -> Result<T, Error> {
        lock(&self.0).take().unwrap_or(Err(Error::Closed))
    }
}

/// Returns a random id for this engine.
pub(crate) fn owner() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(std::process::id()))
}
