//! Operations by hand: forced summaries, undo, rebuild, expand, flags.

use epitome::rules::message::Message;
use epitome::store::SummaryState;
use epitome::{Error, Flags, Page, Remedy, SlotStatus, Summarize, Summarized};
use epitome_testkit::drawing;
use epitome_testkit::scripted::Scripted;

use crate::failing::down;
use crate::support::{
    Home, MINUTE, assert_complete, coverage, current_summary, fast_pace, history, on_every_store, one_slot,
    prompt_messages, shown, slot, span, talk, wait_until, with_settings, within_timeout,
};

#[tokio::test]
async fn a_forced_summary_restarts_the_trigger() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 7)).await.unwrap();
        let done = session.summarize(Summarize::slot("short")).await.unwrap();
        let Summarized::Written { summary } = done else { panic!("{done:?}") };
        assert_eq!((summary.through, summary.fired_at), (7, 7));
        session.append(talk(8, 26)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(coverage(&session, "short").await, [7]);
        session.append(talk(27, 27)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(coverage(&session, "short").await, [7, 27]);
    })
    .await;
}

#[tokio::test]
async fn without_new_messages_the_current_summary_is_returned_without_a_model_call() {
    let home = Home::memory();
    let model = Scripted::new();
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    let stands = current_summary(&session, "short").await;
    for wait in [true, false] {
        let done = session.summarize(Summarize { wait, ..Summarize::default() }).await.unwrap();
        assert_eq!(done, Summarized::NothingNew { summary: stands.clone() });
        assert_eq!(serde_json::to_value(&done).unwrap()["status"], "nothing_new");
    }
    // What is skipped is nothing new.
    session.append(Message { skip: true, ..Message::user("Ping.") }).await.unwrap();
    let done = session.summarize(Summarize::default()).await.unwrap();
    assert_eq!(done, Summarized::NothingNew { summary: stands });
    assert_eq!(model.calls(), 1);
}

#[tokio::test]
async fn if_all_new_messages_stay_verbatim_no_model_is_called() {
    let home = Home::memory();
    let model = Scripted::new();
    let keeps = r#", "slot": [{"name": "short", "trigger": "messages(20)", "keep": "messages(10)"}]"#;
    let engine = home.open(with_settings(&model, keeps)).await;
    let session = engine.session("s");
    session.append(talk(1, 8)).await.unwrap();
    let done = within_timeout("forcing", session.summarize(Summarize::default())).await.unwrap();
    assert_eq!((done, model.calls()), (Summarized::NothingNew { summary: None }, 0));
    assert_eq!(slot(&session, "short").await.due, None);
}

#[tokio::test]
async fn a_focus_reaches_the_prompt_and_is_stored() {
    let home = Home::memory();
    let model = Scripted::new();
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 12)).await.unwrap();
    let wish = Summarize { focus: Some("the customer in Oslo".into()), ..Summarize::slot("short") };
    let done = session.summarize(wish).await.unwrap();
    assert_eq!(done.summary().unwrap().focus.as_deref(), Some("the customer in Oslo"));
    let prompt = model.requests()[0].prompt(20_000).unwrap();
    assert!(prompt.user.contains("Pay special attention to: the customer in Oslo"), "{}", prompt.user);
    session.append(talk(13, 32)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!(&*model.requests()[1].focus, "", "it was for that one");
}

#[tokio::test]
async fn a_focus_reaches_the_requested_summary_although_others_are_due_before_it() {
    let home = Home::memory();
    let model = Scripted::new();
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 45)).await.unwrap();
    let wish = Summarize { focus: Some("Mondays".into()), ..Summarize::slot("short") };
    let done = session.summarize(wish).await.unwrap();
    let summary = done.summary().unwrap();
    assert_eq!((summary.through, summary.focus.as_deref()), (45, Some("Mondays")));
    assert_eq!(&*model.requests().pop().unwrap().focus, "Mondays");
    assert_eq!(coverage(&session, "short").await, [20, 40, 45]);
}

