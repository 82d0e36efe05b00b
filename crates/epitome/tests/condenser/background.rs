//! Tests summaries that are written while the agent continues: requested early, inserted when due, and never lost.

use std::time::Duration;

use epitome::model::{ModelError, Reply, SummaryRequest};
use epitome::rules::condense::Press;
use epitome::rules::message::Message;
use epitome::{Condenser, Pace};
use epitome_testkit::scripted::{Gate, Scripted};

use crate::support::{forced, settle, summary, talk, texts, until, words};

/// Twenty words a message: prepared at 16 messages, due at 20, and 4 are kept.
const AT_20: &str = r#""trigger": "tokens(400)", "keep": "messages(4)", "model": "m", "max_tokens": 60"#;

fn with(model: &Scripted, more: &str) -> Condenser {
    words(&format!("{AT_20}{more}")).model("m", model.clone()).build().unwrap()
}

/// Returns the positions of the messages in a request.
fn positions_read(ask: &SummaryRequest) -> Vec<u64> {
    ask.inputs.iter().filter_map(|told| told.message()).map(|message| message.seq).collect()
}

fn positions(from: u64, through: u64) -> Vec<u64> {
    (from..=through).collect()
}

#[tokio::test]
async fn a_summary_is_requested_at_four_fifths_and_inserted_at_the_threshold() {
    let gate = Gate::new();
    let model = Scripted::new().waits_for(&gate).replies("They spoke of orders one to twelve.");
    let condenser = with(&model, "");
    let history = talk(1, 24);
    let ready = condenser.before_model(&history[..15]).await;
    settle().await;
    assert_eq!((ready.report.condensed, model.calls()), (false, 0));
    for len in 16..20 {
        let ready = condenser.before_model(&history[..len]).await;
        assert!(ready.is_untouched(), "nobody waits: {:?}", ready.report);
        gate.reached().await;
    }
    assert_eq!(model.calls(), 1, "one is asked for, not one a turn");
    gate.open();
    settle().await;
    let ready = condenser.before_model(&history[..19]).await;
    assert!(ready.is_untouched(), "there, but not due");
    let ready = condenser.before_model(&history[..21]).await;
    let report = &ready.report;
    assert_eq!((report.condensed, report.stand_in, report.covers), (true, false, Some([1, 12])));
    assert_eq!((report.model.as_deref(), report.reason.as_str()), (Some("scripted"), "due"));
    assert_eq!(summary(&ready).unwrap(), "They spoke of orders one to twelve.");
    // Messages that came while the model worked are there.
    assert_eq!(ready[1..], history[12..21]);
    assert_eq!((report.spent.len(), report.spent[0].outcome.as_str()), (1, "kept"));
    assert_eq!(positions_read(&model.requests()[0]), positions(1, 12));
    drop(ready);
    assert_eq!(condenser.before_model(&history[..22]).await.report.spent.len(), 0, "told once");
    assert_eq!(condenser.totals().calls, 1);
}

#[tokio::test]
async fn if_a_summary_is_late_local_writes_a_fallback_and_the_next_one_builds_on_the_late_one() {
    let gate = Gate::new();
    let model = Scripted::new().waits_for(&gate).replies("Late: orders one to twelve.");
    let condenser = with(&model, "");
    let history = talk(1, 80);
    condenser.before_model(&history[..16]).await;
    gate.reached().await;
    let ready = condenser.before_model(&history[..20]).await;
    assert!(ready.report.condensed && ready.report.stand_in);
    assert_eq!((ready.report.model.as_deref(), ready.report.covers), (Some("local"), Some([1, 16])));
    let stood_in = summary(&ready).unwrap();
    drop(ready);
    gate.open();
    settle().await;
    let mut len = 20;
    let ready = loop {
        len += 1;
        let ready = condenser.before_model(&history[..len]).await;
        settle().await;
        if ready.report.condensed {
            break ready;
        }
    };
    assert_eq!((ready.report.stand_in, ready.report.model.as_deref()), (false, Some("scripted")));
    let asks = model.requests();
    assert_eq!(asks.len(), 2);
    let previous = asks[1].previous.as_deref().unwrap();
    assert_eq!(previous, "Late: orders one to twelve.");
    assert_ne!(previous, stood_in);
    // The model reads what the late summary left out, also what only the fallback covered.
    let last = *positions_read(&asks[1]).last().unwrap();
    assert_eq!(positions_read(&asks[1]), positions(13, last));
    assert!(ready.report.covers == Some([1, last]) && last > 16);
}

