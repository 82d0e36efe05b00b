//! State that the engine, the worker and the condenser share: store, models, caches, and signals for waiting tasks.
//!
//! This module starts no tasks and makes no decisions. The worker decides which summary is written when. The engine
//! decides what a program may request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use epitome_core::message::{Timestamp, Tokens};
use tokio::sync::{Notify, OnceCell, watch};

use crate::error::Error;
use crate::hook::Hooks;
use crate::lock::lock;
use crate::log_hash::LogHasher;
use crate::model::{Model, TokenUsage};
use crate::model_permits::ModelPermits;
use crate::named_model::NamedModel;
use crate::pace::Pace;
use crate::price::Money;
use crate::retry::Failure;
use crate::settings::{Patch, Settings, SlotSettings};
use crate::spend_reservations::{SpendReservation, SpendReservations};
use crate::store::{
    Changes, Lease, Load, SessionId, SessionKey, SessionState, Store, StoreError, UsageQuery,
};
use crate::summarizer::{SummarizerState, SummaryError};
use crate::time::DAY;

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
    /// Hashes the names of slots for logs. The hasher is created at its first use.
    pub(crate) log_hasher: OnceCell<LogHasher>,
}

/// The models, and their state.
#[derive(Default)]
pub(crate) struct Models {
    pub(crate) named: BTreeMap<String, Arc<dyn Model>>,
    pub(crate) hooks: Hooks,
    /// Circuit breakers of providers, and cached answers of the models that condense message lists.
    pub(crate) memory: Arc<SummarizerState>,
    /// Permits for model calls.
    pub(crate) permits: Arc<ModelPermits>,
    /// Money reserved for calls in progress.
    pub(crate) reservations: Arc<SpendReservations>,
}

/// How long after a failed write the store counts as not ready. The time is short, because a node that is not ready
/// gets no requests, and only another write can show that the store works again.
const WRITE_ERROR_LASTS: Duration = Duration::from_secs(10);

/// Recent problems.
#[derive(Default)]
pub(crate) struct Health {
    /// The error because of which the worker cannot look for work; `None` if it can.
    pub(crate) lease_error: Mutex<Option<StoreError>>,
    /// Any other problem of the worker that does not belong to a single slot. It is cleared when the next summary is
    /// started.
    pub(crate) worker_problem: Mutex<Option<String>>,
    /// The time and the error of the last failed write that shows a problem of the store. After such a write, the store
    /// counts as not ready for [`WRITE_ERROR_LASTS`].
    write_error: Mutex<Option<(Instant, StoreError)>>,
    /// The first error of the hooks in their last run.
    pub(crate) hook_problem: Mutex<Option<String>>,
}

impl Health {
    /// Records a failed write if its error shows a problem of the store itself.
    pub(crate) fn record_write_error(&self, error: &StoreError) {
        if let StoreError::Full { .. } | StoreError::ReadOnly { .. } | StoreError::Damaged { .. } = error {
            *lock(&self.write_error) = Some((Instant::now(), error.clone()));
        }
    }

    /// Returns the error of a write that failed within the last [`WRITE_ERROR_LASTS`].
    pub(crate) fn recent_write_error(&self) -> Option<StoreError> {
        let last = lock(&self.write_error).clone();
        last.filter(|(when, _)| when.elapsed() < WRITE_ERROR_LASTS).map(|(_, error)| error)
    }

    /// Returns the worker's most important problem.
    pub(crate) fn problem(&self) -> Option<String> {
        let others = [&self.worker_problem, &self.hook_problem];
        let lease_error = lock(&self.lease_error).as_ref().map(ToString::to_string);
        lease_error.or_else(|| others.into_iter().find_map(|problem| lock(problem).clone()))
    }
}

/// Why an engine is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unready {
    /// The reason in a form that any client may see. It contains no file name.
    pub public: String,
    /// The reason for the operator. It contains the place of the problem and what the operator should do.
    pub details: String,
}

impl From<&str> for Unready {
    fn from(reason: &str) -> Self {
        Self { public: reason.to_owned(), details: reason.to_owned() }
    }
}

impl From<&StoreError> for Unready {
    fn from(error: &StoreError) -> Self {
        let public = match error {
            StoreError::Busy => "the store is busy",
            StoreError::Unavailable { .. } => "the store cannot be reached",
            StoreError::Migrating { .. } => "a file is being moved into the store",
            StoreError::Full { .. } => "the store's disk is full",
            StoreError::ReadOnly { .. } => "the store cannot be written",
            StoreError::Unreachable { .. } | StoreError::Empty { .. } => "the store cannot be opened",
            StoreError::Foreign { .. } | StoreError::Newer { .. } => "the store has an unsupported format",
            StoreError::Damaged { .. } => "the store is damaged",
            StoreError::Closed => "the store is closed",
            StoreError::Failed { .. } => "the store failed",
        };
        Self { public: public.to_owned(), details: error.to_string() }
    }
}

