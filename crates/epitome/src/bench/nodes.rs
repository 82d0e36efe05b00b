//! Nodes on PostgreSQL, against bare statements on the same tables.

use std::sync::Arc;
use std::time::{Duration, Instant};

use epitome_core::slot::Scope;
use serde::Serialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, NoTls, Statement};

use super::{Line, Progress, Spread, Tell, median, talk};
use crate::engine::{ContextRequest, Engine, Pace};
use crate::error::Error;
use crate::store::{Postgres, PostgresOptions, SessionKey, Store, StoreError, Want, words};

/// So many connections on either side, and so many who append.
const TASKS: usize = 16;

/// How long the model takes that two nodes are held against one with.
const MODEL_TAKES: Duration = Duration::from_millis(200);

/// At least this part of what bare inserts do.
const APPENDS: f64 = 0.7;
/// A context takes at most so many times what a bare query does.
const CONTEXTS: f64 = 2.0;
/// Two nodes do at least so many times the work of one.
const TWO: f64 = 1.7;
/// From a commit to the lease elsewhere, in milliseconds.
const HEARD: f64 = 50.0;

/// How much is measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSizes {
    /// How often both take turns.
    pub rounds: usize,
    /// Messages that each of them appends in a round.
    pub appends: usize,
    /// The messages of the session whose contexts are asked for.
    pub long: u64,
    /// How many contexts.
    pub contexts: usize,
    /// How many sessions one node, then two, have something to do in.
    pub sessions: usize,
    /// How many leases are waited for.
    pub leases: usize,
}

impl NodeSizes {
    /// A minute or two.
    #[must_use]
    pub fn standard() -> Self {
        Self { rounds: 7, appends: 8_000, long: 10_000, contexts: 500, sessions: 64, leases: 60 }
    }

    /// A look.
    #[must_use]
    pub fn quick() -> Self {
        Self { rounds: 3, appends: 2_000, long: 2_000, contexts: 100, sessions: 24, leases: 15 }
    }
}

/// Ours and bare, in turns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Beside {
    /// Messages a second through `Session::append`.
    pub rows_per_second: f64,
    /// Rows a second that are inserted into the same table and nothing else.
    pub bare_rows_per_second: f64,
    /// The first by the second: the median of the rounds' own ratios.
    pub ratio: f64,
}

/// What was measured of nodes on PostgreSQL.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Nodes {
    /// One message at a time.
    pub appends: Beside,
    /// A hundred at a time.
    pub batches: Beside,
    /// A context of 4,000 tokens, made anew each time, in milliseconds.
    pub context: Spread,
    /// One query for the words of as many messages of the same session.
    pub query: Spread,
    /// The first by the second.
    pub context_ratio: f64,
    /// Summaries a second by one node, with a model that takes 200 ms.
    pub one_node: f64,
    /// By two.
    pub two_nodes: f64,
    /// From when the append that made something due was committed to when another node has it, in milliseconds.
    pub heard: Spread,
}

impl Nodes {
    /// What people read of it.
    #[must_use]
    pub fn lines(&self) -> Vec<Line> {
        let appends = |name: &str, beside: &Beside| {
            let figure = format!(
                "{:.0}/s, {:.2} of bare inserts' {:.0}/s",
                beside.rows_per_second, beside.ratio, beside.bare_rows_per_second
            );
            Line::new(name, figure, "0.70 of it", Some(beside.ratio >= APPENDS))
        };
        let context = format!(
            "{:.2} ms, {:.2} of a bare query's {:.2} ms",
            self.context.median, self.context_ratio, self.query.median
        );
        let two = self.two_nodes / self.one_node;
        vec![
            appends("appends, 16 connections", &self.appends),
            appends("appends of 100, 16 connections", &self.batches),
            Line::new("context, made anew, p50", context, "2.00 of it", Some(self.context_ratio <= CONTEXTS)),
            Line::new(
                "two nodes, model takes 200 ms",
                format!("{two:.2} of one's {:.1} summaries/s", self.one_node),
                "1.70 of it",
                Some(two >= TWO),
            ),
            Line::new(
                "commit to lease on another node, p50",
                format!("{:.1} ms (p95 {:.1})", self.heard.median, self.heard.p95),
                "50 ms",
                Some(self.heard.median < HEARD),
            ),
        ]
    }
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::Store(StoreError::Failed { reason: error.to_string() })
}