#[tokio::test]
async fn if_a_summary_never_comes_the_next_one_builds_on_the_last_real_one_and_reads_everything_since() {
    let gate = Gate::new();
    let model = Scripted::new()
        .replies("Real: orders one to twelve.")
        .waits_for(&gate)
        .fails(ModelError::no_answer("gone"));
    let quick = Pace {
        backoff: epitome::retry::Backoff { initial: Duration::ZERO, ..Default::default() },
        ..Pace::default()
    };
    let condenser = words(AT_20).model("m", model.clone()).pace(quick).build().unwrap();
    let history = talk(1, 200);
    let (mut len, mut stood_in, mut passes) = (0, 0, 0);
    while model.calls() < 3 || passes < 3 {
        len += 1;
        let ready = condenser.before_model(&history[..len]).await;
        passes += u32::from(ready.report.condensed);
        if ready.report.stand_in {
            stood_in += 1;
            gate.open();
        }
        drop(ready);
        settle().await;
    }
    assert_eq!(stood_in, 1);
    let asks = model.requests();
    assert_eq!(asks[2].previous.as_deref(), Some("Real: orders one to twelve."));
    let last = *positions_read(&asks[2]).last().unwrap();
    assert_eq!(positions_read(&asks[2]), positions(13, last), "nothing the stand-in stood for is left out");
}

#[tokio::test]
async fn a_list_that_is_due_when_first_seen_gets_a_fallback_immediately() {
    let model = Scripted::new();
    let condenser = with(&model, "");
    let history = talk(1, 90);
    let ready = condenser.before_model(&history[..40]).await;
    assert!(ready.report.stand_in && ready.report.covers == Some([1, 36]));
    drop(ready);
    settle().await;
    assert_eq!(model.calls(), 1, "asked, though too late");
    for len in 41..=90 {
        let ready = condenser.before_model(&history[..len]).await;
        settle().await;
        if ready.report.condensed {
            assert!(!ready.report.stand_in, "{:?} {:?}", ready.report, model.requests().last());
            let own = Scripted::plain(&model.requests()[0]).text;
            assert_eq!(model.requests()[1].previous.as_deref(), Some(&*own));
            return;
        }
    }
    panic!("it was due");
}

