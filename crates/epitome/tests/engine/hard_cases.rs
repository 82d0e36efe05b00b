//! Ways in which others failed, and we do not: those that need a store and a worker. `docs/hard-cases.md` maps
//! each case to its tests.

use std::time::Duration;

use epitome::model::ModelError;
use epitome::rules::message::Message;
use epitome::store::SummaryState;
use epitome::{ContextRequest, Engine, Pace, Page, SlotStatus};
use epitome_testkit::scripted::{Gate, Scripted};

use crate::failing::down;
use crate::support::{
    Home, MINUTE, assert_complete, coverage, current_summary, engine_of_model, fast_pace, history,
    on_every_store, one_slot, prompt_messages, slot, span, talk, times, wait_until, within_timeout,
};

/// A doomed request is repeated ever more rarely, not again and again.
#[tokio::test]
async fn case_20_doomed_requests_are_made_ever_more_rarely() {
    let errors = [down(), ModelError::refused("no credit"), ModelError::Busy { retry_after: None }];
    for error in errors.into_iter().take(times(3)) {
        let home = Home::memory();
        let model = Scripted::new().otherwise_fails(error);
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 20)).await.unwrap();
        let (mut at, mut second) = (Vec::new(), 0);
        while second < 3_600 {
            // Asked to work several times a second, as a worker that is woken by every append.
            for _ in 0..times(3) {
                let before = model.calls();
                session.work().await.unwrap();
                at.extend((before..model.calls()).map(|_| second));
            }
            home.clock.pass(Duration::from_secs(1));
            second += 1;
        }
        assert!((10..40).contains(&at.len()), "{at:?}");
        let gaps: Vec<i32> = at.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert!(gaps.iter().all(|gap| *gap >= 1), "never two at once: {gaps:?}");
        assert!(gaps[..5].windows(2).all(|pair| pair[0] <= pair[1] + 1), "they grow: {gaps:?}");
        // From the fifth failure on the provider is not called for at least a minute.
        assert!(gaps[4..].iter().all(|gap| *gap >= 60), "the circuit is open: {gaps:?}");
        assert!(gaps.iter().skip(10).all(|gap| (150..=301).contains(gap)), "to five minutes: {gaps:?}");
        // The last second may have made it due.
        session.work().await.unwrap();
        assert_eq!(slot(&session, "short").await.status, SlotStatus::Waiting);
    }
}

#[tokio::test]
async fn case_20_what_is_too_long_is_never_sent_again_as_it_was() {
    let home = Home::memory();
    let model = Scripted::new().otherwise_fails(ModelError::TooLong { sent: 0, limit: None });
    let engine = home.open(engine_of_model(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 60)).await.unwrap();
    within_timeout("halving", session.work()).await.unwrap();
    let asked: Vec<(Vec<u64>, bool)> =
        model.requests().iter().map(|ask| (prompt_messages(ask), ask.previous.is_some())).collect();
    let mut once = asked.clone();
    once.dedup();
    assert_eq!(once, asked, "no two alike in a row");
    assert!(asked.len() < 12, "{}", asked.len());
}

#[tokio::test]
async fn case_27_a_network_blip_drops_no_message() {
    on_every_store(async |home| {
        let model = Scripted::new().otherwise_fails(ModelError::no_answer("connection reset"));
        let engine = home.open(engine_of_model(&model)).await;
        let session = engine.session("s");
        let log = talk(1, 124);
        for batch in log.chunks(10) {
            session.append(batch.to_vec()).await.unwrap();
            session.work().await.unwrap();
            let head = session.info().await.unwrap().messages;
            assert_complete(&session.context(50_000).await.unwrap(), head);
        }
        let stored = session.messages(Page { limit: 1_000, ..Page::default() }).await.unwrap();
        assert!(
            stored.len() == 124 && stored.iter().zip(&log).all(|(stored, said)| stored.parts == said.parts)
        );
        let _ = model.clone().otherwise(|ask| Ok(Scripted::plain(ask)));
        home.clock.pass(MINUTE * 11);
        session.work().await.unwrap();
        assert_eq!(coverage(&session, "short").await, [20, 40, 60, 80, 100, 120]);
        assert_eq!(coverage(&session, "long").await, [60, 120]);
        assert_complete(&session.context(4_000).await.unwrap(), 124);
    })
    .await;
}

#[tokio::test]
async fn case_35_a_failed_window_is_in_the_next_summary() {
    on_every_store(async |home| {
        let model = Scripted::new()
            .answers(|ask| Ok(Scripted::plain(ask)))
            .fails(down())
            .cut_off("Ann")
            .cut_off("Ann");
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        for upto in [20, 40, 60, 80] {
            session.append(talk(upto - 19, upto)).await.unwrap();
            session.work().await.unwrap();
            home.clock.pass(MINUTE * 11);
        }
        session.work().await.unwrap();
        assert_eq!(coverage(&session, "short").await, [20, 40, 60, 80]);
        let kept: Vec<Vec<u64>> = model.requests().iter().map(prompt_messages).collect();
        assert_eq!(kept.last(), Some(&span(61, 80)));
        assert!(kept.contains(&span(21, 40)));
    })
    .await;
}

