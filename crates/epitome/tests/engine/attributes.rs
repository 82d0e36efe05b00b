//! Settings that are derived from the attributes that another API stores.

use epitome::Session;
use epitome_testkit::scripted::Scripted;
use serde_json::json;

use crate::directory::with_attributes;
use crate::support::{
    Home, assert_complete, coverage, current_summary, engine_of_model, on_every_store, one_slot,
    prompt_messages, span, talk,
};

#[tokio::test]
async fn settings_derived_from_attributes_take_effect() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(engine_of_model(&model)).await;
        let workspace = engine.workspace("w");
        let session = workspace.session("s");
        workspace
            .update(with_attributes(
                json!({"every": 5}),
                r#"{"trigger": {"short": "messages(5)", "long": "messages(10)"}}"#,
            ))
            .await
            .unwrap();
        session.append(talk(1, 5)).await.unwrap();
        session.work().await.unwrap();
        session
            .update(with_attributes(json!({"every": 2}), r#"{"trigger": {"short": "messages(2)"}}"#))
            .await
            .unwrap();
        session.append(talk(6, 10)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(
            (coverage(&session, "short").await, coverage(&session, "long").await),
            (vec![5, 7, 9], vec![10])
        );
        // Taken back, the workspace's hold again, and then the engine's.
        session.update(with_attributes(json!({}), r#"{"trigger": {"short": null}}"#)).await.unwrap();
        let triggers = async |session: &Session| {
            let settings = session.settings().await.unwrap();
            settings.slots.iter().map(|slot| slot.slot.trigger.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(triggers(&session).await, ["messages(5)", "messages(10)"]);
        workspace.update(with_attributes(json!({}), r#"{"trigger": null}"#)).await.unwrap();
        assert_eq!(triggers(&session).await, ["messages(20)", "messages(60)"]);
        session.append(talk(11, 30)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(current_summary(&session, "short").await.unwrap().through, 29);
        assert_complete(&session.context(8_000).await.unwrap(), 30);
        let counts = workspace.condensed().await.unwrap();
        assert_eq!(counts, [("s".into(), 5)], "four short ones and a long one");
    })
    .await;
}

#[tokio::test]
async fn summaries_switched_off_and_on_again_catch_up() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 20)).await.unwrap();
        session.work().await.unwrap();
        session
            .update(with_attributes(json!({"enabled": false}), r#"{"summarize": {"auto": false}}"#))
            .await
            .unwrap();
        session.append(talk(21, 75)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!((coverage(&session, "short").await, model.calls()), (vec![20], 1));
        assert_complete(&session.context(20_000).await.unwrap(), 75);
        session
            .update(with_attributes(json!({"enabled": true}), r#"{"summarize": {"auto": null}}"#))
            .await
            .unwrap();
        session.append(talk(76, 76)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(current_summary(&session, "short").await.unwrap().through, 76);
        let read: Vec<u64> = model.requests()[1..].iter().flat_map(prompt_messages).collect();
        assert_eq!(read, span(21, 76), "all of it, in order, nothing twice");
        session.append(talk(77, 96)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(current_summary(&session, "short").await.unwrap().through, 96);
        assert_complete(&session.context(20_000).await.unwrap(), 96);
    })
    .await;
}

#[tokio::test]
async fn instructions_for_all_slots_reach_their_model() {
    let model = Scripted::new();
    let engine = Home::memory().open(one_slot(&model)).await;
    let (workspace, told) = (engine.workspace("w"), engine.workspace("w").session("told"));
    workspace
        .update(with_attributes(json!({}), r#"{"summarize": {"instructions": "Name every carrier."}}"#))
        .await
        .unwrap();
    told.update(with_attributes(json!({}), r#"{"summarize": {"instructions": "Say it in Norwegian."}}"#))
        .await
        .unwrap();
    for (session, wanted) in [("plain", "Name every carrier."), ("told", "Say it in Norwegian.")] {
        let session = workspace.session(session);
        session.append(talk(1, 20)).await.unwrap();
        session.work().await.unwrap();
        let ask = model.requests().pop().unwrap();
        assert_eq!(&*ask.instructions, wanted);
        assert!(ask.prompt(20_000).unwrap().user.contains(wanted));
    }
    let other = engine.session("s");
    other.append(talk(1, 20)).await.unwrap();
    other.work().await.unwrap();
    assert_eq!((model.calls(), &*model.requests().pop().unwrap().instructions), (3, ""));
}
