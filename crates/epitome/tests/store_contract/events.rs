//! Events and keys, for every store.

use epitome::event::{Event, EventBody, SummaryChanged};
use epitome::key::{Key, Rights};
use epitome::store::*;
use epitome_core::message::{Span, Timestamp};
use epitome_core::slot::Scope;
use epitome_testkit::drawing::messages;

use super::support::*;

fn said(from: u64, through: u64) -> EventBody {
    EventBody::Message(Span { from, through })
}

/// Appends a message and writes these events.
async fn tell(store: &dyn Store, key: &SessionKey, events: Vec<EventBody>) {
    let decide: Decide = Box::new(move |standing| {
        let changes = appended(standing, &messages("u").unwrap(), &[]);
        Some(Changes { events: events.clone(), ..changes })
    });
    assert!(store.change(key, Load::default(), decide).await.unwrap().is_some());
}

fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.id).collect()
}

/// Returns the numbers of all retained events, and the oldest and the newest number.
async fn all(store: &dyn Store, workspace: &str) -> (Vec<u64>, u64, u64) {
    let told = store.events(workspace, 0, None, usize::MAX).await.unwrap();
    (numbers(&told.events), told.oldest, told.newest)
}

pub(crate) async fn events_are_numbered_per_workspace(made: Made) {
    let store = &*made.store;
    assert_eq!(all(store, "w").await, (vec![], 1, 0));
    let other = SessionKey::new("v", "a");
    made.clock.set(7);
    tell(store, &key("a"), vec![said(1, 1), said(2, 3)]).await;
    tell(store, &other, vec![said(1, 9)]).await;
    tell(store, &key("b"), vec![]).await;
    tell(store, &key("b"), vec![said(4, 4)]).await;
    assert_eq!(all(store, "w").await, (vec![1, 2, 3], 1, 3));
    assert_eq!(all(store, "v").await, (vec![1], 1, 1));
    assert_eq!(all(store, "nobody").await, (vec![], 1, 0));
    let told = store.events("w", 0, None, 9).await.unwrap().events;
    let last = Event { id: 3, session: "b".into(), at: Timestamp(7), body: said(4, 4) };
    assert_eq!((&*told[0].session, &told[1].body, &told[2]), ("a", &said(2, 3), &last));
    // After a number, of one session, with a limit; `oldest` and `newest` are those of the whole workspace.
    let some = store.events("w", 1, None, 1).await.unwrap();
    assert_eq!((numbers(&some.events), some.oldest, some.newest), (vec![2], 1, 3));
    assert_eq!(store.events("w", 0, Some("b"), 9).await.unwrap().events, [last]);
    assert_eq!(store.events("w", u64::MAX, None, 9).await.unwrap().events, []);
    assert_eq!(store.verify().await.unwrap(), []);
}

pub(crate) async fn a_rejected_change_writes_no_event(made: Made) {
    let store = &*made.store;
    tell(store, &key("a"), vec![said(1, 1)]).await;
    // A message number that is already taken.
    let decide: Decide = Box::new(|standing| {
        let mut changes = appended(standing, &messages("u a").unwrap(), &[]);
        changes.messages[1].outline.seq = 1;
        Some(Changes { events: vec![said(2, 3)], ..changes })
    });
    assert!(store.change(&key("a"), Load::default(), decide).await.is_err());
    // There is no session to report about.
    let decide: Decide = Box::new(|_| Some(Changes { events: vec![said(1, 1)], ..Changes::default() }));
    assert!(store.change(&key("none"), Load::default(), decide).await.is_err());
    assert_eq!(all(store, "w").await, (vec![1], 1, 1));
    tell(store, &key("a"), vec![said(2, 2)]).await;
    assert_eq!(all(store, "w").await, (vec![1, 2], 1, 2));
}

pub(crate) async fn a_summary_event_contains_the_summary_id(made: Made) {
    let store = &*made.store;
    say(store, &key("a"), "u a u a").await;
    let moved = |through| SummaryChanged {
        summary: 0,
        slot: "s".into(),
        scope: None,
        through,
        model: "m".into(),
        stand_in: false,
        state: SummaryState::Current,
        current: Some(0),
    };
    for through in [2, 4] {
        let decide: Decide = Box::new(move |standing| {
            let slot = standing.slots.first().cloned();
            let mut slot = slot.unwrap_or_else(|| SlotRow::new(Scope::Session, "s"));
            slot.state.covered = through;
            let kept = summary(&Scope::Session, "s", through, slot.active);
            Some(Changes {
                states: slot.active.map(|id| (id, SummaryState::Superseded)).into_iter().collect(),
                slots: vec![slot],
                summary: Some(kept),
                events: vec![EventBody::Summary(moved(through))],
                ..Changes::default()
            })
        });
        assert!(store.change(&key("a"), Load::default(), decide).await.unwrap().is_some());
        let stands = standing(store, &key("a")).await.slots[0].active;
        let told = store.events("w", 0, None, 9).await.unwrap().events;
        let EventBody::Summary(last) = &told.last().unwrap().body else { panic!("{told:?}") };
        assert_eq!((Some(last.summary), last.current, last.through), (stands, stands, through));
    }
}