/// Signals that wake waiting tasks.
#[derive(Default)]
pub(crate) struct Signals {
    /// Wakes the worker, because a slot may be due.
    pub(crate) wake: Notify,
    /// A counter that increases whenever a slot changes. Callers that wait for a summary read the slot again after each
    /// change.
    pub(crate) slot_changed: watch::Sender<u64>,
    /// If true, every task that writes a summary must stop now.
    pub(crate) abort: watch::Sender<bool>,
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
    pub(crate) released: AtomicU64,
}

impl Shared {
    /// Returns the effective settings of a session. `workspace` and `session` are the stored settings documents. These
    /// documents may lower the engine's size limits, but not raise them.
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

    /// Returns the effective settings of the session in this snapshot.
    pub(crate) fn settings_at(&self, state: &SessionState) -> Result<Arc<Settings>, Error> {
        let own = state.session.as_ref().map_or("", |row| &row.settings);
        self.settings_of(&state.workspace_settings, own)
    }

    /// Rejects settings that a workspace or session may not set. These are `models` and `prices`, which only the
    /// program may set, and size limits above the engine's limits.
    ///
    /// A tenant that could set a model's address could send the program's key to that address. A tenant that could set
    /// prices could spend without limit.
    pub(crate) fn check_tenant_patch(&self, patch: &Patch) -> Result<(), Error> {
        match ["models", "prices"].into_iter().find(|key| patch.entries().contains_key(*key)) {
            None => Ok(self.settings.check_sizes(patch)?),
            Some(key) => Err(Error::invalid(format!(
                "{key}: can only be set for the whole program; a workspace or session chooses models with summarize.models \
                 and condense.model"
            ))),
        }
    }

    /// Rejects settings of the engine that name an undefined model, or that use a fraction of an unknown window.
    pub(crate) fn check(&self, settings: &Settings) -> Result<(), Error> {
        settings.check_models(self.models.named.keys().map(String::as_str))?;
        self.check_windows(settings)
    }

    /// Checks the settings of a workspace or a session as [`Shared::check`] does. These settings cannot define models.
    pub(crate) fn check_tenant_settings(&self, settings: &Settings) -> Result<(), Error> {
        settings.check_model_choice(self.models.named.keys().map(String::as_str))?;
        self.check_windows(settings)
    }

    fn check_windows(&self, settings: &Settings) -> Result<(), Error> {
        for (at, slot) in settings.slots.iter().enumerate() {
            let checked = slot.slot.check(self.room(settings, slot));
            checked.map_err(|error| Error::Invalid(format!("slot[{at}].{error}")))?;
        }
        Ok(())
    }

    /// Rejects a spend cap if a model has no price, because the cap could not be enforced.
    pub(crate) fn check_prices(&self, settings: &Settings) -> Result<(), Error> {
        if self.spend_cap(settings).is_none() {
            return Ok(());
        }
        let slots = settings.slots.iter().flat_map(|slot| self.models_of_slot(settings, slot));
        let inline = &settings.condense.model;
        let inline = self.models.named.get(inline).map(|model| NamedModel::new(inline, model));
        match slots.chain(inline).find(|writer| writer.price(settings).is_none()) {
            None => Ok(()),
            Some(writer) => Err(Error::Invalid(format!(
                "summarize.spend_cap_per_day: the model `{0}` has no price; set prices.{0:?}",
                writer.name
            ))),
        }
    }

    /// Returns the models that write a slot's summaries, first choice first.
    pub(crate) fn models_of_slot(&self, settings: &Settings, slot: &SlotSettings) -> Vec<NamedModel> {
        let names = settings.models_of(slot).iter();
        names.filter_map(|name| Some(NamedModel::new(name, self.models.named.get(name)?))).collect()
    }

    /// Returns how much a workspace may spend in a day; `None` if there is no cap. The settings of the workspace may
    /// lower the engine's cap, but not raise it.
    pub(crate) fn spend_cap(&self, settings: &Settings) -> Option<Money> {
        let caps = [self.settings.summarize.spend_cap_per_day, settings.summarize.spend_cap_per_day];
        caps.into_iter().flatten().min()
    }

