//! Forks: new sessions from existing ones.

use epitome::rules::message::Message;
use epitome::{ContextRequest, Engine, Error, Fork, Membership, Page, Session, Update};
use epitome_testkit::scripted::{Gate, Scripted};
use serde_json::{Map, Value, json};

use crate::directory::{api, members, notes, with_attributes};
use crate::failing::down;
use crate::support::{
    Home, MINUTE, assert_complete, coverage, current_summary, engine_of_model, history, on_every_store,
    one_slot, prompt_messages, shown, slot, span, talk, within_timeout,
};

async fn log(session: &Session) -> Vec<Message> {
    session.messages(Page { limit: 1_000, ..Page::default() }).await.unwrap().items
}

#[tokio::test]
async fn a_whole_fork_has_every_message_and_summary_and_is_independent() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(engine_of_model(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 70)).await.unwrap();
        session.work().await.unwrap();
        let before = (session.explain().await.unwrap(), session.history(None, 100).await.unwrap());
        let fork = session.fork(Fork::whole("copy")).await.unwrap();
        assert_eq!(log(&fork).await, log(&session).await);
        let texts = async |session: &Session| -> Vec<(String, u64, String)> {
            let all = session.summaries().await.unwrap();
            all.into_iter().map(|summary| (summary.slot, summary.through, summary.text)).collect()
        };
        assert_eq!(texts(&fork).await, texts(&session).await);
        let (ours, theirs) = (fork.context(2_000).await.unwrap(), session.context(2_000).await.unwrap());
        assert_eq!((ours.messages, ours.report), (theirs.messages, theirs.report));
        // It counts on from where it was taken.
        let calls = model.calls();
        fork.append(talk(71, 79)).await.unwrap();
        fork.work().await.unwrap();
        assert_eq!(model.calls(), calls);
        fork.append(talk(80, 80)).await.unwrap();
        fork.work().await.unwrap();
        assert_eq!(current_summary(&fork, "short").await.unwrap().through, 80);
        assert_eq!(prompt_messages(&model.requests()[calls]), span(61, 80));
        // And can be undone to what it took over.
        let newest = current_summary(&fork, "short").await.unwrap();
        assert_eq!(fork.undo(newest.id).await.unwrap().unwrap().through, 60);
        let parent = current_summary(&fork, "short").await.unwrap();
        assert_eq!(fork.undo(parent.id).await.unwrap().unwrap().through, 40);
        assert_complete(&fork.context(8_000).await.unwrap(), 80);
        let after = (session.explain().await.unwrap(), session.history(None, 100).await.unwrap());
        assert_eq!(before.1, after.1, "the original is untouched");
        assert_eq!(serde_json::to_value(before.0).unwrap(), serde_json::to_value(after.0).unwrap());
        assert_eq!(fork.info().await.unwrap().metadata["forked_from"]["session"], "s");
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_fork_at_an_earlier_message_equals_the_session_at_that_message() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(engine_of_model(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 100)).await.unwrap();
        session.work().await.unwrap();
        let fork = session.fork(Fork { at: Some(50), ..Fork::whole("copy") }).await.unwrap();
        let info = fork.info().await.unwrap();
        assert_eq!((info.messages, info.turns), (50, 25));
        assert_eq!(current_summary(&fork, "short").await.unwrap().through, 40);
        assert!(current_summary(&fork, "long").await.is_none());
        assert_complete(&fork.context(4_000).await.unwrap(), 50);
        assert_eq!(slot(&fork, "short").await.why, "not due: messages 10 of 20");
        assert_eq!(slot(&fork, "long").await.why, "not due: messages 50 of 60");
        let calls = model.calls();
        fork.append(talk(51, 60)).await.unwrap();
        fork.work().await.unwrap();
        assert_eq!(current_summary(&fork, "short").await.unwrap().through, 60);
        assert_eq!(current_summary(&fork, "long").await.unwrap().through, 60);
        let mut read: Vec<Vec<u64>> = model.requests()[calls..].iter().map(prompt_messages).collect();
        read.sort();
        assert_eq!(read, [span(1, 60), span(41, 60)]);
        assert_eq!(session.info().await.unwrap().messages, 100);
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn what_was_due_in_the_original_is_due_in_its_fork() {
    let home = Home::memory();
    let model = Scripted::new().fails(down());
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 25)).await.unwrap();
    session.work().await.unwrap();
    let fork = session.fork(Fork::whole("copy")).await.unwrap();
    fork.work().await.unwrap();
    assert_eq!((coverage(&fork, "short").await, coverage(&session, "short").await), (vec![20], vec![]));
    home.clock.pass(MINUTE);
    session.work().await.unwrap();
    assert_eq!(coverage(&session, "short").await, [20]);
}

