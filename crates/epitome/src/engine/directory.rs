//! Workspaces, authors and members: who and what there is beside messages.
//!
//! Whoever speaks is an author, known to the workspace and a member of the session from their first message on. What
//! callers note of them, and what another API keeps beside our settings, is kept here and means nothing to the engine.

use std::sync::Arc;

use epitome_core::message::{Seq, Timestamp};
use serde_json::{Map, Value};

use super::append::{new_session, slots};
use super::checks::{check_metadata, check_notes, check_sessions, concerns_models, read_patch};
use super::info::SessionInfo;
use super::session::Session;
use super::workspace::Workspace;
use super::{Engine, Shared, Told};
use crate::error::{Error, check_name};
use crate::settings::{Patch, Settings};
use crate::store::{
    AuthorRow, Changes, Deleted, Keep, Listed, Listing, Load, MemberRow, Membership, SessionId, SessionRow,
    WorkspaceRow,
};

/// Makes, of what another API keeps of something, what it shall keep, and which of our settings follow from it: a null
/// takes one back. It must depend on nothing else.
pub type Configure =
    Arc<dyn Fn(&Map<String, Value>) -> Result<(Map<String, Value>, Patch), Error> + Send + Sync>;

/// What is to be changed of a workspace or a session. What is left out stays.
#[derive(Clone, Default)]
pub struct Notes {
    /// The caller's notes, in place of those that are there.
    pub metadata: Option<Map<String, Value>>,
    /// What another API keeps.
    pub configure: Option<Configure>,
    /// Who joins a session, or leaves it. A workspace has no members.
    pub members: Vec<Membership>,
}

/// What is known of a workspace.
#[derive(Debug, Clone, PartialEq)]
pub struct WorkspaceInfo {
    /// Its name.
    pub name: Arc<str>,
    /// The caller's notes on it.
    pub metadata: Map<String, Value>,
    /// What another API keeps of it.
    pub configuration: Map<String, Value>,
    /// When it came to be.
    pub created: Timestamp,
}

impl From<WorkspaceRow> for WorkspaceInfo {
    fn from(row: WorkspaceRow) -> Self {
        let WorkspaceRow { name, metadata, configuration, created, .. } = row;
        Self { name, metadata, configuration, created }
    }
}

/// Something, and whether it was there before.
#[derive(Debug, Clone, PartialEq)]
pub struct Written<T> {
    /// As it is now.
    pub now: T,
    /// Whether it came to be just now.
    pub made: bool,
}

impl Engine {
    /// The workspaces there are, by age. For whoever runs the engine; no workspace is shown another.
    pub async fn list_workspaces(
        &self,
        listing: Listing<WorkspaceRow>,
    ) -> Result<Listed<WorkspaceInfo>, Error> {
        Ok(self.shared().store.workspaces(listing).await?.map(WorkspaceInfo::from))
    }

    /// A number nobody else knows, the same for everybody who opens the store: for making names that tell nothing, such as
    /// a message's that does not say how many sessions there are.
    pub async fn secret(&self) -> Result<[u8; 32], Error> {
        Ok(self.shared().store.secret().await?)
    }
}

impl Workspace {
    /// What is known of it, where there is one: it comes to be with its first session, author, setting or note.
    pub async fn info(&self) -> Result<Option<WorkspaceInfo>, Error> {
        Ok(self.shared().store.workspaces(Listing::named(self.name())).await?.one().map(WorkspaceInfo::from))
    }

    /// Changes notes on it, and makes it where there is none.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// use epitome::{Engine, Notes};
    ///
    /// let engine = Engine::memory().await?;
    /// let acme = engine.workspace("acme");
    /// assert!(acme.info().await?.is_none());
    /// assert!(acme.note(Notes::default()).await?.made);
    /// assert!(!acme.note(Notes::default()).await?.made);
    /// # engine.close().await; Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
    /// ```
    pub async fn note(&self, notes: Notes) -> Result<Written<WorkspaceInfo>, Error> {
        check_name("workspace", self.name())?;
        if !notes.members.is_empty() {
            return Err(Error::invalid("members: a workspace has none; its sessions do"));
        }
        let (store, engine) = (Arc::clone(&self.shared().store), Arc::clone(self.shared()));
        let told = Told::default();
        let tell = told.clone();
        let decide = move |before: Option<&WorkspaceRow>| {
            let answer = noted(&engine, before, &notes);
            let write = answer.as_ref().ok().and_then(Clone::clone);
            tell.put(answer.map(|_| before.is_none()));
            write
        };
        store.change_workspace(self.name(), Box::new(decide)).await?;
        let made = told.take().unwrap_or(Err(Error::Closed))?;
        // Somebody may have deleted it since.
        let gone = || Error::NotFound { what: format!("workspace `{}`", self.name()) };
        let now = store.workspaces(Listing::named(self.name())).await?.one().ok_or_else(gone)?;
        Ok(Written { now: now.into(), made })
    }

