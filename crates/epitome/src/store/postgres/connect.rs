//! Connects to the database, creates its tables, and detects a connection pooler.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Pool, QueueMode, RecyclingMethod, Runtime, Timeouts,
};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::super::error::StoreError;
use super::address::Address;
use super::connection::ServerFlags;
use super::error::{OpError, OpResult, classify_connect_error, no_answer};
use super::schema::{self, MIGRATIONS};
use super::{CONNECT_TIMEOUT, IDLE_IN_TRANSACTION, PostgresOptions};

/// How long the detection of a pooler waits for a second backend while the first connection is in a transaction.
const SECOND_BACKEND_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the connection pool of a node. Connections are opened as they are needed.
pub(super) fn pool(
    address: &Address,
    options: &PostgresOptions,
    server: &Arc<ServerFlags>,
) -> Result<Pool, String> {
    let method = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(address.config.clone(), address.tls.clone(), method);
    let set = format!(
        "SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}; SET jit = off; SET plan_cache_mode = force_generic_plan",
        options.statement.as_millis(),
        IDLE_IN_TRANSACTION.as_millis()
    );
    let server = Arc::clone(server);
    // Nothing is set behind a pooler, where the settings would affect the backend's next client.
    let hook = Hook::async_fn(move |client, _| {
        let set = (!server.pooler.load(Ordering::Acquire)).then(|| set.clone());
        Box::pin(async move {
            match set {
                Some(set) => client.batch_execute(&set).await.map_err(HookError::Backend),
                None => Ok(()),
            }
        })
    });
    Pool::builder(manager)
        .max_size(options.connections.max(1))
        // The connection that was used last is preferred, because its statements are prepared and its caches are
        // filled.
        .queue_mode(QueueMode::Lifo)
        .runtime(Runtime::Tokio1)
        .timeouts(Timeouts {
            wait: Some(CONNECT_TIMEOUT),
            create: Some(CONNECT_TIMEOUT),
            recycle: Some(CONNECT_TIMEOUT),
        })
        .post_create(hook)
        .build()
        .map_err(|error| error.to_string())
}

/// Creates missing tables. Returns whether there is a pooler in transaction mode between this node and the database.
pub(super) async fn prepare(address: &Address, must_exist: bool) -> OpResult<bool> {
    let (first, second) = (connect(address).await?, connect(address).await?);
    match within_timeout(schema::check(&first, &address.address_text)).await? {
        Some(done) if done == MIGRATIONS.len() => {}
        None if must_exist => {
            return Err(OpError::Final(StoreError::Empty { place: address.address_text.clone() }));
        }
        // A schema migration runs without a timeout.
        _ => schema::create(&first, &address.address_text).await?,
    }
    Ok(address.pooled || within_timeout(is_pooled([&first, &second])).await?)
}

/// Waits for an answer, up to a timeout. A server that accepts connections but does not answer counts as unreachable.
async fn within_timeout<T>(answer: impl Future<Output = OpResult<T>>) -> OpResult<T> {
    timeout(CONNECT_TIMEOUT, answer).await.unwrap_or_else(|_| Err(no_answer(CONNECT_TIMEOUT)))
}

async fn connect(address: &Address) -> OpResult<Client> {
    let connected = within_timeout(async { Ok(address.config.connect(address.tls.clone()).await) }).await?;
    let (client, connection) =
        connected.map_err(|error| classify_connect_error(&error, &address.address_text))?;
    tokio::spawn(async move {
        // The error is ignored here, because the next query returns it too.
        let _ = connection.await;
    });
    Ok(client)
}

/// Returns whether there is a pooler in transaction mode between this node and the database. With a pooler, two
/// connections may share one backend, or a connection may change its backend. A statement prepared on a connection may
/// then be missing, or belong to another client.
///
/// Each connection begins a transaction, which reserves a backend. Then both transactions are committed, one after the
/// other, and the connections send queries in turn. If a pooler assigns free backends in the order of their release, or
/// in the reverse order, one connection soon gets the other connection's backend.
async fn is_pooled([one, two]: [&Client; 2]) -> OpResult<bool> {
    // If both connections already share one backend, there is a pooler, and the slower check below is not needed.
    if backend(one).await? == backend(two).await? {
        return Ok(true);
    }
    one.batch_execute("BEGIN").await?;
    let first = backend(one).await?;
    let begin_second = async {
        two.batch_execute("BEGIN").await?;
        backend(two).await
    };
    let Ok(second) = timeout(SECOND_BACKEND_TIMEOUT, begin_second).await else {
        // Only the first connection got a backend, so there is a pooler, and it makes the second connection wait.
        one.batch_execute("COMMIT").await?;
        return Ok(true);
    };
    let second = second?;
    one.batch_execute("COMMIT").await?;
    two.batch_execute("COMMIT").await?;
    let (one, two) = ((one, first), (two, second));
    for (client, before) in [one, one, two, two, one, two, one, two] {
        if backend(client).await? != before {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the process id of the backend that a connection uses now.
async fn backend(client: &Client) -> OpResult<i32> {
    Ok(schema::row(client, "SELECT pg_backend_pid()").await?.try_get(0)?)
}
