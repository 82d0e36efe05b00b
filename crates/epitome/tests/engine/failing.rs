//! Models that fail, and models that return unusable answers.

use std::time::Duration;

use epitome::model::{ModelError, Reply};
use epitome::rules::inspect::Refusal;
use epitome::rules::message::{Message, Timestamp};
use epitome::{Engine, Error, Fork, Session, SlotStatus, Summarize, Summarized};
use epitome_testkit::scripted::Scripted;

use crate::support::{
    Home, MINUTE, assert_complete, coverage, current_summary, history, on_every_store, one_slot,
    prompt_messages, slot, span, talk, times, with_settings, within_timeout,
};

pub(crate) fn down() -> ModelError {
    ModelError::no_answer("connection refused")
}

/// An engine with one slot, and with this `stand_in_after`.
async fn with_fallback(home: &Home, model: &Scripted, after: &str) -> (Engine, Session) {
    let more = format!(
        r#", "slot": [{{"name": "short", "trigger": "messages(20)"}}],
            "summarize": {{"models": ["main"], "stand_in_after": {after}}}"#
    );
    let engine = home.open(with_settings(model, &more)).await;
    let session = engine.session("s");
    (engine, session)
}

/// Works whenever it may be tried again, so often.
async fn retry_when_due(home: &Home, session: &Session, times: usize) {
    for _ in 0..times {
        if let Some(then) = slot(session, "short").await.not_before {
            home.clock.set(then.max(home.clock.now()));
        }
        session.work().await.unwrap();
    }
}

#[tokio::test]
async fn a_failing_model_loses_no_window_and_contexts_stay_complete() {
    on_every_store(async |home| {
        let model = Scripted::new().fails(down()).fails(down()).fails(down());
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        for upto in [20, 40, 60] {
            session.append(talk(upto - 19, upto)).await.unwrap();
            retry_when_due(&home, &session, 1).await;
            assert_eq!(coverage(&session, "short").await, [0; 0]);
            let context = session.context(8_000).await.unwrap();
            assert!(context.summary.is_none());
            assert_complete(&context, upto as u64);
        }
        let failing = slot(&session, "short").await;
        assert_eq!((failing.status, failing.attempts, failing.due), (SlotStatus::Waiting, 3, Some(20)));
        assert_eq!(failing.last_error.as_deref(), Some("no answer from the model: connection refused"));
        retry_when_due(&home, &session, 1).await;
        assert_eq!(coverage(&session, "short").await, [20, 40, 60]);
        let asks = model.requests();
        assert!(asks[..4].iter().all(|ask| prompt_messages(ask) == span(1, 20) && ask.previous.is_none()));
        assert_eq!((prompt_messages(&asks[4]), prompt_messages(&asks[5])), (span(21, 40), span(41, 60)));
        assert_complete(&session.context(4_000).await.unwrap(), 60);
        let well = slot(&session, "short").await;
        assert_eq!((well.status, well.attempts, well.last_error), (SlotStatus::Idle, 0, None));
    })
    .await;
}

