//! Events during a model call.

use std::sync::Arc;
use std::time::Duration;

use epitome::store::SummaryState;
use epitome::{Builder, Engine, Pace, Session, SlotStatus, Summarize, Summarized};
use epitome_testkit::scripted::{Gate, Scripted};
use tokio::task::JoinHandle;

use crate::failing::down;
use crate::support::{
    Home, assert_complete, coverage, current_summary, fast_pace, history, homes, on_every_store, one_slot,
    prompt_messages, slot, span, talk, times, wait_until, with_settings, within_timeout,
};

/// Starts work in a task of its own, and returns when the model waits at the gate.
async fn at_the_gate(session: &Session, gate: &Gate) -> JoinHandle<()> {
    let session = session.clone();
    let working = tokio::spawn(async move { session.work().await.unwrap() });
    within_timeout("the call", gate.reached()).await;
    working
}

#[tokio::test]
async fn messages_appended_during_the_models_call_are_in_the_next_window() {
    on_every_store(async |home| messages_appended_during_a_call(&home).await).await;
}

pub(crate) async fn messages_appended_during_a_call(home: &Home) {
    let gate = Gate::new();
    let model = Scripted::new().waits_for(&gate).answers(|ask| Ok(Scripted::plain(ask)));
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    let working = at_the_gate(&session, &gate).await;
    let appended = session.append(talk(21, 45)).await.unwrap();
    assert_eq!((appended.span.from, appended.span.through), (21, 45));
    assert_complete(&session.context(8_000).await.unwrap(), 45);
    gate.open();
    within_timeout("the work", working).await.unwrap();
    assert_eq!(coverage(&session, "short").await, [20, 40]);
    assert_eq!(
        (prompt_messages(&model.requests()[0]), prompt_messages(&model.requests()[1])),
        (span(1, 20), span(21, 40))
    );
    assert_complete(&session.context(8_000).await.unwrap(), 45);
    assert_eq!(engine.verify().await.unwrap(), []);
}

#[tokio::test]
async fn two_concurrent_forced_summaries_are_one_summary() {
    on_every_store(async |home| two_forced_at_once(&home).await).await;
}

pub(crate) async fn two_forced_at_once(home: &Home) {
    for workers in [0, 3] {
        let gate = Gate::new();
        let model = Scripted::new().waits_for(&gate).answers(|ask| Ok(Scripted::plain(ask)));
        let engine = home.open(one_slot(&model).pace(fast_pace(workers))).await;
        let session = engine.session(format!("forced-{workers}"));
        session.append(talk(1, 15)).await.unwrap();
        let forced: Vec<_> = (0..4)
            .map(|_| {
                let session = session.clone();
                tokio::spawn(async move { session.summarize(Summarize::default()).await.unwrap() })
            })
            .collect();
        within_timeout("the call", gate.reached()).await;
        gate.open();
        for task in forced {
            let done = within_timeout("a forced summary", task).await.unwrap();
            assert_eq!(done.summary().unwrap().through, 15);
        }
        assert_eq!((coverage(&session, "short").await, model.calls()), (vec![15], 1));
        session.append(talk(16, 35)).await.unwrap();
        session.work().await.unwrap();
        // A worker in the background may have been faster, and is at it.
        wait_until("the next call", || async { model.calls() == 2 }).await;
        assert_eq!(prompt_messages(&model.requests()[1]), span(16, 35), "counted from where it was forced");
        engine.close().await;
    }
}

#[tokio::test]
async fn a_commit_after_an_undo_is_refused() {
    on_every_store(async |home| {
        let gate = Gate::new();
        let model = Scripted::new()
            .answers(|ask| Ok(Scripted::plain(ask)))
            .answers(|ask| Ok(Scripted::plain(ask)))
            .waits_for(&gate)
            .answers(|ask| Ok(Scripted::plain(ask)));
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 40)).await.unwrap();
        session.work().await.unwrap();
        let [first, second] = &history(&session, "short").await[..] else { panic!() };
        session.append(talk(41, 60)).await.unwrap();
        let working = at_the_gate(&session, &gate).await;
        let parent = session.undo(second.id).await.unwrap().unwrap();
        assert_eq!((parent.id, parent.state), (first.id, SummaryState::Current));
        gate.open();
        within_timeout("the work", working).await.unwrap();
        assert_eq!(current_summary(&session, "short").await.unwrap().id, first.id);
        assert_eq!(coverage(&session, "short").await, [20, 40], "nothing came of the late one");
        let told = slot(&session, "short").await;
        assert_eq!((told.status, told.covered, told.due), (SlotStatus::Idle, 20, None));
        // Counting starts at the head, and the window reaches back to the parent.
        session.append(talk(61, 79)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(model.calls(), 3);
        session.append(talk(80, 80)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(prompt_messages(&model.requests()[3]), span(21, 80));
        assert_eq!(current_summary(&session, "short").await.unwrap().parent, Some(first.id));
        let usage = session.usage().await.unwrap();
        let calls: u64 = usage.iter().map(|row| row.calls).sum();
        assert_eq!(calls, 4, "the one in vain was paid for too: {usage:?}");
        assert_eq!(usage.iter().filter(|row| row.outcome == "kept").map(|row| row.calls).sum::<u64>(), 3);
    })
    .await;
}