#[tokio::test]
async fn during_an_open_tool_call_a_summary_is_pending_with_a_reason() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        // The whole session is one call under way.
        let drawn = drawing::messages("a(x):90 r(x):90").unwrap();
        session.append(drawn[0].clone()).await.unwrap();
        let done = within_timeout("forcing", session.summarize(Summarize::default())).await.unwrap();
        let Summarized::Pending { reason: Some(reason) } = done else { panic!("{done:?}") };
        assert!(reason.contains("tool call"), "{reason}");
        let told = slot(&session, "short").await;
        assert_eq!(told.status, SlotStatus::Parked);
        assert!(told.why.contains("waits until the tool call or loop in progress ends"));
        session.append(drawn[1].clone()).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(coverage(&session, "short").await, [2]);
    })
    .await;
}

#[tokio::test]
async fn a_caller_waiting_for_a_failing_model_gets_an_error_and_the_slot_is_retried() {
    on_every_store(async |home| {
        for workers in [0, 1] {
            let model = Scripted::new().fails(down());
            let engine = home.open(one_slot(&model).pace(fast_pace(workers))).await;
            let session = engine.session(format!("s{workers}"));
            session.append(talk(1, 9)).await.unwrap();
            let error = within_timeout("forcing", session.summarize(Summarize::default())).await.unwrap_err();
            assert_eq!(error.remedy(), Remedy::Retry);
            assert_eq!(
                error.to_string(),
                "no summary yet: no answer from the model: connection refused; the worker will retry"
            );
            home.clock.pass(MINUTE);
            within_timeout("the next try", engine.work()).await.unwrap();
            wait_until("the summary", || async { coverage(&session, "short").await == [9] }).await;
            engine.close().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_waiting_caller_gets_a_new_failure_after_earlier_ones() {
    let home = Home::memory();
    let model = Scripted::new().fails(down()).fails(down()).fails(down());
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    for _ in 0..3 {
        session.work().await.unwrap();
        home.clock.pass(MINUTE);
    }
    assert_eq!(slot(&session, "short").await.attempts, 3);
    session.append(talk(21, 25)).await.unwrap();
    // The due window is written, and the requested one fails.
    let _ = model.clone().answers(|ask| Ok(Scripted::plain(ask))).fails(down());
    let failed = within_timeout("forcing", session.summarize(Summarize::default())).await;
    assert!(matches!(failed, Err(Error::Model { .. })), "{failed:?}");
    assert_eq!(coverage(&session, "short").await, [20]);
}

#[tokio::test]
async fn summaries_are_undone_one_after_the_other_until_nothing_is_left() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 60)).await.unwrap();
        session.work().await.unwrap();
        let all = history(&session, "short").await;
        let ids: Vec<_> = all.iter().map(|summary| summary.id).collect();
        let superseded = session.undo(ids[0]).await.unwrap_err();
        assert!(
            matches!(superseded, Error::Conflict(_)) && superseded.remedy() == Remedy::ReadState,
            "{superseded}"
        );
        for at in (0..3).rev() {
            let parent = session.undo(ids[at]).await.unwrap();
            assert_eq!(parent.as_ref().map(|parent| parent.id), at.checked_sub(1).map(|at| ids[at]));
            assert_eq!(slot(&session, "short").await.covered, at as u64 * 20);
            assert_complete(&session.context(8_000).await.unwrap(), 60);
            session.work().await.unwrap();
            assert_eq!(model.calls(), 3, "what was undone is not at once done again");
        }
        assert!(history(&session, "short").await.iter().all(|summary| summary.state == SummaryState::Undone));
        assert!(matches!(session.undo(ids[0]).await, Err(Error::Conflict(_))));
        assert!(matches!(session.undo(999_999).await, Err(Error::NotFound { .. })));
        session.append(talk(61, 80)).await.unwrap();
        session.work().await.unwrap();
        let new = current_summary(&session, "short").await.unwrap();
        assert_eq!((new.through, new.parent), (80, None));
        assert_eq!(prompt_messages(&model.requests()[3]), span(1, 80));
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn an_undone_summary_is_never_shown_or_built_on() {
    let home = Home::memory();
    let model = Scripted::new().replies("The moon is made of green cheese, said the customer.");
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    session.undo(current_summary(&session, "short").await.unwrap().id).await.unwrap();
    session.append(talk(21, 40)).await.unwrap();
    session.work().await.unwrap();
    assert!(model.requests()[1].previous.is_none());
    for as_of in [None, Some(20), Some(30)] {
        let request = epitome::ContextRequest { as_of, ..8_000.into() };
        let context = session.context(request).await.unwrap();
        assert!(!serde_json::to_string(&context).unwrap().contains("green cheese"), "{as_of:?}");
    }
}

#[tokio::test]
async fn a_rebuild_uses_the_current_settings_and_the_old_summary_stays_until_then() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 40)).await.unwrap();
        session.work().await.unwrap();
        let old = current_summary(&session, "short").await.unwrap();
        let patch = r#"{"slot": [{"name": "short", "trigger": "messages(20)", "instructions": "Name every carrier.", "max_tokens": 300}]}"#;
        session.set(&epitome::settings::Patch::parse(patch).unwrap()).await.unwrap();
        assert!(session.rebuild(None, "short").await.unwrap());
        assert_eq!(current_summary(&session, "short").await.unwrap(), old, "until it is written");
        assert_eq!(slot(&session, "short").await.covered, 40);
        let _ = model.clone().fails(down());
        session.work().await.unwrap();
        assert_eq!(current_summary(&session, "short").await.unwrap(), old, "and when it fails");
        home.clock.pass(MINUTE);
        session.work().await.unwrap();
        let new = current_summary(&session, "short").await.unwrap();
        let ask = model.requests().pop().unwrap();
        assert_eq!((prompt_messages(&ask), ask.previous), (span(1, 40), None));
        assert_eq!(&*ask.instructions, "Name every carrier.");
        assert_eq!((new.through, new.parent, new.built_on), (40, Some(old.id), None));
        assert_eq!(session.undo(new.id).await.unwrap().unwrap().id, old.id);
        assert!(matches!(session.rebuild(None, "nobody").await, Err(Error::NotFound { .. })));
    })
    .await;
}