#[tokio::test]
async fn an_unusable_answer_changes_nothing_and_its_cause_is_visible() {
    let words = |count: usize| (0..count).map(|n| format!("thing{n} ")).collect::<String>();
    let rubbish: [(&str, Reply, &str); 7] = [
        ("empty", Reply::complete("  \n"), "it contained no summary"),
        ("error_page", Reply::complete("<html><body>502 Bad Gateway</body></html>"), "error message"),
        ("declined", Reply::complete("I'm sorry, but I can't help with that request."), "it declined"),
        (
            "loops",
            Reply::complete("The parcel has not arrived yet and she was told. ".repeat(14)),
            "again and again",
        ),
        ("too_long_answer", Reply::complete(words(900)), "at most 1000 are allowed"),
        ("not_smaller", Reply::complete(words(420)), "should replace"),
        (
            "cut_off",
            Reply { finish: epitome::rules::inspect::Finish::Length, ..Reply::complete("Ann ordered") },
            "it was cut off",
        ),
    ];
    for (outcome, reply, cause) in rubbish {
        let home = Home::memory();
        let model = Scripted::new()
            .replies("The customers in Oslo ask for their parcels, one order after the other.");
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 20)).await.unwrap();
        session.work().await.unwrap();
        let before = current_summary(&session, "short").await.unwrap();
        let said_again = reply.clone();
        let _ = model.clone().answers(move |_| Ok(reply.clone())).answers(move |_| Ok(said_again.clone()));
        session.append(talk(21, 40)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(current_summary(&session, "short").await.unwrap(), before, "{outcome}");
        assert_eq!(history(&session, "short").await.len(), 1);
        let told = slot(&session, "short").await;
        assert!(told.last_error.as_deref().unwrap().contains(cause), "{outcome}: {:?}", told.last_error);
        assert!(told.why.contains(cause), "{}", told.why);
        let usage = session.usage().await.unwrap();
        let row =
            usage.iter().find(|row| row.outcome == outcome).unwrap_or_else(|| panic!("{outcome}: {usage:?}"));
        assert_eq!((row.calls, model.calls()), (2, 3), "once more, with the reason");
        let asks = model.requests();
        assert!(asks[1].refused.is_none() && asks[2].refused.is_some());
        assert!(asks[2].prompt(20_000).unwrap().user.contains("The last answer was refused"));
        assert_complete(&session.context(4_000).await.unwrap(), 40);
        // And then it is summed up after all.
        retry_when_due(&home, &session, 1).await;
        assert_eq!(coverage(&session, "short").await, [20, 40]);
    }
}

#[tokio::test]
async fn a_rejected_answer_is_requested_a_second_time() {
    let home = Home::memory();
    let model = Scripted::new().cut_off("Ann ord").replies("Customers in Oslo ask where their parcels are.");
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!(model.requests()[1].refused, Some(Refusal::CutOff));
    let summary = current_summary(&session, "short").await.unwrap();
    assert!(summary.text.starts_with("Customers in Oslo"));
    assert_eq!(slot(&session, "short").await.last_error, None);
}

