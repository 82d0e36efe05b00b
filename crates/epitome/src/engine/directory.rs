//! Workspaces, authors and members, with their metadata.
//!
//! Every author of a message is stored in the workspace. An author becomes a member of a session with the author's
//! first message in the session. Callers can store metadata, which the engine does not interpret. Other APIs, such as
//! Honcho's, can store attributes. Attributes are a JSON object that maps the name of each API to the data of this API.
//! This data is called the API's part of the attributes.

use std::sync::Arc;

use epitome_core::message::Seq;
use epitome_core::tokens::Encoding;
use serde_json::{Map, Value};

use super::append::{new_session, session_slots};
use super::checks::{check_metadata, check_notes, check_session_patch, merged};
use super::session::Session;
use super::workspace::Workspace;
use super::{Engine, OutCell, SessionInfo, Shared};
use crate::error::{Error, check_name};
use crate::settings::{Patch, Settings};
use crate::store::{
    AuthorRow, Changes, ListFilter, ListPage, Listing, Load, MemberRow, Membership, SessionId, SessionRow,
    SessionState, WorkspaceDeletion, WorkspaceRow,
};

/// A change to the part of the attributes that one API owns.
#[derive(Clone)]
pub struct Attributes {
    /// The API's name.
    pub owner: &'static str,
    /// Computes from the current part the new part, and a patch with the settings that follow from the new part. A null
    /// in the patch removes a setting. The result must depend only on the current part.
    pub change: AttributesChange,
}

type AttributesChange =
    Arc<dyn Fn(&Map<String, Value>) -> Result<(Map<String, Value>, Patch), Error> + Send + Sync>;

impl Attributes {
    /// Changes the owner's part, and returns the settings that follow from the new part. An empty part is not stored.
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

/// Rejects attributes whose parts are not objects, or are too large.
fn check_attributes(attributes: &Map<String, Value>, settings: &Settings) -> Result<(), Error> {
    attributes.iter().try_for_each(|(owner, part)| match part {
        Value::Object(part) => check_notes(&format!("attributes.{owner}"), part, settings),
        _ => Err(Error::invalid(format!("attributes.{owner}: must be an object"))),
    })
}

/// Changes to a workspace or a session. A field that is `None` or empty changes nothing.
#[derive(Clone, Default)]
pub struct Update {
    /// Metadata that replaces the caller's current metadata.
    pub metadata: Option<Map<String, Value>>,
    /// The change to one API's part of the attributes.
    pub attributes: Option<Attributes>,
    /// Authors who join or leave the session. Must be empty for a workspace, because only sessions have members.
    pub members: Vec<Membership>,
}

/// A stored value after a change, and whether the change created it.
#[derive(Debug, Clone, PartialEq)]
pub struct Upserted<T> {
    /// The current value.
    pub value: T,
    /// Whether the call created the value.
    pub created: bool,
}

/// The result of a change to a session's metadata and settings.
pub(super) struct UpdatedSession {
    created: bool,
    /// The session's info; `None` if the call created the session.
    info: Option<SessionInfo>,
    pub(super) settings: Arc<Settings>,
}

impl Engine {
    /// Lists workspaces, sorted as `listing` requests. For the operator only, because a tenant must not see other
    /// workspaces.
    pub async fn list_workspaces(
        &self,
        listing: Listing<WorkspaceRow>,
    ) -> Result<ListPage<WorkspaceRow>, Error> {
        Ok(self.shared().store.workspaces(listing).await?)
    }

    /// Returns the secret random number of the store, which is the same for every engine on the store. A program can
    /// derive names from this number that reveal nothing, for example message ids that do not show how many sessions
    /// the store contains.
    pub async fn secret(&self) -> Result<[u8; 32], Error> {
        Ok(self.shared().store.secret().await?)
    }
}

impl Workspace {
    /// Returns the workspace's row, if it exists. A workspace is created with its first session, author, setting or
    /// metadata.
    pub async fn info(&self) -> Result<Option<WorkspaceRow>, Error> {
        Ok(self.shared().store.workspaces(Listing::named(self.name())).await?.first())
    }

    /// Changes metadata and attributes of the workspace. Creates the workspace if it does not exist.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// use epitome::{Engine, Update};
    ///
    /// let engine = Engine::memory().await?;
    /// let acme = engine.workspace("acme");
    /// assert!(acme.info().await?.is_none());
    /// assert!(acme.update(Update::default()).await?.created);
    /// assert!(!acme.update(Update::default()).await?.created);
    /// # engine.close().await; Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
    /// ```
    pub async fn update(&self, update: Update) -> Result<Upserted<WorkspaceRow>, Error> {
        if !update.members.is_empty() {
            return Err(Error::invalid("members: only sessions have members"));
        }
        let engine = Arc::clone(self.shared());
        let created =
            self.change(move |before| Ok((updated_row(&engine, before, &update)?, before.is_none()))).await?;
        // Another client may have deleted the workspace in the meantime.
        let not_found = || Error::not_found(format_args!("workspace `{}`", self.name()));
        let value = self.info().await?.ok_or_else(not_found)?;
        Ok(Upserted { value, created })
    }