/// A worker whose hold ends after a second and is never renewed.
fn stalling(builder: Builder) -> Builder {
    builder.pace(Pace {
        lease: Duration::from_secs(1),
        renew: Duration::from_secs(3_600),
        poll: Duration::from_millis(10),
        workers: 0,
        ..Pace::default()
    })
}

#[tokio::test]
async fn a_worker_that_stalls_past_its_lease_is_replaced_and_changes_nothing() {
    overtaken(&Home::file()).await;
}

pub(crate) async fn overtaken(home: &Home) {
    for late_fails in [false, true] {
        let name = format!("s{late_fails}");
        let gate = Gate::new();
        let slow = Scripted::new().named("slow").waits_for(&gate);
        let slow =
            if late_fails { slow.fails(down()) } else { slow.replies("All was in vain, and they knew it.") };
        let stalled = home.open(stalling(one_slot(&slow))).await;
        let fast = Scripted::new().named("fast");
        let other = home.open(one_slot(&fast)).await;
        let session = stalled.session(name.as_str());
        session.append(talk(1, 20)).await.unwrap();
        let working = at_the_gate(&session, &gate).await;
        let seen = other.session(name.as_str());
        other.work().await.unwrap();
        assert_eq!(fast.calls(), 0, "it is held");
        home.clock.pass(Duration::from_millis(1_001));
        other.work().await.unwrap();
        let written = current_summary(&seen, "short").await.unwrap();
        assert_eq!((written.through, written.model.as_str()), (20, "fast"));
        // Only then does the slow one come to its end.
        seen.append(talk(21, 40)).await.unwrap();
        other.work().await.unwrap();
        gate.open();
        within_timeout("the slow work", working).await.unwrap();
        let all = history(&session, "short").await;
        assert_eq!(
            all.iter().map(|s| (s.through, s.model.as_str())).collect::<Vec<_>>(),
            [(20, "fast"), (40, "fast")]
        );
        assert_eq!(slot(&session, "short").await.attempts, 0, "its failure is nobody's now");
        let usage = session.usage().await.unwrap();
        let lost: Vec<_> = usage
            .iter()
            .filter(|row| row.model == "slow")
            .map(|row| (row.outcome.as_str(), row.calls))
            .collect();
        assert_eq!(lost, [(if late_fails { "no_answer" } else { "unused" }, 1)], "its call was paid for");
        assert_eq!(other.verify().await.unwrap(), []);
        stalled.close().await;
        other.close().await;
    }
}

#[tokio::test]
async fn a_takeover_raises_the_fence() {
    let home = Home::file();
    let gate = Gate::new();
    let slow = Scripted::new().waits_for(&gate);
    let stalled = home.open(stalling(one_slot(&slow))).await;
    let other = home.open(one_slot(&Scripted::new())).await;
    let session = stalled.session("s");
    session.append(talk(1, 20)).await.unwrap();
    let working = at_the_gate(&session, &gate).await;
    let held = home.row("short").await;
    assert_eq!((held.fence, held.work.owner.is_some()), (1, true));
    home.clock.pass(Duration::from_secs(2));
    other.work().await.unwrap();
    assert_eq!(home.row("short").await.fence, 2);
    gate.open();
    within_timeout("the slow work", working).await.unwrap();
    let after = home.row("short").await;
    assert_eq!((after.fence, after.state.covered, after.work.owner), (2, 20, None));
}

