//! Everything a store is asked for, tried as often as is worth it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use epitome_core::message::{Message, Seq};
use epitome_core::slot::Scope;

use super::super::asked::{Ahead, Hit, Look, Pick, PickSummaries, Portion, Search, UsageQuery, View, Window};
use super::super::changes::{Decide, Load, Standing};
use super::super::decode;
use super::super::error::StoreError;
use super::super::log::{CopiedSession, SessionLog};
use super::super::maintenance::{Fault, Maintenance};
use super::super::rows::{
    QueueCounts, QueueRow, SessionId, SessionKey, Stamp, SummaryRow, UsageRow, UsageSum,
};
use super::super::slots::{Lease, SlotQueue, Want};
use super::super::statements;
use super::super::usage::UsageLog;
use super::error::nonsense;
use super::known::Numbered;
use super::pipe::Pipe;
use super::rows::first;
use super::tx::Tx;
use super::window::{self, Found};
use super::{Postgres, WAIT, Way, again};
use crate::event::Events;

#[async_trait]
impl SessionLog for Postgres {
    async fn change(
        &self,
        key: &SessionKey,
        load: Load,
        decide: Decide,
    ) -> Result<Option<SessionId>, StoreError> {
        // Whoever waits for a turn is waiting: all that write to a session lose patience each by itself, not in turn.
        let mut tries = self.tries();
        let mut way = Way::Short;
        loop {
            match self.change_in_turn(key, (&load, &decide), &mut way, tries.until()).await {
                Ok(done) => return Ok(done),
                Err(trouble) => tries.after(trouble).await?,
            }
        }
    }

    async fn standing(&self, key: &SessionKey, load: Load) -> Result<Standing, StoreError> {
        again!(self, self.standing_once(key, &load))
    }

    async fn stamp(&self, key: &SessionKey) -> Result<Option<Stamp>, StoreError> {
        again!(self, self.stamp_once(key))
    }

    async fn window(&self, key: &SessionKey, view: View, look: Look) -> Result<Option<Window>, StoreError> {
        if window::is_whole(&view) {
            let mut quick: Option<Found> = None;
            if let Some(held) = self.recent.get(key) {
                let since: Result<_, StoreError> = again!(self, self.window_since(key, &held, &look));
                quick = since?;
                if quick.is_none() {
                    // It would be read in vain the next time too.
                    self.recent.forget(key);
                }
            }
            if quick.is_none() {
                let fresh: Result<_, StoreError> = again!(self, self.window_fresh(key, &look));
                quick = fresh?;
            }
            match quick {
                Some(Found::Window(window)) => return Ok(Some(*window)),
                Some(Found::Nothing) => return Ok(None),
                Some(Found::Another(_)) | None => {}
            }
        }
        let mut tries = self.tries();
        let mut numbered = self.known.number(key);
        loop {
            let found = match numbered {
                Some(numbered) => self.window_once(key, numbered, &view, &look).await,
                None => match self.number(key).await {
                    Ok(None) => return Ok(None),
                    Ok(Some(id)) => Ok(Found::Another(id)),
                    Err(trouble) => Err(trouble),
                },
            };
            match found {
                Ok(Found::Window(window)) => {
                    self.known.held(key, window.tail.len());
                    return Ok(Some(*window));
                }
                Ok(Found::Nothing) => return Ok(None),
                Ok(Found::Another(id)) => {
                    self.known.named(key, id);
                    numbered = Some(Numbered { id, held: 0 });
                }
                Err(trouble) => tries.after(trouble).await?,
            }
        }
    }

    async fn ahead(
        &self,
        session: SessionId,
        scope: &Scope,
        after: Seq,
        limit: usize,
    ) -> Result<Ahead, StoreError> {
        again!(self, self.ahead_once(session, scope, after, limit))
    }

    async fn messages(&self, session: SessionId, pick: Pick) -> Result<Portion<Message>, StoreError> {
        again!(self, self.messages_once(session, &pick))
    }

    async fn summaries(
        &self,
        session: SessionId,
        pick: PickSummaries,
    ) -> Result<Vec<SummaryRow>, StoreError> {
        again!(self, self.summaries_once(session, &pick))
    }

    async fn recall(
        &self,
        workspace: &str,
        session: SessionId,
        asked: &str,
    ) -> Result<Option<String>, StoreError> {
        let recall = || statements::recall(workspace, session, asked);
        let found: Result<Vec<String>, StoreError> = again!(self, self.all(recall(), |row| row.string(0)));
        Ok(found?.into_iter().next())
    }

    async fn search(&self, search: Search) -> Result<Portion<Hit>, StoreError> {
        again!(self, self.search_once(&search))
    }

    async fn events(
        &self,
        workspace: &str,
        after: u64,
        session: Option<&str>,
        limit: usize,
    ) -> Result<Events, StoreError> {
        again!(self, self.events_once(workspace, after, session, limit))
    }

    async fn condensed(&self, workspace: &str) -> Result<Vec<(Arc<str>, u64)>, StoreError> {
        again!(self, self.condensed_once(workspace))
    }

    async fn copy(&self, from: SessionId, through: Seq) -> Result<SessionId, StoreError> {
        self.copy_all(from, through).await
    }

    async fn reveal(&self, key: &SessionKey, mut copy: CopiedSession) -> Result<bool, StoreError> {
        copy.renumber();
        let shown = again!(self, self.reveal_once(key, &copy));
        self.behind.add(copy.id);
        self.hints.tell.notify_one();
        shown
    }

    async fn delete(&self, key: &SessionKey) -> Result<bool, StoreError> {
        again!(self, self.delete_once(key))
    }
}

#[async_trait]
impl SlotQueue for Postgres {
    async fn lease(&self, want: Want) -> Result<Option<Lease>, StoreError> {
        let lease: Result<Option<Lease>, StoreError> = again!(self, self.lease_once(&want));
        if let Ok(Some(lease)) = &lease {
            self.known.take(&lease.key);
        }
        lease
    }

    async fn nudged(&self) {
        if !self.noticed.pooler.load(Ordering::Acquire) {
            self.hints.heard.notified().await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    async fn queue(
        &self,
        workspace: Option<&str>,
        limit: usize,
    ) -> Result<(QueueCounts, Vec<QueueRow>), StoreError> {
        again!(self, self.queue_once(workspace, limit))
    }
}

#[async_trait]
impl UsageLog for Postgres {
    async fn record(&self, usage: Vec<UsageRow>) -> Result<(), StoreError> {
        again!(self, async {
            let (tx, _) = Tx::write(self, Pipe::new()).await?;
            let mut pipe = Pipe::new();
            usage.iter().for_each(|row| pipe.add(statements::record(row, tx.now)));
            tx.commit(pipe).await.map(|_| ())
        })
    }

    async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageSum>, StoreError> {
        again!(self, self.all(statements::usage(&query), decode::usage_sum))
    }
}

#[async_trait]
impl Maintenance for Postgres {
    async fn secret(&self) -> Result<[u8; 32], StoreError> {
        again!(self, async {
            let found = self.once(Pipe::new().then("SELECT secret FROM epitome.secrets", [])).await?;
            let secret = first(&found, |row| row.bytes(0).map(<[u8]>::to_vec))?.unwrap_or_default();
            secret.try_into().map_err(|_| nonsense("the store has no secret"))
        })
    }

    async fn verify(&self) -> Result<Vec<Fault>, StoreError> {
        again!(self, self.verify_once())
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
