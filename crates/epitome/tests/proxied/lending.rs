//! Tests summaries by the caller's own model, which is lent only while the request is open.

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
async fn same_means_local_if_no_model_is_lent() {
    let settings = r#"{"condense": {"model": "same", "trigger": "messages(12)"}}"#;
    let engine = alone(Engine::builder().settings(settings)).await;
    let workspace = engine.workspace("home");
    let same = condenser(&workspace, TWELVE).await;
    assert!(same.uses_same_model() && same.is_local());
    let list = talk("a", 12);
    let proxied = workspace.inline().before_with_model(&same, None, &ANN, Call::of(&list)).await;
    assert_eq!(proxied.ready.report.model.as_deref(), Some("local"));
    assert!(proxied.loan.is_none());
    let local = condenser(&workspace, r#""model": "local""#).await;
    assert!(!local.uses_same_model());
    // A model that is configured under the name `same` takes precedence.
    let own = alone(Engine::builder().model("same", Scripted::new()).settings(settings)).await;
    assert!(!condenser(&own.workspace("home"), TWELVE).await.uses_same_model());
    // Slots have no caller that could lend a model.
    let slots = r#"{"summarize": {"models": ["same"]}}"#;
    let refused = Engine::builder().settings(slots).memory().await.err().unwrap().to_string();
    assert!(refused.contains("summarize.models[0]: no model named `same`"), "{refused}");
}

#[tokio::test]
async fn a_summary_by_the_lent_model_is_inserted() {
    let engine = plain().await;
    let workspace = engine.workspace("home");
    let same = condenser(&workspace, SAME).await;
    let list = talk("a", 12);
    let model: Arc<dyn Model> = Arc::new(Numbered);
    // Begun at ten messages, while the request is open.
    let proxied = lend(&workspace, &same, &model, &list[..10]).await;
    assert!(proxied.ready.is_untouched() && proxied.loan.is_some());
    until("it is written", async || Arc::strong_count(&model) == 1).await;
    drop(proxied);
    // The summary is written, so no model needs to be lent any more.
    let proxied = workspace.inline().before(&same, &ANN, Call::of(&list)).await;
    assert!(proxied.ready.report.condensed);
    assert!(summary(&proxied.ready).unwrap().contains("sum"));
    let usage = workspace.usage(Timestamp(0)).await.unwrap();
    assert_eq!(usage.iter().map(|row| (&*row.slot, row.calls)).collect::<Vec<_>>(), [("condense", 1)]);
}

#[tokio::test]
async fn when_the_request_ends_the_model_is_released_and_the_call_recorded() {
    let engine = plain().await;
    let workspace = engine.workspace("home");
    let same = condenser(&workspace, SAME).await;
    let list = talk("a", 14);
    // Called at four fifths, dropped, and called again only when the list has grown by a tenth.
    for (len, calls) in [(10, 1), (11, 1)] {
        let model: Arc<dyn Model> = Arc::new(Silent);
        let held: Weak<dyn Model> = Arc::downgrade(&model);
        let proxied = lend(&workspace, &same, &model, &list[..len]).await;
        drop(model);
        settle().await;
        let asked = held.upgrade().is_some();
        assert_eq!(asked, len == 10, "it is being asked, and not at every turn");
        if !asked {
            continue;
        }
        let turn = proxied.ready.turn();
        let ProxiedList { loan, ready, .. } = proxied;
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
    // Not ready when due: `local` writes immediately, and the model is called again for the next summary.
    let model: Arc<dyn Model> = Arc::new(Silent);
    let proxied = lend(&workspace, &same, &model, &list[..12]).await;
    assert_eq!(proxied.ready.report.model.as_deref(), Some("local"));
    assert!(proxied.ready.report.stand_in && proxied.ready.report.problems.is_empty());
    let held = Arc::downgrade(&model);
    drop((proxied, model));
    settle().await;
    assert!(held.upgrade().is_none());
}

#[tokio::test]
async fn an_aborted_request_releases_the_model_too() {
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
async fn a_failing_key_of_one_caller_does_not_affect_others() {
    let failing = || ModelError::no_answer("the key is wrong");
    let engine = alone(Engine::builder().model("m", Scripted::new())).await;
    let workspace = engine.workspace("home");
    let same = condenser(&workspace, SAME).await;
    for n in 0..8 {
        let list = talk(&format!("a{n}-"), 10);
        let model: Arc<dyn Model> = Arc::new(Scripted::new().otherwise_fails(failing()));
        let proxied = lend(&workspace, &same, &model, &list).await;
        until("it has failed", async || Arc::strong_count(&model) == 1).await;
        drop(proxied);
    }
    // The circuit of the same provider with the operator's key is closed.
    let own = condenser(&workspace, &format!(r#"{TWELVE}, "model": "m", "wait": true"#)).await;
    let list = talk("b", 12);
    let proxied = workspace.inline().before(&own, &BOB, Call::of(&list)).await;
    assert_eq!(proxied.ready.report.model.as_deref(), Some("scripted"), "{:?}", proxied.ready.report);
}
