//! Workspaces, authors, lists of them, and metadata, for every store. Members are in `members.rs`.

use std::sync::Arc;

use epitome::event::{EventBody, MessagesCondensed};
use epitome::search::Query;
use epitome::store::*;
use epitome_core::message::{Message, Part, Span, Timestamp, ToolCall};
use epitome_core::slot::Scope;
use epitome_testkit::drawing::messages;
use serde_json::{Map, Value, json};

use super::support::*;

type Notes = Map<String, Value>;

pub(crate) fn notes(value: Value) -> Notes {
    let Value::Object(notes) = value else { panic!("{value}") };
    notes
}

/// Returns metadata with values that are easily lost on the way to a database and back.
pub(crate) fn odd() -> Notes {
    let deep = (0..100).fold(json!("down here"), |inner, _| json!([inner]));
    notes(json!({
        "z": 1, "a": 2, "": "", "null": null, "empty": {}, "none": [], "deep": deep,
        "numbers": [0.1, -0.0, 1e300, u64::MAX, i64::MIN, 0.30000000000000004],
        "text": "Zoë 😀 \u{1F468}\u{200D}\u{1F469} \u{202E}עברית\0\u{FFFF}\"\\' <|endoftext|> line\nline",
        "ключ": {"東京": ["駅"]}, "metadata": "''", "id": null,
    }))
}

async fn note_workspace(
    store: &dyn Store,
    name: &str,
    note: impl Fn(&mut WorkspaceRow) + Send + Sync + 'static,
) {
    let decide = move |before: Option<&WorkspaceRow>| {
        let mut row = before.cloned().unwrap_or_default();
        note(&mut row);
        Some(row)
    };
    store.change_workspace(name, Box::new(decide)).await.unwrap();
}

pub(crate) async fn note_author(
    store: &dyn Store,
    workspace: &str,
    name: &str,
    note: impl Fn(&mut AuthorRow) + Send + Sync + 'static,
) {
    let decide = move |before: Option<&AuthorRow>| {
        let mut row = before.cloned().unwrap_or_default();
        note(&mut row);
        Some(row)
    };
    store.change_author(workspace, name, Box::new(decide)).await.unwrap();
}

/// Changes a session's members, and creates the session if it does not exist.
pub(crate) async fn moved(store: &dyn Store, key: &SessionKey, members: Vec<Membership>) {
    let decide: Decide = Box::new(move |standing| {
        let session = standing.session.clone().unwrap_or_else(|| new_row(standing.now));
        Some(Changes { session: Some(session), members: members.clone(), ..Changes::default() })
    });
    assert!(store.change(key, Load::default(), decide).await.unwrap().is_some());
}

pub(crate) fn join(name: &str) -> Membership {
    Membership::Join(name.into(), None)
}

pub(crate) async fn members(store: &dyn Store, key: &SessionKey) -> Vec<String> {
    let id = row(store, key).await.id;
    let listed = store.members(id, Listing::default()).await.unwrap();
    assert_eq!(listed.total, listed.items.len() as u64);
    listed.items.iter().map(|member| member.author.name.to_string()).collect()
}

pub(crate) async fn authors(store: &dyn Store, workspace: &str) -> Vec<String> {
    let listed = store.authors(workspace, Listing::default()).await.unwrap();
    listed.items.iter().map(|author| author.name.to_string()).collect()
}

/// Returns the sessions that an author is a member of.
pub(crate) async fn belongs(store: &dyn Store, workspace: &str, author: &str) -> Vec<String> {
    let listed = store.sessions(workspace, Some(author), Listing::default()).await.unwrap();
    assert_eq!(listed.total, listed.items.len() as u64);
    listed.items.iter().map(|(name, _)| name.to_string()).collect()
}