#[tokio::test]
async fn a_condensed_fork_always_shows_its_pinned_summary() {
    on_every_store(async |home| {
        let model = Scripted::new().replies("Ann Lee of Oslo waits for order 10071 and others.");
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 25)).await.unwrap();
        session.work().await.unwrap();
        let fork = session.fork(Fork::condensed("helper")).await.unwrap();
        let taken = log(&fork).await;
        assert_eq!(taken.len(), 6, "the summary and five messages");
        assert!(taken[0].pinned && serde_json::to_string(&taken[0]).unwrap().contains("Ann Lee of Oslo"));
        assert_eq!(taken[0].metadata["epitome"]["covers"], serde_json::json!([1, 20]));
        assert!(taken[1..].iter().zip(&talk(21, 25)).all(|(taken, said)| taken.parts == said.parts));
        fork.append(talk(26, 90)).await.unwrap();
        fork.work().await.unwrap();
        assert!(current_summary(&fork, "short").await.is_some());
        for tokens in [300, 1_000, 20_000] {
            let context = fork.context(tokens).await.unwrap();
            let text = serde_json::to_string(&context.messages).unwrap();
            assert!(shown(&context).contains(&1) && text.contains("Ann Lee of Oslo"), "{tokens}: {text}");
        }
        assert_eq!(session.info().await.unwrap().messages, 25);
    })
    .await;
}

#[tokio::test]
async fn a_condensed_fork_at_an_earlier_message_or_of_a_short_session_is_complete() {
    let home = Home::memory();
    let engine = home.open(one_slot(&Scripted::new())).await;
    let session = engine.session("s");
    session.append(talk(1, 45)).await.unwrap();
    session.work().await.unwrap();
    let fork = session.fork(Fork { at: Some(23), ..Fork::condensed("early") }).await.unwrap();
    assert_eq!(log(&fork).await.len(), 4);
    let short = engine.session("short");
    short.append(talk(1, 3)).await.unwrap();
    let fork = short.fork(Fork::condensed("copy")).await.unwrap();
    assert_eq!(log(&fork).await.len(), 3);
    assert_complete(&fork.context(1_000).await.unwrap(), 3);
}

#[tokio::test]
async fn a_fork_rejects_an_existing_name_and_a_missing_message() {
    let home = Home::memory();
    let engine = home.open(Engine::builder().workers(0)).await;
    let session = engine.session("s");
    session.append(talk(1, 5)).await.unwrap();
    for kind in [Fork::whole("s"), Fork::condensed("s")] {
        assert!(matches!(session.fork(kind).await, Err(Error::Conflict(_))));
    }
    for at in [0, 6] {
        let error = session.fork(Fork { at: Some(at), ..Fork::whole("t") }).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("at: there is no message {at}; the session has messages 1 to 5")
        );
    }
    assert!(matches!(engine.session("none").fork(Fork::whole("t")).await, Err(Error::NotFound { .. })));
    assert!(matches!(session.fork(Fork::whole("")).await, Err(Error::Invalid(_))));
    assert!(matches!(
        engine.session("t").context(ContextRequest::default()).await,
        Err(Error::NotFound { .. })
    ));
}

#[tokio::test]
async fn a_summary_in_progress_does_not_change_a_fork() {
    let home = Home::file();
    let gate = Gate::new();
    let model = Scripted::new().waits_for(&gate).answers(|ask| Ok(Scripted::plain(ask)));
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    let working = tokio::spawn({
        let session = session.clone();
        async move { session.work().await.unwrap() }
    });
    within_timeout("the call", gate.reached()).await;
    let fork = session.fork(Fork::whole("copy")).await.unwrap();
    fork.work().await.unwrap();
    gate.open();
    within_timeout("the work", working).await.unwrap();
    for session in [&session, &fork] {
        let all = history(session, "short").await;
        assert_eq!(all.iter().map(|summary| summary.through).collect::<Vec<_>>(), [20]);
    }
}

