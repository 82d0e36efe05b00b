//! Everything a store is asked for, handed to the writer or to a reader.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use epitome_core::message::{Message, Seq};
use epitome_core::slot::Scope;
use rusqlite::Connection;

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
use super::handle::Sqlite;
use super::rows::{all, first};
use super::{backup, change, copy, events, find, lease, open, queue, read, verify, window};
use crate::event::Events;

#[async_trait]
impl SessionLog for Sqlite {
    async fn change(
        &self,
        key: &SessionKey,
        load: Load,
        decide: Decide,
    ) -> Result<Option<SessionId>, StoreError> {
        let (key, clock, known) = (key.clone(), Arc::clone(&self.clock), self.known.clone());
        self.writer.write(move |db| change::change(db, &known, &key, &load, &decide, clock())).await
    }

    async fn standing(&self, key: &SessionKey, load: Load) -> Result<Standing, StoreError> {
        let (key, now) = (key.clone(), self.now());
        self.read(move |db| change::standing(db, &key, &load, now)).await
    }

    async fn stamp(&self, key: &SessionKey) -> Result<Option<Stamp>, StoreError> {
        let key = key.clone();
        self.read_here(move |db| first(db, &statements::stamp(&key), decode::stamp)).await
    }

    async fn window(&self, key: &SessionKey, view: View, look: Look) -> Result<Option<Window>, StoreError> {
        let (key, now) = (key.clone(), self.now());
        let at_hand = view.at_hand;
        let read = move |db: &Connection| {
            let standing = change::bare(db, &key, now)?;
            if standing.session.is_none() {
                return Ok(None);
            }
            let Some(reach) = look(&standing) else { return Ok(None) };
            window::window(db, standing, &view, reach)
        };
        if at_hand { self.read_here(read).await } else { self.read(read).await }
    }

    async fn ahead(
        &self,
        session: SessionId,
        scope: &Scope,
        after: Seq,
        limit: usize,
    ) -> Result<Ahead, StoreError> {
        let scope = scope.clone();
        self.read(move |db| read::ahead(db, session, &scope, after, limit)).await
    }

    async fn messages(&self, session: SessionId, pick: Pick) -> Result<Portion<Message>, StoreError> {
        self.read(move |db| read::messages(db, session, &pick)).await
    }

    async fn summaries(
        &self,
        session: SessionId,
        pick: PickSummaries,
    ) -> Result<Vec<SummaryRow>, StoreError> {
        self.read(move |db| read::summaries(db, session, &pick)).await
    }

    async fn recall(
        &self,
        workspace: &str,
        session: SessionId,
        asked: &str,
    ) -> Result<Option<String>, StoreError> {
        let (workspace, asked) = (workspace.to_owned(), asked.to_owned());
        let find = move |db: &Connection| {
            first(db, &statements::recall(&workspace, session, &asked), |row| row.string(0))
        };
        self.read(find).await
    }

    async fn search(&self, search: Search) -> Result<Portion<Hit>, StoreError> {
        self.read(move |db| find::search(db, &search)).await
    }

    async fn events(
        &self,
        workspace: &str,
        after: u64,
        session: Option<&str>,
        limit: usize,
    ) -> Result<Events, StoreError> {
        let (workspace, session) = (workspace.to_owned(), session.map(str::to_owned));
        self.read(move |db| events::read(db, &workspace, after, session.as_deref(), limit)).await
    }

    async fn condensed(&self, workspace: &str) -> Result<Vec<(Arc<str>, u64)>, StoreError> {
        let workspace = workspace.to_owned();
        self.read(move |db| events::condensed(db, &workspace)).await
    }