#[tokio::test]
async fn a_late_commit_is_refused_while_another_worker_still_writes() {
    let home = Home::file();
    let gates = [Gate::new(), Gate::new()];
    let slow = Scripted::new().named("slow").waits_for(&gates[0]);
    let stalled = home.open(stalling(one_slot(&slow))).await;
    let next = Scripted::new().named("next").waits_for(&gates[1]);
    let other = home.open(one_slot(&next)).await;
    let session = stalled.session("s");
    session.append(talk(1, 20)).await.unwrap();
    let late = at_the_gate(&session, &gates[0]).await;
    home.clock.pass(Duration::from_secs(2));
    let taken = at_the_gate(&other.session("s"), &gates[1]).await;
    gates[0].open();
    // It waits for the new lease holder, so it ends after that one; its own call is recorded before.
    wait_until("the late worker's end", || async {
        session.usage().await.unwrap().iter().any(|row| row.model == "slow" && row.outcome == "unused")
    })
    .await;
    assert!(current_summary(&session, "short").await.is_none());
    assert_eq!(
        slot(&session, "short").await.status,
        SlotStatus::Working,
        "the other one's hold is untouched"
    );
    gates[1].open();
    within_timeout("the other work", taken).await.unwrap();
    within_timeout("the late work", late).await.unwrap();
    let all = history(&session, "short").await;
    assert_eq!(all.iter().map(|s| (s.through, s.model.as_str())).collect::<Vec<_>>(), [(20, "next")]);
}

#[tokio::test]
async fn a_slow_worker_renews_its_lease() {
    let home = Home::file();
    let gate = Gate::new();
    let slow = Scripted::new().named("slow").waits_for(&gate).answers(|ask| Ok(Scripted::plain(ask)));
    let pace = Pace { lease: Duration::from_secs(10), renew: Duration::from_millis(3), ..fast_pace(0) };
    let engine = home.open(one_slot(&slow).pace(pace)).await;
    let fast = Scripted::new().named("fast");
    let other = home.open(one_slot(&fast)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    let working = at_the_gate(&session, &gate).await;
    for _ in 0..6 {
        home.clock.pass(Duration::from_secs(9));
        let renewed = home.clock.now().0 + 10_000;
        wait_until("a renewal", || async {
            home.row("short").await.work.until.is_some_and(|then| then.0 == renewed)
        })
        .await;
        other.work().await.unwrap();
        assert_eq!(slot(&session, "short").await.status, SlotStatus::Working);
    }
    gate.open();
    within_timeout("the slow work", working).await.unwrap();
    assert_eq!(fast.calls(), 0);
    assert_eq!(current_summary(&session, "short").await.unwrap().model, "slow");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_slots_committed_at_the_same_time_are_both_stored() {
    short_and_long_at_once().await;
}

pub(crate) async fn short_and_long_at_once() {
    let both = r#", "slot": [{"name": "short", "trigger": "messages(10)"},
        {"name": "long", "trigger": "messages(10)", "max_tokens": 4000}]"#;
    for home in homes() {
        let model = Scripted::new();
        let engine = home.open(with_settings(&model, both).pace(fast_pace(4))).await;
        let session = engine.session("s");
        for round in 1..=40usize {
            let (one, two) = (Gate::new(), Gate::new());
            let _ = model
                .clone()
                .waits_for(&one)
                .answers(|ask| Ok(Scripted::plain(ask)))
                .waits_for(&two)
                .answers(|ask| Ok(Scripted::plain(ask)));
            session.append(talk(round * 10 - 9, round * 10)).await.unwrap();
            within_timeout("both calls", async { tokio::join!(one.reached(), two.reached()) }).await;
            one.open();
            two.open();
            let through = round as u64 * 10;
            wait_until("both summaries", || async {
                let stand = session.summaries().await.unwrap();
                stand.len() == 2 && stand.iter().all(|summary| summary.through == through)
            })
            .await;
        }
        let tens: Vec<u64> = (1..=40).map(|round| round * 10).collect();
        assert_eq!(coverage(&session, "short").await, tens);
        assert_eq!(coverage(&session, "long").await, tens);
        assert_eq!(engine.verify().await.unwrap(), []);
        engine.close().await;
    }
}

#[tokio::test]
async fn a_rebuild_requested_during_a_summary_is_carried_out() {
    let home = Home::memory();
    let gate = Gate::new();
    let model = Scripted::new()
        .answers(|ask| Ok(Scripted::plain(ask)))
        .waits_for(&gate)
        .answers(|ask| Ok(Scripted::plain(ask)));
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 40)).await.unwrap();
    let working = at_the_gate(&session, &gate).await;
    assert!(session.rebuild(None, "short").await.unwrap());
    gate.open();
    within_timeout("the work", working).await.unwrap();
    session.work().await.unwrap();
    let last = model.requests().pop().unwrap();
    assert_eq!((prompt_messages(&last), last.previous), (span(1, 40), None));
    let new = current_summary(&session, "short").await.unwrap();
    assert_eq!((new.through, new.built_on), (40, None));
    assert_eq!(slot(&session, "short").await.due, None);
}

