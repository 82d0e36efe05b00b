//! SQLite as a store.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;

use super::super::ask::{Task, Way};
use super::super::changes::{Decide, Load};
use super::super::contract::Store;
use super::super::error::StoreError;
use super::super::lease::Place;
use super::super::rows::{SessionId, SessionKey};
use super::handle::Sqlite;
use super::lent::{Lent, done};
use super::{backup, change, open};

#[async_trait]
impl Store for Sqlite {
    async fn run(&self, way: Way, task: Task) -> Result<(), StoreError> {
        let (clock, known) = (Arc::clone(&self.clock), self.known.clone());
        let work = move |db: &mut Connection| {
            if way == Way::Writes {
                known.forget_all();
            }
            done(task.on(&mut Lent { db, known: &known, now: clock() }))
        };
        match (way, &self.readers) {
            (Way::Reads | Way::Looks, Some(readers)) => readers.read(work).await,
            (Way::ReadsHere, Some(readers)) => readers.read_here(work).await,
            (Way::ReadsAll, Some(readers)) => readers.read_afresh(work).await,
            _ => self.writer.write(work).await,
        }
    }

    async fn change(
        &self,
        key: &SessionKey,
        load: Load,
        decide: Decide,
    ) -> Result<Option<SessionId>, StoreError> {
        let (key, clock, known) = (key.clone(), Arc::clone(&self.clock), self.known.clone());
        let change = move |db: &mut Connection| {
            done(change::change(&mut Lent { db, known: &known, now: clock() }, &key, &load, &decide))
        };
        self.writer.write(change).await
    }

    fn walked(&self) -> &Place {
        &self.walked
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