#[tokio::test]
async fn a_large_rebuild_is_written_in_steps_and_never_reduces_the_coverage() {
    let home = Home::memory();
    let model = Scripted::new().with_room(2_000);
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 60)).await.unwrap();
    session.work().await.unwrap();
    let before = (model.calls(), history(&session, "short").await.len());
    session.rebuild(None, "short").await.unwrap();
    session.work().await.unwrap();
    let asks = model.requests().split_off(before.0);
    assert_eq!(asks.iter().flat_map(prompt_messages).collect::<Vec<_>>(), span(1, 60));
    let all = history(&session, "short").await;
    assert!(asks.len() > 2 && all.len() == before.1 + 1, "only the last of {} steps is kept", asks.len());
    assert_eq!(all.last().unwrap().through, 60);
}

#[tokio::test]
async fn the_messages_covered_by_a_summary_are_read_page_by_page() {
    on_every_store(async |home| {
        let engine = home.open(one_slot(&Scripted::new())).await;
        let session = engine.session("s");
        let log = talk(1, 50);
        session.append(log.clone()).await.unwrap();
        session.work().await.unwrap();
        let summary = current_summary(&session, "short").await.unwrap();
        let mut read = Vec::new();
        let mut page = Page { limit: 7, ..Page::default() };
        loop {
            let messages = session.expand(summary.id, page.clone()).await.unwrap();
            let Some(last) = messages.last() else { break };
            page.after = Some(last.seq);
            read.extend(messages);
        }
        assert_eq!(read.len(), 40, "no further than it reaches");
        assert!(read.iter().zip(&log).all(|(read, said)| read.parts == said.parts));
        let back =
            session.expand(summary.id, Page { limit: 3, reverse: true, ..Page::default() }).await.unwrap();
        assert_eq!(back.iter().map(|message| message.seq).collect::<Vec<_>>(), [40, 39, 38]);
        assert!(matches!(session.expand(12_345, Page::default()).await, Err(Error::NotFound { .. })));
        // Another session cannot read it by its number.
        let other = engine.session("other");
        other.append(talk(1, 2)).await.unwrap();
        assert!(matches!(other.expand(summary.id, Page::default()).await, Err(Error::NotFound { .. })));
        assert!(matches!(other.undo(summary.id).await, Err(Error::NotFound { .. })));
    })
    .await;
}