    /// Deletes the workspace. Fails if the workspace still has sessions. Delete its sessions first, one by one. Returns
    /// false if the workspace did not exist.
    pub async fn delete(&self) -> Result<bool, Error> {
        // The state of the workspace's proxied conversations is dropped from memory first, so that it is not stored
        // after the deletion.
        self.engine.inner.threads.remove_workspace(self.name());
        self.engine.inner.threads.settled().await;
        match self.shared().store.delete_workspace(self.name()).await? {
            WorkspaceDeletion::Deleted => Ok(true),
            WorkspaceDeletion::NotFound => Ok(false),
            WorkspaceDeletion::HasSessions => Err(Error::Conflict(format!(
                "workspace `{}` has sessions; delete them first, one by one",
                self.name()
            ))),
        }
    }

    /// Lists the sessions of the workspace, sorted as `listing` requests. With `member`, lists only the sessions of
    /// which this author is a member.
    pub async fn list_sessions(
        &self,
        member: Option<&str>,
        listing: Listing<SessionInfo>,
    ) -> Result<ListPage<SessionInfo>, Error> {
        let Listing { filter, name, after, skip, limit, reverse } = listing;
        let filter = filter.map(|filter| -> ListFilter<(Arc<str>, SessionRow)> {
            Box::new(move |(name, row)| filter(&SessionInfo::new(Arc::clone(name), row.clone())))
        });
        let listing = Listing { filter, name, after, skip, limit: limit.min(1_000), reverse };
        let listed = self.shared().store.sessions(self.name(), member, listing).await?;
        Ok(listed.map(|(name, row)| SessionInfo::new(name, row)))
    }

    /// Returns the author with this name, if the workspace has one.
    pub async fn author(&self, name: &str) -> Result<Option<AuthorRow>, Error> {
        Ok(self.shared().store.authors(self.name(), Listing::named(name)).await?.first())
    }

    /// Replaces an author's metadata, and each part of the attributes that `attributes` contains. `None` leaves the
    /// metadata or the attributes unchanged. Creates the author and the workspace if they do not exist.
    pub async fn set_author(
        &self,
        name: &str,
        metadata: Option<Map<String, Value>>,
        attributes: Option<Map<String, Value>>,
    ) -> Result<Upserted<AuthorRow>, Error> {
        check_name("workspace", self.name())?;
        check_name("author", name)?;
        let settings = &self.shared().settings;
        metadata.iter().try_for_each(|metadata| check_metadata(metadata, settings))?;
        attributes.iter().try_for_each(|parts| check_attributes(parts, settings))?;
        let (store, out) = (&self.shared().store, OutCell::new());
        let cell = Arc::clone(&out);
        let decide = move |before: Option<&AuthorRow>| {
            let mut row = before.cloned().unwrap_or_default();
            metadata.clone().into_iter().for_each(|metadata| row.metadata = metadata);
            for (owner, part) in attributes.iter().flatten() {
                put_part(&mut row.attributes, owner, part.clone());
            }
            cell.split(Ok((Some(row).filter(|row| before != Some(row)), before.is_none())))
        };
        store.change_author(self.name(), name, Box::new(decide)).await?;
        let created = out.take()?;
        // The author may have been deleted with the workspace in the meantime.
        let not_found = || Error::not_found(format_args!("author `{name}`"));
        let value = self.author(name).await?.ok_or_else(not_found)?;
        Ok(Upserted { value, created })
    }

    /// Lists the authors of the workspace, sorted as `listing` requests.
    pub async fn list_authors(&self, listing: Listing<AuthorRow>) -> Result<ListPage<AuthorRow>, Error> {
        Ok(self.shared().store.authors(self.name(), listing).await?)
    }
}

impl Session {
    /// Changes the settings of this session: only the keys that the patch contains. A null removes a setting of the
    /// session. Creates the session if it does not exist. The encoding of an existing session cannot be changed.
    pub async fn set(&self, patch: &Patch) -> Result<Arc<Settings>, Error> {
        self.put(Some(patch), None).await
    }

    /// Replaces the metadata that callers store for the session. Creates the session if it does not exist.
    pub async fn set_metadata(&self, metadata: Map<String, Value>) -> Result<(), Error> {
        self.put(None, Some(metadata)).await.map(|_| ())
    }

    /// Changes settings as [`Session::set`] does and replaces metadata as [`Session::set_metadata`] does, in one
    /// transaction. Creates the session if it does not exist.
    pub async fn put(
        &self,
        patch: Option<&Patch>,
        metadata: Option<Map<String, Value>>,
    ) -> Result<Arc<Settings>, Error> {
        let update = Update { metadata, ..Update::default() };
        Ok(self.write(Some(patch.cloned().unwrap_or_default()), update).await?.settings)
    }

    /// Changes metadata, attributes and members of the session in one transaction. Creates the session if it does not
    /// exist.
    pub async fn update(&self, update: Update) -> Result<Upserted<SessionInfo>, Error> {
        let UpdatedSession { created, info, .. } = self.write(None, update).await?;
        let value = match info {
            Some(info) => info,
            None => self.info().await?,
        };
        Ok(Upserted { value, created })
    }

