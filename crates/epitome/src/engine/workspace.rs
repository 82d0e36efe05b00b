//! A tenant: its sessions, its settings, what it spent.

use std::sync::Arc;

use epitome_core::message::Timestamp;

use super::checks::{merged, read_patch};
use super::session::Session;
use super::{Engine, SessionInfo, Shared, Told};
use crate::condenser::CondenserBuilder;
use crate::error::{Error, check_name};
use crate::event::Events;
use crate::hidden::Hidden;
use crate::inline::Inline;
use crate::settings::{Patch, Settings};
use crate::shared::Listener;
use crate::store::{Listing, Passed, SessionKey, UsageQuery, UsageSum, WorkspaceRow};

/// A workspace's sessions and settings. A handle: making one reads and writes nothing.
///
/// No method of it sees, counts or changes anything of another workspace.
#[derive(Debug, Clone)]
pub struct Workspace {
    pub(super) engine: Engine,
    pub(super) name: Arc<str>,
}

impl Workspace {
    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.engine.shared()
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One of its sessions, there or not.
    pub fn session(&self, name: impl Into<Arc<str>>) -> Session {
        let key = SessionKey { workspace: Arc::clone(&self.name), session: name.into() };
        Session { engine: self.engine.clone(), key }
    }

    /// Its sessions by name: those after this one, at most so many.
    pub async fn sessions(&self, after: Option<&str>, limit: usize) -> Result<Vec<SessionInfo>, Error> {
        let page = Listing::by_name(after, limit.min(1_000));
        let listed = self.engine.shared().store.sessions(&self.name, None, page).await?;
        Ok(listed.items.into_iter().map(|(name, row)| SessionInfo::new(name, row)).collect())
    }

    /// What was set here, over the engine's own settings.
    pub async fn patch(&self) -> Result<Patch, Error> {
        read_patch(&self.document().await?)
    }

    /// The settings that hold in its sessions, those that change some themselves excepted.
    pub async fn settings(&self) -> Result<Arc<Settings>, Error> {
        self.engine.shared().settings_of(&self.document().await?, "")
    }

    /// What was set here, as it is stored; empty where nothing was.
    async fn document(&self) -> Result<String, Error> {
        let found = self.engine.shared().store.workspaces(Listing::named(Arc::clone(&self.name))).await?;
        Ok(found.one().map(|row| row.settings).unwrap_or_default())
    }

    /// Changes settings: what the patch names, and nothing else. A null takes a change back. They hold from
    /// the next message of each session on.
    pub async fn set(&self, patch: &Patch) -> Result<Arc<Settings>, Error> {
        let (engine, patch) = (Arc::clone(self.shared()), patch.clone());
        // Merged in one transaction, so that of two who set something at once neither is lost.
        let decide = move |before: Option<&WorkspaceRow>| {
            let row = before.cloned().unwrap_or_default();
            let (document, settings) = merged(&engine, "", &row.settings, &patch)?;
            Ok((Some(WorkspaceRow { settings: document, ..row }), settings))
        };
        self.change(decide).await
    }

    /// Changes its row, for a decision that may fail and has something to tell.
    pub(super) async fn change<T, F>(&self, decide: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(Option<&WorkspaceRow>) -> Result<(Option<WorkspaceRow>, T), Error> + Send + Sync + 'static,
    {
        check_name("workspace", &self.name)?;
        let told = Told::new();
        let tell = Arc::clone(&told);
        let decide = move |before: Option<&WorkspaceRow>| tell.split(decide(before));
        self.shared().store.change_workspace(&self.name, Box::new(decide)).await?;
        told.take()
    }

    /// To make a condenser that works with its settings and the engine's models, and spends in its name: what it costs is
    /// in [`Workspace::usage`] under the slot `condense`, and the day's cap holds for it.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// use epitome::{Engine, Message};
    ///
    /// let engine = Engine::memory().await?;
    /// let condenser = engine.workspace("home").condenser().await?.at_once().build()?;
    /// let list = [Message::user("Hello")];
    /// assert!(condenser.before_model(&list).await.is_untouched());
    /// # engine.close().await; Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
    /// ```
    pub async fn condenser(&self) -> Result<CondenserBuilder, Error> {
        let settings = self.settings().await?;
        Ok(CondenserBuilder::in_workspace(Arc::clone(self.shared()), Arc::clone(&self.name), settings))
    }

    /// Its conversations that pass through, each a list that comes in whole: see [`crate::inline`].
    pub fn inline(&self) -> Inline {
        let (inner, workspace) = (&self.engine.inner, Arc::clone(&self.name));
        let (store, threads) = (Hidden(Arc::clone(&inner.shared.store)), Hidden(Arc::clone(&inner.threads)));
        Inline { store, threads, workspace }
    }

    /// Adds to what passed through it in this hour.
    pub async fn add_passed(&self, more: Vec<Passed>) -> Result<(), Error> {
        check_name("workspace", &self.name)?;
        Ok(self.shared().store.add_passed(&self.name, more).await?)
    }

    /// What passed through it since then, by the hour, and what that saved.
    pub async fn passed(&self, since: Timestamp) -> Result<Vec<Passed>, Error> {
        Ok(self.shared().store.passed(&self.name, since).await?)
    }

    /// What happened in it after the event of that number, or since the oldest that is kept; in one session or in all.
    /// Oldest first, at most so many; 1,000 at once are the most.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// use epitome::Engine;
    /// use epitome::rules::message::Message;
    ///
    /// let engine = Engine::memory().await?;
    /// let home = engine.workspace("home");
    /// let mut listener = home.listen();
    /// home.session("ann").append(Message::user("Hello.")).await?;
    /// listener.heard().await;
    /// let told = home.events(None, None, 100).await?;
    /// assert_eq!((told.events[0].id, told.events[0].what.kind()), (1, "message"));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
    /// ```
    pub async fn events(
        &self,
        after: Option<u64>,
        session: Option<&str>,
        limit: usize,
    ) -> Result<Events, Error> {
        let store = &self.shared().store;
        Ok(store.events(self.name(), after.unwrap_or(0), session, limit.min(1_000)).await?)
    }

    /// How often messages became a summary, by session, as far as the events that are kept tell.
    pub async fn condensed(&self) -> Result<Vec<(Arc<str>, u64)>, Error> {
        Ok(self.shared().store.condensed(self.name()).await?)
    }

    /// The number of the newest event, for whoever wants to be told from now on; 0 before the first.
    pub async fn newest_event(&self) -> Result<u64, Error> {
        Ok(self.events(None, None, 0).await?.newest)
    }

    /// Waits for events. Made before they are read, it misses none that come between reading and waiting.
    pub fn listen(&self) -> Listener {
        let shared = self.shared();
        Listener::new(&shared.signals.listeners, self.name().into(), shared.pace.poll)
    }

    /// Every call of a model since then, failed ones too, added up by session, slot, model and outcome.
    pub async fn usage(&self, since: Timestamp) -> Result<Vec<UsageSum>, Error> {
        let workspace = Arc::clone(&self.name);
        let query = UsageQuery { workspace, session: None, since, by_session: true };
        Ok(self.shared().store.usage(query).await?)
    }

    /// The same for one session or for all together, added up by slot, model and outcome: a few sums, however many
    /// sessions there are. They name no session.
    pub async fn usage_by_slot(
        &self,
        session: Option<&str>,
        since: Timestamp,
    ) -> Result<Vec<UsageSum>, Error> {
        let (workspace, session) = (Arc::clone(&self.name), session.map(Into::into));
        let query = UsageQuery { workspace, session, since, by_session: false };
        Ok(self.shared().store.usage(query).await?)
    }
}
