//! Workspaces, authors and members through the engine. `attributes.rs` tests the settings derived from attributes.

use std::sync::Arc;

use epitome::rules::message::Message;
use epitome::settings::Patch;
use epitome::{Attributes, Engine, Error, Fork, Listing, Membership, Page, Session, Update, Workspace};
use epitome_testkit::scripted::Scripted;
use serde_json::{Map, Value, json};

use crate::support::{Home, MINUTE, coverage, on_every_store, one_slot, talk};

pub(crate) fn by(author: &str, text: &str) -> Message {
    Message { author: Some(author.into()), ..Message::user(text) }
}

pub(crate) fn join(name: &str) -> Membership {
    Membership::Join(name.into(), None)
}

pub(crate) fn notes(value: Value) -> Map<String, Value> {
    let Value::Object(notes) = value else { panic!("{value}") };
    notes
}

/// Stores this part of the attributes, from which these settings follow.
pub(crate) fn with_attributes(part: Value, settings: &str) -> Update {
    let (given, patch) = (notes(part), Patch::parse(settings).unwrap());
    let change = move |kept: &Map<String, Value>| {
        let mut kept = kept.clone();
        kept.extend(given.clone());
        Ok((kept, patch.clone()))
    };
    Update { attributes: Some(Attributes { owner: "api", change: Arc::new(change) }), ..Update::default() }
}

/// The attributes that an API has which keeps this.
pub(crate) fn api(part: Value) -> Map<String, Value> {
    Map::from_iter([("api".to_owned(), part)])
}

pub(crate) async fn members(session: &Session) -> Vec<String> {
    let listed = session.list_members(Listing::default()).await.unwrap();
    listed.map(|member| member.author.name.to_string()).items
}

pub(crate) async fn authors(workspace: &Workspace) -> Vec<String> {
    let listed = workspace.list_authors(Listing::default()).await.unwrap();
    listed.map(|author| author.name.to_string()).items
}

pub(crate) async fn sessions(workspace: &Workspace, member: Option<&str>) -> Vec<String> {
    let listed = workspace.list_sessions(member, Listing::default()).await.unwrap();
    listed.map(|info| info.name.to_string()).items
}

/// One level deeper than allowed.
fn too_deep() -> Map<String, Value> {
    notes(json!({"deep": (0..100).fold(json!(0), |inner, _| json!([inner]))}))
}

