//! Authors and members in files of an older release, and in files that two stores change.

use std::path::Path;

use epitome::store::*;
use epitome_testkit::drawing::messages;

use super::support::*;
use super::{options, raw, until_none};

/// Creates a file with the first four schema migrations, as the release of that time did.
fn fourth_schema(path: &Path) {
    const STEPS: [(&str, &str); 4] = [
        ("0001_sessions", include_str!("../../migrations/sqlite/0001_sessions.sql")),
        ("0002_summary_numbers", include_str!("../../migrations/sqlite/0002_summary_numbers.sql")),
        ("0003_events_and_keys", include_str!("../../migrations/sqlite/0003_events_and_keys.sql")),
        ("0004_revisions", include_str!("../../migrations/sqlite/0004_revisions.sql")),
    ];
    raw(
        path,
        "PRAGMA application_id = 0x45504954; CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, \
         checksum TEXT NOT NULL, applied INTEGER NOT NULL)",
    );
    for (version, (name, sql)) in (1..).zip(STEPS) {
        let checksum = blake3::hash(sql.as_bytes()).to_hex();
        let done = format!("INSERT INTO migrations VALUES ({version}, '{name}', '{checksum}', 0)");
        raw(path, &format!("BEGIN; {sql}; {done}; PRAGMA user_version = {version}; COMMIT"));
    }
}

/// Appends the messages of a drawing without members, as releases did before members existed.
async fn said_then(store: &dyn Store, clock: &Clock, at: i64, key: &SessionKey, drawing: &str) {
    clock.set(at);
    say(store, key, drawing).await;
}

async fn members(store: &dyn Store, key: &SessionKey) -> Vec<(String, i64)> {
    let id = row(store, key).await.id;
    let listed = store.members(id, Listing::default()).await.unwrap();
    listed.items.into_iter().map(|member| (member.author.name.to_string(), member.author.created.0)).collect()
}

fn told(members: &[(&str, i64)]) -> Vec<(String, i64)> {
    members.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect()
}

#[tokio::test]
async fn authors_of_an_older_file_become_members() {
    let dir = tempfile::tempdir().unwrap();
    let (now, old) = (dir.path().join("now.db"), dir.path().join("old.db"));
    let clock = Clock::default();
    let store = Sqlite::open(&now, clock.options()).unwrap();
    let theirs = SessionKey::new("v", "a");
    said_then(&store, &clock, 5, &key("a"), "u@eve a@bob u@eve a p@Zoë").await;
    said_then(&store, &clock, 6, &key("gone"), "u@ghost").await;
    said_then(&store, &clock, 7, &theirs, "u@eve a").await;
    said_then(&store, &clock, 8, &key("b"), "u@bob a(x)@ann r(x)").await;
    said_then(&store, &clock, 9, &key("c"), "u a").await;
    until_none(&now, "SELECT count(*) FROM sessions WHERE indexed < head").await;
    store.close().await;
    fourth_schema(&old);
    let columns = "id, workspace, name, state, encoding, tracker, head, turns, tokens, opener, batch_from, batch_skipped, \
         skipped, settings, metadata, created, updated, revision";
    raw(
        &old,
        &format!(
            "ATTACH '{}' AS now; INSERT INTO workspaces (name, settings, created) SELECT name, settings, created FROM now.workspaces; \
             INSERT INTO sessions ({columns}) SELECT {columns} FROM now.sessions; INSERT INTO messages SELECT * FROM now.messages; \
             UPDATE sessions SET state = 'gone' WHERE name = 'gone'; DETACH now",
            now.display()
        ),
    );
    let store = Sqlite::open(&old, clock.options()).unwrap();
    assert_eq!(store.verify().await.unwrap(), []);
    let mut first = members(&store, &key("a")).await;
    first.sort();
    assert_eq!(first, told(&[("Zoë", 5), ("bob", 5), ("eve", 5)]));
    assert_eq!(members(&store, &theirs).await, told(&[("eve", 7)]));
    assert_eq!(members(&store, &key("b")).await, told(&[("bob", 5), ("ann", 8)]), "older ones first");
    assert_eq!(members(&store, &key("c")).await, told(&[]));
    let sessions = store.sessions("w", Some("bob"), Listing::default()).await.unwrap();
    assert_eq!(sessions.map(|(name, _)| name.to_string()).items, ["a", "b"]);
    assert_eq!(
        store.authors("w", Listing::named("ghost")).await.unwrap().first(),
        None,
        "what was deleted does not come back"
    );
    let workspace = store.workspaces(Listing::named("w")).await.unwrap().first().unwrap();
    assert_eq!(
        workspace,
        WorkspaceRow { name: "w".into(), created: workspace.created, ..Default::default() }
    );
    assert_eq!(row(&store, &key("a")).await.attributes, serde_json::Map::default());
    // It works like a file that was created today.
    let secret = store.secret().await.unwrap();
    join(&store, &key("a"), "eve").await;
    join(&store, &key("c"), "new").await;
    assert_eq!(members(&store, &key("c")).await, told(&[("new", 9)]));
    assert_eq!(members(&store, &key("a")).await.len(), 3);
    store.close().await;
    let store = Sqlite::open(&old, clock.options()).unwrap();
    assert_eq!(store.secret().await.unwrap(), secret);
    assert_eq!(store.verify().await.unwrap(), []);
}

