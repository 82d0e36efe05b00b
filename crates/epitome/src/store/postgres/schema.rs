//! Creates and migrates the tables.

use tokio_postgres::{Client, Row};

use super::super::error::StoreError;
use super::error::{OpError, OpResult, damaged, rejected};

/// All schema migrations, in order.
pub(super) const MIGRATIONS: [(&str, &str); 7] = [
    ("0001_sessions", include_str!("../../../migrations/postgres/0001_sessions.sql")),
    ("0002_moving", include_str!("../../../migrations/postgres/0002_moving.sql")),
    ("0003_told", include_str!("../../../migrations/postgres/0003_told.sql")),
    ("0004_counts", include_str!("../../../migrations/postgres/0004_counts.sql")),
    ("0005_done", include_str!("../../../migrations/postgres/0005_done.sql")),
    ("0006_no_counts", include_str!("../../../migrations/postgres/0006_no_counts.sql")),
    ("0007_attributes", include_str!("../../../migrations/postgres/0007_attributes.sql")),
];

/// The number of the advisory lock with which one node at a time migrates the tables. Other programs are unlikely to
/// use this number.
const LOCK: i64 = 0x0065_7069_746f_6d65;

/// The oldest supported version of PostgreSQL: 13. The store uses functions of this version to check whether a
/// transaction was committed.
const OLDEST: i32 = 130_000;

/// Returns the first row of a statement; fails if there is none. The statement is sent without being prepared first.
pub(super) async fn row(client: &Client, sql: &str) -> OpResult<Row> {
    let rows = client.query_typed(sql, &[]).await?;
    rows.into_iter().next().ok_or_else(|| damaged("the database returned no row"))
}

/// Checks that the database can be used, and returns the number of applied migrations; `None` if there are no tables
/// yet.
pub(super) async fn check(client: &Client, address_text: &str) -> OpResult<Option<usize>> {
    let sql = "SELECT current_setting('server_version_num')::integer, current_setting('server_encoding')";
    let row = self::row(client, sql).await?;
    let (version, encoding): (i32, &str) = (row.try_get(0)?, row.try_get(1)?);
    let unsupported =
        |reason| Err(OpError::Final(StoreError::Unreachable { path: address_text.to_owned(), reason }));
    if version < OLDEST {
        return unsupported(format!("it runs PostgreSQL {}; 13 or later is required", version / 10_000));
    }
    // Other encodings cannot store every text: some texts would be refused, others would be changed.
    if encoding != "UTF8" {
        return unsupported(format!(
            "its encoding is {encoding}, and UTF8 is required; create a database with `createdb --encoding=UTF8 \
             --template=template0`"
        ));
    }
    applied(client, address_text).await
}

/// Creates or migrates the tables. If another node does this at the same time, this node waits and then finds the
/// tables complete.
pub(super) async fn create(client: &Client, address_text: &str) -> OpResult<()> {
    client.batch_execute("BEGIN; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = 0").await?;
    let created = migrate(client, address_text).await;
    let end = if created.is_ok() { "COMMIT" } else { "ROLLBACK" };
    client.batch_execute(end).await?;
    created
}

/// Returns the number of applied migrations; `None` if there are no tables yet.
async fn applied(client: &Client, address_text: &str) -> OpResult<Option<usize>> {
    let sql = "SELECT to_regnamespace('epitome') IS NOT NULL, to_regclass('epitome.migrations') IS NOT NULL, \
         EXISTS (SELECT 1 FROM pg_class WHERE relnamespace = to_regnamespace('epitome'))";
    let row = self::row(client, sql).await?;
    let (schema, ours, tables): (bool, bool, bool) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    if !ours {
        if schema && tables {
            let reason = "its schema `epitome` contains tables of another program".to_owned();
            return Err(OpError::Final(StoreError::Foreign { path: address_text.to_owned(), reason }));
        }
        return Ok(None);
    }
    let newest = self::row(client, "SELECT coalesce(max(version), 0) FROM epitome.migrations");
    let (found, supported): (i32, usize) = (newest.await?.try_get(0)?, MIGRATIONS.len());
    match usize::try_from(found) {
        Ok(found) if found <= supported => Ok(Some(found)),
        _ => Err(OpError::Final(StoreError::Newer {
            path: address_text.to_owned(),
            found: i64::from(found),
            supported: i64::try_from(supported).unwrap_or(i64::MAX),
        })),
    }
}

async fn migrate(client: &Client, address_text: &str) -> OpResult<()> {
    client.batch_execute(&format!("SELECT pg_advisory_xact_lock({LOCK})")).await?;
    let done = applied(client, address_text).await?;
    if done.is_none() {
        let sql = "CREATE SCHEMA IF NOT EXISTS epitome; CREATE TABLE epitome.migrations \
             (version integer PRIMARY KEY, name text NOT NULL, applied timestamptz NOT NULL DEFAULT now())";
        client.batch_execute(sql).await?;
    }
    let done = done.unwrap_or(0);
    for (number, (name, sql)) in (1i32..).zip(MIGRATIONS).skip(done) {
        client.batch_execute(sql).await?;
        let sql = format!("INSERT INTO epitome.migrations (version, name) VALUES ({number}, '{name}')");
        client.batch_execute(&sql).await?;
    }
    if done == 0 {
        let mut secret = [0u8; 32];
        getrandom::fill(&mut secret).map_err(|_| rejected("the system returned no random numbers"))?;
        let hex: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        let sql = format!(
            "INSERT INTO epitome.secrets (only_one, secret) VALUES (1, '\\x{hex}') ON CONFLICT DO NOTHING"
        );
        client.batch_execute(&sql).await?;
    }
    Ok(())
}
