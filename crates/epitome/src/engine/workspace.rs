//! A tenant: its sessions, its settings, what it spent.

use std::sync::Arc;

use epitome_core::message::Timestamp;
use epitome_core::slot::Scope;

use super::checks::{concerns_models, read_patch};
use super::found::{Found, HitCursor, SEARCH_BYTES};
use super::info::SessionInfo;
use super::session::Session;
use super::{Engine, Queue, Shared, Told};
use crate::condenser::CondenserBuilder;
use crate::error::{Error, check_name};
use crate::inline::Inline;
use crate::search::Query;
use crate::settings::{Patch, Settings};
use crate::store::{Listing, Load, Passed, Portion, Search, SessionKey, UsageQuery, UsageSum, WorkspaceRow};

/// A workspace's sessions and settings. A handle: making one reads and writes nothing.
///
/// No method of it sees, counts or changes anything of another workspace.
#[derive(Debug, Clone)]
pub struct Workspace {
    pub(super) engine: Engine,
    name: Arc<str>,
}

impl Workspace {
    pub(super) fn new(engine: Engine, name: Arc<str>) -> Self {
        Self { engine, name }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        self.engine.shared()
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One of its sessions, there or not.
    #[must_use]
    pub fn session(&self, name: impl Into<Arc<str>>) -> Session {
        Session::new(
            self.engine.clone(),
            SessionKey { workspace: Arc::clone(&self.name), session: name.into() },
        )
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
        check_name("workspace", &self.name)?;
        let shared = Arc::clone(self.engine.shared());
        shared.check_own(patch)?;
        let (engine, patch) = (Arc::clone(&shared), patch.clone());
        let told = Told::default();
        let tell = told.clone();
        // Merged in one transaction, so that of two who set something at once neither is lost.
        let decide = move |before: Option<&WorkspaceRow>| {
            let stored = before.map_or("", |row| &row.settings);
            let merged = read_patch(stored).map(|before| before.merged(&patch).document());
            let settings = merged.and_then(|document| {
                let settings = engine.settings_of(&document, "")?;
                if concerns_models(&patch) {
                    engine.check(&settings)?;
                    engine.check_prices(&settings)?;
                }
                Ok((document, settings))
            });
            let (document, answer) = match settings {
                Ok((document, settings)) => (Some(document), Ok(settings)),
                Err(error) => (None, Err(error)),
            };
            tell.put(answer);
            document.map(|settings| WorkspaceRow { settings, ..before.cloned().unwrap_or_default() })
        };
        shared.store.change_workspace(&self.name, Box::new(decide)).await?;
        told.take().unwrap_or(Err(Error::Closed))
    }

    /// To make a condenser that works with its settings and the engine's models, and spends in its name: what it costs is
    /// in [`Workspace::usage`] under the slot `condense`, and the day's cap holds for it.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// use epitome::Engine;
    /// use epitome::rules::message::Message;
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
    #[must_use]
    pub fn inline(&self) -> Inline {
        let inner = &self.engine.inner;
        Inline::new(Arc::clone(&inner.shared.store), Arc::clone(&inner.threads), Arc::clone(&self.name))
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

    /// Messages of all its sessions by their words: see [`Session::search`]. Newest session first. Where the cursor's
    /// session is gone meanwhile, the search has to start again.
    pub async fn search(
        &self,
        words: &str,
        after: Option<HitCursor>,
        limit: usize,
    ) -> Result<Portion<Found>, Error> {
        let query = Query::parse(words).map_err(Error::invalid)?;
        let store = &self.engine.shared().store;
        let after = match after {
            None => None,
            Some(after) => {
                let key = SessionKey::new(Arc::clone(&self.name), Arc::clone(&after.session));
                let session = store.standing(&key, Load::default()).await?.session;
                Some((session.ok_or_else(|| after.lost())?.id, after.seq))
            }
        };
        let search = Search {
            workspace: Arc::clone(&self.name),
            session: None,
            scope: Scope::Session,
            query: query.clone(),
            after,
            limit: limit.min(1_000),
            bytes: Some(SEARCH_BYTES),
        };
        let hits = store.search(search).await?;
        Ok(hits.map(|hit| Found::new(hit, &query)))
    }

    /// What is due in it, and how the work on that goes.
    pub async fn queue(&self) -> Result<Queue, Error> {
        super::explain::queue(self.engine.shared(), &self.name).await
    }

    /// Every call of a model since then, failed ones too, added up by session, slot, model and outcome.
    pub async fn usage(&self, since: Timestamp) -> Result<Vec<UsageSum>, Error> {
        let workspace = Arc::clone(&self.name);
        self.engine.usage(UsageQuery { workspace, session: None, since, by_session: true }).await
    }

    /// The same for one session or for all together, added up by slot, model and outcome: a few sums, however many
    /// sessions there are. They name no session.
    pub async fn usage_by_slot(
        &self,
        session: Option<&str>,
        since: Timestamp,
    ) -> Result<Vec<UsageSum>, Error> {
        let (workspace, session) = (Arc::clone(&self.name), session.map(Into::into));
        self.engine.usage(UsageQuery { workspace, session, since, by_session: false }).await
    }
}