#[tokio::test]
async fn a_session_deleted_during_its_summary_stays_deleted() {
    on_every_store(async |home| {
        let gate = Gate::new();
        let model = Scripted::new().waits_for(&gate).answers(|ask| Ok(Scripted::plain(ask)));
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 20)).await.unwrap();
        let working = at_the_gate(&session, &gate).await;
        assert!(session.delete().await.unwrap());
        session.append(talk(1, 3)).await.unwrap();
        gate.open();
        within_timeout("the work", working).await.unwrap();
        assert_eq!(session.summaries().await.unwrap(), []);
        assert_complete(&session.context(4_000).await.unwrap(), 3);
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_appends_keep_their_order_and_none_is_lost() {
    let home = Home::file();
    let engine = home.open(one_slot(&Scripted::new()).pace(fast_pace(2))).await;
    let session = engine.session("s");
    let said = Arc::new(tokio::sync::Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..8usize)
        .map(|task| {
            let (session, said) = (session.clone(), Arc::clone(&said));
            tokio::spawn(async move {
                for n in 0..10usize {
                    let batch = talk(task * 100 + n * 2 + 1, task * 100 + n * 2 + 2);
                    let appended = session.append(batch.clone()).await.unwrap();
                    said.lock().await.push((appended.span, batch));
                }
            })
        })
        .collect();
    for task in tasks {
        within_timeout("appending", task).await.unwrap();
    }
    within_timeout("summaries", engine.work()).await.unwrap();
    let log = session.messages(epitome::Page { limit: 1_000, ..Default::default() }).await.unwrap();
    assert_eq!(log.len(), 160);
    for (span, batch) in said.lock().await.iter() {
        let stored = &log[span.from as usize - 1..span.through as usize];
        assert!(stored.iter().zip(batch).all(|(a, b)| a.parts == b.parts));
    }
    assert_eq!(coverage(&session, "short").await, (1..=8).map(|n| n * 20).collect::<Vec<u64>>());
    engine.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn engine_work_waits_for_slots_leased_by_its_own_worker() {
    for round in 0..times(30) {
        let engine = Home::memory().open(Engine::builder().workers(2)).await;
        let session = engine.session("s");
        session.append(talk(1, 20)).await.unwrap();
        within_timeout("work", engine.work()).await.unwrap();
        assert_eq!(coverage(&session, "short").await, [20], "round {round}");
        engine.close().await;
    }
}

#[tokio::test]
async fn a_request_without_waiting_is_carried_out_in_the_background() {
    let home = Home::memory();
    let engine = home.open(one_slot(&Scripted::new()).pace(fast_pace(1))).await;
    let session = engine.session("s");
    session.append(talk(1, 8)).await.unwrap();
    let wish = Summarize { wait: false, ..Summarize::default() };
    assert_eq!(session.summarize(wish).await.unwrap(), Summarized::Pending { reason: None });
    wait_until("the summary", || async { coverage(&session, "short").await == [8] }).await;
    engine.close().await;
}

#[tokio::test]
async fn a_write_that_makes_a_slot_due_wakes_the_worker_at_once() {
    let home = Home::memory();
    let model = Scripted::new();
    // It would not look by itself for an hour.
    let pace = Pace { poll: Duration::from_secs(3_600), ..fast_pace(1) };
    let engine = home.open(one_slot(&model).pace(pace)).await;
    let asleep = || tokio::time::sleep(Duration::from_millis(50));
    let session = engine.session("s");
    asleep().await;
    session.append(talk(1, 20)).await.unwrap();
    wait_until("the one that was due", || async { coverage(&session, "short").await == [20] }).await;
    asleep().await;
    session.append(talk(21, 28)).await.unwrap();
    session.summarize(Summarize { wait: false, ..Summarize::default() }).await.unwrap();
    wait_until("the one wished for", || async { coverage(&session, "short").await == [20, 28] }).await;
    asleep().await;
    session.rebuild(None, "short").await.unwrap();
    wait_until("the one made anew", || async { coverage(&session, "short").await == [20, 28, 28] }).await;
    engine.close().await;
}