#[tokio::test]
async fn an_undone_summary_is_not_written_again_in_a_fork() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 40)).await.unwrap();
        session.work().await.unwrap();
        let newest = current_summary(&session, "short").await.unwrap();
        session.undo(newest.id).await.unwrap();
        let fork = session.fork(Fork::whole("f")).await.unwrap();
        fork.work().await.unwrap();
        assert_eq!(coverage(&fork, "short").await, [20]);
        // As in the original, counting goes on from where it was undone.
        for session in [&session, &fork] {
            session.append(talk(41, 60)).await.unwrap();
            session.work().await.unwrap();
            assert_eq!(current_summary(session, "short").await.unwrap().through, 60);
        }
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_fork_counts_skipped_messages_up_to_its_last_message() {
    let engine = Home::memory().open(one_slot(&Scripted::new())).await;
    let session = engine.session("s");
    let mut messages = talk(1, 8);
    (messages[1].skip, messages[6].skip) = (true, true);
    session.append(messages).await.unwrap();
    for (at, skipped) in [(None, 2), (Some(6), 1), (Some(1), 0)] {
        let fork = session.fork(Fork { at, ..Fork::whole(format!("{at:?}")) }).await.unwrap();
        assert_eq!(fork.info().await.unwrap().skipped, skipped, "{at:?}");
        assert_eq!(fork.context(4_000).await.unwrap().report.skipped, skipped, "{at:?}");
    }
}

#[tokio::test]
async fn a_fork_copies_metadata_attributes_and_members_unless_it_has_its_own_metadata() {
    on_every_store(async |home| {
        let engine = home.open(one_slot(&Scripted::new())).await;
        let workspace = engine.workspace("w");
        let session = workspace.session("s");
        let given = Update {
            metadata: Some(notes(json!({"a": 1}))),
            members: vec![Membership::Join("quiet".into(), Some(api(json!({"observe": true}))))],
            ..with_attributes(json!({"x": 1}), r#"{"trigger": {"short": "messages(3)"}}"#)
        };
        session.update(given).await.unwrap();
        session
            .append(
                talk(1, 4)
                    .into_iter()
                    .map(|message| Message { author: Some("ann".into()), ..message })
                    .collect::<Vec<_>>(),
            )
            .await
            .unwrap();
        let own = notes(json!({"own": true}));
        for (at, fork) in [Fork::whole("whole"), Fork::condensed("condensed")].into_iter().enumerate() {
            for metadata in [None, Some(own.clone()), Some(Map::new())] {
                let name = format!("{} {}", fork.name, metadata.as_ref().map_or(9, Map::len));
                let made = session
                    .fork(Fork { name: name.as_str().into(), metadata: metadata.clone(), ..fork.clone() })
                    .await
                    .unwrap();
                let info = made.info().await.unwrap();
                match metadata {
                    Some(metadata) => assert_eq!(info.metadata, metadata, "{name}: nothing put in"),
                    None => assert_eq!(
                        Value::Object(info.metadata),
                        json!({"a": 1, "forked_from": {"session": "s", "at": 4}})
                    ),
                }
                assert_eq!(info.attributes, api(json!({"x": 1})), "{name}");
                let settings = made.settings().await.unwrap();
                assert_eq!(settings.slots[0].slot.trigger.to_string(), "messages(3)");
                let mut there = members(&made).await;
                there.sort();
                let all: &[&str] = if at == 0 { &["ann", "quiet"] } else { &["ann"] };
                assert_eq!(there, all, "{name}: whoever is heard of in it");
            }
        }
        let quiet = workspace.session("whole 9").member("quiet").await.unwrap().unwrap();
        assert_eq!(quiet.attributes, api(json!({"observe": true})));
        assert_eq!(members(&session).await, ["quiet", "ann"]);
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}

#[tokio::test]
async fn a_session_that_is_deleted_while_it_is_copied_is_not_found() {
    on_every_store(async |home| {
        let engine = home.open(Engine::builder().workers(0)).await;
        let all = engine.session("all");
        for _ in 0..4 {
            all.append(talk(1, 1_000)).await.unwrap();
        }
        // Each time it is deleted a little later, so that some time it is between two pieces.
        for late in 0..12 {
            let session = all.fork(Fork::whole(format!("from {late}"))).await.unwrap();
            let deleted = async {
                for _ in 0..late {
                    all.info().await.unwrap();
                }
                assert!(session.delete().await.unwrap());
            };
            let (made, ()) = tokio::join!(session.fork(Fork::whole(format!("to {late}"))), deleted);
            match made {
                Ok(whole) => assert_eq!(whole.info().await.unwrap().messages, 4_000, "{late}"),
                Err(Error::NotFound { what, .. }) => assert_eq!(what, format!("session `from {late}`")),
                Err(other) => panic!("{late}: {other}"),
            }
        }
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}