#[tokio::test]
async fn with_wait_a_turn_waits_for_the_model() {
    let gate = Gate::new();
    let model =
        Scripted::new().waits_for(&gate).replies("The agent waited for this summary of twenty-six messages.");
    let condenser = with(&model, r#", "wait": true"#);
    let history = talk(1, 30);
    let turn = tokio::spawn({
        let (condenser, history) = (condenser.clone(), history.clone());
        async move { condenser.before_model(&history).await.into_messages() }
    });
    gate.reached().await;
    settle().await;
    assert!(!turn.is_finished());
    gate.open();
    assert_eq!(
        summary(&turn.await.unwrap()).unwrap(),
        "The agent waited for this summary of twenty-six messages."
    );
    assert_eq!(model.calls(), 1);
}

#[tokio::test]
async fn with_wait_a_turn_waits_for_the_summary_in_progress_without_a_second_call() {
    let gate = Gate::new();
    let model = Scripted::new().waits_for(&gate).replies("Prepared, then waited for.");
    let condenser = with(&model, r#", "wait": true"#);
    let history = talk(1, 30);
    let ready = condenser.before_model(&history[..16]).await;
    assert!(ready.is_untouched(), "nothing is due, so nobody waits");
    gate.reached().await;
    let turn = tokio::spawn({
        let (condenser, history) = (condenser.clone(), history.clone());
        async move { condenser.before_model(&history[..21]).await.into_messages() }
    });
    settle().await;
    assert!(!turn.is_finished());
    gate.open();
    let shown = turn.await.unwrap();
    assert_eq!(summary(&shown).unwrap(), "Prepared, then waited for.");
    assert_eq!((model.calls(), &shown[1..]), (1, &history[12..21]));
}

#[tokio::test]
async fn a_caller_that_stops_waiting_does_no_harm() {
    let gate = Gate::new();
    let model = Scripted::new()
        .waits_for(&gate)
        .replies("What the first one was told of them.")
        .replies("What the second one was told of them.");
    let condenser = with(&model, r#", "wait": true"#);
    let history = talk(1, 30);
    let turn = tokio::spawn({
        let (condenser, history) = (condenser.clone(), history.clone());
        async move { condenser.before_model(&history).await.into_messages() }
    });
    gate.reached().await;
    turn.abort();
    assert!(turn.await.unwrap_err().is_cancelled());
    let ready = condenser.before_model(&history).await;
    assert_eq!(
        (ready.report.condensed, summary(&ready).unwrap().as_str()),
        (true, "What the second one was told of them.")
    );
    assert_eq!(ready[1..], history[26..]);
}

#[tokio::test]
async fn dropping_the_condenser_aborts_its_background_summary() {
    let gate = Gate::new();
    let (began, ended) = tokio::sync::oneshot::channel::<()>();
    let began = std::sync::Mutex::new(Some(began));
    let model = Scripted::new().waits_for(&gate).answers(move |_| {
        let _ = &began;
        Ok(Reply::complete("Never."))
    });
    let condenser = with(&model, "");
    condenser.before_model(&talk(1, 16)).await;
    gate.reached().await;
    drop((condenser, model));
    // The model is dropped, so the task has ended.
    assert!(tokio::time::timeout(crate::support::TOO_LONG, ended).await.unwrap().is_err());
}

#[tokio::test]
async fn a_forced_call_condenses_immediately() {
    let model = Scripted::new();
    let condenser = with(&model, "");
    let history = talk(1, 12);
    let ready = forced(&condenser, &history, Press::Gently).await;
    assert_eq!((ready.report.reason.as_str(), ready.report.stand_in), ("forced", true));
    drop(ready);
    let waited = with(&model, r#", "wait": true"#);
    let ready = forced(&waited, &history, Press::Gently).await;
    assert_eq!((ready.report.reason.as_str(), ready.report.model.as_deref()), ("forced", Some("scripted")));
}

#[tokio::test]
async fn one_shot_returns_the_input_unchanged_if_the_model_fails() {
    let model = Scripted::new().otherwise_fails(ModelError::no_answer("down"));
    let condenser = words(AT_20).model("m", model.clone()).one_shot().build().unwrap();
    let history = talk(1, 30);
    let ready = condenser.before_model(&history).await;
    assert!(ready.is_untouched() && *ready == *history);
    assert_eq!((ready.report.reason.as_str(), ready.report.condensed), ("model_failed", false));
    assert_eq!(ready.report.problems.len(), 1);
    assert_eq!(model.calls(), 1);
    // Nothing is prepared, because there is no next call.
    let calm = words(AT_20).model("m", model.clone()).one_shot().build().unwrap();
    calm.before_model(&history[..17]).await;
    settle().await;
    assert_eq!(model.calls(), 1);
}

#[tokio::test]
async fn earlier_stages_of_a_pipeline_apply_if_the_model_fails() {
    let model = Scripted::new().otherwise_fails(ModelError::no_answer("down"));
    let settings = r#""trigger": "tokens(60)", "strategy": "pipeline(mask(messages(2)), summarize(messages(2)))", "model": "m""#;
    let condenser = words(settings).model("m", model).one_shot().build().unwrap();
    let history = epitome_testkit::drawing::messages("s u:40 a(x) r(x):60 a:5 u:30 a(y) r(y):5 a u").unwrap();
    let ready = condenser.before_model(&history).await;
    assert!(ready.report.condensed && ready.report.strategy == "mask", "{:?}", ready.report);
    assert_eq!((ready.report.reason.as_str(), ready.len()), ("model_failed", history.len()));
    assert!(texts(&ready).contains("left out"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_that_share_a_gated_model_do_not_wait_for_each_other() {
    let gate = Gate::new();
    let model = Scripted::new().waits_for(&gate).replies("For one of them.");
    let condenser = with(&model, "");
    let one = talk(1, 40);
    let two: Vec<Message> = std::iter::once(Message::system("Two.")).chain(talk(1, 40)).collect();
    condenser.before_model(&one[..16]).await;
    gate.reached().await;
    condenser.before_model(&two[..17]).await;
    until("the second is asked as well", || model.calls() == 2).await;
    settle().await;
    // It contains its own messages, and not those of the first agent.
    assert!(condenser.before_model(&one[..20]).await.report.stand_in);
    let mut len = 21;
    let ready = condenser.before_model(&two[..len]).await;
    assert!(ready.report.condensed);
    assert!(!texts(&ready).contains("For one of them."));
    drop(ready);
    gate.open();
    len += 1;
    assert!(!condenser.before_model(&two[..len]).await.report.condensed);
}
