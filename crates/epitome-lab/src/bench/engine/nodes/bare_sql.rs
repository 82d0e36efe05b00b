//! Creates a temporary database for one measurement, and runs bare statements on the same tables.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use epitome::Error;
use epitome::store::postgres_client;
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};

use super::super::{invalid, messages};
use super::{TASKS, failed, join_all};

/// Creates a temporary database, runs `measure` in this database, and removes the database. Existing databases are not
/// changed.
pub(super) async fn in_temporary_database<T>(
    url: &str,
    measure: impl AsyncFnOnce(&str) -> Result<T, Error>,
) -> Result<T, Error> {
    let name = format!("epitome_bench_{:016x}", getrandom::u64().map_err(failed)?);
    let server = postgres_client(url).await?;
    server.batch_execute(&format!("CREATE DATABASE {name} TEMPLATE template0 ENCODING 'UTF8'")).await.map_err(
        |error| {
            failed(format!(
                "cannot create a temporary database ({}); the database user needs the CREATEDB right, and the URL must \
                 lead to the server itself, not to a connection pooler",
                error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
            ))
        },
    )?;
    let measured = measure(&with_database(url, &name)).await;
    let removed = server.batch_execute(&format!("DROP DATABASE {name} WITH (FORCE)")).await;
    let measured = measured?;
    removed.map_err(|_| failed(format!("cannot remove the database {name}; drop it with dropdb")))?;
    Ok(measured)
}

/// Replaces the database name in a URL.
fn with_database(url: &str, name: &str) -> String {
    let (base, query) = url.split_once('?').map_or((url, None), |(base, query)| (base, Some(query)));
    let begin = base.find("://").map_or(0, |at| at.saturating_add(3));
    let end =
        base.get(begin..).and_then(|rest| rest.find('/')).map_or(base.len(), |at| at.saturating_add(begin));
    let server = base.get(..end).unwrap_or(base);
    match query {
        Some(query) => format!("{server}/{name}?{query}"),
        None => format!("{server}/{name}"),
    }
}

/// Connections that insert rows with every column into the engine's messages table. Unlike the engine, they do no other
/// work.
pub(super) struct BareClients {
    clients: Vec<Arc<BareClient>>,
    next: AtomicI64,
}

struct BareClient {
    client: Client,
    insert: Statement,
    newest_messages: Statement,
    session_id: Statement,
}

