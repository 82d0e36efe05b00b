//! A slow model of many workspaces does not delay summaries that another model writes.
//!
//! The models are called over a real connection to a provider that holds the calls of one model until it is released.

use std::time::Duration;

use epitome::rules::message::Message;
use epitome::settings::Patch;
use epitome::{Builder, Engine, Session, Summarize, Summarized};

use crate::provider::{Act, Provider};
use crate::support::{Home, MINUTE, current_summary, fast_pace, history, slot, wait_until, within_timeout};

/// One slot, written by `slow` unless a workspace says otherwise. `again` is `slow` by another name, and `picky` gives nothing
/// that can be kept.
fn builder(provider: &Provider) -> Builder {
    let model = |name: &str, asked: &str| {
        let url = provider.url();
        format!(
            r#""{name}": {{"provider": "openai", "model": "{asked}", "base_url": "{url}", "timeout": "10m"}}"#
        )
    };
    let named = [("slow", "slow"), ("again", "slow"), ("quick", "quick"), ("picky", "picky")];
    let models = named.map(|(name, asked)| model(name, asked)).join(", ");
    let settings = format!(
        r#"{{"slot": [{{"name": "short", "trigger": "messages(2)"}}], "models": {{{models}}},
            "summarize": {{"models": ["slow"], "stand_in_after": "never"}}}}"#
    );
    Engine::builder().settings(&settings).workers(0)
}

async fn provider() -> Provider {
    let provider = Provider::start().await;
    provider.of_model("slow", Act::WaitForRelease).of_model("picky", Act::Empty);
    provider
}

/// Two messages, long enough to need a model.
fn long() -> Vec<Message> {
    let words = |n| {
        let line = |item| format!("Item {item} of order {n}0071 was not in the parcel that came on Monday.");
        (1..=20).map(line).collect::<Vec<_>>().join("\n")
    };
    vec![Message::user(words(1)), Message::assistant(words(2))]
}

