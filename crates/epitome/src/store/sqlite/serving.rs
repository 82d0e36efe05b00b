//! Everything a store is asked for, handed to the writer or to a reader; and what concerns a file as a whole: its secret, its
//! health, its end.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use rusqlite::Connection;

use super::super::ask::{Backend, Op, Way};
use super::super::asked::{Hit, Look, Portion, Search, View, Window};
use super::super::changes::{Decide, Load};
use super::super::error::StoreError;
use super::super::maintenance::{Fault, Maintenance};
use super::super::rows::{SessionId, SessionKey};
use super::super::slots::{Lease, Want};
use super::super::trouble::Outcome;
use super::super::verify::verify;
use super::super::window::window;
use super::handle::Sqlite;
use super::lent::{Lent, done};
use super::{backup, change, find, lease, open};

impl Sqlite {
    /// Has something done with a connection that is lent for it.
    fn lending<A, T>(&self, args: A, op: Op<A, T>) -> impl FnOnce(&mut Connection) -> Outcome<T> + use<A, T> {
        let (clock, known) = (Arc::clone(&self.clock), self.known.clone());
        move |db| done(op(&args, &mut Lent { db, known: &known, now: clock() }))
    }
}

impl Backend for Sqlite {
    async fn run<A: Send + Sync + 'static, T: Send + 'static>(
        &self,
        way: Way,
        args: A,
        op: Op<A, T>,
    ) -> Result<T, StoreError> {
        let work = self.lending(args, op);
        match way {
            Way::Reads => self.read(work).await,
            Way::ReadsHere => self.read_here(work).await,
            Way::Writes => self.write(work).await,
            Way::Notes => self.writer.write(work).await,
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

    async fn window(&self, key: &SessionKey, view: View, look: Look) -> Result<Option<Window>, StoreError> {
        let at_hand = view.at_hand;
        let read = self.lending((key.clone(), view, look), |(key, view, look), ask| {
            Box::pin(async move { Ok(window(ask, key, view, look, None).await?.map(|seen| seen.window)) })
        });
        if at_hand { self.read_here(read).await } else { self.read(read).await }
    }

    async fn search(&self, search: Search) -> Result<Portion<Hit>, StoreError> {
        self.read(move |db| find::search(db, &search)).await
    }

    async fn lease(&self, want: Want) -> Result<Option<Lease>, StoreError> {
        // Workers ask often, and most often in vain: that must not cost a write.
        let clock = Arc::clone(&self.clock);
        let (asked, now) = (want.clone(), clock());
        let ready = self.read(move |db| Ok(lease::ready(db, &asked, now)?.is_some())).await?;
        if !ready {
            return Ok(None);
        }
        let known = self.known.clone();
        let take = move |db: &mut Connection| {
            let lease = lease::lease(db, &want, clock())?;
            if let Some(lease) = &lease {
                known.forget(&lease.key);
            }
            Ok(lease)
        };
        self.writer.write(take).await
    }
}

#[async_trait]
impl Maintenance for Sqlite {
    async fn secret(&self) -> Result<[u8; 32], StoreError> {
        self.read(|db| Ok(db.query_row("SELECT secret FROM secrets", [], |row| row.get(0))?)).await
    }

    async fn verify(&self) -> Result<Vec<Fault>, StoreError> {
        let look = self.lending((), |(), ask| Box::pin(verify(ask, true)));
        match &self.readers {
            Some(readers) => readers.read_afresh(look).await,
            None => self.writer.write(look).await,
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