    /// Deletes it, where it has no sessions: they go first, one by one. False when there was none.
    pub async fn delete(&self) -> Result<bool, Error> {
        // What passed through it is not remembered either, nor written down later.
        self.engine.inner.threads.forget(self.name());
        self.engine.inner.threads.settled().await;
        match self.shared().store.delete_workspace(self.name()).await? {
            Deleted::Gone => Ok(true),
            Deleted::Absent => Ok(false),
            Deleted::InUse => Err(Error::Conflict(format!(
                "workspace `{}` has sessions; delete them first, one by one",
                self.name()
            ))),
        }
    }

    /// Its sessions by age; only those an author belongs to, where one is named.
    pub async fn list_sessions(
        &self,
        member: Option<&str>,
        listing: Listing<SessionInfo>,
    ) -> Result<Listed<SessionInfo>, Error> {
        let Listing { keep, name, after, skip, limit, reverse } = listing;
        let keep = keep.map(|keep| -> Keep<(Arc<str>, SessionRow)> {
            Box::new(move |(name, row)| keep(&SessionInfo::new(Arc::clone(name), row.clone())))
        });
        let listing = Listing { keep, name, after, skip, limit: limit.min(1_000), reverse };
        let listed = self.shared().store.sessions(self.name(), member, listing).await?;
        Ok(listed.map(|(name, row)| SessionInfo::new(name, row)))
    }

    /// An author, where they are known here.
    pub async fn author(&self, name: &str) -> Result<Option<AuthorRow>, Error> {
        Ok(self.shared().store.authors(self.name(), Listing::named(name)).await?.one())
    }

    /// Replaces notes on an author, each where it is given. One nobody knew comes to be, and the workspace with them.
    pub async fn set_author(
        &self,
        name: &str,
        metadata: Option<Map<String, Value>>,
        configuration: Option<Map<String, Value>>,
    ) -> Result<Written<AuthorRow>, Error> {
        check_name("workspace", self.name())?;
        check_name("author", name)?;
        for notes in [&metadata, &configuration].into_iter().flatten() {
            check_metadata(notes, &self.shared().settings)?;
        }
        let (store, told) = (&self.shared().store, Told::default());
        let tell = told.clone();
        let decide = move |before: Option<&AuthorRow>| {
            tell.put(Ok(before.is_none()));
            let mut row = before.cloned().unwrap_or_default();
            metadata.clone().into_iter().for_each(|given| row.metadata = given);
            configuration.clone().into_iter().for_each(|given| row.configuration = given);
            Some(row).filter(|row| before != Some(row))
        };
        store.change_author(self.name(), name, Box::new(decide)).await?;
        let made = told.take().unwrap_or(Err(Error::Closed))?;
        // They may have gone with their workspace since.
        let gone = || Error::NotFound { what: format!("author `{name}`") };
        let now = store.authors(self.name(), Listing::named(name)).await?.one().ok_or_else(gone)?;
        Ok(Written { now, made })
    }

    /// Its authors by age.
    pub async fn list_authors(&self, listing: Listing<AuthorRow>) -> Result<Listed<AuthorRow>, Error> {
        Ok(self.shared().store.authors(self.name(), listing).await?)
    }
}