/// A session of that workspace with a summary due, which these models are to write.
async fn due(engine: &Engine, workspace: &str, models: &[&str]) -> Session {
    let workspace = engine.workspace(workspace);
    let settings = format!(r#"{{"summarize": {{"models": {models:?}}}}}"#);
    workspace.set(&Patch::parse(&settings).unwrap()).await.unwrap();
    let session = workspace.session("s");
    session.append(long()).await.unwrap();
    session
}

/// Waits for something to become true, while time passes.
async fn while_time_passes<F: Future<Output = bool>>(home: &Home, what: &str, mut check: impl FnMut() -> F) {
    wait_until(what, || {
        home.clock.pass(Duration::from_millis(3));
        check()
    })
    .await;
}

async fn writer(session: &Session) -> Option<String> {
    current_summary(session, "short").await.map(|summary| summary.model)
}

/// Checks that the summary was written once, by that model, without a failure.
async fn assert_written_at_once(session: &Session, model: &str) {
    let all = history(session, "short").await;
    assert_eq!(all.iter().map(|summary| summary.model.as_str()).collect::<Vec<_>>(), [model]);
    let slot = slot(session, "short").await;
    assert_eq!((slot.attempts, slot.last_error, slot.not_before, slot.failing_since), (0, None, None, None));
    let usage = session.usage().await.unwrap();
    let calls: Vec<_> =
        usage.iter().map(|sum| (sum.model.as_str(), sum.outcome.as_str(), sum.calls)).collect();
    assert_eq!(calls, [(model, "kept", 1)]);
}

/// Sessions of eight workspaces that are due by the slow model, by both of its names.
async fn crowd(engine: &Engine) -> Vec<Session> {
    let mut slow = Vec::new();
    for (n, name) in ["slow", "again"].into_iter().cycle().take(8).enumerate() {
        slow.push(due(engine, &format!("w{n}"), &[name]).await);
    }
    slow
}

/// The same, and an engine whose four workers wait for it.
async fn waiting(home: &Home, provider: &Provider) -> (Engine, Engine) {
    let filling = home.open(builder(provider)).await;
    crowd(&filling).await;
    let four = home.open(builder(provider).pace(fast_pace(4))).await;
    wait_until("it keeps four workers waiting", || async { provider.calls_of("slow") == 4 }).await;
    (filling, four)
}

/// A session without work in progress.
async fn idle(engine: &Engine) -> Session {
    for n in 0..8 {
        let session = engine.workspace(format!("w{n}")).session("s");
        if slot(&session, "short").await.owner.is_none() {
            return session;
        }
    }
    panic!("all of them are worked on");
}

async fn all_are_done(home: &Home, filling: &Engine) {
    while_time_passes(home, "all is done", || async {
        let left = filling.backlog().await.unwrap();
        left.due + left.working + left.waiting == 0
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_model_of_many_workspaces_does_not_delay_summaries_of_other_models() {
    let (home, provider) = (Home::file(), provider().await);
    let filling = home.open(builder(&provider)).await;
    let slow = crowd(&filling).await;
    // They come last, in time and in turn.
    let other = due(&filling, "x", &["quick"]).await;
    let local = due(&filling, "y", &["local"]).await;
    let four = home.open(builder(&provider).pace(fast_pace(4))).await;
    while_time_passes(&home, "both others", || async {
        writer(&other).await.is_some() && writer(&local).await.is_some()
    })
    .await;
    assert!(provider.calls_of("slow") <= 4, "there is room for others");
    for session in &slow {
        assert_eq!(writer(session).await, None, "it still hangs");
    }
    provider.release();
    all_are_done(&home, &filling).await;
    for session in &slow {
        assert_written_at_once(session, "slow").await;
    }
    assert_written_at_once(&other, "quick").await;
    assert_written_at_once(&local, "local").await;
    assert_eq!(provider.calls_of("slow"), 8, "nobody was asked twice");
    four.close().await;
    assert_eq!(filling.verify().await.unwrap(), []);
    filling.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_a_permit_is_not_reported_as_a_failure() {
    let (home, provider) = (Home::file(), provider().await);
    let (filling, four) = waiting(&home, &provider).await;
    let idle = idle(&four).await;
    idle.append(Message::user("What about the other one?")).await.unwrap();
    let asked = tokio::spawn(async move { idle.summarize(Summarize::default()).await });
    // Longer than one deferral.
    let then = home.clock.now().0 + 3_000;
    while_time_passes(&home, "three seconds", || async { home.clock.now().0 > then }).await;
    assert!(!asked.is_finished(), "{:?}", asked.await);
    provider.release();
    while_time_passes(&home, "it is written", || async { asked.is_finished() }).await;
    assert!(matches!(asked.await.unwrap(), Ok(Summarized::Written { .. })));
    all_are_done(&home, &filling).await;
    four.close().await;
    assert_eq!(filling.verify().await.unwrap(), []);
    filling.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_who_works_in_its_own_task_needs_no_permit() {
    let (home, provider) = (Home::file(), provider().await);
    let (filling, four) = waiting(&home, &provider).await;
    let session = idle(&four).await;
    let working = tokio::spawn({
        let session = session.clone();
        async move { session.work().await }
    });
    while_time_passes(&home, "it asks all the same", || async { provider.calls_of("slow") == 5 }).await;
    assert!(!working.is_finished());
    provider.release();
    within_timeout("it is written", working).await.unwrap().unwrap();
    assert_written_at_once(&session, "slow").await;
    all_are_done(&home, &filling).await;
    four.close().await;
    filling.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_worker_waits_for_its_model() {
    let (home, provider) = (Home::file(), provider().await);
    let one = home.open(builder(&provider).pace(fast_pace(1))).await;
    let session = due(&one, "w", &["slow"]).await;
    wait_until("it asks", || async { provider.calls_of("slow") == 1 }).await;
    provider.release();
    wait_until("it is written", || async { writer(&session).await.is_some() }).await;
    assert_written_at_once(&session, "slow").await;
    one.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cost_of_the_first_model_is_recorded_once_while_the_next_has_no_permit() {
    let (home, provider) = (Home::file(), provider().await);
    let (filling, four) = waiting(&home, &provider).await;
    let session = due(&four, "x", &["picky", "slow", "quick"]).await;
    // The clock does not move, so every retry is too early.
    wait_until("it was tried", || async { slot(&session, "short").await.attempts == 1 }).await;
    let told = slot(&session, "short").await;
    assert!(told.not_before.is_some() && told.last_error.is_some(), "{told:?}");
    // One that comes later has its turn, so the first had its turn again if it could.
    let other = due(&four, "y", &["quick"]).await;
    wait_until("another", || async { writer(&other).await.is_some() }).await;
    assert_eq!(
        (provider.calls_of("picky"), provider.calls_of("quick")),
        (2, 1),
        "asked twice, with the reason"
    );
    let usage = session.usage().await.unwrap();
    assert_eq!(usage.iter().map(|sum| (sum.model.as_str(), sum.calls)).collect::<Vec<_>>(), [("picky", 2)]);
    provider.release();
    home.clock.pass(MINUTE);
    within_timeout("all is done", all_are_done(&home, &filling)).await;
    assert_eq!(writer(&session).await.as_deref(), Some("slow"));
    four.close().await;
    assert_eq!(filling.verify().await.unwrap(), []);
    filling.close().await;
}
