//! Connecting, and finding out whom one is connected to.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use deadpool_postgres::{
    Hook, HookError, Manager, ManagerConfig, Pool, QueueMode, RecyclingMethod, Runtime, Timeouts,
};
use tokio::time::timeout;
use tokio_postgres::Client;

use super::super::error::StoreError;
use super::error::{Outcome, Trouble, connecting, silent};
use super::link::Noticed;
use super::schema::{self, MIGRATIONS};
use super::tls::Address;
use super::{IDLE, PostgresOptions, WAIT};

/// How long a second backend is waited for while a first one is held.
const CROWDED: Duration = Duration::from_secs(2);

/// The connections of a node, made as they are needed.
pub(super) fn pool(
    address: &Address,
    options: &PostgresOptions,
    noticed: &Arc<Noticed>,
) -> Result<Pool, String> {
    let method = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let manager = Manager::from_config(address.config.clone(), address.tls.clone(), method);
    let set = format!(
        "SET statement_timeout = {}; SET idle_in_transaction_session_timeout = {}; SET jit = off; SET plan_cache_mode = force_generic_plan",
        options.statement.as_millis(),
        IDLE.as_millis()
    );
    let noticed = Arc::clone(noticed);
    // Behind a pooler the next one who comes there would find it set.
    let hook = Hook::async_fn(move |client, _| {
        let set = (!noticed.pooler.load(Ordering::Acquire)).then(|| set.clone());
        Box::pin(async move {
            match set {
                Some(set) => client.batch_execute(&set).await.map_err(HookError::Backend),
                None => Ok(()),
            }
        })
    });
    Pool::builder(manager)
        .max_size(options.connections.max(1))
        // The one that was used last knows the statements, and has them in its caches.
        .queue_mode(QueueMode::Lifo)
        .runtime(Runtime::Tokio1)
        .timeouts(Timeouts { wait: Some(WAIT), create: Some(WAIT), recycle: Some(WAIT) })
        .post_create(hook)
        .build()
        .map_err(|error| error.to_string())
}

/// Makes the tables where they are missing, and finds out whether a pooler stands in between.
pub(super) async fn prepare(address: &Address, must_exist: bool) -> Outcome<bool> {
    let (one, two) = (connect(address).await?, connect(address).await?);
    match heard(schema::look(&one, &address.place)).await? {
        Some(done) if done == MIGRATIONS.len() => {}
        None if must_exist => {
            return Err(Trouble::Said(StoreError::Empty { place: address.place.clone() }));
        }
        // That takes as long as it takes.
        _ => schema::make(&one, &address.place).await?,
    }
    Ok(address.pooled || heard(is_pooled([&one, &two])).await?)
}

/// An answer that is given at once or not at all. A server that takes connections and says nothing is as good as none.
async fn heard<T>(answer: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    timeout(WAIT, answer).await.unwrap_or_else(|_| Err(silent(WAIT)))
}

async fn connect(address: &Address) -> Outcome<Client> {
    let connected = heard(async { Ok(address.config.connect(address.tls.clone()).await) }).await?;
    let (client, connection) = connected.map_err(|error| connecting(&error, &address.place))?;
    tokio::spawn(async move {
        // What goes wrong is told to whoever asks something.
        let _ = connection.await;
    });
    Ok(client)
}

/// Whether a pooler stands in between that hands out backends by the transaction: then two connections have the same one,
/// or one has now this and now that. A name given to a statement would be found by somebody else.
///
/// Both hold one at once and let go of them in order: whoever hands them out then, the last or the first that became
/// free, gives one of the two the other's before long.
async fn is_pooled([one, two]: [&Client; 2]) -> Outcome<bool> {
    // Where all share a single one, whoever waited for a second would wait for ever.
    if backend(one).await? == backend(two).await? {
        return Ok(true);
    }
    one.batch_execute("BEGIN").await?;
    let first = backend(one).await?;
    let hold = async {
        two.batch_execute("BEGIN").await?;
        backend(two).await
    };
    let Ok(second) = timeout(CROWDED, hold).await else {
        // Where the one is answered and the other not, somebody has them wait for each other.
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

/// Whom a connection talks to now.
async fn backend(client: &Client) -> Outcome<i32> {
    Ok(schema::row(client, "SELECT pg_backend_pid()").await?.try_get(0)?)
}