#[tokio::test]
async fn an_author_of_a_message_is_a_member_until_leaving() {
    on_every_store(async |home| {
        let engine = home.open(Engine::builder().workers(0)).await;
        let workspace = engine.workspace("w");
        let session = workspace.session("s");
        session.append(vec![by("bob", "Hello."), by("ann", "Hi."), by("bob", "Well?")]).await.unwrap();
        session.append(Message::user("By nobody in particular.")).await.unwrap();
        assert_eq!(
            (members(&session).await, authors(&workspace).await),
            (vec!["bob".to_owned(), "ann".to_owned()], vec!["bob".to_owned(), "ann".to_owned()])
        );
        let bob = workspace.author("bob").await.unwrap().unwrap();
        assert_eq!((bob.created, bob.metadata.len()), (home.clock.now(), 0));
        let leave = Update { members: vec![Membership::Leave("bob".into())], ..Update::default() };
        assert!(!session.update(leave).await.unwrap().created);
        assert_eq!(members(&session).await, ["ann"]);
        assert_eq!(session.messages(Page::default()).await.unwrap().len(), 4, "what they said stays");
        assert_eq!(sessions(&workspace, Some("bob")).await, [""; 0]);
        session.append(by("bob", "Here I am again.")).await.unwrap();
        assert_eq!(members(&session).await, ["bob", "ann"]);
        assert!(
            session.member("bob").await.unwrap().is_some() && session.member("eve").await.unwrap().is_none()
        );
        // A refused change adds no member.
        let refused = vec![by("eve", "A word."), Message { parts: vec![], ..by("eve", "") }];
        assert!(session.append(refused).await.is_err());
        assert_eq!(workspace.author("eve").await.unwrap(), None);
        assert!(matches!(workspace.session("none").member("bob").await, Err(Error::NotFound { .. })));
        assert!(matches!(
            workspace.session("none").list_members(Listing::default()).await,
            Err(Error::NotFound { .. })
        ));
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn an_update_creates_a_session_and_returns_it() {
    on_every_store(async |home| {
        let engine = home.open(Engine::builder().workers(0)).await;
        let session = engine.workspace("w").session("s");
        let first = session.update(Update::default()).await.unwrap();
        assert!(first.created && first.value == session.info().await.unwrap());
        for given in [
            Update { metadata: Some(notes(json!({"a": 1, "b": null}))), ..Update::default() },
            Update { members: vec![join("ann")], ..Update::default() },
            with_attributes(json!({"x": 1}), "{}"),
            with_attributes(json!({"y": 2}), r#"{"trigger": {"short": "messages(7)"}}"#),
            // In place of the old ones.
            Update { metadata: Some(notes(json!({"c": 2}))), ..Update::default() },
        ] {
            home.clock.pass(MINUTE);
            let written = session.update(given).await.unwrap();
            assert!(!written.created);
            assert_eq!(
                (&written.value, written.value.updated),
                (&session.info().await.unwrap(), home.clock.now())
            );
        }
        let info = session.info().await.unwrap();
        assert_eq!(
            (Value::Object(info.metadata.clone()), Value::Object(info.attributes.clone())),
            (json!({"c": 2}), json!({"api": {"x": 1, "y": 2}}))
        );
        // As deep as they may be.
        let deep = || notes(json!({"deep": (0..99).fold(json!(0), |inner, _| json!([inner]))}));
        let members = vec![Membership::Join("ann".into(), Some(api(deep().into())))];
        session.append(Message { metadata: deep(), ..by("ann", "Hello.") }).await.unwrap();
        session.update(Update { metadata: Some(deep()), members, ..Update::default() }).await.unwrap();
        session.set_message_metadata(1, deep()).await.unwrap();
        assert_eq!(session.info().await.unwrap().metadata, deep());
        assert_eq!(session.member("ann").await.unwrap().unwrap().attributes, api(deep().into()));
        assert_eq!(session.messages(Page::default()).await.unwrap().items[0].metadata, deep());
        let info = session.info().await.unwrap();
        // The same again is no change.
        let stamp = session.stamp().await.unwrap();
        home.clock.pass(MINUTE);
        let again = Update {
            metadata: Some(info.metadata.clone()),
            ..with_attributes(json!({"y": 2}), r#"{"trigger": {"short": "messages(7)"}}"#)
        };
        assert_eq!(session.update(again).await.unwrap().value, info);
        assert_eq!((session.info().await.unwrap(), session.stamp().await.unwrap()), (info, stamp));
        // It is a session like any other.
        session.append(talk(2, 7)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(coverage(&session, "short").await, [7]);
        let workspace = engine.workspace("w");
        assert!(!workspace.update(Update::default()).await.unwrap().created);
        let noted = workspace
            .update(Update {
                metadata: Some(notes(json!({"w": 1}))),
                ..with_attributes(json!({"x": 1}), "{}")
            })
            .await
            .unwrap();
        assert_eq!(Some(noted.value), workspace.info().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn an_update_is_written_completely_or_not_at_all() {
    on_every_store(async |home| {
        let engine = home.open(Engine::builder().workers(0)).await;
        let workspace = engine.workspace("w");
        let wrong = |_: &Map<String, Value>| Err(Error::Invalid("summary: of another kind".to_owned()));
        let fails = Attributes { owner: "api", change: Arc::new(wrong) };
        let large = || notes(json!({"text": "x".repeat(70_000)}));
        let metadata = || Some(notes(json!({"new": true})));
        let with = |members: Vec<Membership>| Update { members, metadata: metadata(), ..Update::default() };
        let refused = || {
            let plain = Update { metadata: metadata(), ..Update::default() };
            vec![
                Update { attributes: Some(fails.clone()), ..plain.clone() },
                Update { metadata: Some(large()), ..plain.clone() },
                Update { metadata: Some(too_deep()), ..plain.clone() },
                Update { metadata: metadata(), ..with_attributes(Value::Object(large()), "{}") },
                Update {
                    metadata: metadata(),
                    ..with_attributes(json!({}), r#"{"summarize": {"models": ["nobody's"]}}"#)
                },
                Update {
                    metadata: metadata(),
                    ..with_attributes(json!({}), r#"{"prices": {"local": {"input": 1, "output": 1}}}"#)
                },
            ]
        };
        let only_sessions = || {
            vec![
                with(vec![join("eve"), join("")]),
                with(vec![join("eve"), join("a\nb")]),
                with(vec![join("eve"), Membership::Join("ann".into(), Some(api(large().into())))]),
                with(vec![join("eve"), Membership::Join("ann".into(), Some(api(too_deep().into())))]),
                with(vec![join("eve"), Membership::Join("ann".into(), Some(api(json!(1))))]),
                Update {
                    members: vec![join("eve")],
                    ..with_attributes(json!({}), r#"{"summarize": {"spend_cap_per_day": 1}}"#)
                },
            ]
        };
        let session = workspace.session("s");
        for round in 0..2 {
            let before = (workspace.info().await.unwrap(), session.info().await.ok());
            for (at, given) in refused().into_iter().chain(only_sessions()).enumerate() {
                let given = Update { members: [given.members.clone(), vec![join("zoe")]].concat(), ..given };
                let wrong = session.update(given).await;
                assert!(matches!(wrong, Err(Error::Invalid(_))), "{at}: {wrong:?}");
            }
            for (at, given) in refused().into_iter().enumerate() {
                let wrong = workspace.update(given).await;
                assert!(matches!(wrong, Err(Error::Invalid(_))), "{at}: {wrong:?}");
            }
            let wrong = workspace.update(with(vec![join("zoe")])).await;
            assert!(matches!(wrong, Err(Error::Invalid(_))), "{wrong:?}");
            assert_eq!((workspace.info().await.unwrap(), session.info().await.ok()), before);
            assert_eq!(authors(&workspace).await, [""; 0]);
            if round == 0 {
                assert_eq!(before, (None, None));
                session.append(talk(1, 2)).await.unwrap();
            }
        }
        for name in ["", "a\0b", &"x".repeat(513)] {
            assert!(matches!(workspace.set_author(name, None, None).await, Err(Error::Invalid(_))));
            assert!(matches!(
                workspace.session(name).update(Update::default()).await,
                Err(Error::Invalid(_))
            ));
            assert!(matches!(engine.workspace(name).update(Update::default()).await, Err(Error::Invalid(_))));
        }
        for notes in [large(), too_deep()] {
            assert!(matches!(
                workspace.set_author("ann", Some(notes.clone()), None).await,
                Err(Error::Invalid(_))
            ));
            assert!(matches!(
                workspace.set_author("ann", None, Some(notes.clone())).await,
                Err(Error::Invalid(_))
            ));
            assert!(matches!(session.set_message_metadata(1, notes.clone()).await, Err(Error::Invalid(_))));
            let fork = Fork { metadata: Some(notes), ..Fork::whole("copy") };
            assert!(matches!(session.fork(fork).await, Err(Error::Invalid(_))));
        }
        let deep = Message { metadata: too_deep(), ..by("eve", "Hello.") };
        assert!(matches!(session.append(deep).await, Err(Error::Invalid(_))));
        assert_eq!(authors(&workspace).await, [""; 0]);
        assert_eq!(
            (workspace.sessions(None, 9).await.unwrap().len(), engine.verify().await.unwrap()),
            (1, vec![])
        );
    })
    .await;
}

#[tokio::test]
async fn attributes_of_authors_are_replaced_part_by_part() {
    let engine = Home::memory().open(Engine::builder().workers(0)).await;
    let workspace = engine.workspace("w");
    let made = workspace.set_author("ann", None, None).await.unwrap();
    assert!(made.created && Some(made.value) == workspace.author("ann").await.unwrap());
    assert!(workspace.info().await.unwrap().is_some());
    let (one, two) = (notes(json!({"a": 1})), api(json!({"b": [2]})));
    assert!(!workspace.set_author("ann", Some(one.clone()), None).await.unwrap().created);
    let now = workspace.set_author("ann", None, Some(two.clone())).await.unwrap().value;
    assert_eq!((&now.metadata, &now.attributes), (&one, &two));
    assert_eq!(workspace.set_author("ann", None, None).await.unwrap().value, now);
    let emptied = workspace.set_author("ann", Some(Map::new()), None).await.unwrap().value;
    assert_eq!((&emptied.metadata, &emptied.attributes), (&Map::new(), &two));
    // An API's part is replaced as a whole, and others stay; an empty one is not stored.
    let other = notes(json!({"other": {"c": 3}}));
    let both = workspace.set_author("ann", None, Some(other.clone())).await.unwrap().value.attributes;
    assert_eq!(Value::Object(both), json!({"api": {"b": [2]}, "other": {"c": 3}}));
    let empty = Some(api(json!({})));
    assert_eq!(workspace.set_author("ann", None, empty).await.unwrap().value.attributes, other);
    assert!(workspace.set_author("ann", None, Some(api(json!([])))).await.is_err());
    // Joining takes nothing from them.
    workspace.session("s").append(by("ann", "Hello.")).await.unwrap();
    let member = workspace.session("s").member("ann").await.unwrap().unwrap();
    assert_eq!((member.author.attributes.len(), member.attributes.len()), (1, 0));
    assert_eq!(engine.workspace("v").author("ann").await.unwrap(), None);
}

#[tokio::test]
async fn a_workspace_can_be_deleted_after_its_sessions() {
    on_every_store(async |home| {
        let engine = home.open(one_slot(&Scripted::new())).await;
        let workspace = engine.workspace("w");
        assert!(!workspace.delete().await.unwrap());
        workspace
            .update(with_attributes(json!({"x": 1}), r#"{"trigger": {"short": "messages(5)"}}"#))
            .await
            .unwrap();
        let created = workspace.info().await.unwrap().unwrap().created;
        let session = workspace.session("s");
        session.append(vec![by("ann", "Hello.")]).await.unwrap();
        let kept = workspace.delete().await.unwrap_err();
        assert!(
            matches!(kept, Error::Conflict(_)) && kept.to_string().contains("delete them first"),
            "{kept}"
        );
        assert!(session.delete().await.unwrap());
        let newest = workspace.newest_event().await.unwrap();
        assert!(workspace.delete().await.unwrap() && !workspace.delete().await.unwrap());
        assert_eq!((workspace.info().await.unwrap(), workspace.author("ann").await.unwrap()), (None, None));
        assert_eq!(engine.list_workspaces(Listing::default()).await.unwrap().total, 0);
        home.clock.pass(MINUTE);
        session.append(talk(1, 5)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(coverage(&session, "short").await, [0; 0], "its settings went with it");
        let info = workspace.info().await.unwrap().unwrap();
        assert_eq!((info.attributes, info.created), (Map::new(), home.clock.now()));
        assert!(info.created > created && workspace.newest_event().await.unwrap() > newest);
        assert_eq!(authors(&workspace).await, [""; 0]);
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn metadata_of_a_message_is_replaced_and_shown_at_once() {
    on_every_store(async |home| {
        let engine = home.open(one_slot(&Scripted::new())).await;
        let session = engine.session("s");
        session.append(talk(1, 25)).await.unwrap();
        session.work().await.unwrap();
        let (before, context) =
            (session.messages(Page::default()).await.unwrap().items, session.context(4_000).await.unwrap());
        for seq in [3, 25] {
            session.set_message_metadata(seq, notes(json!({"seen": [seq]}))).await.unwrap();
        }
        let mut wanted = before;
        for seq in [3, 25] {
            wanted[seq - 1].metadata = notes(json!({"seen": [seq]}));
        }
        assert_eq!(session.messages(Page::default()).await.unwrap().items, wanted);
        let now = session.context(4_000).await.unwrap();
        assert_eq!(now.report, context.report);
        assert_eq!(Value::Object(now.messages.last().unwrap().metadata.clone()), json!({"seen": [25]}));
        for seq in [0, 26, u64::MAX] {
            assert!(matches!(
                session.set_message_metadata(seq, Map::new()).await,
                Err(Error::NotFound { .. })
            ));
        }
        assert!(matches!(
            engine.session("none").set_message_metadata(1, Map::new()).await,
            Err(Error::NotFound { .. })
        ));
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_updates_joins_and_appends_are_all_stored() {
    on_every_store(async |home| {
        let engine = home.open(Engine::builder().workers(0)).await;
        let workspace = engine.workspace("w");
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..16_u64 {
            let (workspace, session) = (workspace.clone(), workspace.session("s"));
            tasks.spawn(async move {
                let mut made = 0;
                for round in 0..8_u64 {
                    let name = format!("{task}.{round}");
                    let members = vec![Membership::Join("all".into(), Some(api(json!({&*name: round}))))];
                    let noted = session
                        .update(Update { members, ..with_attributes(json!({&*name: 1}), "{}") })
                        .await
                        .unwrap();
                    made += u64::from(noted.created);
                    made += 1_000
                        * u64::from(
                            workspace
                                .update(with_attributes(json!({&*name: 1}), "{}"))
                                .await
                                .unwrap()
                                .created,
                        );
                    made +=
                        1_000_000 * u64::from(workspace.set_author("one", None, None).await.unwrap().created);
                    session.append(by(&name, "Hello.")).await.unwrap();
                    if round % 2 == 1 {
                        let members = vec![Membership::Leave(name.as_str().into())];
                        session.update(Update { members, ..Update::default() }).await.unwrap();
                    }
                }
                made
            });
        }
        let made: u64 = tasks.join_all().await.iter().sum();
        // The first session creates the workspace too, so perhaps no update created it.
        assert_eq!((made % 1_000, made / 1_000_000), (1, 1));
        let session = workspace.session("s");
        let info = session.info().await.unwrap();
        let kept = |attributes: Map<String, Value>| attributes["api"].as_object().unwrap().len();
        assert_eq!((info.messages, kept(info.attributes)), (128, 128));
        assert_eq!(kept(workspace.info().await.unwrap().unwrap().attributes), 128);
        assert_eq!(kept(session.member("all").await.unwrap().unwrap().attributes), 128);
        assert_eq!(workspace.list_authors(Listing::default()).await.unwrap().total, 130);
        assert_eq!(session.list_members(Listing::default()).await.unwrap().total, 65);
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}
