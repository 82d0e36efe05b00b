//! What happened in a workspace: read, and waited for.

use std::sync::Arc;

use super::Workspace;
use crate::error::Error;
use crate::event::Events;
use crate::shared::Listener;

impl Workspace {
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
    #[must_use]
    pub fn listen(&self) -> Listener {
        let shared = self.shared();
        Listener::new(&shared.signals.listeners, self.name().into(), shared.pace.poll)
    }
}
