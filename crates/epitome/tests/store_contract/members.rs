//! Members of sessions, for every store.

use epitome::store::*;
use epitome_core::slot::Scope;
use serde_json::{Value, json};

use super::directory::{authors, belongs, join, members, moved, note_author, notes, odd};
use super::support::*;

fn join_with(name: &str, attributes: Value) -> Membership {
    Membership::Join(name.into(), Some(notes(attributes)))
}

fn leave(name: &str) -> Membership {
    Membership::Leave(name.into())
}

pub(crate) async fn members_join_and_leave_and_their_attributes_merge(made: Made) {
    let store = &*made.store;
    let a = key("a");
    moved(store, &a, vec![join("bob"), join_with("ann", json!({"x": 1})), join("bob")]).await;
    assert_eq!(members(store, &a).await, ["bob", "ann"]);
    assert_eq!(authors(store, "w").await, ["bob", "ann"]);
    let id = row(store, &a).await.id;
    let kept = async |name: &str| {
        let member = store.members(id, Listing::named(name)).await.unwrap().first();
        member.map(|member| Value::Object(member.attributes))
    };
    assert_eq!((kept("ann").await, kept("bob").await), (Some(json!({"x": 1})), Some(json!({}))));
    // Fields that are not named stay; named fields are replaced.
    moved(store, &a, vec![join_with("ann", json!({"y": {"z": 2}})), join_with("bob", json!({"x": 5}))]).await;
    moved(store, &a, vec![join("ann"), join_with("bob", json!({"x": null}))]).await;
    assert_eq!(kept("ann").await, Some(json!({"x": 1, "y": {"z": 2}})));
    assert_eq!(kept("bob").await, Some(json!({"x": null})));
    // Each API's object is merged separately.
    moved(store, &a, vec![join_with("ann", json!({"y": {"v": 1}, "w": {}}))]).await;
    assert_eq!(kept("ann").await, Some(json!({"x": 1, "y": {"z": 2, "v": 1}, "w": {}})));
    moved(store, &a, vec![leave("ann"), join_with("ann", json!({"x": 1, "y": 2}))]).await;
    moved(store, &a, vec![join_with("ann", json!({"y": 3}))]).await;
    assert_eq!(kept("ann").await, Some(json!({"x": 1, "y": 3})));
    // An author who left joins as a new member; removing an author who is no member changes nothing.
    moved(store, &a, vec![leave("ann"), leave("nobody")]).await;
    assert_eq!((members(store, &a).await, kept("ann").await), (vec!["bob".to_owned()], None));
    assert_eq!(authors(store, "w").await, ["bob", "ann"], "and are no less known");
    moved(store, &a, vec![join("ann")]).await;
    assert_eq!(kept("ann").await, Some(json!({})));
    moved(store, &a, vec![Membership::LeaveAll]).await;
    assert_eq!(members(store, &a).await, [""; 0]);
    moved(store, &a, vec![join("ann")]).await;
    assert_eq!(members(store, &a).await, ["ann"], "after all left too");
    moved(store, &key("b"), vec![join("ann")]).await;
    assert_eq!(belongs(store, "w", "ann").await, ["a", "b"], "of one session and of another");
    moved(store, &key("b"), vec![Membership::LeaveAll]).await;
    // In order: all others leave, and one joins, leaves and joins again.
    moved(store, &a, vec![join("bob")]).await;
    moved(store, &a, vec![join("eve"), Membership::LeaveAll, join("ann"), leave("ann"), join("ann")]).await;
    assert_eq!(members(store, &a).await, ["ann"]);
    assert_eq!(authors(store, "w").await, ["bob", "ann", "eve"]);
    assert_eq!(
        (belongs(store, "w", "ann").await, belongs(store, "w", "eve").await),
        (vec!["a".to_owned()], vec![])
    );
    // No author can join a session that does not exist.
    let decide: Decide = Box::new(|_| Some(Changes { members: vec![join("zoe")], ..Changes::default() }));
    assert!(store.change(&key("none"), Load::default(), decide).await.is_err());
    assert_eq!(store.authors("w", Listing::named("zoe")).await.unwrap().first(), None);
    assert_eq!(store.verify().await.unwrap(), []);
}

pub(crate) async fn a_rejected_change_adds_no_member(made: Made) {
    let store = &*made.store;
    say(store, &key("a"), "u").await;
    for panics in [false, true] {
        // The summary has no slot, which is detected after the members are written.
        let decide: Decide = Box::new(move |_| {
            assert!(!panics, "no");
            let summary = Some(summary(&Scope::Session, "s", 1, None));
            Some(Changes { members: vec![join("ann")], summary, ..Changes::default() })
        });
        assert!(store.change(&key("a"), Load::default(), decide).await.is_err());
        assert_eq!((members(store, &key("a")).await, authors(store, "w").await), (vec![], vec![]));
    }
    moved(store, &key("a"), vec![join("ann")]).await;
    assert_eq!(members(store, &key("a")).await, ["ann"]);
    // The same for a member who was to leave.
    let decide: Decide = Box::new(move |_| {
        let summary = Some(summary(&Scope::Session, "s", 1, None));
        Some(Changes { members: vec![Membership::LeaveAll], summary, ..Changes::default() })
    });
    assert!(store.change(&key("a"), Load::default(), decide).await.is_err());
    assert_eq!(members(store, &key("a")).await, ["ann"]);
}

