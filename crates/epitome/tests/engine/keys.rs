//! API keys grant their rights while they are valid, and an invalid key reveals nothing.

use std::time::Duration;

use epitome::key::{NewKey, Rights};
use epitome::rules::message::Timestamp;
use epitome::{Engine, Error};

use crate::support::{Home, MINUTE, on_every_store};

fn new(workspace: Option<&str>, rights: Rights) -> NewKey {
    NewKey { workspace: workspace.map(str::to_owned), rights, label: "a phone".to_owned(), expires: None }
}

#[tokio::test]
async fn wrong_unknown_expired_and_revoked_keys_get_the_same_answer() {
    on_every_store(async |home| {
        let keys = home.open(Engine::builder().workers(0)).await.keys();
        assert!(keys.is_empty().await.unwrap());
        let good = keys.create(new(Some("home"), Rights::Write)).await.unwrap();
        assert!(!keys.is_empty().await.unwrap());
        assert_eq!(keys.check(&good.secret).await.unwrap(), Some(good.key.clone()));
        assert_eq!(good.key.created, home.clock.now());

        let expires = Some(Timestamp(home.clock.now().0 + 60_000));
        let short = keys.create(NewKey { expires, ..new(Some("home"), Rights::Read) }).await.unwrap();
        home.clock.pass(MINUTE - Duration::from_millis(1));
        assert!(keys.check(&short.secret).await.unwrap().is_some());
        home.clock.pass(Duration::from_millis(1));
        assert_eq!(keys.check(&short.secret).await.unwrap(), None, "expired");

        let revoked = keys.create(new(None, Rights::Admin)).await.unwrap();
        assert!(keys.check(&revoked.secret).await.unwrap().is_some());
        assert!(keys.revoke(&revoked.key.id, None).await.unwrap());
        assert_eq!(keys.check(&revoked.secret).await.unwrap(), None, "revoked");

        // One digit off, another key's number, another key's secret, nothing like a key.
        let mut off = good.secret.clone();
        let last = off.pop().unwrap();
        off.push(if last == '0' { '1' } else { '0' });
        let mixed = good.secret.replace(&good.key.id, &short.key.id);
        let unknown = good.secret.replace(&good.key.id, "0123456789abcdef");
        for wrong in [off.as_str(), &mixed, &unknown, &good.key.id, "", "epk_", "Bearer x"] {
            assert_eq!(keys.check(wrong).await.unwrap(), None, "{wrong}");
        }
        assert!(keys.check(&good.secret).await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn a_key_revoked_by_another_process_stops_working_at_once() {
    let home = Home::file();
    let (one, two) =
        (home.open(Engine::builder().workers(0)).await, home.open(Engine::builder().workers(0)).await);
    let made = one.keys().create(new(Some("home"), Rights::Read)).await.unwrap();
    assert!(two.keys().check(&made.secret).await.unwrap().is_some());
    assert!(one.keys().revoke(&made.key.id, Some("home")).await.unwrap());
    assert_eq!(two.keys().check(&made.secret).await.unwrap(), None);
    let listed = two.keys().list(Some("home"), None, 9).await.unwrap();
    assert_eq!((listed.len(), listed[0].revoked), (1, Some(home.clock.now())));
}

#[tokio::test]
async fn the_secret_is_not_stored() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("agent.db");
    let engine = Engine::open(&path).await.unwrap();
    let made = engine.keys().create(new(Some("home"), Rights::Write)).await.unwrap();
    let listed = serde_json::to_value(engine.keys().list(None, None, 9).await.unwrap()).unwrap();
    engine.close().await;
    let expected = serde_json::json!([{"id": made.key.id, "workspace": "home", "rights": "write", "label": "a phone",
        "created": made.key.created, "expires": null, "revoked": null}]);
    assert_eq!(listed, expected);
    let secret = &made.secret.as_bytes()[made.secret.len() - 64..];
    let file = std::fs::read(&path).unwrap();
    assert!(!file.windows(secret.len()).any(|bytes| bytes == secret));
}

#[tokio::test]
async fn an_invalid_key_is_refused_with_the_name_of_the_field() {
    let home = Home::memory();
    let keys = home.open(Engine::builder().workers(0)).await.keys();
    let past = Some(home.clock.now());
    for (wrong, field) in [
        (new(None, Rights::Read), "workspace: "),
        (new(Some("home"), Rights::Admin), "workspace: "),
        (new(Some(""), Rights::Write), "workspace: "),
        (NewKey { label: "x".repeat(201), ..new(None, Rights::Admin) }, "label: "),
        (NewKey { label: "two\nlines".to_owned(), ..new(None, Rights::Admin) }, "label: "),
        (NewKey { expires: past, ..new(None, Rights::Admin) }, "expires: "),
    ] {
        match keys.create(wrong).await {
            Err(Error::Invalid(said)) => assert!(said.starts_with(field), "{said}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(keys.is_empty().await.unwrap());
    keys.create(NewKey { label: String::new(), ..new(None, Rights::Admin) }).await.unwrap();
}

#[tokio::test]
async fn an_admin_key_opens_every_workspace_and_others_their_own() {
    let keys = Home::memory().open(Engine::builder().workers(0)).await.keys();
    let admin = keys.create(new(None, Rights::Admin)).await.unwrap().key;
    let read = keys.create(new(Some("home"), Rights::Read)).await.unwrap().key;
    assert!(admin.may(Rights::Admin, "home") && admin.may(Rights::Write, "work"));
    assert!(read.may(Rights::Read, "home") && !read.may(Rights::Write, "home"));
    assert!(!read.may(Rights::Read, "work") && !read.may(Rights::Read, "home2"));
}
