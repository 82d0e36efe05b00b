//! The caller's own model, asked with the caller's own key, and only while the request is open.

use std::sync::{Arc, Weak};

use epitome::inline::ProxiedList;
use epitome::model::{Model, ModelError};
use epitome::rules::message::{Message, Timestamp};
use epitome::{Call, Condenser, Engine, Workspace};
use epitome_testkit::scripted::Scripted;

use crate::support::{
    ANN, BOB, Numbered, Silent, TWELVE, alone, condenser, plain, settle, summary, talk, until,
};

const SAME: &str = r#""trigger": "messages(12)", "keep": "messages(4)", "model": "same""#;

async fn lend<'a>(
    workspace: &Workspace,
    condenser: &Condenser,
    model: &Arc<dyn Model>,
    list: &'a [Message],
) -> ProxiedList<'a> {
    let lent = Some(("gpt-5", Arc::clone(model)));
    workspace.inline().before_with_model(condenser, lent, &ANN, Call::of(list)).await
}

#[tokio::test]
async fn same_is_a_setting_like_others_and_means_local_where_nobody_lends() {
    let settings = r#"{"condense": {"model": "same", "trigger": "messages(12)"}}"#;
    let engine = alone(Engine::builder().settings(settings)).await;
    let workspace = engine.workspace("home");
    let same = condenser(&workspace, TWELVE).await;
    assert!(same.uses_same_model() && same.is_local());
    let list = talk("a", 12);
    let passing = workspace.inline().before_with_model(&same, None, &ANN, Call::of(&list)).await;
    assert_eq!(passing.ready.report.model.as_deref(), Some("local"));
    assert!(passing.loan.is_none());
    let local = condenser(&workspace, r#""model": "local""#).await;
    assert!(!local.uses_same_model());
    // Whoever calls a model of theirs so means that one.
    let own = alone(Engine::builder().model("same", Scripted::new()).settings(settings)).await;
    assert!(!condenser(&own.workspace("home"), TWELVE).await.uses_same_model());
    // For slots there is nobody who could lend.
    let slots = r#"{"summarize": {"models": ["same"]}}"#;
    let refused = Engine::builder().settings(slots).memory().await.err().unwrap().to_string();
    assert!(refused.contains("summarize.models: `same` is unknown"), "{refused}");
}

#[tokio::test]
async fn what_the_callers_model_wrote_in_time_is_put_in() {
    let engine = plain().await;
    let workspace = engine.workspace("home");
    let same = condenser(&workspace, SAME).await;
    let list = talk("a", 12);
    let model: Arc<dyn Model> = Arc::new(Numbered);
    // Begun at ten, while the request is open.
    let passing = lend(&workspace, &same, &model, &list[..10]).await;
    assert!(passing.ready.is_untouched() && passing.loan.is_some());
    until("it is written", async || Arc::strong_count(&model) == 1).await;
    drop(passing);
    // What is written needs no model any more, so nobody has to lend it again.
    let passing = workspace.inline().before(&same, &ANN, Call::of(&list)).await;
    assert!(passing.ready.report.condensed);
    assert!(summary(&passing.ready).unwrap().contains("sum"));
    let usage = workspace.usage(Timestamp(0)).await.unwrap();
    assert_eq!(usage.iter().map(|row| (&*row.slot, row.calls)).collect::<Vec<_>>(), [("condense", 1)]);
}

#[tokio::test]
async fn when_the_request_has_ended_the_model_is_let_go_of_and_the_call_recorded() {
    let engine = plain().await;
    let workspace = engine.workspace("home");
    let same = condenser(&workspace, SAME).await;
    let list = talk("a", 14);
    // Asked at four fifths; dropped; asked again only when the list has grown by a tenth.
    for (len, calls) in [(10, 1), (11, 1)] {
        let model: Arc<dyn Model> = Arc::new(Silent);
        let held: Weak<dyn Model> = Arc::downgrade(&model);
        let passing = lend(&workspace, &same, &model, &list[..len]).await;
        drop(model);
        settle().await;
        let asked = held.upgrade().is_some();
        assert_eq!(asked, len == 10, "it is being asked, and not at every turn");
        if !asked {
            continue;
        }
        let turn = passing.ready.turn();
        let ProxiedList { loan, ready, .. } = passing;
        drop(ready);
        settle().await;
        assert!(held.upgrade().is_some(), "the request is still open");
        drop(loan);
        settle().await;
        assert!(held.upgrade().is_none(), "nobody holds it, nor the key in it");
        until("it is recorded as a call that was dropped", async || {
            let usage = workspace.usage(Timestamp(0)).await.unwrap();
            usage.iter().filter(|row| row.outcome == "dropped").map(|row| row.calls).sum::<u64>() == calls
        })
        .await;
        drop(turn);
    }
    // Not ready when it is due: `local` writes at once, and the model is asked again for the next time.
    let model: Arc<dyn Model> = Arc::new(Silent);
    let passing = lend(&workspace, &same, &model, &list[..12]).await;
    assert_eq!(passing.ready.report.model.as_deref(), Some("local"));
    assert!(passing.ready.report.stand_in && passing.ready.report.problems.is_empty());
    let held = Arc::downgrade(&model);
    drop((passing, model));
    settle().await;
    assert!(held.upgrade().is_none());
}

#[tokio::test]
async fn a_request_that_is_given_up_lets_go_of_the_model_too() {
    let engine = plain().await;
    let workspace = engine.workspace("home");
    let waits = format!(r#"{SAME}, "wait": true"#);
    let same = condenser(&workspace, &waits).await;
    let list = talk("a", 12);
    let model: Arc<dyn Model> = Arc::new(Silent);
    let held = Arc::downgrade(&model);
    {
        let asked = lend(&workspace, &same, &model, &list);
        let waited = tokio::time::timeout(std::time::Duration::from_millis(20), asked).await;
        assert!(waited.is_err(), "it waits for the model");
    }
    drop(model);
    settle().await;
    assert!(held.upgrade().is_none());
}

#[tokio::test]
async fn a_callers_key_that_fails_is_nobody_elses_trouble() {
    let failing = || ModelError::no_answer("the key is wrong");
    let engine = alone(Engine::builder().model("m", Scripted::new())).await;
    let workspace = engine.workspace("home");
    let same = condenser(&workspace, SAME).await;
    for n in 0..8 {
        let list = talk(&format!("a{n}-"), 10);
        let model: Arc<dyn Model> = Arc::new(Scripted::new().otherwise_fails(failing()));
        let passing = lend(&workspace, &same, &model, &list).await;
        until("it has failed", async || Arc::strong_count(&model) == 1).await;
        drop(passing);
    }
    // The same provider, asked with our own key, was not given up on.
    let own = condenser(&workspace, &format!(r#"{TWELVE}, "model": "m", "wait": true"#)).await;
    let list = talk("b", 12);
    let passing = workspace.inline().before(&own, &BOB, Call::of(&list)).await;
    assert_eq!(passing.ready.report.model.as_deref(), Some("scripted"), "{:?}", passing.ready.report);
}