impl Session {
    /// Changes notes on it and who belongs to it, and makes it where there is none: all of it or nothing.
    pub async fn note(&self, notes: Notes) -> Result<Written<SessionInfo>, Error> {
        self.check_names()?;
        for change in &notes.members {
            if let Membership::Join(name, configuration) = change {
                check_name("member", name)?;
                configuration.iter().try_for_each(|given| check_metadata(given, &self.shared().settings))?;
            }
        }
        let engine = Arc::clone(self.shared());
        let name = Arc::clone(&self.key.session);
        let (made, known) = self
            .shared()
            .change(&self.key, Load::default(), move |standing| {
                let before = standing.session.as_ref();
                let settings = engine.settings_at(standing)?;
                let mut session =
                    before.cloned().unwrap_or_else(|| new_session(settings.encoding, standing.now));
                let mut changes = Changes { members: notes.members.clone(), ..Changes::default() };
                if let Some(metadata) = &notes.metadata {
                    check_metadata(metadata, &settings)?;
                    session.metadata = metadata.clone();
                }
                if let Some(configure) = &notes.configure {
                    let (configuration, patch) = configure(&session.configuration)?;
                    check_notes("configuration", &configuration, &settings)?;
                    check_sessions(&patch)?;
                    let (document, settings) =
                        merged(&engine, &standing.workspace_settings, &session.settings, &patch)?;
                    session.configuration = configuration;
                    if session.settings != document {
                        session.settings = document;
                        changes.slots = slots(standing, &settings);
                    }
                }
                let told = |session: &SessionRow| SessionInfo::new(Arc::clone(&name), session.clone());
                if before == Some(&session) && changes.members.is_empty() {
                    return Ok((None, (false, Some(told(&session)))));
                }
                session.updated = standing.now;
                let info = told(&session);
                changes.session = Some(session);
                // A new one's number is the store's to give.
                Ok((Some(changes), (before.is_none(), before.is_some().then_some(info))))
            })
            .await?;
        let now = match known {
            Some(known) => known,
            None => self.info().await?,
        };
        Ok(Written { now, made })
    }

    /// Replaces the caller's notes on a message. Its words stay as they are.
    pub async fn note_message(&self, seq: Seq, metadata: Map<String, Value>) -> Result<(), Error> {
        let engine = Arc::clone(self.shared());
        let name = Arc::clone(&self.key.session);
        self.shared()
            .change(&self.key, Load::default(), move |standing| {
                let session = standing.session.clone().ok_or_else(|| Error::no_session(&name))?;
                if !(1..=session.tracker.head()).contains(&seq) {
                    return Err(Error::NotFound { what: format!("message {seq}") });
                }
                check_metadata(&metadata, &*engine.settings_at(standing)?)?;
                let metadata = vec![(seq, metadata.clone())];
                Ok((Some(Changes { metadata, ..Changes::default() }), ()))
            })
            .await
    }

    /// Who belongs to it.
    pub async fn list_members(&self, listing: Listing<MemberRow>) -> Result<Listed<MemberRow>, Error> {
        Ok(self.shared().store.members(self.number().await?, listing).await?)
    }

    /// The member of that name.
    pub async fn member(&self, name: &str) -> Result<Option<MemberRow>, Error> {
        Ok(self.shared().store.members(self.number().await?, Listing::named(name)).await?.one())
    }

    async fn number(&self) -> Result<SessionId, Error> {
        Ok(self.stamp().await?.session)
    }
}

/// What shall be kept of a workspace; nothing where nothing changes.
fn noted(
    engine: &Shared,
    before: Option<&WorkspaceRow>,
    notes: &Notes,
) -> Result<Option<WorkspaceRow>, Error> {
    let mut row = before.cloned().unwrap_or_default();
    if let Some(metadata) = &notes.metadata {
        check_metadata(metadata, &engine.settings)?;
        row.metadata = metadata.clone();
    }
    if let Some(configure) = &notes.configure {
        let (configuration, patch) = configure(&row.configuration)?;
        check_notes("configuration", &configuration, &engine.settings)?;
        row.configuration = configuration;
        row.settings = merged(engine, "", &row.settings, &patch)?.0;
    }
    Ok(Some(row).filter(|row| before != Some(row)))
}

/// A settings document with what follows from another API's, over those of its workspace.
fn merged(
    engine: &Shared,
    over: &str,
    stored: &str,
    patch: &Patch,
) -> Result<(String, Arc<Settings>), Error> {
    engine.check_own(patch)?;
    let document = read_patch(stored)?.merged(patch).document();
    let settings = if over.is_empty() {
        engine.settings_of(&document, "")?
    } else {
        engine.settings_of(over, &document)?
    };
    if concerns_models(patch) {
        engine.check(&settings)?;
        engine.check_prices(&settings)?;
    }
    Ok((document, settings))
}