impl BareClients {
    pub(super) async fn connect(url: &str) -> Result<Self, Error> {
        let mut clients = Vec::new();
        for _ in 0..TASKS {
            let client = postgres_client(url).await?;
            let sql = "INSERT INTO epitome.messages (session, seq, turn, tokens, before, chars, longest, opener, at, created, \
                 change, calls, answers, own_answers, open, own_open, role, shape, cut, own_cut, pinned, skip, author, body) \
                 SELECT $1, * FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
                 $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::int[], $13::int[], $14::int[], $15::int[], \
                 $16::int[], $17::smallint[], $18::smallint[], $19::smallint[], $20::smallint[], $21::boolean[], \
                 $22::boolean[], $23::text[], $24::text[])";
            let insert = client.prepare(sql).await.map_err(failed)?;
            let sql =
                "SELECT seq, role, body FROM epitome.messages WHERE session = $1 ORDER BY seq DESC LIMIT $2";
            let newest_messages = client.prepare(sql).await.map_err(failed)?;
            let sql = "SELECT id FROM epitome.sessions WHERE workspace = 'default' AND name = $1 AND state = 'open'";
            let session_id = client.prepare(sql).await.map_err(failed)?;
            clients.push(Arc::new(BareClient { client, insert, newest_messages, session_id }));
        }
        Ok(Self { clients, next: AtomicI64::new(-1) })
    }

    /// Inserts `each` batches of `batch` rows on every connection. Returns the rows per second of all connections
    /// together.
    pub(super) async fn round(&self, each: u64, batch: u64) -> Result<f64, Error> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for client in &self.clients {
            let client = Arc::clone(client);
            // A negative id belongs to no session. This function deletes the rows at its end.
            let session = self.next.fetch_sub(1, Ordering::Relaxed);
            tasks.spawn(async move {
                for n in 0..each {
                    let mut bodies = Vec::new();
                    for message in messages::short_messages(n * batch, batch) {
                        bodies.push(messages::body_json(&message).map_err(invalid)?);
                    }
                    let first = i64::try_from(n * batch).unwrap_or(0);
                    let seqs: Vec<i64> = (first..).take(bodies.len()).collect();
                    let (longs, counts) = (vec![30i64; bodies.len()], vec![0i32; bodies.len()]);
                    let (kinds, flags) = (vec![2i16; bodies.len()], vec![false; bodies.len()]);
                    let authors: Vec<Option<&str>> = vec![None; bodies.len()];
                    let mut parameters: Vec<&(dyn ToSql + Sync)> = vec![&session, &seqs];
                    parameters.extend([&longs as &(dyn ToSql + Sync); 9]);
                    parameters.extend([&counts as &(dyn ToSql + Sync); 5]);
                    parameters.extend([&kinds as &(dyn ToSql + Sync); 4]);
                    parameters.extend([&flags as &(dyn ToSql + Sync); 2]);
                    parameters.extend([&authors as &(dyn ToSql + Sync), &bodies]);
                    client.client.execute(&client.insert, &parameters).await.map_err(failed)?;
                }
                Ok::<_, Error>(())
            });
        }
        join_all(&mut tasks).await?;
        let rate = (each * batch * TASKS as u64) as f64 / started.elapsed().as_secs_f64();
        self.execute("DELETE FROM epitome.messages WHERE session < 0").await?;
        Ok(rate)
    }

    /// Measures a query for the newest messages of a session. The time includes the query for the session's id, unless
    /// `id_is_cached` is set.
    pub(super) async fn query(
        &self,
        session: &str,
        messages: usize,
        id_is_cached: bool,
    ) -> Result<Duration, Error> {
        let Some(client) = self.clients.first() else { return Err(Error::Closed) };
        let BareClient { client, newest_messages, session_id, .. } = &**client;
        let first = Instant::now();
        let id: i64 = client.query_one(session_id, &[&session]).await.map_err(failed)?.get(0);
        let started = if id_is_cached { Instant::now() } else { first };
        let count = i64::try_from(messages).unwrap_or(0);
        let rows = client.query(newest_messages, &[&id, &count]).await.map_err(failed)?;
        let duration = started.elapsed();
        if rows.is_empty() { Err(failed("the bare query found no messages")) } else { Ok(duration) }
    }

    pub(super) async fn execute(&self, sql: &str) -> Result<(), Error> {
        match self.clients.first() {
            Some(client) => client.client.batch_execute(sql).await.map_err(failed),
            None => Ok(()),
        }
    }

    /// Waits until the engine has updated the search index for every message.
    pub(super) async fn wait_until_indexed(&self) -> Result<(), Error> {
        let Some(client) = self.clients.first() else { return Ok(()) };
        for _ in 0..1_000 {
            let sql = "SELECT count(*) FROM epitome.sessions WHERE state = 'open' AND indexed < head";
            let row = client.client.query_one(sql, &[]).await.map_err(failed)?;
            if row.get::<_, i64>(0) == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_name_of_a_url_changes() {
        for (url, other) in [
            ("postgres://localhost", "postgres://localhost/b"),
            ("postgres://ann:pw@localhost:5433/shop", "postgres://ann:pw@localhost:5433/b"),
            ("postgres://localhost?sslmode=require", "postgres://localhost/b?sslmode=require"),
            ("postgres://ann@h/shop?sslrootcert=/a/b", "postgres://ann@h/b?sslrootcert=/a/b"),
        ] {
            assert_eq!(with_database(url, "b"), other);
        }
    }
}
