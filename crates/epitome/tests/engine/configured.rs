//! Settings that follow from what another API keeps of workspaces and sessions.

use epitome::Session;
use epitome_testkit::scripted::Scripted;
use serde_json::json;

use crate::directory::keeping;
use crate::support::{
    Home, assert_whole, by_model, everywhere, one_slot, said, span, standing, talk, throughs,
};

#[tokio::test]
async fn settings_follow_from_what_another_api_keeps() {
    everywhere(async |home| {
        let model = Scripted::new();
        let engine = home.open(by_model(&model)).await;
        let workspace = engine.workspace("w");
        let session = workspace.session("s");
        workspace
            .update(keeping(
                json!({"every": 5}),
                r#"{"trigger": {"short": "messages(5)", "long": "messages(10)"}}"#,
            ))
            .await
            .unwrap();
        session.append(talk(1, 5)).await.unwrap();
        session.work().await.unwrap();
        session.update(keeping(json!({"every": 2}), r#"{"trigger": {"short": "messages(2)"}}"#)).await.unwrap();
        session.append(talk(6, 10)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(
            (throughs(&session, "short").await, throughs(&session, "long").await),
            (vec![5, 7, 9], vec![10])
        );
        // Taken back, the workspace's hold again, and then the engine's.
        session.update(keeping(json!({}), r#"{"trigger": {"short": null}}"#)).await.unwrap();
        let triggers = async |session: &Session| {
            let settings = session.settings().await.unwrap();
            settings.slots.iter().map(|slot| slot.slot.trigger.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(triggers(&session).await, ["messages(5)", "messages(10)"]);
        workspace.update(keeping(json!({}), r#"{"trigger": null}"#)).await.unwrap();
        assert_eq!(triggers(&session).await, ["messages(20)", "messages(60)"]);
        session.append(talk(11, 30)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(standing(&session, "short").await.unwrap().through, 29);
        assert_whole(&session.context(8_000).await.unwrap(), 30);
        let counts = workspace.condensed().await.unwrap();
        assert_eq!(counts, [("s".into(), 5)], "four short ones and a long one");
    })
    .await;
}

#[tokio::test]
async fn what_is_switched_off_writes_nothing_and_on_again_it_catches_up() {
    everywhere(async |home| {
        let model = Scripted::new();
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 20)).await.unwrap();
        session.work().await.unwrap();
        session.update(keeping(json!({"enabled": false}), r#"{"summarize": {"auto": false}}"#)).await.unwrap();
        session.append(talk(21, 75)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!((throughs(&session, "short").await, model.calls()), (vec![20], 1));
        assert_whole(&session.context(20_000).await.unwrap(), 75);
        session.update(keeping(json!({"enabled": true}), r#"{"summarize": {"auto": null}}"#)).await.unwrap();
        session.append(talk(76, 76)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(standing(&session, "short").await.unwrap().through, 76);
        let read: Vec<u64> = model.asks()[1..].iter().flat_map(said).collect();
        assert_eq!(read, span(21, 76), "all of it, in order, nothing twice");
        session.append(talk(77, 96)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(standing(&session, "short").await.unwrap().through, 96);
        assert_whole(&session.context(20_000).await.unwrap(), 96);
    })
    .await;
}

#[tokio::test]
async fn instructions_for_all_slots_reach_their_model() {
    let model = Scripted::new();
    let engine = Home::memory().open(one_slot(&model)).await;
    let (workspace, told) = (engine.workspace("w"), engine.workspace("w").session("told"));
    workspace
        .update(keeping(json!({}), r#"{"summarize": {"instructions": "Name every carrier."}}"#))
        .await
        .unwrap();
    told.update(keeping(json!({}), r#"{"summarize": {"instructions": "Say it in Norwegian."}}"#))
        .await
        .unwrap();
    for (session, wanted) in [("plain", "Name every carrier."), ("told", "Say it in Norwegian.")] {
        let session = workspace.session(session);
        session.append(talk(1, 20)).await.unwrap();
        session.work().await.unwrap();
        let ask = model.asks().pop().unwrap();
        assert_eq!(&*ask.instructions, wanted);
        assert!(ask.prompt(20_000).unwrap().user.contains(wanted));
    }
    let other = engine.session("s");
    other.append(talk(1, 20)).await.unwrap();
    other.work().await.unwrap();
    assert_eq!((model.calls(), &*model.asks().pop().unwrap().instructions), (3, ""));
}
