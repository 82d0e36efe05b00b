//! A workspace, which is one tenant: its sessions, its settings and its usage.

use std::sync::Arc;

use epitome_core::message::Timestamp;

use super::checks::{merged, read_patch};
use super::session::Session;
use super::{Engine, OutCell, SessionInfo, Shared};
use crate::condenser::CondenserBuilder;
use crate::error::{Error, check_name};
use crate::event::Events;
use crate::hidden::Hidden;
use crate::inline::Inline;
use crate::settings::{Patch, Settings};
use crate::shared::Listener;
use crate::store::{Listing, ProxyUsage, SessionKey, UsageQuery, UsageSum, WorkspaceRow};

/// A handle for a workspace. Creating the handle reads and writes nothing.
///
/// No method reads, counts or changes anything of another workspace.
#[derive(Debug, Clone)]
pub struct Workspace {
    pub(super) engine: Engine,
    pub(super) name: Arc<str>,
}

impl Workspace {
    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.engine.shared()
    }

    /// The workspace's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns a handle for a session of the workspace. The session need not exist.
    pub fn session(&self, name: impl Into<Arc<str>>) -> Session {
        let key = SessionKey { workspace: Arc::clone(&self.name), session: name.into() };
        Session { engine: self.engine.clone(), key }
    }

    /// Lists the sessions of the workspace in the order of their names, starting after the name `after`. Returns at
    /// most `limit` sessions, and never more than 1,000.
    pub async fn sessions(&self, after: Option<&str>, limit: usize) -> Result<Vec<SessionInfo>, Error> {
        let page = Listing::by_name(after, limit.min(1_000));
        let listed = self.engine.shared().store.sessions(&self.name, None, page).await?;
        Ok(listed.items.into_iter().map(|(name, row)| SessionInfo::new(name, row)).collect())
    }

    /// Returns the settings of this workspace that override the engine's settings.
    pub async fn patch(&self) -> Result<Patch, Error> {
        read_patch(&self.document().await?)
    }

    /// Returns the settings that apply to a session of the workspace if the session has no settings of its own.
    pub async fn settings(&self) -> Result<Arc<Settings>, Error> {
        self.engine.shared().settings_of(&self.document().await?, "")
    }

    /// Returns the stored settings document of the workspace; empty if nothing was set.
    async fn document(&self) -> Result<String, Error> {
        let found = self.engine.shared().store.workspaces(Listing::named(Arc::clone(&self.name))).await?;
        Ok(found.first().map(|row| row.settings).unwrap_or_default())
    }

    /// Changes the settings of the workspace: only the keys that the patch contains. A null removes a setting. In each
    /// session, the changes apply from the next message on.
    pub async fn set(&self, patch: &Patch) -> Result<Arc<Settings>, Error> {
        let (engine, patch) = (Arc::clone(self.shared()), patch.clone());
        // The patch is merged in one transaction, so that two concurrent changes are both preserved.
        let decide = move |before: Option<&WorkspaceRow>| {
            let row = before.cloned().unwrap_or_default();
            let (document, settings) = merged(&engine, "", &row.settings, &patch)?;
            Ok((Some(WorkspaceRow { settings: document, ..row }), settings))
        };
        self.change(decide).await
    }

    /// Changes the workspace's row. `decide` receives the stored row, and returns the new row and a result for the
    /// caller. If `decide` fails, nothing is changed.
    pub(super) async fn change<T, F>(&self, decide: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(Option<&WorkspaceRow>) -> Result<(Option<WorkspaceRow>, T), Error> + Send + Sync + 'static,
    {
        check_name("workspace", &self.name)?;
        let out = OutCell::new();
        let cell = Arc::clone(&out);
        let decide = move |before: Option<&WorkspaceRow>| cell.split(decide(before));
        self.shared().store.change_workspace(&self.name, Box::new(decide)).await?;
        out.take()
    }

    /// Returns a builder for a condenser that uses the workspace's settings and the engine's models. The cost of its
    /// model calls is recorded in [`Workspace::usage`] under the slot `condense`, and counts towards the workspace's
    /// spend cap.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// use epitome::{Engine, Message};
    ///
    /// let engine = Engine::memory().await?;
    /// let condenser = engine.workspace("home").condenser().await?.one_shot().build()?;
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

    /// Returns a handle for the proxied conversations of the workspace. [`crate::inline`] describes proxied
    /// conversations.
    pub fn inline(&self) -> Inline {
        let (inner, workspace) = (&self.engine.inner, Arc::clone(&self.name));
        let (store, threads) = (Hidden(Arc::clone(&inner.shared.store)), Hidden(Arc::clone(&inner.threads)));
        Inline { store, threads, workspace }
    }

    /// Adds these numbers to the current hour's statistics of proxied requests.
    pub async fn add_passed(&self, usage: Vec<ProxyUsage>) -> Result<(), Error> {
        check_name("workspace", &self.name)?;
        Ok(self.shared().store.add_proxy_usage(&self.name, usage).await?)
    }

    /// Returns the hourly statistics of proxied requests since this time, including what condensing saved.
    pub async fn passed(&self, since: Timestamp) -> Result<Vec<ProxyUsage>, Error> {
        Ok(self.shared().store.proxy_usage(&self.name, since).await?)
    }

    /// Returns the stored events of one session, or of all sessions if `session` is `None`, oldest first. Starts after
    /// the event number `after`, or with the oldest stored event if `after` is `None`. Returns at most `limit` events,
    /// and never more than 1,000.
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
    /// listener.changed().await;
    /// let page = home.events(None, None, 100).await?;
    /// assert_eq!((page.events[0].id, page.events[0].body.kind()), (1, "message"));
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

    /// Returns for each session how often messages were condensed into a summary. Counts only events that are still
    /// stored.
    pub async fn condensed(&self) -> Result<Vec<(Arc<str>, u64)>, Error> {
        Ok(self.shared().store.count_condensed(self.name()).await?)
    }

    /// Returns the number of the newest event, for clients that need only later events; 0 if there was no event yet.
    pub async fn newest_event(&self) -> Result<u64, Error> {
        Ok(self.events(None, None, 0).await?.newest)
    }

    /// Returns a listener for events. Create the listener before you read events, so that it misses no event between
    /// reading and waiting.
    pub fn listen(&self) -> Listener {
        let shared = self.shared();
        Listener::new(&shared.signals.listeners, self.name().into(), shared.pace.poll)
    }

    /// Returns the model calls since this time, including failed calls, summed by session, slot, model and outcome.
    pub async fn usage(&self, since: Timestamp) -> Result<Vec<UsageSum>, Error> {
        let workspace = Arc::clone(&self.name);
        let query = UsageQuery { workspace, session: None, since, by_session: true };
        Ok(self.shared().store.usage(query).await?)
    }

    /// Returns the model calls of one session, or of all sessions if `session` is `None`, since this time. The calls
    /// are summed by slot, model and outcome. The rows contain no session, so there are only a few rows even with many
    /// sessions.
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