/// Measures on a database of its own: what is in it afterwards is this measurement's.
pub async fn nodes(url: &str, sizes: &NodeSizes, tell: Tell<'_>) -> Result<Nodes, Error> {
    let options = || PostgresOptions { connections: TASKS, ..PostgresOptions::default() };
    let engine = Engine::builder().workers(0).postgres(options()).open_postgres(url).await?;
    let bare = Bare::connect(url).await?;
    let appends = beside(&engine, &bare, sizes, 1, ("appends", tell)).await?;
    let batches = beside(&engine, &bare, sizes, 100, ("appends of 100", tell)).await?;
    let (context, query) = contexts(&engine, &bare, sizes, tell).await?;
    engine.close().await;
    let one_node = work(url, sizes.sessions, 1, tell).await?;
    let two_nodes = work(url, sizes.sessions, 2, tell).await?;
    let heard = heard(url, sizes.leases, tell).await?;
    let context_ratio = context.median / query.median;
    Ok(Nodes { appends, batches, context, query, context_ratio, one_node, two_nodes, heard })
}

async fn beside(
    engine: &Engine,
    bare: &Bare,
    sizes: &NodeSizes,
    together: u64,
    (stage, tell): (&'static str, Tell<'_>),
) -> Result<Beside, Error> {
    let each = sizes.appends.div_ceil(TASKS) as u64;
    let each = each.div_ceil(together).max(2);
    let rounds = sizes.rounds.max(1) as u64;
    let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    // The first round only warms both up.
    for round in 0..=rounds {
        tell(Progress { stage, done: round, of: rounds });
        let (mine, other) = if round % 2 == 0 {
            let mine = through_engine(engine, each, together).await?;
            (mine, bare.round(each, together).await?)
        } else {
            let other = bare.round(each, together).await?;
            (through_engine(engine, each, together).await?, other)
        };
        // Words are taken into the index when nobody appends: that must not slow down the other's turn.
        bare.quiet().await?;
        if round > 0 {
            ratios.push(mine / other);
            ours.push(mine);
            theirs.push(other);
        }
    }
    Ok(Beside { rows_per_second: median(ours), bare_rows_per_second: median(theirs), ratio: median(ratios) })
}

async fn through_engine(engine: &Engine, each: u64, together: u64) -> Result<f64, Error> {
    let started = Instant::now();
    let mut tasks = JoinSet::new();
    for task in 0..TASKS {
        let session = engine.session(format!("task {task} of {together}"));
        tasks.spawn(async move {
            for n in 0..each {
                session.append(talk::many(n * together, together)).await?;
            }
            Ok::<_, Error>(())
        });
    }
    all(&mut tasks).await?;
    Ok((each * together * TASKS as u64) as f64 / started.elapsed().as_secs_f64())
}

async fn all(tasks: &mut JoinSet<Result<(), Error>>) -> Result<(), Error> {
    while let Some(done) = tasks.join_next().await {
        done.map_err(|_| Error::Closed)??;
    }
    Ok(())
}

/// Connections that insert into the table of messages what the engine would, every column of it, and nothing else.
struct Bare {
    clients: Vec<Arc<(Client, Statement)>>,
    next: std::sync::atomic::AtomicI64,
}

impl Bare {
    async fn connect(url: &str) -> Result<Self, Error> {
        let mut clients = Vec::new();
        for _ in 0..TASKS {
            let (client, connection) = tokio_postgres::connect(url, NoTls).await.map_err(failed)?;
            tokio::spawn(async move {
                let _ = connection.await;
            });
            let sql = "INSERT INTO epitome.messages (session, seq, turn, tokens, before, chars, longest, opener, at, created, \
                 change, calls, answers, own_answers, open, own_open, role, shape, cut, own_cut, pinned, skip, author, body) \
                 SELECT $1, * FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], \
                 $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[], $12::int[], $13::int[], $14::int[], $15::int[], \
                 $16::int[], $17::smallint[], $18::smallint[], $19::smallint[], $20::smallint[], $21::boolean[], \
                 $22::boolean[], $23::text[], $24::text[])";
            let statement = client.prepare(sql).await.map_err(failed)?;
            clients.push(Arc::new((client, statement)));
        }
        Ok(Self { clients, next: std::sync::atomic::AtomicI64::new(-1) })
    }

