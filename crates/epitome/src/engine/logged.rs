//! Finds the session and the slot that a log line names by a hash.

use std::sync::Arc;

use epitome_core::message::Author;
use epitome_core::slot::Scope;
use serde::Serialize;

use super::Engine;
use super::append::session_slots;
use super::session::Session;
use super::workspace::Workspace;
use crate::error::Error;
use crate::log_hash::{LogHash, LogHasher};

/// The session and the slot that a log line names by a hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LoggedSlot {
    /// The workspace.
    pub workspace: Arc<str>,
    /// The session.
    pub session: Arc<str>,
    /// The slot; `None` if the hash names only a session, or if the session no longer has the slot.
    pub slot: Option<String>,
    /// The author whose messages the slot covers; `None` for all messages.
    pub scope: Option<Author>,
}

/// Number of workspaces or sessions that are read at a time.
const PAGE: usize = 1_000;

impl Engine {
    /// Finds the session and the slot that a log line of the engine names by a hash, such as
    /// `5f0a2c1b-91d4e07b3c22-c3e1a0b2`. A hash without the third part names only a session.
    ///
    /// For the operator only, because the call searches all workspaces. The call reads the names of all workspaces in
    /// pages of 1,000. In the workspace whose hash matches, it reads the rows of the sessions until it finds the
    /// session. It reads no sessions of other workspaces, and writes nothing. The cost grows with the number of
    /// workspaces, and with the number of sessions in the matching workspace.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// use epitome::{Engine, Message};
    ///
    /// let engine = Engine::memory().await?;
    /// let session = engine.workspace("acme").session("ann");
    /// session.append(Message::user("Hello.")).await?;
    /// let hash = session.log_hash(None, "short").await?;
    /// let found = engine.find_logged(&hash).await?;
    /// assert_eq!((&*found.workspace, &*found.session, found.slot.as_deref()), ("acme", "ann", Some("short")));
    /// # engine.close().await; Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
    /// ```
    pub async fn find_logged(&self, hash: &str) -> Result<LoggedSlot, Error> {
        let parsed = LogHash::parse(hash).ok_or_else(|| {
            Error::invalid(format!(
                "hash: {hash:?} is not the hash of a slot or a session; copy it from a log line, for example \
                 5f0a2c1b-91d4e07b3c22-c3e1a0b2"
            ))
        })?;
        let hasher = self.shared().log_hasher().await?;
        let mut after: Option<Arc<str>> = None;
        loop {
            let names = self.workspaces(after.as_deref(), PAGE).await?;
            let Some(last) = names.last().cloned() else { break };
            for name in names.into_iter().filter(|name| hasher.workspace(name) == parsed.workspace) {
                if let Some(session) = self.workspace(name).find_logged(&parsed, hasher).await? {
                    return session.logged_slot(&parsed, hasher).await;
                }
            }
            after = Some(last);
        }
        Err(Error::NotFound {
            what: format!("session for the hash {hash}"),
            hint: "it was deleted, or the log line was written for another database".to_owned(),
        })
    }
}

impl Workspace {
    /// Returns the session with this hash, if the workspace has it.
    async fn find_logged(&self, hash: &LogHash<'_>, hasher: &LogHasher) -> Result<Option<Session>, Error> {
        let mut after: Option<Arc<str>> = None;
        loop {
            let sessions = self.sessions(after.as_deref(), PAGE).await?;
            let Some(last) = sessions.last().map(|session| Arc::clone(&session.name)) else {
                return Ok(None);
            };
            let mut names = sessions.into_iter().map(|session| session.name);
            if let Some(name) = names.find(|name| hasher.session(self.name(), name) == hash.session) {
                return Ok(Some(self.session(name)));
            }
            after = Some(last);
        }
    }
}

impl Session {
    /// Returns the hash by which the engine's logs name this slot of the session. Use it to find the log lines of the
    /// slot. The session and the slot need not exist.
    pub async fn log_hash(&self, scope: Option<Author>, slot: &str) -> Result<String, Error> {
        let hasher = self.shared().log_hasher().await?;
        Ok(hasher.whole(&self.key.workspace, &self.key.session, &Scope::from(scope), slot))
    }

    async fn logged_slot(&self, hash: &LogHash<'_>, hasher: &LogHasher) -> Result<LoggedSlot, Error> {
        let (workspace, session) = (&self.key.workspace, &self.key.session);
        let (state, _) = self.state().await?;
        let settings = self.shared().settings_at(&state)?;
        let row = session_slots(&state, &settings).into_iter().find(|row| {
            hash.slot.is_some_and(|slot| hasher.slot(workspace, session, &row.scope, &row.name) == slot)
        });
        let (slot, scope) = row.map_or((None, None), |row| (Some(row.name), row.scope.into()));
        Ok(LoggedSlot { workspace: Arc::clone(workspace), session: Arc::clone(session), slot, scope })
    }
}
