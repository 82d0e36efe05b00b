//! PostgreSQL as a store.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::super::ask::{Task, Way};
use super::super::asked::{Look, View, Window};
use super::super::changes::{Decide, Load};
use super::super::contract::Store;
use super::super::error::StoreError;
use super::super::lease::Place;
use super::super::rows::{SessionId, SessionKey};
use super::asking::Asking;
use super::{Postgres, WAIT, again};

#[async_trait]
impl Store for Postgres {
    async fn run(&self, way: Way, task: Task) -> Result<(), StoreError> {
        again!(self, async {
            let mut asking = match way {
                Way::ReadsHere | Way::Looks => Asking::alone(self),
                Way::Reads | Way::ReadsAll => Asking::reads(self),
                Way::Writes | Way::Notes => Asking::writes(self),
            };
            if way == Way::ReadsAll {
                asking.take_your_time().await?;
            }
            let done = task.on(&mut asking).await;
            asking.ended(done).await
        })
    }

    async fn change(
        &self,
        key: &SessionKey,
        load: Load,
        decide: Decide,
    ) -> Result<Option<SessionId>, StoreError> {
        // Whoever waits for a turn is waiting: all that write to a session lose patience each by itself, not in turn.
        let mut tries = self.tries();
        loop {
            match self.change_in_turn(key, (&load, &decide), tries.until()).await {
                Ok(done) => return Ok(done),
                Err(trouble) => tries.after(trouble).await?,
            }
        }
    }

    async fn window(&self, key: &SessionKey, view: View, look: Look) -> Result<Option<Window>, StoreError> {
        self.read_window(key, &view, &look).await
    }

    async fn nudged(&self) {
        if !self.noticed.pooler.load(Ordering::Acquire) {
            self.hints.heard.notified().await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    async fn number_all(&self, workspace: &str) -> Result<(), StoreError> {
        again!(self, self.number_told(workspace))
    }

    fn walked(&self) -> &Place {
        &self.walked
    }

    fn deleted(&self, key: &SessionKey) {
        self.known.remove(key);
        self.chores.notify_one();
    }

    fn revealed(&self, copy: SessionId) {
        self.behind.add(copy);
        self.hints.tell.notify_one();
    }

    async fn backup(&self, _: &Path) -> Result<(), StoreError> {
        let reason =
            "a PostgreSQL database is backed up with pg_dump, or as a whole with pg_basebackup".to_owned();
        Err(StoreError::Failed { reason })
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(stop) = &self.stop {
            stop.send_replace(true);
        }
        self.pool.close();
        // Whoever has a connection gives it back when they are done; that is not waited for without end.
        let until = Instant::now() + WAIT;
        while self.pool.status().size > self.pool.status().available && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}
