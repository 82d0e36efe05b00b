//! Engines on a PostgreSQL database.

use std::sync::Arc;

use super::{Builder, Engine};
use crate::error::Error;
use crate::store::{Postgres, PostgresOptions};

impl Builder {
    /// How the PostgreSQL database is used.
    pub fn postgres(mut self, options: PostgresOptions) -> Self {
        self.postgres = options;
        self
    }

    /// Opens a PostgreSQL database, `postgres://user:password@host:port/database`, which any number of engines may share:
    /// see [`Postgres::open`].
    pub async fn open_postgres(mut self, url: &str) -> Result<Engine, Error> {
        let options = std::mem::take(&mut self.postgres);
        let store = Postgres::open(url, options).await?;
        self.store(Arc::new(store))
    }
}
