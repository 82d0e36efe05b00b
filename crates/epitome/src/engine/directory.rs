//! Workspaces, authors and members: who and what there is beside messages.
//!
//! Whoever speaks is an author, known to the workspace and a member of the session from their first message on. What
//! callers note of them is stored here and means nothing to the engine. So are attributes: what other APIs keep of them, one
//! JSON object with a part for each API by its name.

use std::sync::Arc;

use epitome_core::message::Seq;
use epitome_core::tokens::Encoding;
use serde_json::{Map, Value};

use super::append::{new_session, slots};
use super::checks::{check_metadata, check_notes, check_sessions, merged};
use super::session::Session;
use super::workspace::Workspace;
use super::{Engine, SessionInfo, Shared, Told};
use crate::error::{Error, check_name};
use crate::settings::{Patch, Settings};
use crate::store::{
    AuthorRow, Changes, Deleted, Keep, Listed, Listing, Load, MemberRow, Membership, SessionId, SessionRow,
    Standing, WorkspaceRow,
};

/// A change of the part of the attributes that one API owns.
#[derive(Clone)]
pub struct Attributes {
    /// The API's name.
    pub owner: &'static str,
    /// Returns the new part, given the current one, and which of our settings follow from it: a null takes one back. It must
    /// depend on nothing else.
    pub change: Change,
}

type Change = Arc<dyn Fn(&Map<String, Value>) -> Result<(Map<String, Value>, Patch), Error> + Send + Sync>;

impl Attributes {
    /// Changes the owner's part, and returns the settings that follow. An empty part is not stored.
    fn apply(&self, attributes: &mut Map<String, Value>, limits: &Settings) -> Result<Patch, Error> {
        let before = attributes.get(self.owner).and_then(Value::as_object);
        let (part, patch) = (self.change)(before.unwrap_or(&Map::new()))?;
        check_notes(&format!("attributes.{}", self.owner), &part, limits)?;
        put_part(attributes, self.owner, part.into());
        Ok(patch)
    }
}

fn put_part(attributes: &mut Map<String, Value>, owner: &str, part: Value) {
    if part.as_object().is_some_and(Map::is_empty) {
        attributes.remove(owner);
    } else {
        attributes.insert(owner.to_owned(), part);
    }
}

/// Refuses attributes that are no objects by owner, or too large.
fn check_attributes(attributes: &Map<String, Value>, settings: &Settings) -> Result<(), Error> {
    attributes.iter().try_for_each(|(owner, part)| match part {
        Value::Object(part) => check_notes(&format!("attributes.{owner}"), part, settings),
        _ => Err(Error::invalid(format!("attributes.{owner}: must be an object"))),
    })
}

/// What is to be changed of a workspace or a session. What is left out stays.
#[derive(Clone, Default)]
pub struct Notes {
    /// The caller's notes, in place of those that are there.
    pub metadata: Option<Map<String, Value>>,
    /// What another API keeps.
    pub attributes: Option<Attributes>,
    /// Who joins a session, or leaves it. A workspace has no members.
    pub members: Vec<Membership>,
}

/// Something, and whether it was there before.
#[derive(Debug, Clone, PartialEq)]
pub struct Written<T> {
    /// As it is now.
    pub now: T,
    /// Whether it came to be just now.
    pub made: bool,
}

/// What became of a session's notes and settings.
pub(super) struct Noted {
    made: bool,
    /// What is known of the session, unless it was made.
    known: Option<SessionInfo>,
    pub(super) settings: Arc<Settings>,
}

impl Engine {
    /// The workspaces there are, by age. For whoever runs the engine; no workspace is shown another.
    pub async fn list_workspaces(
        &self,
        listing: Listing<WorkspaceRow>,
    ) -> Result<Listed<WorkspaceRow>, Error> {
        Ok(self.shared().store.workspaces(listing).await?)
    }

    /// A number nobody else knows, the same for everybody who opens the store: for making names that tell nothing, such as
    /// a message's that does not say how many sessions there are.
    pub async fn secret(&self) -> Result<[u8; 32], Error> {
        Ok(self.shared().store.secret().await?)
    }
}