    /// Rows a second.
    async fn round(&self, each: u64, together: u64) -> Result<f64, Error> {
        let started = Instant::now();
        let mut tasks = JoinSet::new();
        for client in &self.clients {
            let client = Arc::clone(client);
            // Of no session there is: they are removed again below.
            let session = self.next.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
            tasks.spawn(async move {
                for n in 0..each {
                    let mut bodies = Vec::new();
                    for message in talk::many(n * together, together) {
                        bodies.push(words(&message).map_err(Error::invalid)?);
                    }
                    let first = i64::try_from(n * together).unwrap_or(0);
                    let seqs: Vec<i64> = (first..).take(bodies.len()).collect();
                    let (longs, counts) = (vec![30i64; bodies.len()], vec![0i32; bodies.len()]);
                    let (kinds, flags) = (vec![2i16; bodies.len()], vec![false; bodies.len()]);
                    let authors: Vec<Option<&str>> = vec![None; bodies.len()];
                    let mut given: Vec<&(dyn ToSql + Sync)> = vec![&session, &seqs];
                    given.extend([&longs as &(dyn ToSql + Sync); 9]);
                    given.extend([&counts as &(dyn ToSql + Sync); 5]);
                    given.extend([&kinds as &(dyn ToSql + Sync); 4]);
                    given.extend([&flags as &(dyn ToSql + Sync); 2]);
                    given.extend([&authors as &(dyn ToSql + Sync), &bodies]);
                    client.0.execute(&client.1, &given).await.map_err(failed)?;
                }
                Ok::<_, Error>(())
            });
        }
        all(&mut tasks).await?;
        let rate = (each * together * TASKS as u64) as f64 / started.elapsed().as_secs_f64();
        self.ask("DELETE FROM epitome.messages WHERE session < 0").await?;
        Ok(rate)
    }

    async fn ask(&self, sql: &str) -> Result<(), Error> {
        match self.clients.first() {
            Some(client) => client.0.batch_execute(sql).await.map_err(failed),
            None => Ok(()),
        }
    }

    /// Waits until all words are in the index.
    async fn quiet(&self) -> Result<(), Error> {
        let Some(client) = self.clients.first() else { return Ok(()) };
        for _ in 0..1_000 {
            let sql = "SELECT count(*) FROM epitome.sessions WHERE state = 'open' AND indexed < head";
            let row = client.0.query_one(sql, &[]).await.map_err(failed)?;
            if row.get::<_, i64>(0) == 0 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }
}

/// Contexts of a long session that has grown by a message each time, and the words of as many messages.
async fn contexts(
    engine: &Engine,
    bare: &Bare,
    sizes: &NodeSizes,
    tell: Tell<'_>,
) -> Result<(Spread, Spread), Error> {
    let session = engine.session("long");
    for from in (0..sizes.long).step_by(500) {
        session.append(talk::many(from, 500.min(sizes.long - from))).await?;
    }
    bare.quiet().await?;
    let Some(client) = bare.clients.first() else { return Err(Error::Closed) };
    let id = client
        .0
        .query_one("SELECT id FROM epitome.sessions WHERE name = 'long' AND state = 'open'", &[])
        .await;
    let id: i64 = id.map_err(failed)?.get(0);
    let sql = "SELECT seq, role, body FROM epitome.messages WHERE session = $1 ORDER BY seq DESC LIMIT $2";
    let query = client.0.prepare(sql).await.map_err(failed)?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for n in 0..sizes.contexts as u64 {
        tell(Progress { stage: "contexts", done: n, of: sizes.contexts as u64 });
        session.append(talk::said(n)).await?;
        let started = Instant::now();
        let context =
            session.context(ContextRequest { tokens: Some(4_000), ..ContextRequest::default() }).await?;
        ours.push(started.elapsed());
        let count = i64::try_from(context.messages.len()).unwrap_or(0);
        let started = Instant::now();
        let rows = client.0.query(&query, &[&id, &count]).await.map_err(failed)?;
        theirs.push(started.elapsed());
        if rows.is_empty() {
            return Err(failed("the bare query found nothing"));
        }
    }
    Ok((Spread::of(ours), Spread::of(theirs)))
}

/// A provider on loopback that takes its time, and says the same to everybody.
async fn provider() -> Result<String, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    Ok(format!("http://{address}/v1"))
}

