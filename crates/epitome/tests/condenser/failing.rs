//! Tests models that fail, hang, panic or return bad text: the list is condensed nevertheless, and the models are not
//! called on every turn.

use std::time::Duration;

use async_trait::async_trait;
use epitome::model::{Model, ModelError, Reply, SummaryRequest};
use epitome::retry::Backoff;
use epitome::rules::message::Message;
use epitome::{Condenser, Pace};
use epitome_testkit::scripted::Scripted;

use crate::support::{complaints, settle, summary, talk, words};

const AT_20: &str = r#""trigger": "tokens(400)", "keep": "messages(4)", "model": "m""#;

fn pausing(first: Duration) -> Pace {
    let backoff = Backoff { initial: first, max: first, ..Backoff::default() };
    Pace { backoff, ..Pace::default() }
}

/// Longer than any test runs.
const HOUR: Duration = Duration::from_secs(3_600);

fn with(model: impl Model, pause: Duration, more: &str) -> Condenser {
    words(&format!("{AT_20}{more}")).model("m", model).pace(pausing(pause)).build().unwrap()
}

/// The results of a conversation: condensations, fallback summaries, and reported problems.
#[derive(Default)]
struct RunResult {
    passes: usize,
    stood_in: usize,
    problems: Vec<String>,
    outcomes: Vec<String>,
}

async fn run_session(condenser: &Condenser, history: &[Message], from: usize) -> RunResult {
    let mut came = RunResult::default();
    for len in from..=history.len() {
        let ready = condenser.before_model(&history[..len]).await;
        assert_eq!(complaints(&ready), Vec::<String>::new());
        assert!(ready.report.tokens_after < 420, "{:?}", ready.report);
        came.passes += usize::from(ready.report.condensed);
        came.stood_in += usize::from(ready.report.stand_in);
        came.problems.extend(ready.report.problems.clone());
        came.outcomes
            .extend(ready.report.spent.iter().filter(|s| s.model != "local").map(|s| s.outcome.clone()));
        drop(ready);
        settle().await;
    }
    came
}