impl Workspace {
    /// What is known of it, where there is one: it comes to be with its first session, author, setting or note.
    pub async fn info(&self) -> Result<Option<WorkspaceRow>, Error> {
        Ok(self.shared().store.workspaces(Listing::named(self.name())).await?.one())
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
    pub async fn note(&self, notes: Notes) -> Result<Written<WorkspaceRow>, Error> {
        if !notes.members.is_empty() {
            return Err(Error::invalid("members: a workspace has none; its sessions do"));
        }
        let engine = Arc::clone(self.shared());
        let made = self.change(move |before| Ok((noted(&engine, before, &notes)?, before.is_none()))).await?;
        // Somebody may have deleted it since.
        let gone = || Error::NotFound { what: format!("workspace `{}`", self.name()) };
        let now = self.info().await?.ok_or_else(gone)?;
        Ok(Written { now, made })
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

    /// Replaces notes on an author, each where it is given, and the parts of the attributes that are given. One nobody
    /// knew comes to be, and the workspace with them.
    pub async fn set_author(
        &self,
        name: &str,
        metadata: Option<Map<String, Value>>,
        attributes: Option<Map<String, Value>>,
    ) -> Result<Written<AuthorRow>, Error> {
        check_name("workspace", self.name())?;
        check_name("author", name)?;
        let settings = &self.shared().settings;
        metadata.iter().try_for_each(|given| check_metadata(given, settings))?;
        attributes.iter().try_for_each(|given| check_attributes(given, settings))?;
        let (store, told) = (&self.shared().store, Told::new());
        let tell = Arc::clone(&told);
        let decide = move |before: Option<&AuthorRow>| {
            let mut row = before.cloned().unwrap_or_default();
            metadata.clone().into_iter().for_each(|given| row.metadata = given);
            for (owner, part) in attributes.iter().flatten() {
                put_part(&mut row.attributes, owner, part.clone());
            }
            tell.split(Ok((Some(row).filter(|row| before != Some(row)), before.is_none())))
        };
        store.change_author(self.name(), name, Box::new(decide)).await?;
        let made = told.take()?;
        // They may have gone with their workspace since.
        let gone = || Error::NotFound { what: format!("author `{name}`") };
        let now = self.author(name).await?.ok_or_else(gone)?;
        Ok(Written { now, made })
    }

    /// Its authors by age.
    pub async fn list_authors(&self, listing: Listing<AuthorRow>) -> Result<Listed<AuthorRow>, Error> {
        Ok(self.shared().store.authors(self.name(), listing).await?)
    }
}

impl Session {
    /// Changes settings of this session alone: what the patch names, and nothing else. A null takes a change
    /// back. Creates the session where there is none. How tokens are counted cannot be changed any more.
    pub async fn set(&self, patch: &Patch) -> Result<Arc<Settings>, Error> {
        self.put(Some(patch), None).await
    }

    /// Replaces the caller's notes on it. Creates the session where there is none.
    pub async fn set_metadata(&self, metadata: Map<String, Value>) -> Result<(), Error> {
        self.put(None, Some(metadata)).await.map(|_| ())
    }

    /// Changes settings and replaces the caller's notes, as [`Session::set`] and [`Session::set_metadata`] do: both or
    /// neither. Creates the session where there is none.
    pub async fn put(
        &self,
        patch: Option<&Patch>,
        metadata: Option<Map<String, Value>>,
    ) -> Result<Arc<Settings>, Error> {
        let notes = Notes { metadata, ..Notes::default() };
        Ok(self.write(Some(patch.cloned().unwrap_or_default()), notes).await?.settings)
    }

    /// Changes notes on it and who belongs to it, and makes it where there is none: all of it or nothing.
    pub async fn note(&self, notes: Notes) -> Result<Written<SessionInfo>, Error> {
        let Noted { made, known, .. } = self.write(None, notes).await?;
        let now = match known {
            Some(known) => known,
            None => self.info().await?,
        };
        Ok(Written { now, made })
    }

    /// The same, and changes its settings. With settings it is written also where nothing changes.
    pub(super) async fn write(&self, patch: Option<Patch>, notes: Notes) -> Result<Noted, Error> {
        self.check_names()?;
        patch.iter().try_for_each(check_sessions)?;
        for change in &notes.members {
            if let Membership::Join(name, attributes) = change {
                check_name("member", name)?;
                attributes.iter().try_for_each(|given| check_attributes(given, &self.shared().settings))?;
            }
        }
        let engine = Arc::clone(self.shared());
        let name = Arc::clone(&self.key.session);
        let decide = move |standing: &Standing| {
            let before = standing.session.as_ref();
            let mut session =
                before.cloned().unwrap_or_else(|| new_session(engine.settings.encoding, standing.now));
            let mut changes = Changes { members: notes.members.clone(), ..Changes::default() };
            let lay = |session: &mut SessionRow, patch: &Patch| {
                let (document, settings) =
                    merged(&engine, &standing.workspace_settings, &session.settings, patch)?;
                session.settings = document;
                Ok::<_, Error>((slots(standing, &settings), settings))
            };
            // Settings that do not hold any more can be replaced: only what comes of the patch is checked.
            let mut settings = match patch.as_ref().filter(|patch| !patch.is_empty()) {
                Some(patch) => {
                    let (slots, settings) = lay(&mut session, patch)?;
                    changes.slots = slots;
                    settings
                }
                None => engine.settings_at(standing)?,
            };
            if let Some(attributes) = &notes.attributes {
                let follows = attributes.apply(&mut session.attributes, &settings)?;
                check_sessions(&follows)?;
                if !follows.is_empty() {
                    (changes.slots, settings) = lay(&mut session, &follows)?;
                }
            }
            if before.is_none() {
                settings.encoding.name().clone_into(&mut session.encoding);
            } else if session.encoding.parse::<Encoding>().is_ok_and(|fixed| fixed != settings.encoding)
                && patch.as_ref().is_some_and(|patch| patch.entries().contains_key("encoding"))
            {
                return Err(Error::Conflict(format!(
                    "encoding: the session is counted with {}, which is fixed when it is created",
                    session.encoding
                )));
            }
            if let Some(metadata) = &notes.metadata {
                check_metadata(metadata, &settings)?;
                session.metadata = metadata.clone();
            }
            let info = |session: &SessionRow| SessionInfo::new(Arc::clone(&name), session.clone());
            if patch.is_none() && before == Some(&session) && changes.members.is_empty() {
                return Ok((None, Noted { made: false, known: Some(info(&session)), settings }));
            }
            session.updated = standing.now;
            // A new one's number is the store's to give.
            let noted = Noted { made: before.is_none(), known: before.map(|_| info(&session)), settings };
            changes.session = Some(session);
            Ok((Some(changes), noted))
        };
        Ok(self.shared().change(&self.key, Load::default(), decide).await?.0)
    }

    /// Replaces the caller's notes on a message. Its words stay as they are.
    pub async fn note_message(&self, seq: Seq, metadata: Map<String, Value>) -> Result<(), Error> {
        self.change(Load::default(), move |engine, standing, session| {
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
    if let Some(attributes) = &notes.attributes {
        let patch = attributes.apply(&mut row.attributes, &engine.settings)?;
        row.settings = merged(engine, "", &row.settings, &patch)?.0;
    }
    Ok(Some(row).filter(|row| before != Some(row)))
}