#[tokio::test]
async fn the_next_model_is_called_after_the_first_one_failed() {
    let home = Home::memory();
    let first = Scripted::new().named("first").otherwise(|_| Ok(Reply::complete("")));
    let second = Scripted::new().named("second").otherwise_fails(ModelError::refused("no credit"));
    let third = Scripted::new().named("third");
    let builder = Engine::builder()
        .model("one", first.clone())
        .model("two", second.clone())
        .model("three", third.clone())
        .settings(r#"{"summarize": {"models": ["one", "two", "three"]}}"#)
        .workers(0);
    let engine = home.open(builder).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!((first.calls(), second.calls(), third.calls()), (2, 1, 1));
    let summary = current_summary(&session, "short").await.unwrap();
    assert_eq!((summary.model.as_str(), summary.stand_in), ("third", false));
    assert_eq!(third.requests()[0].refused, None, "what the first was told is not the third's matter");
}

#[tokio::test]
async fn a_prompt_too_long_for_the_first_model_is_shortened_while_the_second_is_down() {
    let home = Home::memory();
    let first = Scripted::new().otherwise(|ask| match ask.message_count() {
        0..=18 => Ok(Scripted::plain(ask)),
        _ => Err(ModelError::TooLong { sent: ask.replaces, limit: None }),
    });
    let second = Scripted::new().named("second").otherwise_fails(down());
    let more = r#", "slot": [{"name": "short", "trigger": "messages(40)"}],
        "summarize": {"models": ["main", "second"], "stand_in_after": "never"}"#;
    let engine = home.open(with_settings(&first, more).model("second", second)).await;
    let session = engine.session("s");
    session.append(talk(1, 40)).await.unwrap();
    within_timeout("halving", session.work()).await.unwrap();
    let all = coverage(&session, "short").await;
    assert_eq!(all.last(), Some(&40), "{all:?}: {:?}", slot(&session, "short").await.last_error);
}

#[tokio::test]
async fn one_message_too_long_for_the_model_is_reported_and_not_retried_at_once() {
    let home = Home::memory();
    let model = Scripted::new().otherwise_fails(ModelError::TooLong { sent: 9_000, limit: None });
    let engine =
        home.open(with_settings(&model, r#", "slot": [{"name": "short", "trigger": "messages(1)"}]"#)).await;
    let session = engine.session("s");
    let words: String = (0..3_000).map(|n| format!("thing{n} ")).collect();
    session.append(Message::user(words)).await.unwrap();
    within_timeout("asking", session.work()).await.unwrap();
    assert_eq!(model.calls(), 1, "no cut divides it");
    let told = slot(&session, "short").await;
    assert_eq!(told.status, SlotStatus::Waiting);
    assert!(told.last_error.unwrap().contains("too long for the model"));
}

#[tokio::test]
async fn a_window_too_long_for_the_model_is_summarized_in_halves_under_one_lease() {
    on_every_store(async |home| {
        let model = Scripted::new().with_room(2_600);
        let engine = home
            .open(with_settings(&model, r#", "slot": [{"name": "short", "trigger": "messages(60)"}]"#))
            .await;
        let session = engine.session("s");
        session.append(talk(1, 60)).await.unwrap();
        session.work().await.unwrap();
        let all = history(&session, "short").await;
        assert!(all.len() > 1 && all.last().unwrap().through == 60);
        assert!(all.iter().all(|summary| summary.fired_at == 60));
        let read: Vec<u64> = model.requests().iter().flat_map(prompt_messages).collect();
        assert_eq!(read, span(1, 60), "in order, each once");
    })
    .await;
}

#[tokio::test]
async fn without_a_fallback_the_summary_is_late_until_the_model_answers() {
    let home = Home::memory();
    let model = Scripted::new().otherwise_fails(down());
    let (_engine, session) = with_fallback(&home, &model, "\"never\"").await;
    session.append(talk(1, 20)).await.unwrap();
    let start = home.clock.now();
    while home.clock.now().0 - start.0 < times(3 * 24) as i64 * 3_600_000 {
        retry_when_due(&home, &session, 1).await;
    }
    assert_eq!(history(&session, "short").await, []);
    assert_complete(&session.context(4_000).await.unwrap(), 20);
    let _ = model.clone().otherwise(|ask| Ok(Scripted::plain(ask)));
    retry_when_due(&home, &session, 1).await;
    assert_eq!(coverage(&session, "short").await, [20]);
}

#[tokio::test]
async fn with_0_local_stands_in_at_once_and_says_so() {
    on_every_store(async |home| {
        let model = Scripted::new().otherwise_fails(down());
        let (_engine, session) = with_fallback(&home, &model, "0").await;
        session.append(talk(1, 40)).await.unwrap();
        session.work().await.unwrap();
        let all = history(&session, "short").await;
        assert_eq!(all.iter().map(|summary| summary.through).collect::<Vec<_>>(), [20, 40]);
        assert!(all.iter().all(|summary| summary.stand_in && summary.model == "local"));
        let context = session.context(4_000).await.unwrap();
        assert!(context.summary.as_ref().unwrap().stand_in);
        assert_complete(&context, 40);
        let told = slot(&session, "short").await;
        assert_eq!((told.status, told.due), (SlotStatus::Idle, None));
        assert!(told.last_error.unwrap().contains("connection refused"));
        assert!(told.failing_since.is_some());
    })
    .await;
}

#[tokio::test]
async fn by_default_local_writes_a_fallback_after_ten_minutes_of_failures() {
    let home = Home::memory();
    let model = Scripted::new().otherwise_fails(down());
    let (_engine, session) = with_fallback(&home, &model, "\"10m\"").await;
    session.append(talk(1, 20)).await.unwrap();
    let start = home.clock.now();
    let mut tries = 0;
    while current_summary(&session, "short").await.is_none() {
        assert!(home.clock.now().0 - start.0 < 600_000, "not in time");
        retry_when_due(&home, &session, 1).await;
        tries += 1;
    }
    assert_eq!(home.clock.now().0 - start.0, 600_000);
    assert!(tries < 20, "{tries}");
    assert!(current_summary(&session, "short").await.unwrap().stand_in);
    // The model still fails: the next window does not wait for another ten minutes.
    session.append(talk(21, 40)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!(coverage(&session, "short").await, [20, 40]);
}

/// A summary of 1..=20 by the model, a fallback of 21..=40, then the model works again, and 41..=60 are appended.
async fn stood_in(home: &Home, model: &Scripted) -> (Engine, Session) {
    let _ = model.clone().replies("Customers in Oslo ask for parcels.").fails(down());
    let (engine, session) = with_fallback(home, model, "0").await;
    session.append(talk(1, 40)).await.unwrap();
    session.work().await.unwrap();
    let all = history(&session, "short").await;
    assert_eq!(all.iter().map(|s| (s.through, s.stand_in)).collect::<Vec<_>>(), [(20, false), (40, true)]);
    session.append(talk(41, 60)).await.unwrap();
    (engine, session)
}

#[tokio::test]
async fn after_a_fallback_the_model_gets_its_last_summary_and_all_messages_since() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let (_engine, session) = stood_in(&home, &model).await;
        session.work().await.unwrap();
        let all = history(&session, "short").await;
        let [real, stand_in, new] = &all[..] else { panic!("{all:?}") };
        let ask = model.requests().pop().unwrap();
        assert_eq!(ask.previous.as_deref(), Some(real.text.as_str()));
        assert_eq!(prompt_messages(&ask), span(21, 60));
        assert_eq!((new.through, new.stand_in), (60, false));
        assert_eq!((new.built_on, new.parent), (Some(real.id), Some(stand_in.id)));
        assert_eq!(slot(&session, "short").await.last_error, None);
        // After an undo the fallback is current again.
        assert_eq!(session.undo(new.id).await.unwrap().unwrap().id, stand_in.id);
    })
    .await;
}

#[tokio::test]
async fn a_long_backlog_is_summarized_in_steps_and_stored_only_when_it_passes_the_fallback() {
    on_every_store(async |home| {
        // Twenty messages fit a prompt; ten fit next to a summary.
        let model = Scripted::new().with_room(2_560);
        let (_engine, session) = stood_in(&home, &model).await;
        let before = model.calls();
        session.work().await.unwrap();
        let asks = model.requests().split_off(before);
        assert_eq!(asks.iter().flat_map(prompt_messages).collect::<Vec<_>>(), span(21, 60));
        assert!(asks.len() > 2 && asks[0].through < 40, "the first step falls short of the stand-in");
        let all = history(&session, "short").await;
        let kept: Vec<_> = all.iter().filter(|s| !s.stand_in).map(|s| s.through).collect();
        assert!(kept[1..].iter().all(|through| *through >= 40), "{kept:?}");
        assert_eq!(kept.last(), Some(&60));
        let steps: Vec<String> = asks.iter().map(|ask| Scripted::plain(ask).text).collect();
        let built: Vec<&str> = asks.iter().filter_map(|ask| ask.previous.as_deref()).collect();
        assert!(built[1].starts_with(&steps[0]), "each step is built on the one before");
    })
    .await;
}

#[tokio::test]
async fn steps_that_fail_half_way_leave_the_fallback_unchanged() {
    let home = Home::memory();
    let model = Scripted::new().with_room(2_560);
    let (_engine, session) = stood_in(&home, &model).await;
    let before = current_summary(&session, "short").await.unwrap();
    let _ = model.clone().answers(|ask| Ok(Scripted::plain(ask))).fails(down());
    session.work().await.unwrap();
    let all = history(&session, "short").await;
    // `local` writes a fallback for the new window as well; nothing of the failed steps is stored.
    assert!(all[1..].iter().all(|summary| summary.stand_in), "{all:?}");
    assert_eq!(all[1].text, before.text);
    let usage = session.usage().await.unwrap();
    assert!(
        usage.iter().all(|row| row.outcome != "kept" || row.model == "local" || row.calls == 1),
        "{usage:?}"
    );
}

#[tokio::test]
async fn a_forced_summary_replaces_a_fallback_without_new_messages() {
    let home = Home::memory();
    let model = Scripted::new().fails(down());
    let (_engine, session) = with_fallback(&home, &model, "0").await;
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    assert!(current_summary(&session, "short").await.unwrap().stand_in);
    // While the model fails, the fallback stays, and a waiting caller gets the reason.
    let _ = model.clone().fails(down());
    let failed = within_timeout("forcing", session.summarize(Summarize::default())).await;
    assert!(matches!(failed, Err(Error::Model { .. })), "{failed:?}");
    assert_eq!(coverage(&session, "short").await, [20]);
    let done = session.summarize(Summarize::default()).await.unwrap();
    let Summarized::Written { summary } = done else { panic!("{done:?}") };
    assert_eq!((summary.through, summary.stand_in, summary.model.as_str()), (20, false, "scripted"));
    let again = session.summarize(Summarize::default()).await.unwrap();
    assert!(matches!(again, Summarized::NothingNew { .. }));
}

#[tokio::test]
async fn retry_after_of_a_provider_is_respected() {
    let home = Home::memory();
    let model = Scripted::new().fails(ModelError::Busy { retry_after: Some(Duration::from_secs(45)) });
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    let then = slot(&session, "short").await.not_before.unwrap();
    let least = home.clock.now().0 + 45_000;
    assert!(then >= Timestamp(least) && then.0 < least + 1_000);
    home.clock.set(Timestamp(least - 1));
    session.work().await.unwrap();
    assert_eq!(model.calls(), 1);
    home.clock.pass(MINUTE);
    session.work().await.unwrap();
    assert_eq!(coverage(&session, "short").await, [20]);
}

#[tokio::test]
async fn a_panicking_model_is_retried_like_any_failure() {
    let home = Home::memory();
    let model =
        Scripted::new().answers(|_| panic!("a fault of the caller's own")).answers(|_| panic!("and again"));
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    let failed = slot(&session, "short").await;
    assert_eq!((failed.status, failed.attempts), (SlotStatus::Waiting, 1));
    assert!(failed.why.contains("the model panicked"), "{}", failed.why);
    home.clock.pass(MINUTE);
    session.work().await.unwrap();
    assert_eq!(slot(&session, "short").await.attempts, 2);
    home.clock.pass(MINUTE);
    session.work().await.unwrap();
    assert_eq!(coverage(&session, "short").await, [20]);
}

#[tokio::test]
async fn in_a_fork_the_model_builds_on_its_last_summary_and_not_on_the_fallback() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let (_engine, session) = stood_in(&home, &model).await;
        let real = history(&session, "short").await.remove(0);
        let fork = session.fork(Fork::whole("copy")).await.unwrap();
        fork.work().await.unwrap();
        let ask = model.requests().pop().unwrap();
        assert_eq!(ask.previous.as_deref(), Some(real.text.as_str()));
        assert_eq!(prompt_messages(&ask), span(21, 60));
        let all = history(&fork, "short").await;
        let [real, stand_in, new] = &all[..] else { panic!("{all:?}") };
        assert_eq!((new.through, new.built_on, new.parent), (60, Some(real.id), Some(stand_in.id)));
    })
    .await;
}

#[tokio::test]
async fn retry_after_of_one_model_does_not_delay_the_others() {
    let home = Home::memory();
    let main =
        Scripted::new().named("main").fails(ModelError::Busy { retry_after: Some(Duration::from_secs(45)) });
    let more = r#", "slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["main", "other"], "stand_in_after": "never"}"#;
    let other = Scripted::new().named("other").fails(down());
    let engine = home.open(with_settings(&main, more).model("other", other.clone())).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    // The other model is called again soon and writes the summary; the first is not called before its retry-after.
    home.clock.pass(Duration::from_secs(5));
    session.work().await.unwrap();
    assert_eq!((main.calls(), other.calls()), (1, 2));
    let explained = slot(&session, "short").await;
    assert_eq!(current_summary(&session, "short").await.unwrap().model, "other");
    assert!(explained.why.contains("`main` wrote no summary: "), "and it is told: {}", explained.why);
}