pub(crate) async fn deleted_event_numbers_are_never_reused(made: Made) {
    let store = &*made.store;
    for (name, at) in [("a", 1), ("b", 1), ("a", 2), ("b", 2)] {
        tell(store, &key(name), vec![said(at, at)]).await;
    }
    assert!(store.delete(&key("b")).await.unwrap());
    assert_eq!(all(store, "w").await, (vec![1, 3], 1, 4));
    assert!(store.delete(&key("a")).await.unwrap());
    assert_eq!(all(store, "w").await, (vec![], 5, 4));
    tell(store, &key("a"), vec![said(1, 1)]).await;
    assert_eq!(all(store, "w").await, (vec![5], 5, 5));
    assert_eq!(store.verify().await.unwrap(), []);
}

pub(crate) async fn only_the_newest_events_are_retained(made: Made) {
    let store = &*made.store;
    let many = |count: u64| (1..=count).map(|at| said(at, at)).collect::<Vec<_>>();
    tell(store, &SessionKey::new("v", "a"), vec![said(1, 1)]).await;
    tell(store, &key("a"), many(9_999)).await;
    assert_eq!(store.events("w", 0, None, 0).await.unwrap().oldest, 1);
    tell(store, &key("b"), many(10_001)).await;
    let (kept, oldest, newest) = all(store, "w").await;
    assert_eq!((newest, kept.first().copied(), kept.last().copied()), (20_000, Some(oldest), Some(newest)));
    assert!((10_000..10_064).contains(&kept.len()), "{} are kept", kept.len());
    assert!(kept.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    assert_eq!(all(store, "v").await, (vec![1], 1, 1), "each workspace has its own");
    assert_eq!(store.verify().await.unwrap(), []);
}

pub(crate) async fn a_copy_is_reported_when_it_is_revealed(made: Made) {
    let store = &*made.store;
    tell(store, &key("a"), vec![said(1, 1)]).await;
    let from = row(store, &key("a")).await;
    let copied = store.copy(from.id, 1).await.unwrap();
    assert_eq!(all(store, "w").await.2, 1);
    let show = async |name: &str| {
        let copy = CopiedSession { events: vec![said(1, 1)], ..bare_copy(copied, from.clone()) };
        store.reveal(&key(name), copy).await.unwrap()
    };
    assert!(!show("a").await);
    assert_eq!(all(store, "w").await.2, 1, "a name that was taken");
    assert!(show("b").await);
    let told = store.events("w", 1, None, 9).await.unwrap().events;
    assert_eq!((told.len(), told[0].id, &*told[0].session), (1, 2, "b"));
}

fn a_key(id: &str, workspace: Option<&str>, rights: Rights) -> KeyRow {
    let key = Key {
        id: id.to_owned(),
        workspace: workspace.map(Into::into),
        rights,
        label: format!("label of {id}"),
        created: Timestamp(0),
        expires: Some(Timestamp(99)),
        revoked: None,
    };
    KeyRow { key, hash: *blake3::hash(id.as_bytes()).as_bytes() }
}

pub(crate) async fn keys_are_stored_listed_and_revoked(made: Made) {
    let store = &*made.store;
    made.clock.set(5);
    assert_eq!(store.keys(PickKeys::Id("1".to_owned())).await.unwrap(), (vec![], Timestamp(5)));
    let rows = [
        a_key("2", Some("w"), Rights::Read),
        a_key("1", Some("v"), Rights::Write),
        a_key("3", None, Rights::Admin),
        a_key("4", Some("w"), Rights::Write),
    ];
    for row in &rows {
        let kept = store.add_key(row.clone()).await.unwrap();
        assert_eq!(kept, Key { created: Timestamp(5), ..row.key.clone() });
        let found = KeyRow { key: kept, hash: row.hash };
        assert_eq!(store.keys(PickKeys::Id(row.key.id.clone())).await.unwrap(), (vec![found], Timestamp(5)));
    }
    assert!(store.add_key(rows[0].clone()).await.is_err(), "a number is given once");
    let ids = async |workspace: Option<&str>, after: Option<&str>, limit: usize| {
        let (workspace, after) = (workspace.map(str::to_owned), after.map(str::to_owned));
        let (found, _) = store.keys(PickKeys::Page { workspace, after, limit }).await.unwrap();
        found.into_iter().map(|row| row.key.id).collect::<Vec<_>>()
    };
    assert_eq!(ids(None, None, 9).await, ["1", "2", "3", "4"]);
    assert_eq!(
        (ids(None, Some("1"), 2).await, ids(Some("w"), None, 9).await),
        (v(&["2", "3"]), v(&["2", "4"]))
    );
    assert_eq!((ids(Some("w"), Some("2"), 9).await, ids(Some("x"), None, 9).await), (v(&["4"]), v(&[])));
    // With a workspace, only its own keys can be revoked.
    assert!(
        !store.revoke_key("1", Some("w")).await.unwrap() && !store.revoke_key("3", Some("w")).await.unwrap()
    );
    assert!(!store.revoke_key("9", None).await.unwrap());
    made.clock.set(6);
    assert!(store.revoke_key("2", Some("w")).await.unwrap() && store.revoke_key("3", None).await.unwrap());
    made.clock.set(7);
    assert!(store.revoke_key("2", None).await.unwrap(), "again is no harm");
    let page = PickKeys::Page { workspace: None, after: None, limit: 9 };
    let revoked: Vec<_> = store.keys(page).await.unwrap().0.iter().map(|row| row.key.revoked).collect();
    assert_eq!(revoked, [None, Some(Timestamp(6)), Some(Timestamp(6)), None]);
}

fn v(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}