#[tokio::test]
async fn a_message_pinned_later_is_in_every_context() {
    on_every_store(async |home| {
        let engine = home.open(one_slot(&Scripted::new())).await;
        let session = engine.session("s");
        session.append(talk(1, 20)).await.unwrap();
        session.work().await.unwrap();
        session.flag(3, Flags { pinned: Some(true), ..Flags::default() }).await.unwrap();
        session.append(talk(21, 70)).await.unwrap();
        session.work().await.unwrap();
        for budget in [200, 500, 2_000, 50_000] {
            let context = session.context(budget).await.unwrap();
            assert!(shown(&context).contains(&3), "{budget}: {:?}", shown(&context));
        }
        session.flag(3, Flags { pinned: Some(false), ..Flags::default() }).await.unwrap();
        assert!(!shown(&session.context(2_000).await.unwrap()).contains(&3));
        let missing = session.flag(71, Flags { pinned: Some(true), ..Flags::default() }).await;
        assert!(matches!(missing, Err(Error::NotFound { .. })));
    })
    .await;
}

#[tokio::test]
async fn a_message_skipped_later_is_left_out_of_later_summaries_and_counted() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 15)).await.unwrap();
        for seq in [4, 5] {
            session.flag(seq, Flags { skip: Some(true), ..Flags::default() }).await.unwrap();
        }
        assert_eq!(session.info().await.unwrap().skipped, 2);
        // Counted already, so the firing stays where it was.
        session.append(talk(16, 20)).await.unwrap();
        session.work().await.unwrap();
        let summary = current_summary(&session, "short").await.unwrap();
        assert_eq!((summary.through, summary.skipped, summary.original_count), (20, 2, 18));
        assert!(prompt_messages(&model.requests()[0]).iter().all(|seq| ![4, 5].contains(seq)));
        let context = session.context(4_000).await.unwrap();
        assert!(context.report.exhaustive && context.report.skipped == 2);
        // From now on skipped messages count for nothing.
        let mut more = talk(21, 41);
        more[0].skip = true;
        session.append(more).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(coverage(&session, "short").await, [20, 41]);
        // One that was said since may be taken back as long as no summary was written without it.
        let mut last = talk(42, 42);
        last[0].skip = true;
        session.append(last).await.unwrap();
        assert_eq!(session.info().await.unwrap().skipped, 4);
        session.flag(42, Flags { skip: Some(false), ..Flags::default() }).await.unwrap();
        assert_eq!(session.info().await.unwrap().skipped, 3);
    })
    .await;
}