    /// Reserves the largest cost that a call with at most the tokens `most` can have. Returns `None` if no spend cap
    /// applies, and an error if the call could exceed the cap.
    pub(crate) async fn reserve(
        &self,
        workspace: &Arc<str>,
        settings: &Settings,
        writer: &NamedModel,
        most: &TokenUsage,
        now: Timestamp,
    ) -> Result<Option<SpendReservation>, SummaryError> {
        let Some(cap) = self.spend_cap(settings) else { return Ok(None) };
        let Some(price) = writer.price(settings) else {
            return Err(Failure::Unpriced { model: writer.name.clone() }.into());
        };
        let more = price.cost(most);
        let day = now.0.rem_euclid(DAY);
        let since = Timestamp(now.0.saturating_sub(day));
        let query = UsageQuery { workspace: Arc::clone(workspace), session: None, since, by_session: false };
        let rows = self.store.usage(query).await.map_err(|error| SummaryError::Store(error.into()))?;
        let spent: Money = rows.iter().filter_map(|row| row.cost).map(Money::millionths).sum();
        let reservation =
            self.models.reservations.reserve(workspace, spent, more, cap).map_err(|reserved| {
                let wait = Duration::from_millis(u64::try_from(DAY.saturating_sub(day)).unwrap_or(0));
                Failure::SpendCapReached { cap, spent: spent + reserved, more, wait }
            })?;
        Ok(Some(reservation))
    }

    /// Returns an error text if this slot's settings name a model that this engine does not have; otherwise `None`.
    /// Another engine on the store may have the model.
    pub(crate) fn missing_model(&self, settings: &Settings, slot: &SlotSettings) -> Option<String> {
        let missing = settings.models_of(slot).iter().find(|name| !self.models.named.contains_key(*name))?;
        Some(format!(
            "no model named `{missing}` in this engine, but the settings use it; define it, or change the settings"
        ))
    }

    /// Returns the context window of the slot's first model minus its output reserve, in tokens. Fractions in the
    /// slot's settings are fractions of this number.
    pub(crate) fn room(&self, settings: &Settings, slot: &SlotSettings) -> Option<Tokens> {
        self.models_of_slot(settings, slot).first()?.model.room()
    }

    /// Changes a session as [`crate::store::Store::change`] does. `decide` returns the changes and a result for the
    /// caller. If `decide` fails, nothing is changed. Returns the result of `decide`, and the session's id if something
    /// was written.
    pub(crate) async fn change<T, F>(
        &self,
        key: &SessionKey,
        load: Load,
        decide: F,
    ) -> Result<(T, Option<SessionId>), Error>
    where
        T: Send + 'static,
        F: Fn(&SessionState) -> Result<(Option<Changes>, T), Error> + Send + Sync + 'static,
    {
        let out = OutCell::new();
        let cell = Arc::clone(&out);
        let decide = move |state: &SessionState| cell.split(decide(state));
        let changed = self.store.change(key, load, Box::new(decide)).await;
        let changed = changed.inspect_err(|error| self.health.record_write_error(error))?;
        if changed.is_some() {
            self.signals.listeners.wake(&key.workspace);
        }
        Ok((out.take()?, changed))
    }

    /// Returns the hasher of the names in logs. The hasher's key is read from the store at the first call.
    pub(crate) async fn log_hasher(&self) -> Result<&LogHasher, StoreError> {
        let create = async || self.store.secret().await.map(|secret| LogHasher::new(&secret));
        self.log_hasher.get_or_try_init(create).await
    }

    /// Returns the hash by which logs name a leased slot; `unknown` if the store cannot be read.
    pub(crate) async fn log_hash(&self, lease: &Lease) -> String {
        let (SessionKey { workspace, session }, slot) = (&lease.key, &lease.slot);
        match self.log_hasher().await {
            Ok(hasher) => hasher.whole(workspace, session, &slot.scope, &slot.name),
            Err(_) => "unknown".to_owned(),
        }
    }

    /// Wakes every caller that waits for a slot to change.
    pub(crate) fn notify_slot_changed(&self) {
        self.signals.slot_changed.send_modify(|count| *count = count.wrapping_add(1));
    }
}

/// Carries the result of a decision out of a store's transaction.
pub(crate) struct OutCell<T>(Mutex<Option<Result<T, Error>>>);

impl<T> OutCell<T> {
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

    /// Returns the result of the last decision. If no decision was made, the store was closed, and the result is
    /// [`Error::Closed`].
    pub(crate) fn take(&self) -> Result<T, Error> {
        lock(&self.0).take().unwrap_or(Err(Error::Closed))
    }
}

/// Returns a random id for this engine.
pub(crate) fn owner() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{}-{:016x}", std::process::id(), RandomState::new().hash_one(std::process::id()))
}
