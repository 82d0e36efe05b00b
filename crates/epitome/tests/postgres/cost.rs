//! Operations read only what they need, regardless of how much other tenants store and how long messages are. Counted,
//! not timed: rows by the database's own statistics, bytes by the simulated network.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use epitome::search::Query;
use epitome::store::Store;
use epitome::store::{
    DecideReach, Hit, LeaseRequest, Load, Postgres, PostgresOptions, Reach, Search, SessionKey, Window,
    WindowQuery,
};
use epitome_core::message::{Message, Span};
use epitome_core::slot::{Limit, Scope, Slot};
use epitome_core::trigger::Trigger;

use crate::network::Network;
use crate::postgres_server::{Database, server};
use crate::setup::{database, in_time, node, say, want};
use crate::support::{append, key, row, say_all, summarize};

/// Waits until the query returns this result.
async fn until(database: &Database, sql: &str, expected: &str) {
    in_time(async {
        while database.psql(sql) != expected {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

/// Waits until every message is indexed.
async fn until_indexed(database: &Database) {
    until(database, "SELECT count(*) FROM epitome.sessions WHERE indexed < head", "0").await;
}

/// Returns how many rows of this table were read so far, by index or sequentially. All nodes must be closed: only then
/// is everything counted.
async fn rows_read(database: &Database, table: &str) -> u64 {
    let nodes = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'epitome' \
         AND datname = current_database()";
    until(database, nodes, "0").await;
    let read = database.psql(&format!(
        "SELECT (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables WHERE relname ~ '^{table}(_\\d+)?$') \
         + (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes WHERE relname ~ '^{table}(_\\d+)?$')"
    ));
    read.parse().unwrap()
}

/// Copies a session `count` times, without its messages, into other workspaces.
fn copies(database: &Database, of: &str, workspace: &str, count: usize) {
    database.psql(&format!(
        "WITH w AS (INSERT INTO epitome.workspaces (name, created) SELECT DISTINCT {workspace}, 0 \
         FROM generate_series(1, {count}) n ON CONFLICT DO NOTHING) \
         INSERT INTO epitome.sessions (workspace, name, encoding, tracker, head, turns, tokens, opener, batch_from, \
         batch_skipped, skipped, indexed, created, updated) SELECT {workspace}, 'copy ' || n, encoding, tracker, head, \
         turns, tokens, opener, batch_from, batch_skipped, skipped, head, created, updated \
         FROM generate_series(1, {count}) n, epitome.sessions WHERE name = '{of}'"
    ));
}

fn window_of(tokens: u64) -> (WindowQuery, DecideReach) {
    let view = WindowQuery { scope: Scope::Session, as_of: None, recently_read: false };
    (view, std::sync::Arc::new(move |_| Some(Reach { tokens, deep: false })))
}

async fn window(store: &Postgres, key: &SessionKey, tokens: u64) -> Window {
    let (view, look) = window_of(tokens);
    in_time(store.window(key, view, look)).await.unwrap().unwrap()
}

/// Returns a message that is one word of this many letters.
fn long(letters: usize) -> Message {
    Message::user("x".repeat(letters))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_of_a_grown_session_reads_only_what_it_shows() {
    let database = database(server());
    let writer = node(&database.url()).await;
    say(&writer, &key("a"), "hello").await.unwrap();
    until_indexed(&database).await;
    let network = Network::to(database.server().address());
    let reader = node(&database.url_by(network.address())).await;
    window(&reader, &key("a"), 10).await;

    say_all(&writer, &key("a"), std::iter::repeat_with(|| long(200_000)).take(100).collect()).await;
    until_indexed(&database).await;
    let before = network.bytes_from_database();
    let shown = window(&reader, &key("a"), 10).await;
    let heard = network.bytes_from_database() - before;
    assert!(heard < 4 << 20, "{heard} bytes were read for {} messages", shown.messages.len());
    // It equals a window that is read without the cache.
    let cold = node(&database.url()).await;
    let same = window(&cold, &key("a"), 10).await;
    assert_eq!((shown.messages.len(), &shown.tail, shown.from), (same.messages.len(), &same.tail, same.from));
    assert!(shown.messages == same.messages);
    assert!(shown.messages.len() < 20, "{}", shown.messages.len());

    // A window above the cache's size limit is read as a whole, and its cached version is not used again.
    let large = window(&reader, &key("a"), 1_000).await;
    say(&writer, &key("a"), "goodbye").await.unwrap();
    let larger = window(&reader, &key("a"), 1_000).await;
    assert_eq!((large.messages.len(), larger.messages.len()), (101, 102));
    for node in [writer, reader, cold] {
        node.close().await;
    }
}

fn search(query: &str, session: Option<(i64, Span)>) -> Search {
    Search {
        workspace: "w".into(),
        session,
        scope: Scope::Session,
        query: Query::parse(query).unwrap(),
        after: None,
        limit: 10,
        bytes: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_reads_no_rows_of_other_workspaces() {
    let database = database(server());
    let writer = node(&database.url()).await;
    say(&writer, &key("a"), "the parser fails").await.unwrap();
    say(&writer, &key("a"), "it works again").await.unwrap();
    say(&writer, &key("b"), "the parser sings").await.unwrap();
    let a = row(&writer, &key("a")).await.id;
    until_indexed(&database).await;
    writer.close().await;
    database.psql(
        "INSERT INTO epitome.words (session, seq, grams) SELECT 1000000 + n / 100, 1 + n % 100, \
         ARRAY(SELECT (n * 7919 + g)::integer FROM generate_series(1, 30) g) FROM generate_series(1, 30000) n",
    );
    database.psql("VACUUM ANALYZE epitome.words");
    let before = rows_read(&database, "words").await;

    let reader = node(&database.url()).await;
    let found = |hits: &[Hit]| {
        hits.iter().map(|hit| format!("{} {}", hit.session, hit.message.seq)).collect::<Vec<_>>()
    };
    let hits = reader.search(search("parser", None)).await.unwrap();
    assert_eq!(found(&hits), ["b 1", "a 1"]);
    let hits = reader.search(search("parser", Span::new(1, 9).map(|span| (a, span)))).await.unwrap();
    assert_eq!(found(&hits), ["a 1"]);
    let hits = reader.search(search("nobody says", None)).await.unwrap();
    assert_eq!(found(&hits), [] as [&str; 0]);
    reader.close().await;
    let read = rows_read(&database, "words").await - before;
    assert!(read < 1_000, "{read} rows of the index were read");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_reads_long_messages_in_parts_and_skips_none() {
    let database = database(server());
    let writer = node(&database.url()).await;
    // Some messages are indexed, and some are not.
    for _ in 0..2 {
        let text = || Message::user(format!("needle {}", "x".repeat(300_000)));
        say_all(&writer, &key("a"), std::iter::repeat_with(text).take(12).collect()).await;
    }
    until_indexed(&database).await;
    writer.close().await;
    database.psql("DELETE FROM epitome.words WHERE seq > 12; UPDATE epitome.sessions SET indexed = 12");

    let network = Network::to(database.server().address());
    let options = PostgresOptions { index_pause: Duration::from_secs(600), ..PostgresOptions::default() };
    let reader = Postgres::open(&database.url_by(network.address()), options).await.unwrap();
    let before = network.bytes_from_database();
    let hits = reader.search(Search { limit: 1, ..search("needle", None) }).await.unwrap();
    assert_eq!((hits[0].message.seq, hits.more), (24, true));
    let heard = network.bytes_from_database() - before;
    assert!(heard < 3 << 20, "{heard} bytes were read for one message");
    let before = network.bytes_from_database();
    let after = Some((hits[0].id, 13));
    let hits = reader.search(Search { limit: 1, after, ..search("needle", None) }).await.unwrap();
    assert_eq!((hits[0].message.seq, hits.more), (12, true));
    let heard = network.bytes_from_database() - before;
    assert!(heard < 3 << 20, "{heard} bytes were read for one message");
    let hits = reader.search(Search { limit: 100, ..search("needle", None) }).await.unwrap();
    let seqs: Vec<u64> = hits.iter().map(|hit| hit.message.seq).collect();
    assert_eq!(seqs, (1..=24).rev().collect::<Vec<_>>());
    let longest = network.longest_response();
    assert!(longest < 2 << 20, "{longest} bytes were read at a time");
    reader.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_reads_no_other_session() {
    let database = database(server());
    let node = node(&database.url()).await;
    say(&node, &key("a"), "first").await.unwrap();
    until_indexed(&database).await;
    copies(&database, "a", "'w'", 20_000);
    database.psql("VACUUM ANALYZE epitome.sessions");
    for n in 0..20 {
        say(&node, &key("a"), &format!("message {n}")).await.unwrap();
        // Each message is indexed by itself.
        let indexed =
            "SELECT indexed FROM epitome.sessions WHERE workspace = 'w' AND name = 'a' AND state = 'open'";
        in_time(async {
            while node.stamp(&key("a")).await.unwrap().unwrap().head.to_string() != database.psql(indexed) {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        })
        .await;
    }
    node.close().await;
    // The check above for indexed messages was not made by a node. The periodic scan read some of these rows.
    let read: u64 = rows_read(&database, "sessions").await;
    assert!(read < 60_000, "{read} rows of sessions were read");
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenance_runs_under_constant_load() {
    let database = database(server());
    let node = node(&database.url()).await;
    for name in ["gone", "a"] {
        say(&node, &key(name), "something").await.unwrap();
    }
    database.psql(
        "INSERT INTO epitome.idempotency (session, key, body, first, last, created) \
         SELECT id, 'old ' || n, '', 1, 1, 1 FROM epitome.sessions, generate_series(1, 3000) n WHERE name = 'a'",
    );
    database.psql(
        "INSERT INTO epitome.told (workspace, session, kind, data, at) \
         SELECT 'w', 'a', 'no such kind', '{}', 0 FROM generate_series(1, 12000) n",
    );
    // The node never pauses long enough for `index_pause`.
    let done = Arc::new(AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..4 {
        let (node, done) = (node.clone(), Arc::clone(&done));
        writers.spawn(async move {
            let mut said = 0;
            while !done.load(Ordering::Relaxed) {
                let key = key(&format!("{writer} {}", said % 50));
                say(&node, &key, &format!("message {said}")).await.unwrap();
                said += 1;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
    }
    assert!(node.delete(&key("gone")).await.unwrap());
    for (nothing, sql) in [
        ("sessions", "SELECT count(*) FROM epitome.sessions WHERE state <> 'open'"),
        ("keys", "SELECT count(*) FROM epitome.idempotency WHERE key LIKE 'old %'"),
        ("told", "SELECT count(*) FROM epitome.told WHERE kind = 'no such kind'"),
        // Older messages are indexed although new ones arrive all the time.
        ("behind", "SELECT count(*) FROM epitome.sessions WHERE state = 'open' AND indexed = 0"),
    ] {
        until(&database, sql, "0").await;
        eprintln!("{nothing} are seen to");
    }
    let said = "SELECT count(*) FROM epitome.messages m JOIN epitome.sessions o ON o.id = m.session \
         AND m.seq > o.indexed";
    in_time(async {
        while database.psql(said).parse::<u64>().unwrap() > 400 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    done.store(true, Ordering::Relaxed);
    in_time(writers.join_all()).await;
    until_indexed(&database).await;
    node.close().await;
    let wrong = "SELECT count(*) FROM epitome.sessions s WHERE indexed <> \
         (SELECT count(*) FROM epitome.words w WHERE w.session = s.id)";
    assert_eq!(database.psql(wrong), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_messages_are_read_once_for_the_index() {
    let database = database(server());
    let network = Network::to(database.server().address());
    let node = node(&database.url_by(network.address())).await;
    let before = network.bytes_from_database();
    say_all(&node, &key("a"), std::iter::repeat_with(|| long(500_000)).take(40).collect()).await;
    until_indexed(&database).await;
    node.close().await;
    let heard = network.bytes_from_database() - before;
    assert!(heard < 30 << 20, "{heard} bytes were read to index 20 million");
    let longest = network.longest_response();
    assert!(longest < 2 << 20, "{longest} bytes were read at a time");
}

/// Returns a slot that is always due.
fn due() -> Slot {
    Slot { trigger: Trigger::Messages(1), ..Slot::new("s", Limit::Tokens(100)) }
}

/// Adds to all copies of a session a slot like its own, ready at this time.
fn ready(database: &Database, of: &str, ready_at: &str) {
    database.psql(&format!(
        "INSERT INTO epitome.slots (session, scope, name, workspace, state, covered, due, ready_at, work, fence) \
         SELECT o.id, s.scope, s.name, o.workspace, s.state, s.covered, s.due, {ready_at}, s.work, s.fence \
         FROM epitome.sessions o, epitome.slots s JOIN epitome.sessions like_it ON like_it.id = s.session \
         AND like_it.name = '{of}' WHERE o.name LIKE 'copy %' ON CONFLICT DO NOTHING"
    ));
    database.psql("ANALYZE epitome.slots; ANALYZE epitome.sessions");
}

async fn make_due(node: &Postgres, key: &SessionKey) {
    let said = append(vec![Message::user("something")], vec![due()]);
    assert!(node.change(key, Load::default(), said).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_poll_costs_the_same_however_many_slots_of_full_workspaces_are_ready() {
    let database = database(server());
    let first = node(&database.url()).await;
    make_due(&first, &SessionKey::new("full 0", "like it")).await;
    first.close().await;
    copies(&database, "like it", "'full ' || n % 2", 20_000);
    ready(&database, "like it", "o.id");
    let before = rows_read(&database, "slots").await;

    let node = node(&database.url()).await;
    make_due(&node, &SessionKey::new("small", "x")).await;
    let full = [Arc::from("full 0"), Arc::from("full 1")].into();
    let wanted = LeaseRequest { after: Some("full 0".into()), full_workspaces: full, ..want("one") };
    let lease = in_time(node.lease(wanted.clone())).await.unwrap().unwrap();
    assert_eq!(&*lease.key.workspace, "small");
    for after in [Some("full 0"), Some("small"), None] {
        let wanted = LeaseRequest { after: after.map(Into::into), ..wanted.clone() };
        assert!(in_time(node.lease(wanted)).await.unwrap().is_none());
    }
    // Leasing a slot among that many costs no more either.
    for whose in ["full 0", "full 1"] {
        let wanted = LeaseRequest {
            after: Some(if whose == "full 0" { "a" } else { "full 0" }.into()),
            ..want("one")
        };
        let lease = in_time(node.lease(wanted)).await.unwrap().unwrap();
        assert_eq!(&*lease.key.workspace, whose);
    }
    node.close().await;
    let read = rows_read(&database, "slots").await - before;
    assert!(read < 4_000, "{read} rows of slots were read");
}

#[tokio::test(flavor = "multi_thread")]
async fn small_workspaces_get_their_turn_between_large_ones() {
    let database = database(server());
    let node = node(&database.url()).await;
    make_due(&node, &SessionKey::new("large 0", "like it")).await;
    copies(&database, "like it", "'large ' || n % 2", 1_000);
    ready(&database, "like it", "o.id");
    copies(&database, "like it", "'later ' || lpad(n::text, 5, '0')", 5_000);
    ready(&database, "like it", "9000000000000");
    for small in ["a", "z"] {
        make_due(&node, &SessionKey::new(small, "x")).await;
    }
    // Like a worker: after the workspace that it served last.
    let mut after = "large 1".to_owned();
    let mut got = Vec::new();
    for _ in 0..20 {
        let wanted = LeaseRequest { after: Some(after.as_str().into()), ..want("one") };
        let lease = in_time(node.lease(wanted)).await.unwrap().unwrap();
        after = lease.key.workspace.to_string();
        got.push(after.clone());
    }
    for whose in ["a", "z", "large 0", "large 1"] {
        assert!(got.iter().any(|one| one == whose), "{whose} never had a turn: {got:?}");
    }
    node.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn verify_reads_in_pages_and_without_summary_texts() {
    let database = database(server());
    let writer = node(&database.url()).await;
    say_all(&writer, &key("a"), std::iter::repeat_with(|| long(400_000)).take(20).collect()).await;
    for through in 1..=9 {
        summarize(&writer, &key("a"), &Scope::Session, "short", through).await;
    }
    until_indexed(&database).await;
    writer.close().await;
    database.psql(
        "UPDATE epitome.summaries SET text = repeat(md5(id::text), 40000), sources = repeat(md5(id::text), 40000)",
    );
    let network = Network::to(database.server().address());
    let reader = node(&database.url_by(network.address())).await;
    let before = network.bytes_from_database();
    assert_eq!(reader.verify().await.unwrap(), []);
    let heard = network.bytes_from_database() - before;
    reader.close().await;
    // Each message is read once, and no summary text.
    assert!(heard < 9 << 20, "{heard} bytes were read to verify 8 million");
    let longest = network.longest_response();
    assert!(longest < 2 << 20, "{longest} bytes were read at a time");
}
