//! A stamp shows whether contexts may have changed.

use epitome::store::*;
use epitome_core::message::Span;
use epitome_core::slot::Scope;
use epitome_testkit::drawing::messages;

use super::support::*;

async fn stamp(store: &dyn Store, name: &str) -> Stamp {
    store.stamp(&key(name)).await.unwrap().unwrap()
}

/// Changes a session with this decision.
async fn changed(store: &dyn Store, change: impl Fn(&SessionState) -> Changes + Send + Sync + 'static) {
    let decide: Decide = Box::new(move |standing| Some(change(standing)));
    assert!(store.change(&key("a"), Load::default(), decide).await.unwrap().is_some());
}

pub(crate) async fn every_change_of_a_context_changes_the_stamp(made: Made) {
    let store = &*made.store;
    assert_eq!(store.stamp(&key("a")).await.unwrap(), None);
    say(store, &key("a"), "u a u a").await;
    say(store, &key("b"), "u a").await;
    let (mut seen, other) = (vec![stamp(store, "a").await], stamp(store, "b").await);
    let mut look = async |what: &str| {
        let now = stamp(store, "a").await;
        assert!(!seen.contains(&now), "{what}: {now:?} was there before");
        seen.push(now);
    };
    say(store, &key("a"), "u").await;
    look("a message").await;
    changed(store, |_| Changes { flags: vec![(2, true, false)], ..Changes::default() }).await;
    look("a flag").await;
    let first = summarize(store, &key("a"), &Scope::Session, "s", 2).await;
    look("a summary").await;
    summarize(store, &key("a"), &Scope::Session, "s", 4).await;
    look("the next summary").await;
    changed(store, move |_| Changes {
        states: vec![(2, SummaryState::Undone), (first, SummaryState::Current)],
        ..Changes::default()
    })
    .await;
    look("an undone summary").await;
    changed(store, |standing| {
        let row = standing.session.clone().unwrap();
        Changes { session: Some(SessionRow { settings: "{}".to_owned(), ..row }), ..Changes::default() }
    })
    .await;
    look("its settings").await;
    assert_eq!(stamp(store, "b").await, other, "nothing of that was another session's");
    set_workspace(store, "w", Some("{}")).await;
    look("the workspace's settings").await;
    assert_ne!(stamp(store, "b").await, other);
    // A session that is created again has another stamp, even if it is equal.
    let row = row(store, &key("a")).await;
    assert!(store.delete(&key("a")).await.unwrap());
    assert_eq!(store.stamp(&key("a")).await.unwrap(), None);
    say(store, &key("a"), "u a u a u").await;
    look("a session of the same name").await;
    let copied = store.copy(super::row(store, &key("a")).await.id, 5).await.unwrap();
    assert!(store.reveal(&key("c"), bare_copy(copied, row)).await.unwrap());
    assert_ne!(stamp(store, "c").await, stamp(store, "a").await);
}

pub(crate) async fn other_changes_keep_the_stamp(made: Made) {
    let store = &*made.store;
    let due = super::every(2);
    say_with(store, &key("a"), "u a u a", &[due]).await;
    let before = stamp(store, "a").await;
    assert_eq!(stamp(store, "a").await, before);
    assert!(store.lease(super::want("one")).await.unwrap().is_some());
    changed(store, |standing| {
        let span = Span { from: 1, through: 1 };
        Changes {
            slots: standing.slots.clone(),
            idempotency: Some(("k".to_owned(), EarlierAppend { body: vec![1], span })),
            ..Changes::default()
        }
    })
    .await;
    set_workspace(store, "w", None).await;
    set_workspace(store, "v", Some("{}")).await;
    say(store, &SessionKey::new("v", "a"), "u").await;
    // A rejected change is rolled back, including the revision.
    let decide: Decide = Box::new(|standing| {
        let mut changes = appended(standing, &messages("u a").unwrap(), &[]);
        changes.messages[1].outline.seq = 1;
        Some(Changes { flags: vec![(1, true, false)], ..changes })
    });
    assert!(store.change(&key("a"), Load::default(), decide).await.is_err());
    assert_eq!(stamp(store, "a").await, before);
}
