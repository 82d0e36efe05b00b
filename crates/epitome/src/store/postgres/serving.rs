//! What concerns a database as a whole: its secret, its health, its end.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use super::super::error::StoreError;
use super::super::maintenance::{Fault, Maintenance};
use super::super::verify::verify;
use super::asking::Asking;
use super::error::nonsense;
use super::pipe::Pipe;
use super::rows::first;
use super::{Postgres, WAIT, again};

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
        again!(self, async {
            let mut asking = Asking::reads(self);
            asking.take_your_time().await?;
            let faults = verify(&mut asking, false).await;
            asking.ended(faults).await
        })
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