    /// Changes the session as [`Session::update`] does, and applies `patch` to the session's settings. If there is a
    /// patch, the session is written even if nothing changes.
    pub(super) async fn write(&self, patch: Option<Patch>, update: Update) -> Result<UpdatedSession, Error> {
        self.check_names()?;
        patch.iter().try_for_each(check_session_patch)?;
        for change in &update.members {
            if let Membership::Join(name, attributes) = change {
                check_name("member", name)?;
                attributes.iter().try_for_each(|parts| check_attributes(parts, &self.shared().settings))?;
            }
        }
        let engine = Arc::clone(self.shared());
        let name = Arc::clone(&self.key.session);
        let decide = move |state: &SessionState| {
            let before = state.session.as_ref();
            let mut session =
                before.cloned().unwrap_or_else(|| new_session(engine.settings.encoding, state.now));
            let mut changes = Changes { members: update.members.clone(), ..Changes::default() };
            let apply = |session: &mut SessionRow, patch: &Patch| {
                let (document, settings) =
                    merged(&engine, &state.workspace_settings, &session.settings, patch)?;
                session.settings = document;
                Ok::<_, Error>((session_slots(state, &settings), settings))
            };
            // The stored settings are checked only after the patch is applied, so that a patch can replace stored
            // settings that are no longer valid.
            let mut settings = match patch.as_ref().filter(|patch| !patch.is_empty()) {
                Some(patch) => {
                    let (slots, settings) = apply(&mut session, patch)?;
                    changes.slots = slots;
                    settings
                }
                None => engine.settings_at(state)?,
            };
            if let Some(attributes) = &update.attributes {
                let derived = attributes.apply(&mut session.attributes, &settings)?;
                check_session_patch(&derived)?;
                if !derived.is_empty() {
                    (changes.slots, settings) = apply(&mut session, &derived)?;
                }
            }
            if before.is_none() {
                settings.encoding.name().clone_into(&mut session.encoding);
            } else if session.encoding.parse::<Encoding>().is_ok_and(|fixed| fixed != settings.encoding)
                && patch.as_ref().is_some_and(|patch| patch.entries().contains_key("encoding"))
            {
                return Err(Error::Conflict(format!(
                    "encoding: the session uses {}, which cannot be changed after its creation",
                    session.encoding
                )));
            }
            if let Some(metadata) = &update.metadata {
                check_metadata(metadata, &settings)?;
                session.metadata = metadata.clone();
            }
            let info = |session: &SessionRow| SessionInfo::new(Arc::clone(&name), session.clone());
            if patch.is_none() && before == Some(&session) && changes.members.is_empty() {
                return Ok((None, UpdatedSession { created: false, info: Some(info(&session)), settings }));
            }
            session.updated = state.now;
            // The store assigns the id of a new session later, so the info of a new session is read afterwards.
            let updated =
                UpdatedSession { created: before.is_none(), info: before.map(|_| info(&session)), settings };
            changes.session = Some(session);
            Ok((Some(changes), updated))
        };
        Ok(self.shared().change(&self.key, Load::default(), decide).await?.0)
    }

    /// Replaces the metadata that callers store for a message. The message's content stays unchanged.
    pub async fn set_message_metadata(&self, seq: Seq, metadata: Map<String, Value>) -> Result<(), Error> {
        self.change(Load::default(), move |engine, state, session| {
            if !(1..=session.tracker.head()).contains(&seq) {
                return Err(Error::not_found(format_args!("message {seq}")));
            }
            check_metadata(&metadata, &*engine.settings_at(state)?)?;
            let metadata = vec![(seq, metadata.clone())];
            Ok((Some(Changes { metadata, ..Changes::default() }), ()))
        })
        .await
    }

    /// Lists the members of the session, sorted as `listing` requests.
    pub async fn list_members(&self, listing: Listing<MemberRow>) -> Result<ListPage<MemberRow>, Error> {
        Ok(self.shared().store.members(self.id().await?, listing).await?)
    }

    /// Returns the member with this name, if the session has one.
    pub async fn member(&self, name: &str) -> Result<Option<MemberRow>, Error> {
        Ok(self.shared().store.members(self.id().await?, Listing::named(name)).await?.first())
    }

    async fn id(&self) -> Result<SessionId, Error> {
        Ok(self.stamp().await?.session)
    }
}

/// Returns the row of a workspace after the update; `None` if nothing changes.
fn updated_row(
    engine: &Shared,
    before: Option<&WorkspaceRow>,
    update: &Update,
) -> Result<Option<WorkspaceRow>, Error> {
    let mut row = before.cloned().unwrap_or_default();
    if let Some(metadata) = &update.metadata {
        check_metadata(metadata, &engine.settings)?;
        row.metadata = metadata.clone();
    }
    if let Some(attributes) = &update.attributes {
        let patch = attributes.apply(&mut row.attributes, &engine.settings)?;
        row.settings = merged(engine, "", &row.settings, &patch)?.0;
    }
    Ok(Some(row).filter(|row| before != Some(row)))
}