    async fn copy(&self, from: SessionId, through: Seq) -> Result<SessionId, StoreError> {
        let gone = || StoreError::Failed { reason: "the session was deleted while it was copied".to_owned() };
        let clock = Arc::clone(&self.clock);
        let copied = self.write(move |db| copy::begin(db, from, clock())).await?.ok_or_else(gone)?;
        let mut first: Seq = 1;
        while first <= through {
            let clock = Arc::clone(&self.clock);
            let piece = move |db: &Connection| copy::piece(db, from, copied, first, through, clock());
            let last = match self.write(piece).await {
                Ok(Some(last)) => last,
                failed => {
                    // Where this fails too, it is found by its age later.
                    let _ = self.write(move |db| copy::give_up(db, copied)).await;
                    return Err(failed.err().unwrap_or_else(gone));
                }
            };
            if last >= through {
                break;
            }
            first = last.saturating_add(1);
        }
        Ok(copied)
    }

    async fn reveal(&self, key: &SessionKey, copy: CopiedSession) -> Result<bool, StoreError> {
        let (key, known, now) = (key.clone(), self.known.clone(), self.now());
        self.write(move |db| copy::reveal(db, &known, &key, copy, now)).await
    }

    async fn delete(&self, key: &SessionKey) -> Result<bool, StoreError> {
        let key = key.clone();
        self.write(move |db| copy::delete(db, &key)).await
    }
}

#[async_trait]
impl SlotQueue for Sqlite {
    async fn lease(&self, want: Want) -> Result<Option<Lease>, StoreError> {
        // Workers ask often, and most often in vain: that must not cost a write.
        let clock = Arc::clone(&self.clock);
        let (asked, now) = (want.clone(), clock());
        let ready = self.read(move |db| Ok(lease::ready(db, &asked, now)?.is_some())).await?;
        if !ready {
            return Ok(None);
        }
        let known = self.known.clone();
        let take = move |db: &Connection| {
            let lease = lease::lease(db, &want, clock())?;
            if let Some(lease) = &lease {
                known.forget(&lease.key);
            }
            Ok(lease)
        };
        self.writer.write(take).await
    }

    async fn queue(
        &self,
        workspace: Option<&str>,
        limit: usize,
    ) -> Result<(QueueCounts, Vec<QueueRow>), StoreError> {
        let (workspace, now) = (workspace.map(str::to_owned), self.now());
        self.read(move |db| queue::queue(db, workspace.as_deref(), limit, now)).await
    }
}

#[async_trait]
impl UsageLog for Sqlite {
    async fn record(&self, usage: Vec<UsageRow>) -> Result<(), StoreError> {
        let now = self.now();
        self.writer.write(move |db| change::record(db, &usage, now)).await
    }

    async fn usage(&self, query: UsageQuery) -> Result<Vec<UsageSum>, StoreError> {
        self.read(move |db| all(db, &statements::usage(&query), decode::usage_sum)).await
    }
}

#[async_trait]
impl Maintenance for Sqlite {
    async fn secret(&self) -> Result<[u8; 32], StoreError> {
        self.read(|db| Ok(db.query_row("SELECT secret FROM secrets", [], |row| row.get(0))?)).await
    }

    async fn verify(&self) -> Result<Vec<Fault>, StoreError> {
        match &self.readers {
            Some(readers) => readers.read_afresh(verify::verify).await,
            None => self.writer.write(verify::verify).await,
        }
    }

    async fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let to = to.to_owned();
        match &self.readers {
            None => self.writer.alone(move |db| backup::into(db, &to)).await,
            Some(readers) => {
                let (path, options, lasting) = (self.path.clone(), self.options.clone(), readers.lasting);
                let task = tokio::task::spawn_blocking(move || {
                    // A connection of its own, so that neither readers nor the writer wait.
                    let open = if lasting { open::unchanging } else { open::plain };
                    let copied = open(&path, &options).and_then(|db| backup::into(&db, &to));
                    copied.map_err(|trouble| trouble.at(&path))
                });
                task.await
                    .unwrap_or_else(|_| Err(StoreError::Failed { reason: "the backup panicked".to_owned() }))
            }
        }
    }

    async fn close(&self) {
        if let Some(readers) = &self.readers {
            readers.close().await;
        }
        self.writer.close().await;
    }
}