#[tokio::test]
async fn case_42_what_condensing_spends_can_be_seen() {
    on_every_store(async |home| crate::usage::every_call_is_recorded(&home).await).await;
}

#[tokio::test]
async fn case_44_two_condensations_at_once_are_one() {
    on_every_store(async |home| crate::races::two_forced_at_once(&home).await).await;
    // Two engines on one file work at the same time.
    let home = Home::file();
    let models = [Scripted::new(), Scripted::new()];
    let engines = [
        home.open(engine_of_model(&models[0]).pace(fast_pace(2))).await,
        home.open(engine_of_model(&models[1]).pace(fast_pace(2))).await,
    ];
    let sessions = [engines[0].session("s"), engines[1].session("s")];
    for n in 0..10usize {
        sessions[n % 2].append(talk(n * 10 + 1, n * 10 + 10)).await.unwrap();
    }
    wait_until("both summaries", || async {
        coverage(&sessions[0], "short").await.last() == Some(&100)
            && !coverage(&sessions[1], "long").await.is_empty()
    })
    .await;
    assert_eq!(coverage(&sessions[0], "short").await, [20, 40, 60, 80, 100]);
    assert_eq!(coverage(&sessions[0], "long").await, [60]);
    assert_eq!(models[0].calls() + models[1].calls(), 6, "nothing was done twice");
    assert_complete(&sessions[1].context(4_000).await.unwrap(), 100);
    for engine in engines {
        engine.close().await;
    }
}

#[tokio::test]
async fn case_45_a_message_appended_during_the_call_is_not_lost() {
    on_every_store(async |home| crate::races::messages_appended_during_a_call(&home).await).await;
}

#[tokio::test]
async fn case_46_a_slow_worker_overwrites_nothing() {
    crate::races::overtaken(&Home::file()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_47_short_and_long_saved_at_once_are_both_stored() {
    crate::races::short_and_long_at_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_49_a_retried_append_adds_nothing() {
    crate::retries::retried_by_eight().await;
}

#[tokio::test]
async fn case_50_nothing_of_one_session_gets_into_another() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(one_slot(&model).hook(Nobody)).await;
        let names = [("red", "s"), ("red", "t"), ("blue", "s"), ("blue", "t")];
        let sessions: Vec<_> =
            names.iter().map(|(workspace, name)| engine.workspace(*workspace).session(*name)).collect();
        let mark = |at: usize| format!("mark{at}x");
        for round in 0..3usize {
            for (at, session) in sessions.iter().enumerate() {
                let mut batch = talk(round * 20 + 1, round * 20 + 20);
                for message in &mut batch {
                    message.parts.push(epitome::rules::message::Part::text(mark(at)));
                }
                batch[0] =
                    Message::user(format!("{} begins round {round} with order 10071 for Oslo.", mark(at)));
                session.append(batch).await.unwrap();
            }
            engine.work().await.unwrap();
        }
        for ask in model.requests() {
            let prompt = ask.prompt(50_000).unwrap().user;
            let named: Vec<usize> = (0..4).filter(|at| prompt.contains(&mark(*at))).collect();
            assert_eq!(named.len(), 1, "one session's words in one prompt");
        }
        for (at, session) in sessions.iter().enumerate() {
            let foreign = |text: &str| (0..4).any(|other| other != at && text.contains(&mark(other)));
            for tokens in [300, 5_000] {
                for as_of in [None, Some(25)] {
                    let request = ContextRequest { as_of, fill: as_of.is_none(), ..tokens.into() };
                    let context = serde_json::to_string(&session.context(request).await.unwrap()).unwrap();
                    assert!(!foreign(&context) && (tokens < 5_000 || context.contains(&mark(at))));
                }
            }
            let history = serde_json::to_string(&session.history(None, 100).await.unwrap()).unwrap();
            assert!(!foreign(&history));
            for other in 0..4 {
                let hits = session.search(&mark(other), None, None, 100).await.unwrap().len();
                assert_eq!(hits, if other == at { 60 } else { 0 });
            }
            // A number is each session's own: what another calls so is not what is found here.
            let theirs = current_summary(&sessions[(at + 1) % 4], "short").await.unwrap().id;
            let beneath = session.expand(theirs, Page::default()).await.unwrap();
            assert!(!foreign(&serde_json::to_string(&beneath.items).unwrap()));
            assert!(session.undo(4).await.is_err() && session.expand(4, Page::default()).await.is_err());
            assert_eq!(session.usage().await.unwrap().iter().map(|row| row.calls).sum::<u64>(), 3);
        }
        for (workspace, own) in [("red", [0, 1]), ("blue", [2, 3])] {
            let workspace = engine.workspace(workspace);
            for at in 0..4 {
                let hits = workspace.search(&mark(at), None, 1_000).await.unwrap().len();
                assert_eq!(hits, if own.contains(&at) { 60 } else { 0 });
            }
            assert_eq!(workspace.sessions(None, 10).await.unwrap().len(), 2);
        }
        sessions[1].undo(3).await.unwrap();
        assert!(sessions[0].delete().await.unwrap());
        assert_eq!(history(&sessions[2], "short").await.len(), 3);
        assert_eq!(current_summary(&sessions[2], "short").await.unwrap().id, 3);
    })
    .await;
}