#[tokio::test]
async fn a_failure_is_reported_and_the_model_is_not_called_for_a_while() {
    for wait in ["false", "true"] {
        let model = Scripted::new().otherwise_fails(ModelError::no_answer("connection refused"));
        let condenser = with(model.clone(), HOUR, &format!(r#", "wait": {wait}"#));
        let came = run_session(&condenser, &talk(1, 120), 1).await;
        assert_eq!(model.calls(), 1, "not asked each turn");
        assert!(came.passes >= 5 && came.stood_in == came.passes, "local writes all of them");
        assert_eq!(came.problems, ["`m` wrote no summary: no answer from the model: connection refused"]);
        assert_eq!(came.outcomes, ["no_answer"]);
    }
}

#[tokio::test]
async fn if_the_awaited_model_fails_local_condenses_the_list() {
    let model = Scripted::new().otherwise_fails(ModelError::no_answer("down"));
    let condenser = with(model.clone(), HOUR, r#", "wait": true"#);
    let history = talk(1, 30);
    let ready = condenser.before_model(&history).await;
    assert_eq!((ready.report.condensed, ready.report.stand_in), (true, true));
    assert_eq!((ready.report.model.as_deref(), ready.report.problems.len()), (Some("local"), 1));
}

#[tokio::test]
async fn a_refused_answer_is_requested_a_second_time_only() {
    type Says = fn(&SummaryRequest) -> String;
    let rubbish: [(&str, Says); 4] = [
        ("empty", |_| "  ".to_owned()),
        ("declined", |_| "I'm sorry, but I can't help with that request.".to_owned()),
        ("loops", |_| "They spoke of the order again. ".repeat(15)),
        ("too_long_answer", |_| (0..4_000).map(|n| format!("word{n} ")).collect()),
    ];
    for (name, answer) in rubbish {
        let model = Scripted::new().otherwise(move |ask| Ok(Reply::complete(answer(ask))));
        let condenser = with(model.clone(), HOUR, r#", "max_tokens": 200"#);
        let came = run_session(&condenser, &talk(1, 80), 1).await;
        assert_eq!(came.outcomes, [name, name], "asked twice, the second time with the reason");
        assert!(model.requests()[1].refused.is_some() && model.calls() == 2);
        assert!(came.stood_in == came.passes && came.passes >= 3, "{name}");
        assert_eq!(came.problems.len(), 1, "{:?}", came.problems);
    }
}

struct Panics;

#[async_trait]
impl Model for Panics {
    fn name(&self) -> &'static str {
        "panics"
    }

    fn room(&self) -> Option<u64> {
        None
    }

    async fn write(&self, _: &SummaryRequest) -> Result<Reply, ModelError> {
        panic!("with a word of the conversation");
    }
}

struct Hangs;

#[async_trait]
impl Model for Hangs {
    fn name(&self) -> &'static str {
        "hangs"
    }

    fn room(&self) -> Option<u64> {
        None
    }

    fn timeout(&self) -> Option<Duration> {
        Some(Duration::from_millis(20))
    }

    async fn write(&self, _: &SummaryRequest) -> Result<Reply, ModelError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn a_panic_counts_as_a_failure() {
    let came = run_session(&with(Panics, HOUR, ""), &talk(1, 60), 1).await;
    assert_eq!(came.problems, ["`m` wrote no summary: no answer from the model: the model panicked"]);
    assert!(came.stood_in == came.passes && came.passes >= 2);
}

#[tokio::test]
async fn a_call_that_hangs_ends_with_the_timeout() {
    for wait in ["false", "true"] {
        let condenser = with(Hangs, HOUR, &format!(r#", "wait": {wait}"#));
        let history = talk(1, 60);
        let mut came = run_session(&condenser, &history[..30], 1).await;
        tokio::time::sleep(Duration::from_millis(60)).await;
        let more = run_session(&condenser, &history, 31).await;
        came.problems.extend(more.problems);
        assert!(came.stood_in >= 1 && more.stood_in == more.passes);
        assert_eq!(came.problems, ["`m` wrote no summary: no answer from the model: no answer within 20ms"]);
    }
}

#[tokio::test]
async fn after_the_pause_the_model_is_called_again_and_its_summary_is_used() {
    let model = Scripted::new().fails(ModelError::no_answer("down")).fails(ModelError::no_answer("down"));
    let condenser = with(model.clone(), Duration::ZERO, "");
    let history = talk(1, 140);
    run_session(&condenser, &history, 1).await;
    let ready = condenser.before_model(&history).await;
    let told = summary(&ready).unwrap();
    assert!(told.starts_with("Summary of "), "the model's own: {told}");
    assert!(model.calls() >= 5);
    // Its first summary covered everything, because it had no earlier one.
    let first = &model.requests()[2];
    assert_eq!(first.previous, None);
    assert_eq!(first.inputs[0].message().unwrap().seq, 1);
}

#[tokio::test]
async fn an_open_circuit_applies_to_all_conversations() {
    let model = Scripted::new().otherwise_fails(ModelError::no_answer("down"));
    let condenser = with(model.clone(), Duration::ZERO, "");
    let came = run_session(&condenser, &talk(1, 200), 1).await;
    assert_eq!(model.calls(), 5, "summarize.breaker_after");
    assert!(came.problems.iter().any(|told| told.contains("is not called")), "{:?}", came.problems);
    // A condenser made with `another` has the same circuit breaker.
    run_session(&condenser.another(), &talk(1, 60), 1).await;
    assert_eq!(model.calls(), 5);
}

#[tokio::test]
async fn a_too_long_error_does_not_end_the_models_pause() {
    let model = Scripted::new().otherwise_fails(ModelError::no_answer("down"));
    let condenser = with(model.clone(), HOUR, "");
    let history = talk(1, 60);
    let mut ready = condenser.before_model(&history[..20]).await;
    settle().await;
    assert_eq!(model.calls(), 1);
    for len in 21..40 {
        ready.turn().too_long(None);
        drop(ready);
        ready = condenser.before_model(&history[..len]).await;
        settle().await;
    }
    assert_eq!(model.calls(), 1);
}

#[tokio::test]
async fn a_model_with_a_small_window_reads_the_messages_in_pieces() {
    let model = Scripted::new().with_room(2_700);
    let condenser = with(model.clone(), HOUR, r#", "wait": true"#);
    let history = talk(1, 100);
    let ready = condenser.before_model(&history).await;
    assert_eq!(ready.report.model.as_deref(), Some("scripted"));
    let asks = model.requests();
    assert!(asks.len() > 1);
    let told: Vec<u64> =
        asks.iter().flat_map(|ask| ask.inputs.iter().filter_map(|t| t.message())).map(|m| m.seq).collect();
    assert_eq!(told, (1..=96).collect::<Vec<u64>>());
    assert!(asks[1].previous.is_some());
}