/// Appends a message by this author, as an engine does.
async fn join(store: &dyn Store, key: &SessionKey, author: &'static str) {
    let decide: Decide = Box::new(move |standing| {
        let changes = appended(standing, &messages(&format!("u@{author}")).unwrap(), &[]);
        Some(Changes { members: vec![Membership::Join(author.into(), None)], ..changes })
    });
    assert!(store.change(key, Load::default(), decide).await.unwrap().is_some());
}

async fn leave(store: &dyn Store, key: &SessionKey, who: Membership) {
    let decide: Decide =
        Box::new(move |_| Some(Changes { members: vec![who.clone()], ..Changes::default() }));
    assert!(store.change(key, Load::default(), decide).await.unwrap().is_some());
}

fn names(found: &[(String, i64)]) -> Vec<&str> {
    found.iter().map(|(name, _)| name.as_str()).collect()
}

#[tokio::test]
async fn a_member_removed_by_another_process_joins_again_with_the_next_message() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let (one, two) = (Sqlite::open(&path, options()).unwrap(), Sqlite::open(&path, options()).unwrap());
    for who in [Membership::Leave("alice".into()), Membership::LeaveAll] {
        for _ in 0..2 {
            join(&one, &key("a"), "alice").await;
        }
        assert_eq!(names(&members(&two, &key("a")).await), ["alice"]);
        leave(&two, &key("a"), who).await;
        assert_eq!(names(&members(&one, &key("a")).await), [""; 0]);
        join(&one, &key("a"), "alice").await;
        assert_eq!(names(&members(&one, &key("a")).await), ["alice"]);
        assert_eq!(names(&members(&two, &key("a")).await), ["alice"]);
    }
    // The session, then its whole workspace: those created later under the same names are new ones.
    join(&one, &key("a"), "alice").await;
    assert!(two.delete(&key("a")).await.unwrap());
    assert_eq!(two.delete_workspace("w").await.unwrap(), WorkspaceDeletion::Deleted);
    join(&one, &key("a"), "alice").await;
    assert_eq!(names(&members(&two, &key("a")).await), ["alice"]);
    assert!(two.authors("w", Listing::named("alice")).await.unwrap().first().is_some());
    assert_eq!(row(&two, &key("a")).await.tracker.head(), 1);
    // Each store sees the author's metadata that the other one wrote.
    for store in [&one, &two, &one] {
        let decide = |before: Option<&AuthorRow>| {
            let mut row = before.cloned().unwrap();
            let noted = row.metadata.len();
            row.metadata.insert(noted.to_string(), noted.into());
            Some(row)
        };
        store.change_author("w", "alice", Box::new(decide)).await.unwrap();
    }
    assert_eq!(one.authors("w", Listing::named("alice")).await.unwrap().first().unwrap().metadata.len(), 3);
    assert_eq!(one.secret().await.unwrap(), two.secret().await.unwrap());
    assert_eq!(one.verify().await.unwrap(), []);
}

#[tokio::test]
async fn more_members_than_the_cache_holds_are_all_members() {
    let store = Sqlite::memory(options()).unwrap();
    let all: Vec<Membership> = (0..5_000).map(|n| Membership::Join(format!("{n}").into(), None)).collect();
    say(&store, &key("a"), "u").await;
    for _ in 0..2 {
        let all = all.clone();
        let decide: Decide = Box::new(move |_| Some(Changes { members: all.clone(), ..Changes::default() }));
        assert!(store.change(&key("a"), Load::default(), decide).await.unwrap().is_some());
    }
    let id = row(&store, &key("a")).await.id;
    assert_eq!(store.members(id, Listing::default()).await.unwrap().total, 5_000);
    assert_eq!(store.authors("w", Listing::default()).await.unwrap().total, 5_000);
}
