//! Faults that were found in review, and that no earlier test covered.

use std::time::Duration;

use epitome::model::{ModelError, Reply};
use epitome::rules::message::{Media, MediaSource, Message, Part, Role};
use epitome::settings::Patch;
use epitome::{Engine, Error, Flags, Pace, Summarize, Summarized};
use epitome_testkit::scripted::{Gate, Scripted};

use crate::support::{
    Home, current_summary, on_every_store, one_slot, prompt_messages, shown, slot, talk, times, wait_until,
    with_settings,
};

#[tokio::test]
async fn a_summary_of_a_deleted_session_is_never_stored_in_a_new_session_of_its_name() {
    on_every_store(async |home| {
        let (first, second) = (Gate::new(), Gate::new());
        let told = "THE OLD PLAN. Orders 10071 to 200071 in Oslo were looked at; carriers deliver on Monday.";
        let model =
            Scripted::new().waits_for(&first).answers(move |_| Ok(Reply::complete(told))).waits_for(&second);
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        let work = || {
            let session = session.clone();
            tokio::spawn(async move { session.work().await })
        };
        session.append(talk(1, 20)).await.unwrap();
        let old = work();
        first.reached().await;
        assert!(session.delete().await.unwrap());
        session.append(talk(1, 20)).await.unwrap();
        let new = work();
        second.reached().await;
        first.open();
        // The cost of the discarded summary is recorded when its worker finds that the session is deleted.
        wait_until("what the old one cost", || async { !session.usage().await.unwrap().is_empty() }).await;
        assert_eq!(session.summaries().await.unwrap(), []);
        second.open();
        old.await.unwrap().unwrap();
        new.await.unwrap().unwrap();
        assert!(!current_summary(&session, "short").await.unwrap().text.contains("OLD PLAN"));
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_window_with_more_outlines_than_one_read_is_summarized_completely() {
    let settings = r#"{"slot": [{"name": "all", "auto": false}]}"#;
    let engine = Home::memory().open(Engine::builder().workers(0).settings(settings)).await;
    let session = engine.session("s");
    for batch in 0..21 {
        let words = (0..1_000).map(|n| Message::user(format!("q{}", batch * 1_000 + n)));
        session.append(words.collect::<Vec<_>>()).await.unwrap();
    }
    let written = session.summarize(Summarize::slot("all")).await.unwrap();
    assert_eq!(written.summary().unwrap().through, 21_000);
    assert!(session.rebuild(None, "all").await.unwrap());
    session.work().await.unwrap();
    let rebuilt = current_summary(&session, "all").await.unwrap();
    assert_eq!((rebuilt.through, rebuilt.parent), (21_000, Some(written.summary().unwrap().id)));
}

#[tokio::test]
async fn the_skip_flag_cannot_be_removed_under_a_summary_written_without_the_message() {
    let model = Scripted::new();
    let engine = Home::memory().open(one_slot(&model)).await;
    let session = engine.session("s");
    let mut messages = talk(1, 21);
    messages[4].skip = true;
    session.append(messages).await.unwrap();
    session.work().await.unwrap();
    let covers = current_summary(&session, "short").await.unwrap();
    assert!(covers.through > 5 && !prompt_messages(&model.requests()[0]).contains(&5));
    let refused = session.flag(5, Flags { skip: Some(false), ..Flags::default() }).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Conflict(why) if why.contains("undo the slot's summaries first")),
        "{refused}"
    );
    // Pinned it is shown, and once nothing covers it, it may be taken back.
    session.flag(5, Flags { pinned: Some(true), ..Flags::default() }).await.unwrap();
    assert!(shown(&session.context(4_000).await.unwrap()).contains(&5));
    session.undo(covers.id).await.unwrap();
    session.flag(5, Flags { skip: Some(false), ..Flags::default() }).await.unwrap();
    assert_eq!(session.info().await.unwrap().skipped, 0);
}

#[tokio::test]
async fn an_unreadable_message_is_reported_and_retried_with_backoff() {
    let home = Home::file();
    let engine = home.open(one_slot(&Scripted::new()).workers(0)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    home.sql("UPDATE messages SET body = '{' WHERE seq = 3");
    let refused = session.summarize(Summarize::slot("short")).await.unwrap_err();
    assert!(!matches!(refused, Error::NotFound { .. }), "{refused}");
    let told = slot(&session, "short").await;
    assert_eq!(told.attempts, 1);
    assert!(told.last_error.is_some() && told.not_before.is_some() && told.owner.is_none());
}

#[tokio::test]
async fn an_engine_does_not_discard_trigger_events_of_another_engines_slot() {
    let home = Home::file();
    let model = Scripted::new();
    let here =
        home.open(with_settings(&model, r#", "slot": [{"name": "notes", "trigger": "messages(20)"}]"#)).await;
    let session = here.session("s");
    session.append(talk(1, 20)).await.unwrap();
    let beside = home.open(Engine::builder().workers(0)).await;
    beside.work().await.unwrap();
    assert_eq!(slot(&session, "notes").await.due, Some(20));
    here.work().await.unwrap();
    assert_eq!(current_summary(&session, "notes").await.unwrap().through, 20);
}

#[tokio::test]
async fn a_model_missing_in_one_engine_is_not_counted_as_a_failure_of_the_model() {
    let home = Home::file();
    let model = Scripted::new();
    let here = home.open(one_slot(&model)).await;
    let document = r#"{"slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["main"], "stand_in_after": "0s"}}"#;
    here.workspace("default").set(&Patch::parse(document).unwrap()).await.unwrap();
    let session = here.session("s");
    session.append(talk(1, 20)).await.unwrap();
    home.open(Engine::builder().workers(0)).await.work().await.unwrap();
    assert_eq!((slot(&session, "short").await.attempts, session.summaries().await.unwrap()), (0, vec![]));
    here.work().await.unwrap();
    assert_eq!((model.calls(), current_summary(&session, "short").await.unwrap().stand_in), (1, false));
}

#[tokio::test]
async fn a_busy_model_is_called_once_per_window_even_if_the_window_is_divided_for_another() {
    let home = Home::memory();
    let wait = Duration::from_secs(60);
    let busy = Scripted::new().named("busy").otherwise_fails(ModelError::Busy { retry_after: Some(wait) });
    let small =
        Scripted::new().named("small").otherwise_fails(ModelError::TooLong { sent: 9_000, limit: None });
    let document = r#"{"slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["small", "busy"], "stand_in_after": "never"}}"#;
    let builder = Engine::builder().model("small", small.clone()).model("busy", busy.clone());
    let engine = home.open(builder.settings(document).workers(0)).await;
    let session = engine.session("s");
    session.append(talk(1, 100)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!(busy.calls(), 1);
    assert!(small.calls() < 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_concurrent_settings_changes_are_both_stored() {
    for _ in 0..20 {
        let engine = Home::memory().open(Engine::builder().workers(0)).await;
        let set = |document: &'static str| {
            let workspace = engine.workspace("w");
            tokio::spawn(async move { workspace.set(&Patch::parse(document).unwrap()).await.unwrap() })
        };
        let one = set(r#"{"context": {"max_tokens": 5000}}"#);
        let two = set(r#"{"summarize": {"stand_in_after": "never"}}"#);
        one.await.unwrap();
        two.await.unwrap();
        let stored = engine.workspace("w").patch().await.unwrap().document();
        assert!(stored.contains("5000") && stored.contains("never"), "{stored}");
    }
}

#[tokio::test]
async fn a_session_can_be_configured_after_its_workspace_changed_the_encoding() {
    let engine = Home::memory().open(Engine::builder().workers(0)).await;
    let workspace = engine.workspace("w");
    let session = workspace.session("s");
    session.append(talk(1, 3)).await.unwrap();
    workspace.set(&Patch::parse(r#"{"encoding": "cl100k_base"}"#).unwrap()).await.unwrap();
    session.set(&Patch::parse(r#"{"context": {"max_tokens": 5000}}"#).unwrap()).await.unwrap();
    session.append(talk(4, 6)).await.unwrap();
    assert_eq!(session.info().await.unwrap().encoding, "o200k_base");
    let refused = session.set(&Patch::parse(r#"{"encoding": "cl100k_base"}"#).unwrap()).await.unwrap_err();
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
}

#[tokio::test]
async fn a_search_under_an_authors_summary_finds_only_that_authors_messages() {
    let model = Scripted::new();
    let more = r#", "slot": [{"name": "own", "scope": "ann", "trigger": "messages(10)"}]"#;
    let engine = Home::memory().open(with_settings(&model, more)).await;
    let session = engine.session("s");
    let mut messages = talk(1, 24);
    for (n, message) in messages.iter_mut().enumerate() {
        message.author = Some(if n % 2 == 0 { "ann" } else { "bob" }.into());
    }
    session.append(messages).await.unwrap();
    session.work().await.unwrap();
    let own = session.summaries().await.unwrap().remove(0);
    // Only Bob speaks of carriers, and only Ann of parcels.
    assert_eq!(session.search("carrier", Some(own.id), None, 50).await.unwrap().items, []);
    let found = session.search("parcel", Some(own.id), None, 50).await.unwrap();
    assert_eq!(found.len(), 10);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_concurrent_work_calls_both_return_after_the_summary_is_stored() {
    for _ in 0..times(20) {
        let model = Scripted::new().otherwise(|ask| {
            std::thread::sleep(Duration::from_millis(3));
            Ok(Scripted::plain(ask))
        });
        let engine = Home::memory().open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 20)).await.unwrap();
        let work = || {
            let (engine, session) = (engine.clone(), session.clone());
            tokio::spawn(async move {
                engine.work().await.unwrap();
                current_summary(&session, "short").await.is_some()
            })
        };
        let (one, two) = (work(), work());
        assert!(one.await.unwrap() && two.await.unwrap());
    }
}

#[tokio::test]
async fn a_focus_set_during_a_summary_is_used_by_the_next_one() {
    let gate = Gate::new();
    let model = Scripted::new().waits_for(&gate);
    let engine = Home::memory().open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    let working = {
        let session = session.clone();
        tokio::spawn(async move { session.work().await })
    };
    gate.reached().await;
    let wish = Summarize { focus: Some("refunds".into()), ..Summarize::slot("short") };
    let asked = session.summarize(wish).await.unwrap();
    assert!(matches!(&asked, Summarized::Written { summary } if summary.focus.as_deref() == Some("refunds")));
    gate.open();
    working.await.unwrap().unwrap();
    assert_eq!(session.history(None, 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn the_queue_counts_all_due_slots_although_it_lists_only_some() {
    let settings = r#"{"slot": [{"name": "a", "trigger": "messages(1)"}]}"#;
    let engine = Home::memory().open(Engine::builder().workers(0).settings(settings)).await;
    for n in 0..1_005 {
        engine.session(format!("s{n}")).append(Message::user("hello there")).await.unwrap();
    }
    let queue = engine.workspace("default").queue().await.unwrap();
    assert_eq!((queue.due, queue.slots.len()), (1_005, 1_000));
}

#[tokio::test]
async fn a_models_error_text_is_shortened_and_redacted() {
    let home = Home::memory();
    let reason =
        format!("401 for Authorization: Bearer sk-live-{} {}", "a1B2c3D4".repeat(6), "x".repeat(4_000));
    let model = Scripted::new().otherwise_fails(ModelError::Refused { reason });
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    let told = slot(&session, "short").await.last_error.unwrap();
    assert!(told.len() < 400 && !told.contains("a1B2c3D4"), "{told}");
}

#[tokio::test]
async fn image_bytes_are_not_sent_to_the_summarizer() {
    let model = Scripted::new();
    let engine = Home::memory().open(one_slot(&model)).await;
    let session = engine.session("s");
    let source = MediaSource::Base64("iVBORw0KGgo".repeat(1_000));
    let picture = Part::Media(Media { mime: "image/png".to_owned(), source, size: Some((64, 64)) });
    let mut messages = talk(1, 20);
    messages[2] = Message::new(Role::User, [Part::text("Look at order 30071 here, please."), picture]);
    session.append(messages.clone()).await.unwrap();
    session.work().await.unwrap();
    let asked = format!("{:?}", model.requests()[0]);
    assert!(asked.contains("Look at order 30071") && !asked.contains("iVBORw0KGgo"));
    let stored =
        session.messages(epitome::Page { after: Some(2), limit: 1, ..Default::default() }).await.unwrap();
    assert_eq!(stored[0].parts, messages[2].parts);
}

/// So that the pace of tests is named where it is used.
#[test]
fn defaults_are_those_of_the_design() {
    let pace = Pace::default();
    assert_eq!((pace.lease, pace.renew), (Duration::from_secs(30), Duration::from_secs(10)));
    assert_eq!((pace.backoff.initial, pace.backoff.max), (Duration::from_secs(1), Duration::from_secs(300)));
}

#[tokio::test]
async fn every_engine_counts_a_session_with_its_own_encoding() {
    let home = Home::file();
    let here = home.open(Engine::builder().workers(0)).await;
    let beside = home.open(Engine::builder().workers(0).settings(r#"{"encoding": "cl100k_base"}"#)).await;
    let words = || Message::user("Посылка ещё не пришла; напишите клиентке в Осло, пожалуйста.");
    for first in [&here, &beside] {
        let name = if std::ptr::eq(first, &here) { "here" } else { "beside" };
        first.session(name).append(words()).await.unwrap();
        let once = first.session(name).info().await.unwrap();
        for engine in [&here, &beside, &here] {
            engine.session(name).append(words()).await.unwrap();
        }
        let all = first.session(name).info().await.unwrap();
        assert_eq!((all.tokens, &all.encoding), (once.tokens * 4, &once.encoding));
    }
    let tokens = async |name: &str| here.session(name).info().await.unwrap().tokens;
    assert_ne!(tokens("here").await, tokens("beside").await, "it makes a difference");
}