#[tokio::test]
async fn skipping_one_message_of_a_call_batch_skips_the_whole_batch() {
    let home = Home::memory();
    let engine = home.open(one_slot(&Scripted::new())).await;
    let session = engine.session("s");
    session.append(drawing::messages("u a(x,y) r(x) r(y) a u").unwrap()).await.unwrap();
    session.flag(3, Flags { skip: Some(true), ..Flags::default() }).await.unwrap();
    assert_eq!(session.info().await.unwrap().skipped, 3);
    session.flag(4, Flags { skip: Some(true), ..Flags::default() }).await.unwrap();
    session.flag(3, Flags { skip: Some(false), ..Flags::default() }).await.unwrap();
    assert_eq!(session.info().await.unwrap().skipped, 3);
    session.flag(4, Flags { skip: Some(false), ..Flags::default() }).await.unwrap();
    assert_eq!(session.info().await.unwrap().skipped, 0);
}

#[tokio::test]
async fn a_deleted_session_has_no_summaries_and_its_name_can_be_reused() {
    on_every_store(async |home| {
        let engine = home.open(one_slot(&Scripted::new())).await;
        let session = engine.session("s");
        session.append(talk(1, 40)).await.unwrap();
        session.work().await.unwrap();
        assert!(session.delete().await.unwrap());
        assert!(!session.delete().await.unwrap());
        assert!(matches!(session.context(1_000).await, Err(Error::NotFound { .. })));
        assert!(matches!(session.history(None, 10).await, Err(Error::NotFound { .. })));
        let workspace = engine.workspace("default");
        assert_eq!(workspace.search("parcel", None, 10).await.unwrap().len(), 0);
        assert_eq!(workspace.sessions(None, 10).await.unwrap().len(), 0);
        let spent = workspace.usage(epitome::rules::message::Timestamp(0)).await.unwrap();
        assert_eq!(spent.iter().map(|row| row.calls).sum::<u64>(), 2, "what it cost stays known");
        session.append(talk(1, 3)).await.unwrap();
        assert_eq!(session.summaries().await.unwrap(), []);
        assert_complete(&session.context(1_000).await.unwrap(), 3);
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn messages_are_read_in_pages_in_both_directions() {
    let home = Home::memory();
    let engine = home.open(one_slot(&Scripted::new())).await;
    let session = engine.session("s");
    session.append(talk(1, 25)).await.unwrap();
    let seqs = async |page: Page| -> Vec<u64> {
        session.messages(page).await.unwrap().iter().map(|message| message.seq).collect()
    };
    assert_eq!(seqs(Page { after: Some(20), ..Page::default() }).await, span(21, 25));
    assert_eq!(seqs(Page { reverse: true, limit: 3, ..Page::default() }).await, [25, 24, 23]);
    assert_eq!(seqs(Page { reverse: true, limit: 2, before: Some(23), ..Page::default() }).await, [22, 21]);
    assert_eq!(seqs(Page { after: Some(25), ..Page::default() }).await, [0; 0]);
    assert_eq!(seqs(Page { after: Some(3), before: Some(6), ..Page::default() }).await, [4, 5]);
}

#[tokio::test]
async fn a_rebuild_does_not_wait_for_the_next_retry() {
    let home = Home::memory();
    let model = Scripted::new();
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    let _ = model.clone().fails(down());
    session.append(talk(21, 40)).await.unwrap();
    session.work().await.unwrap();
    assert!(slot(&session, "short").await.not_before.is_some());
    session.rebuild(None, "short").await.unwrap();
    session.work().await.unwrap();
    assert_eq!(coverage(&session, "short").await, [20, 40]);
    assert_eq!(prompt_messages(&model.requests()[2]), span(1, 40));
}

#[tokio::test]
async fn after_a_rebuild_the_next_summary_is_built_on_it() {
    let model = Scripted::new();
    let engine = Home::memory().open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    session.rebuild(None, "short").await.unwrap();
    session.work().await.unwrap();
    let rebuilt = current_summary(&session, "short").await.unwrap();
    session.append(talk(21, 40)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!((model.calls(), prompt_messages(&model.requests()[2])), (3, span(21, 40)));
    assert_eq!(current_summary(&session, "short").await.unwrap().built_on, Some(rebuilt.id));
}