pub(crate) async fn the_first_write_creates_the_workspace(made: Made) {
    let store = &*made.store;
    made.clock.set(1);
    say(store, &SessionKey::new("by session", "a"), "u").await;
    note_author(store, "by author", "ann", |_| {}).await;
    note_workspace(store, "by note", |_| {}).await;
    set_workspace(store, "by setting", Some("{}")).await;
    made.clock.set(2);
    for name in ["by session", "by author", "by note", "by setting"] {
        let key = SessionKey::new(name, "b");
        moved(store, &key, vec![join("bob")]).await;
        note_author(store, name, "ann", |row| row.created = Timestamp(9)).await;
        note_workspace(store, name, |row| (row.created, row.name) = (Timestamp(9), "other".into())).await;
        let row = store.workspaces(Listing::named(name)).await.unwrap().first().unwrap();
        assert_eq!((&*row.name, row.created), (name, Timestamp(1)), "when is the store's to say");
        let bob = store.authors(name, Listing::named("bob")).await.unwrap().first().unwrap();
        assert_eq!(bob.created, Timestamp(2));
        let ann = store.authors(name, Listing::named("ann")).await.unwrap().first().unwrap();
        assert_eq!((&*ann.name, ann.created), ("ann", Timestamp(if name == "by author" { 1 } else { 2 })));
    }
    assert_eq!(store.workspaces(Listing::named("nobody's")).await.unwrap().first(), None);
    assert_eq!(store.authors("by note", Listing::named("nobody")).await.unwrap().first(), None);
    assert_eq!(store.authors("nobody's", Listing::named("ann")).await.unwrap().first(), None);
}

pub(crate) async fn metadata_and_attributes_are_read_back_unchanged(made: Made) {
    let store = &*made.store;
    let other = || notes(json!({"kind": "attributes"}));
    note_workspace(store, "w", move |row| (row.metadata, row.attributes) = (odd(), other())).await;
    note_author(store, "w", "Zoë\u{200D}", move |row| (row.metadata, row.attributes) = (other(), odd()))
        .await;
    let decide: Decide = Box::new(move |standing| {
        let row = SessionRow { metadata: odd(), attributes: other(), ..new_row(standing.now) };
        let members = vec![Membership::Join("Zoë\u{200D}".into(), Some(odd()))];
        Some(Changes { session: Some(row), members, ..Changes::default() })
    });
    assert!(store.change(&key("a"), Load::default(), decide).await.unwrap().is_some());
    // Twice: the second write may use the cache.
    for _ in 0..2 {
        let workspace = store.workspaces(Listing::named("w")).await.unwrap().first().unwrap();
        assert_eq!((workspace.metadata, workspace.attributes), (odd(), other()));
        let session = row(store, &key("a")).await;
        assert_eq!((session.metadata, session.attributes), (odd(), other()));
        let member = store.members(session.id, Listing::named("Zoë\u{200D}")).await.unwrap().first().unwrap();
        assert_eq!((&member.author.metadata, &member.author.attributes), (&other(), &odd()));
        let keys = |notes: &Notes| notes.keys().cloned().collect::<Vec<_>>();
        assert_eq!((keys(&member.attributes), &member.attributes), (keys(&odd()), &odd()));
        assert_eq!(
            store.authors("w", Listing::named("Zoë\u{200D}")).await.unwrap().first().unwrap(),
            member.author
        );
        say(store, &key("a"), "u").await;
    }
    // After they were emptied, there are none.
    note_workspace(store, "w", |row| (row.metadata, row.attributes) = Default::default()).await;
    let workspace = store.workspaces(Listing::named("w")).await.unwrap().first().unwrap();
    assert_eq!((workspace.metadata, workspace.attributes), Default::default());
    assert_eq!(store.verify().await.unwrap(), []);
}

pub(crate) async fn a_decision_without_a_row_changes_nothing(made: Made) {
    let store = &*made.store;
    store.change_workspace("w", Box::new(|_| None)).await.unwrap();
    store.change_author("w", "ann", Box::new(|_| None)).await.unwrap();
    assert_eq!(store.workspaces(Listing::named("w")).await.unwrap().first(), None);
    assert_eq!(store.authors("w", Listing::named("ann")).await.unwrap().first(), None);
    note_author(store, "w", "ann", |row| row.metadata = odd()).await;
    note_workspace(store, "w", |row| row.metadata = odd()).await;
    let before = (
        store.workspaces(Listing::named("w")).await.unwrap().first(),
        store.authors("w", Listing::named("ann")).await.unwrap().first(),
    );
    let seen = before.clone();
    store
        .change_workspace(
            "w",
            Box::new(move |row| {
                assert_eq!(row, seen.0.as_ref());
                None
            }),
        )
        .await
        .unwrap();
    store.change_author("w", "ann", Box::new(|_| None)).await.unwrap();
    assert!(store.change_author("w", "ann", Box::new(|_| panic!("no"))).await.is_err());
    assert!(store.change_workspace("w", Box::new(|_| panic!("no"))).await.is_err());
    assert_eq!(
        (
            store.workspaces(Listing::named("w")).await.unwrap().first(),
            store.authors("w", Listing::named("ann")).await.unwrap().first()
        ),
        before
    );
}