pub(crate) async fn members_are_copied_and_deleted_with_their_session(made: Made) {
    let store = &*made.store;
    say(store, &key("a"), "u a").await;
    moved(store, &key("a"), vec![join_with("ann", json!({"x": 1})), join("bob")]).await;
    let from = row(store, &key("a")).await;
    let copied = store.copy(from.id, 1).await.unwrap();
    assert_eq!(
        store.members(copied, Listing::named("ann")).await.unwrap().first(),
        None,
        "not before it is shown"
    );
    assert_eq!(store.members(copied, Listing::default()).await.unwrap().total, 0);
    assert_eq!(belongs(store, "w", "ann").await, ["a"]);
    assert!(store.reveal(&key("b"), bare_copy(copied, from.clone())).await.unwrap());
    assert_eq!(members(store, &key("b")).await, ["ann", "bob"]);
    let ann = store.members(copied, Listing::named("ann")).await.unwrap().first().unwrap();
    assert_eq!(Value::Object(ann.attributes), json!({"x": 1}));
    // From now on each session has its own members.
    moved(store, &key("b"), vec![leave("ann"), join("eve")]).await;
    assert_eq!(members(store, &key("a")).await, ["ann", "bob"]);
    assert_eq!(members(store, &key("b")).await, ["bob", "eve"]);
    assert!(store.delete(&key("a")).await.unwrap());
    assert_eq!(store.members(from.id, Listing::named("ann")).await.unwrap().first(), None);
    assert_eq!(store.members(from.id, Listing::default()).await.unwrap(), ListPage::default());
    assert_eq!(
        (belongs(store, "w", "ann").await, belongs(store, "w", "bob").await),
        (vec![], vec!["b".to_owned()])
    );
    moved(store, &key("a"), vec![]).await;
    assert_eq!(members(store, &key("a")).await, [""; 0], "a new one of its name");
    moved(store, &key("a"), vec![join("ann")]).await;
    assert_eq!(members(store, &key("a")).await, ["ann"]);
}

pub(crate) async fn an_author_is_a_member_only_in_its_workspace(made: Made) {
    let store = &*made.store;
    let theirs = SessionKey::new("v", "a");
    moved(store, &key("a"), vec![join_with("ann", json!({"of": "w"}))]).await;
    moved(store, &theirs, vec![join_with("ann", json!({"of": "v"})), join("bob")]).await;
    note_author(store, "v", "ann", |row| row.metadata = odd()).await;
    let kept = async |key: &SessionKey, name: &str| {
        let member = store.members(row(store, key).await.id, Listing::named(name)).await.unwrap().first()?;
        Some((member.author.metadata.len(), Value::Object(member.attributes)))
    };
    assert_eq!(kept(&key("a"), "ann").await, Some((0, json!({"of": "w"}))));
    assert_eq!(kept(&theirs, "ann").await, Some((odd().len(), json!({"of": "v"}))));
    assert_eq!((kept(&key("a"), "bob").await, belongs(store, "w", "bob").await), (None, vec![]));
    assert_eq!(store.authors("w", Listing::named("bob")).await.unwrap().first(), None);
    moved(store, &theirs, vec![leave("ann")]).await;
    assert_eq!(
        (belongs(store, "w", "ann").await, belongs(store, "v", "ann").await),
        (vec!["a".to_owned()], vec![])
    );
    moved(store, &key("a"), vec![Membership::LeaveAll]).await;
    assert_eq!(members(store, &theirs).await, ["bob"]);
}

/// The authors are deleted, and their ids may belong to other authors when the copy would be revealed.
pub(crate) async fn deleting_a_workspace_cancels_unfinished_copies(made: Made) {
    let store = &*made.store;
    say(store, &key("a"), "u").await;
    moved(store, &key("a"), vec![join("ann")]).await;
    let from = row(store, &key("a")).await;
    let copied = store.copy(from.id, 1).await.unwrap();
    assert!(store.delete(&key("a")).await.unwrap());
    assert_eq!(store.delete_workspace("w").await.unwrap(), WorkspaceDeletion::Deleted);
    note_author(store, "v", "stranger", |_| {}).await;
    let shown = store.reveal(&key("b"), bare_copy(copied, from)).await.unwrap();
    assert!(!shown);
    assert_eq!(store.workspaces(Listing::named("w")).await.unwrap().first(), None);
    assert_eq!(belongs(store, "v", "stranger").await, [""; 0]);
    assert_eq!(store.verify().await.unwrap(), []);
}