/// A hook that has nothing to add.
struct Nobody;

impl epitome::hook::Hook for Nobody {}

#[tokio::test]
async fn case_51_a_model_that_hangs_blocks_nothing_and_is_reported() {
    on_every_store(async |home| {
        // While it hangs, everybody else gets their answer: they could not if they waited for it.
        let gate = Gate::new();
        let engine = home.open(one_slot(&Scripted::new().waits_for(&gate)).pace(fast_pace(1))).await;
        let session = engine.session("s");
        session.append(talk(1, 20)).await.unwrap();
        within_timeout("the call", gate.reached()).await;
        let told = slot(&session, "short").await;
        assert_eq!((told.status, told.owner.is_some()), (SlotStatus::Working, true));
        assert!(told.why.contains("being written"));
        assert_eq!(engine.workspace("default").queue().await.unwrap().working, 1);
        within_timeout("an append", session.append(talk(21, 22))).await.unwrap();
        let context = within_timeout("a context", session.context(4_000)).await.unwrap();
        assert_complete(&context, 22);
        assert_eq!(slot(&session, "short").await.status, SlotStatus::Working);
        gate.open();
        engine.close().await;
    })
    .await;
    // After the timeout the hook has failed, and that is reported.
    let home = Home::memory();
    let gate = Gate::new();
    let pace = Pace { timeout: Duration::from_millis(50), ..fast_pace(1) };
    let engine = home.open(one_slot(&Scripted::new().waits_for(&gate)).pace(pace)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    wait_until("a word", || async { slot(&session, "short").await.status == SlotStatus::Waiting }).await;
    let told = slot(&session, "short").await;
    assert_eq!(told.last_error.as_deref(), Some("no answer from the model: no answer within 50ms"));
    let queue = engine.workspace("default").queue().await.unwrap();
    assert_eq!((queue.waiting, queue.slots[0].attempts), (1, 1));
    assert!(session.usage().await.unwrap().iter().any(|row| row.outcome == "no_answer"));
    gate.open();
    home.clock.pass(MINUTE);
    wait_until("the summary", || async { coverage(&session, "short").await == [20] }).await;
    engine.close().await;
}

#[tokio::test]
async fn case_52_after_a_restart_summaries_are_expanded_searched_and_undone() {
    let home = Home::file();
    let engine = home.open(Engine::builder().workers(0)).await;
    let log = talk(1, 100);
    let session = engine.session("s");
    session.append(log.clone()).await.unwrap();
    session.work().await.unwrap();
    let before = session.history(None, 100).await.unwrap();
    engine.close().await;
    let engine = home.open(Engine::builder().workers(0)).await;
    let session = engine.session("s");
    assert_eq!(session.history(None, 100).await.unwrap(), before);
    for through in [100u64, 80, 60, 40, 20] {
        let summary = current_summary(&session, "short").await.unwrap();
        assert_eq!(summary.through, through);
        let beneath = session.expand(summary.id, Page { limit: 1_000, ..Page::default() }).await.unwrap();
        assert!(
            beneath.len() as u64 == through
                && beneath.iter().zip(&log).all(|(found, said)| found.parts == said.parts)
        );
        let found = session.search("parcel", Some(summary.id), None, 1_000).await.unwrap();
        assert_eq!(found.len() as u64, through / 2);
        let parent = session.undo(summary.id).await.unwrap();
        assert_eq!(parent.map_or(0, |parent| parent.through), through - 20);
        assert_complete(&session.context(20_000).await.unwrap(), 100);
    }
    assert!(history(&session, "short").await.iter().all(|summary| summary.state == SummaryState::Undone));
}

/// Names of authors follow the rules of all names: they can be displayed and distinguished.
#[tokio::test]
async fn invalid_author_names_are_refused() {
    let engine = epitome::Engine::memory().await.unwrap();
    for name in ["a\u{0}", "two\nlines", &"x".repeat(513)] {
        let mut message = epitome::rules::message::Message::user("Hello.");
        message.author = Some(name.into());
        let refused = engine.session("ann").append(message).await.unwrap_err().to_string();
        assert!(refused.starts_with("messages[0].author: a name has"), "{refused}");
    }
    let refused = engine.session("a\u{0}").context(100).await.unwrap_err().to_string();
    assert!(refused.starts_with("session: a name has"), "there can be no such session: {refused}");
}