pub(crate) async fn only_an_empty_workspace_can_be_deleted(made: Made) {
    let store = &*made.store;
    assert_eq!(store.delete_workspace("w").await.unwrap(), WorkspaceDeletion::NotFound);
    made.clock.set(1);
    note_workspace(store, "w", |row| {
        (row.metadata, row.attributes, row.settings) = (odd(), odd(), r#"{"a":1}"#.to_owned());
    })
    .await;
    note_author(store, "w", "ann", |row| row.metadata = odd()).await;
    note_author(store, "v", "ann", |_| {}).await;
    let told = |key: &SessionKey| {
        let (key, span) = (key.clone(), Span { from: 1, through: 1 });
        async move {
            let decide: Decide = Box::new(move |standing| {
                let changes = appended(standing, &messages("u").unwrap(), &[]);
                let (members, events) = (vec![join("ann")], vec![EventBody::Message(span)]);
                Some(Changes { members, events, ..changes })
            });
            assert!(store.change(&key, Load::default(), decide).await.unwrap().is_some());
        }
    };
    told(&key("a")).await;
    told(&key("b")).await;
    let stamp = store.stamp(&key("a")).await.unwrap();
    assert_eq!(store.delete_workspace("w").await.unwrap(), WorkspaceDeletion::HasSessions);
    assert!(store.delete(&key("a")).await.unwrap());
    assert_eq!(store.delete_workspace("w").await.unwrap(), WorkspaceDeletion::HasSessions);
    assert_eq!(
        store.workspaces(Listing::named("w")).await.unwrap().first().unwrap().metadata,
        odd(),
        "all of it stays"
    );
    assert_eq!(authors(store, "w").await, ["ann"]);
    assert!(store.delete(&key("b")).await.unwrap());
    // At once: maintenance removes the rest of its sessions later.
    assert_eq!(store.delete_workspace("w").await.unwrap(), WorkspaceDeletion::Deleted);
    assert_eq!(store.delete_workspace("w").await.unwrap(), WorkspaceDeletion::NotFound);
    assert_eq!(store.workspaces(Listing::named("w")).await.unwrap().first(), None);
    assert_eq!((settings(store, "w").await, authors(store, "w").await), (String::new(), vec![]));
    assert_eq!(
        store.workspaces(Listing::by_name(None, 9)).await.unwrap().map(|row| row.name).items,
        ["v".into()]
    );
    assert_eq!(store.workspaces(Listing::default()).await.unwrap().total, 1);
    assert_eq!(authors(store, "v").await, ["ann"], "others stay");
    // A workspace that is created again does not reuse event numbers of the old one.
    made.clock.set(2);
    told(&key("a")).await;
    let new = store.workspaces(Listing::named("w")).await.unwrap().first().unwrap();
    let nothing_noted = WorkspaceRow { name: "w".into(), created: Timestamp(2), ..WorkspaceRow::default() };
    assert_eq!(new, nothing_noted);
    let ann = store.authors("w", Listing::named("ann")).await.unwrap().first().unwrap();
    assert_eq!(ann, AuthorRow { name: "ann".into(), created: Timestamp(2), ..AuthorRow::default() });
    assert_eq!(members(store, &key("a")).await, ["ann"]);
    assert_eq!(belongs(store, "w", "ann").await, ["a"]);
    let events = store.events("w", 0, None, 9).await.unwrap();
    assert_eq!(events.events.iter().map(|event| event.id).collect::<Vec<_>>(), [3]);
    assert_ne!(store.stamp(&key("a")).await.unwrap(), stamp);
    assert_eq!(store.verify().await.unwrap(), []);
}

/// Returns the expected page, computed from the whole list.
fn cut<T: Clone>(
    all: &[T],
    keep: impl Fn(&T) -> bool,
    skip: u64,
    limit: usize,
    reverse: bool,
) -> ListPage<T> {
    let mut kept: Vec<T> = all.iter().filter(|item| keep(item)).cloned().collect();
    if reverse {
        kept.reverse();
    }
    let total = kept.len() as u64;
    ListPage { items: kept.into_iter().skip(skip.try_into().unwrap()).take(limit).collect(), total }
}

pub(crate) async fn lists_are_ordered_paged_and_filtered(made: Made) {
    let store = &*made.store;
    // Names in random order, so that order by age differs from order by name; some have the same timestamp.
    let name = |n: i64| format!("{:x}", n * 7 % 12);
    for n in 0..12_i64 {
        made.clock.set(n / 2);
        note_author(store, "w", &name(n), move |row| row.metadata = notes(json!({"n": n}))).await;
        moved(store, &key(&name(n)), vec![join(&name(0)), join(&name(n))]).await;
        note_workspace(store, &name(n), move |row| row.metadata = notes(json!({"n": n}))).await;
        note_author(store, "v", &name(11 - n), |_| {}).await;
        moved(store, &SessionKey::new("v", name(11 - n)), vec![join(&name(n))]).await;
    }
    let ours: Vec<String> = (0..12).map(name).collect();
    let mut all: Vec<(Timestamp, String)> = (0..12)
        .map(|n| (Timestamp(n / 2), name(n)))
        .chain(["v", "w"].map(|n| (Timestamp(0), n.into())))
        .collect();
    all.sort();
    let workspaces: Vec<String> = all.into_iter().map(|(_, name)| name).collect();
    let wanted = |name: &str| !matches!(name, "0" | "7" | "b" | "v");
    for (skip, limit, reverse, some) in [0, 1, 5, 12, 99]
        .into_iter()
        .flat_map(|skip| [0, 1, 4, 100].map(|limit| (skip, limit)))
        .flat_map(|(skip, limit)| {
            [(false, false), (true, false), (false, true), (true, true)].map(|(r, s)| (skip, limit, r, s))
        })
    {
        let at = format!("skip {skip}, limit {limit}, reverse {reverse}, some {some}");
        let page = |all: &[String]| cut(all, |name| !some || wanted(name), skip, limit, reverse);
        macro_rules! listing {
            (|$item:ident: $row:ty| $name:expr) => {{
                let keep: ListFilter<$row> = Box::new(move |$item| wanted(&$name));
                Listing { filter: some.then_some(keep), skip, limit, reverse, ..Listing::default() }
            }};
        }
        let found = store.workspaces(listing!(|row: WorkspaceRow| row.name)).await.unwrap();
        assert_eq!(found.map(|row| row.name.to_string()), page(&workspaces), "workspaces, {at}");
        let found = store.authors("w", listing!(|row: AuthorRow| row.name)).await.unwrap();
        assert_eq!(found.map(|row| row.name.to_string()), page(&ours), "authors, {at}");
        for (member, theirs) in [(None, &ours[..]), (Some(name(0)), &ours[..]), (Some(name(5)), &ours[5..6])]
        {
            let listing = listing!(|row: (Arc<str>, SessionRow)| row.0);
            let found = store.sessions("w", member.as_deref(), listing).await.unwrap();
            assert_eq!(found.map(|row| row.0.to_string()), page(theirs), "sessions of {member:?}, {at}");
        }
        let id = row(store, &key(&name(5))).await.id;
        let found = store.members(id, listing!(|row: MemberRow| row.author.name)).await.unwrap();
        let two = [ours[0].clone(), ours[5].clone()];
        assert_eq!(found.map(|row| row.author.name.to_string()), page(&two), "members, {at}");
    }
    for nobody in ["", "nobody", "%", "_"] {
        assert_eq!(belongs(store, "w", nobody).await, [""; 0]);
        assert_eq!(authors(store, nobody).await, [""; 0]);
        assert_eq!(store.sessions(nobody, None, Listing::default()).await.unwrap().total, 0);
    }
}

pub(crate) async fn each_store_has_its_own_secret(made: Made) {
    let secret = made.store.secret().await.unwrap();
    assert_eq!(made.store.secret().await.unwrap(), secret);
    assert!(secret.iter().any(|byte| *byte != secret[0]), "drawn, not filled");
    let other = Sqlite::memory(SqliteOptions::default()).unwrap();
    assert_ne!(other.secret().await.unwrap(), secret);
}

pub(crate) async fn replacing_metadata_changes_nothing_else(made: Made) {
    let store = &*made.store;
    let call = ToolCall {
        id: "c".into(),
        item_id: None,
        name: "look".into(),
        arguments: r#"{"at": "parcel"}"#.into(),
    };
    let mut said = messages("s! u@eve a~@bob").unwrap();
    said[1].metadata = notes(json!({"old": "words of notes are not searched: parcel"}));
    said[1].parts.push(Part::Text { text: "Zoë asks for the parcel.".to_owned() });
    said[2].parts.push(Part::ToolCall(call));
    said[2].wire = Some(Box::new(json!({"openai": [["logprobs", null]]})));
    say_all(store, &key("a"), said).await;
    let id = row(store, &key("a")).await.id;
    let read = async || store.messages(id, super::page((1, 9), false, 9)).await.unwrap().items;
    let hits = async || {
        let (query, session) = (Query::parse("parcel").unwrap(), None);
        let (scope, workspace) = (Scope::Session, "w".into());
        let search = Search { scope, workspace, session, query, after: None, limit: 9, bytes: None };
        super::seqs(
            &store.search(search).await.unwrap().items.into_iter().map(|hit| hit.message).collect::<Vec<_>>(),
        )
    };
    let (mut wanted, found) = (read().await, hits().await);
    let before =
        (row(store, &key("a")).await, store.outlines_after(id, &Scope::Session, 0, 9).await.unwrap().log);
    let mut stamp = store.stamp(&key("a")).await.unwrap();
    for (seq, new) in [(2, odd()), (3, notes(json!({"parcel": "parcel"}))), (1, odd()), (2, Map::new())] {
        wanted[seq - 1].metadata = new.clone();
        let metadata = vec![(seq as u64, new)];
        let decide: Decide =
            Box::new(move |_| Some(Changes { metadata: metadata.clone(), ..Changes::default() }));
        assert!(store.change(&key("a"), Load::default(), decide).await.unwrap().is_some());
        assert_eq!((read().await, hits().await), (wanted.clone(), found.clone()), "{seq}");
        let now = store.stamp(&key("a")).await.unwrap();
        assert_ne!(now, stamp, "what a context shows of it is another now");
        stamp = now;
    }
    let after =
        (row(store, &key("a")).await, store.outlines_after(id, &Scope::Session, 0, 9).await.unwrap().log);
    assert_eq!(after, before);
    let decide: Decide =
        Box::new(|_| Some(Changes { metadata: vec![(1, Map::new()), (4, odd())], ..Changes::default() }));
    assert!(store.change(&key("a"), Load::default(), decide).await.is_err(), "there is no such message");
    assert_eq!(read().await, wanted);
    say(store, &key("a"), "u").await;
    assert_eq!(store.verify().await.unwrap(), []);
}

pub(crate) async fn condensed_events_are_counted_per_session(made: Made) {
    let store = &*made.store;
    let condensed = |through| {
        EventBody::Condensed(MessagesCondensed {
            slot: "s".into(),
            scope: None,
            covers: [1, through],
            messages: 1,
            tokens_before: 9,
            tokens_after: 1,
            model: "m".into(),
            stand_in: false,
            notice: String::new(),
        })
    };
    let tell = async |key: &SessionKey, times: u64| {
        let span = EventBody::Message(Span { from: 1, through: 1 });
        let events: Vec<EventBody> = (1..=times).map(condensed).chain([span]).collect();
        let decide: Decide = Box::new(move |standing| {
            let changes = appended(standing, &[Message::user("A parcel.")], &[]);
            Some(Changes { events: events.clone(), ..changes })
        });
        assert!(store.change(key, Load::default(), decide).await.unwrap().is_some());
    };
    let counts = async |workspace: &str| {
        let counts = store.count_condensed(workspace).await.unwrap();
        counts.into_iter().map(|(session, count)| (session.to_string(), count)).collect::<Vec<_>>()
    };
    assert_eq!(counts("w").await, []);
    tell(&key("b"), 2).await;
    tell(&key("a"), 1).await;
    tell(&key("b"), 1).await;
    tell(&key("c"), 0).await;
    tell(&SessionKey::new("v", "a"), 5).await;
    assert_eq!(counts("w").await, [("a".to_owned(), 1), ("b".to_owned(), 3)]);
    assert!(store.delete(&key("b")).await.unwrap());
    assert_eq!(
        (counts("w").await, counts("v").await),
        (vec![("a".to_owned(), 1)], vec![("a".to_owned(), 5)])
    );
}