/// Answers one request after the other, until the caller has no more.
async fn answer(mut stream: TcpStream) {
    let mut read = Vec::new();
    loop {
        while let Some(end) = request_end(&read) {
            read.drain(..end);
            tokio::time::sleep(MODEL_TAKES).await;
            let body = r#"{"id": "1", "object": "chat.completion", "model": "slow", "choices": [{"index": 0, "finish_reason": "stop",
                "message": {"role": "assistant", "content": "The customer asked for orders; each was answered, and all arrive on Friday."}}],
                "usage": {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}}"#;
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            if stream.write_all((head + body).as_bytes()).await.is_err() {
                return;
            }
        }
        match stream.read_buf(&mut read).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
    }
}

/// Where the first request ends, once all of it is there.
fn request_end(read: &[u8]) -> Option<usize> {
    let head = read.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let text = std::str::from_utf8(read.get(..head)?).ok()?.to_ascii_lowercase();
    let length =
        text.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let end = head.checked_add(length.unwrap_or(0))?;
    (read.len() >= end).then_some(end)
}

/// Summaries a second by so many nodes, each with four workers.
async fn work(url: &str, sessions: usize, nodes: usize, tell: Tell<'_>) -> Result<f64, Error> {
    tell(Progress { stage: "nodes at work", done: nodes as u64 - 1, of: 2 });
    let base = provider().await?;
    let settings = format!(
        r#"{{"slot": [{{"name": "s", "trigger": "messages(20)", "max_tokens": 200}}], "summarize": {{"models": ["slow"]}},
        "models": {{"slow": {{"provider": "openai", "model": "slow", "base_url": "{base}", "window": 100000}}}}}}"#
    );
    let node = |workers: usize| {
        let pace = Pace { workers, ..Pace::default() };
        Engine::builder().settings(&settings).pace(pace).open_postgres(url)
    };
    let writer = node(0).await?;
    let workspace = writer.workspace(format!("work of {nodes}"));
    for n in 0..sessions {
        workspace.session(format!("session {n}")).append(talk::many(n as u64 * 20, 20)).await?;
    }
    let started = Instant::now();
    let mut engines = Vec::new();
    for _ in 0..nodes {
        engines.push(node(4).await?);
    }
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let queue = workspace.queue().await?;
        if queue.due + queue.working == 0 {
            break;
        }
        if Instant::now() > until {
            return Err(failed("nodes did not do what was due within two minutes"));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let rate = sessions as f64 / started.elapsed().as_secs_f64();
    for engine in engines {
        engine.close().await;
    }
    writer.close().await;
    Ok(rate)
}

/// How long after the commit of what made it due another node has the slot.
async fn heard(url: &str, leases: usize, tell: Tell<'_>) -> Result<Spread, Error> {
    let settings = r#"{"slot": [{"name": "s", "trigger": "messages(2)", "max_tokens": 200}]}"#;
    let writer = Engine::builder().workers(0).settings(settings).open_postgres(url).await?;
    let other = Postgres::open(url, PostgresOptions::default()).await?;
    let workspace = "heard";
    let want = |session: &str| Want {
        owner: "another".to_owned(),
        hold: Duration::from_secs(600),
        session: Some(SessionKey::new(workspace, session)),
        except: Default::default(),
        after: None,
        full: Default::default(),
    };
    let mut times = Vec::new();
    for n in 0..leases.max(1) {
        tell(Progress { stage: "leases elsewhere", done: n as u64, of: leases as u64 });
        let name = format!("session {n}");
        let session = writer.workspace(workspace).session(name.as_str());
        let waiting = async {
            loop {
                if let Some(lease) = other.lease(want(&name)).await? {
                    return Ok::<_, StoreError>((Instant::now(), lease));
                }
                // As a worker waits: told, or after a second.
                let _ = tokio::time::timeout(Duration::from_secs(1), other.nudged()).await;
            }
        };
        let said = async {
            tokio::time::sleep(Duration::from_millis(7 + (n as u64 * 13) % 40)).await;
            session.append(talk::many(0, 2)).await?;
            Ok::<_, Error>(Instant::now())
        };
        let (leased, committed) = tokio::join!(waiting, said);
        let ((leased, lease), committed) = (leased?, committed?);
        if lease.slot.scope != Scope::Session {
            return Err(failed("another slot was taken"));
        }
        times.push(leased.saturating_duration_since(committed));
    }
    other.close().await;
    writer.close().await;
    Ok(Spread::of(times))
}
