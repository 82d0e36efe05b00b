//! Slots and settings: triggers, limits, models, and the facts of the resulting summaries.

use std::time::Duration;

use epitome::model::Reply;
use epitome::rules::keep::Keep;
use epitome::rules::message::Message;
use epitome::settings::Patch;
use epitome::{Engine, Error, SlotStatus, Summarize, Summarized};
use epitome_testkit::scripted::Scripted;
use serde_json::json;

use crate::support::{
    Home, MINUTE, coverage, current_summary, fast_pace, history, on_every_store, one_slot, prompt_messages,
    slot, span, talk, wait_until, with_settings,
};

fn patch(document: &str) -> Patch {
    Patch::parse(document).unwrap()
}

#[tokio::test]
async fn a_summary_serializes_to_json_with_the_documented_counts() {
    on_every_store(async |home| {
        let model = Scripted::new().named("gpt-test");
        let slots = r#", "slot": [{"name": "notes", "auto": false, "keep": "messages(4)"}]"#;
        let engine = home.open(with_settings(&model, slots)).await;
        let session = engine.session("s");
        let mut before = None;
        for (head, original, ratio, from, through, by) in [
            (8, 8, 37.5, 1, 4, "verbatim"),
            (16, 13, 61.5, 5, 12, "gpt-test"),
            (50, 39, 87.2, 13, 46, "gpt-test"),
        ] {
            let said = session.info().await.map_or(0, |info| info.messages);
            session.append(talk(said as usize + 1, head)).await.unwrap();
            let done = session.summarize(Summarize::default()).await.unwrap();
            let Summarized::Written { summary } = done else { panic!("{done:?}") };
            let facts = serde_json::to_value(&summary).unwrap();
            assert_eq!(
                (&facts["original_count"], &facts["compressed_count"], &facts["compression_ratio"]),
                (&json!(original), &json!(5), &json!(ratio)),
            );
            assert_eq!(facts["span"], json!({"from": from, "through": through}));
            assert_eq!((&facts["slot"], &facts["model"]), (&json!("notes"), &json!(by)));
            assert_eq!((&facts["state"], &facts["stand_in"]), (&json!("standing"), &json!(false)));
            assert_eq!((&facts["parent"], &facts["built_on"]), (&json!(before), &json!(before)));
            assert_eq!((&facts["through"], &facts["fired_at"]), (&json!(through), &json!(head)));
            assert_eq!(facts["created"], json!(home.clock.now()));
            if by != "verbatim" {
                assert!(facts["tokens"].as_u64().unwrap() < facts["replaced_tokens"].as_u64().unwrap());
                assert!(facts["text"].as_str().unwrap().contains("Summary of"));
            }
            before = Some(summary.id);
        }
    })
    .await;
}

#[tokio::test]
async fn a_slot_without_auto_fires_only_on_request() {
    let home = Home::memory();
    let model = Scripted::new();
    let engine = home
        .open(with_settings(
            &model,
            r#", "slot": [{"name": "hand", "trigger": "messages(5)", "auto": false}]"#,
        ))
        .await;
    let session = engine.session("s");
    session.append(talk(1, 50)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!((model.calls(), slot(&session, "hand").await.why.as_str()), (0, "summarized only on request"));
    session.summarize(Summarize::slot("hand")).await.unwrap();
    assert_eq!(coverage(&session, "hand").await, [50]);
}

#[tokio::test]
async fn messages_that_keep_selects_are_not_summarized() {
    for (keep, through) in [("messages(6)", 14), ("turns(2)", 16), ("tokens(100)", 16)] {
        let home = Home::memory();
        let slots =
            format!(r#", "slot": [{{"name": "short", "trigger": "messages(20)", "keep": "{keep}"}}]"#);
        let engine = home.open(with_settings(&Scripted::new(), &slots)).await;
        let session = engine.session("s");
        session.append(talk(1, 20)).await.unwrap();
        session.work().await.unwrap();
        let got = current_summary(&session, "short").await.unwrap().through;
        assert!(got == through || keep.starts_with("tokens") && got > 14 && got < 20, "{keep}: {got}");
    }
}

#[tokio::test]
async fn a_limit_in_characters_is_exact() {
    let home = Home::memory();
    let model = Scripted::new().otherwise(|_| {
        Ok(Reply::complete(
            "Ann waits for one more parcel from Oslo. ".repeat(2)
                + &"x, y and z are on their way to her ".repeat(2)
                + "and so on and on.",
        ))
    });
    let engine = home
        .open(with_settings(
            &model,
            r#", "slot": [{"name": "short", "trigger": "messages(20)", "max_chars": 80}]"#,
        ))
        .await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    let text = current_summary(&session, "short").await.unwrap().text;
    assert!(text.chars().count() <= 80 && text.ends_with("..."), "{text}");
    let local = home
        .open(
            Engine::builder()
                .workers(0)
                .settings(r#"{"slot": [{"name": "short", "trigger": "messages(20)", "max_chars": 200}]}"#),
        )
        .await;
    let session = local.session("local");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    assert!(current_summary(&session, "short").await.unwrap().text.chars().count() <= 200);
}

#[tokio::test]
async fn prompt_profile_and_instructions_reach_the_model() {
    let home = Home::memory();
    let model = Scripted::new();
    let slots = r#", "slot": [
        {"name": "own", "trigger": "messages(20)", "prompt": "Write a limerick about:\n{conversation_text}"},
        {"name": "code", "trigger": "messages(20)", "profile": "coding", "instructions": "Name every carrier."},
        {"name": "care", "trigger": "messages(20)", "profile": "support"}]"#;
    let engine = home.open(with_settings(&model, slots)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    let prompts: Vec<String> = model.requests().iter().map(|ask| ask.prompt(20_000).unwrap().user).collect();
    assert_eq!(prompts.len(), 3);
    let one = |words: &str| prompts.iter().filter(|prompt| prompt.contains(words)).count();
    assert_eq!((one("Write a limerick about:"), one("Name every carrier."), one("order 10071")), (1, 1, 3));
    assert!(prompts[0] != prompts[1] && prompts[1] != prompts[2]);
    let refused = session.set(&Patch::default()).await;
    assert!(refused.is_ok());
    let wrong = Patch::parse(r#"{"slot": [{"name": "own", "prompt": "no place for it"}]}"#).unwrap_err();
    assert_eq!(wrong.key(), "slot[0].prompt");
}

#[tokio::test]
async fn presets_fire_and_keep_as_documented() {
    for (preset, name, fires_at, through) in
        [("frequent", "frequent", 40, 30), ("long", "long", 100, 70), ("lean", "lean", 15, 10)]
    {
        let home = Home::memory();
        let slots = format!(r#", "slot": [{{"preset": "{preset}"}}]"#);
        let engine = home.open(with_settings(&Scripted::new(), &slots)).await;
        let session = engine.session("s");
        for n in 1..=fires_at {
            session.append(talk(n, n)).await.unwrap();
            session.work().await.unwrap();
            if n == 1 {
                assert_eq!(slot(&session, name).await.status, SlotStatus::Idle);
            }
            // A turn is counted when it is opened.
            if !coverage(&session, name).await.is_empty() {
                assert!(n + 1 >= fires_at, "{preset} at {n}");
                break;
            }
        }
        let summary = current_summary(&session, name).await.unwrap();
        assert!(summary.through.abs_diff(through) <= 2, "{preset}: {}", summary.through);
    }
}

#[tokio::test]
async fn settings_of_a_session_override_its_workspaces_and_a_null_removes_them() {
    on_every_store(async |home| {
        let engine = home.open(Engine::builder().workers(0)).await;
        let workspace = engine.workspace("default");
        let session = engine.session("s");
        workspace.set(&patch(r#"{"slot": [{"name": "w", "trigger": "messages(7)"}]}"#)).await.unwrap();
        session.set(&patch(r#"{"slot": [{"name": "own", "trigger": "messages(5)"}]}"#)).await.unwrap();
        session.append(talk(1, 10)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!((coverage(&session, "own").await, coverage(&session, "w").await), (vec![5, 10], vec![]));
        let other = engine.session("other");
        other.append(talk(1, 10)).await.unwrap();
        other.work().await.unwrap();
        assert_eq!((coverage(&other, "own").await, coverage(&other, "w").await), (vec![], vec![7]));
        session.set(&patch(r#"{"slot": null}"#)).await.unwrap();
        assert_eq!(session.settings().await.unwrap().slots[0].slot.name, "w");
        session.append(talk(11, 17)).await.unwrap();
        session.work().await.unwrap();
        // It came later: it counts from there, and its first summary takes in everything.
        assert_eq!(coverage(&session, "w").await, [17]);
        assert_eq!(history(&session, "w").await[0].span.unwrap().from, 1);
        assert_eq!(coverage(&session, "own").await, [5, 10], "nobody asks for it any more");
        assert_eq!(slot(&session, "own").await.status, SlotStatus::Retired);
        assert_eq!(current_summary(&session, "own").await.unwrap().through, 10, "its last one stands");
    })
    .await;
}

#[tokio::test]
async fn invalid_settings_are_refused_by_name_and_change_nothing() {
    let home = Home::memory();
    let engine = home.open(Engine::builder().workers(0)).await;
    let session = engine.session("s");
    session.append(talk(1, 2)).await.unwrap();
    for (document, name) in [
        (r#"{"summarize": {"models": ["gpt-9"]}}"#, "summarize.models[0]: no model named `gpt-9`; "),
        (r#"{"slot": [{"name": "x", "models": ["gpt-9"]}]}"#, "slot[0].models[0]: no model named `gpt-9`; "),
        (r#"{"condense": {"model": "gpt-9"}}"#, "condense.model: no model named `gpt-9`; "),
        (r#"{"slot": [{"name": "x", "trigger": "window(0.5)"}]}"#, "slot[0].trigger: window(0.5)"),
        (r#"{"slot": [{"name": "x", "keep": "window(0.5)"}]}"#, "slot[0].keep: window(0.5)"),
    ] {
        for error in [
            session.set(&patch(document)).await.unwrap_err(),
            engine.workspace("default").set(&patch(document)).await.unwrap_err(),
            Engine::builder().settings(document).memory().await.unwrap_err(),
        ] {
            assert!(matches!(&error, Error::Invalid(why) if why.contains(name)), "{document}: {error}");
        }
    }
    let own = engine.workspace("w").set(&patch(r#"{"condense": {"keep_last": 9}}"#)).await.unwrap();
    assert_eq!(own.condense.keep, Some(Keep::Messages(9)), "how lists are condensed is a workspace's to say");
    let error = session.set(&patch(r#"{"encoding": "cl100k_base"}"#)).await.unwrap_err();
    assert!(matches!(&error, Error::Conflict(why) if why.starts_with("encoding:")), "{error}");
    for wrong in
        [r#"{"context": {"max_token": 5}}"#, r#"{"slot": [{"name": "x", "max_tokens": 3}]}"#, "[]", "{"]
    {
        assert!(Patch::parse(wrong).is_err());
    }
    assert!(session.settings().await.unwrap().slots.iter().all(|slot| slot.slot.name != "x"));
}

#[tokio::test]
async fn a_slot_that_is_defined_again_counts_the_messages_since_then() {
    let home = Home::memory();
    let model = Scripted::new();
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.work().await.unwrap();
    session.set(&patch(r#"{"slot": []}"#)).await.unwrap();
    session.append(talk(21, 50)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!(coverage(&session, "short").await, [20]);
    session.set(&patch(r#"{"slot": null}"#)).await.unwrap();
    let done = session.summarize(Summarize::slot("short")).await.unwrap();
    assert!(matches!(&done, Summarized::Written { summary } if summary.through == 50), "{done:?}");
    assert_eq!(prompt_messages(&model.requests()[1]), span(21, 50));
}

#[tokio::test]
async fn a_slot_removed_while_due_is_not_summarized() {
    let home = Home::memory();
    let model = Scripted::new();
    let engine = home.open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    session.set(&patch(r#"{"slot": []}"#)).await.unwrap();
    session.work().await.unwrap();
    assert_eq!(model.calls(), 0);
    assert_eq!(engine.workspace("default").queue().await.unwrap().slots.len(), 0);
    assert!(matches!(session.summarize(Summarize::slot("short")).await, Err(Error::NotFound { .. })));
    assert!(session.context(2_000).await.unwrap().report.exhaustive);
}

#[tokio::test]
async fn a_time_trigger_fires_without_another_message() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let slots = r#", "slot": [{"name": "every", "trigger": "every(300)"}, {"name": "idle", "trigger": "idle(60)"}]"#;
        let engine = home.open(with_settings(&model, slots)).await;
        let session = engine.session("s");
        session.append(talk(1, 10)).await.unwrap();
        home.clock.pass(Duration::from_secs(50));
        session.append(talk(11, 12)).await.unwrap();
        home.clock.pass(Duration::from_millis(59_999));
        session.work().await.unwrap();
        assert_eq!(model.calls(), 0);
        home.clock.pass(Duration::from_millis(1));
        session.work().await.unwrap();
        assert_eq!((coverage(&session, "idle").await, coverage(&session, "every").await), (vec![12], vec![]));
        home.clock.pass(Duration::from_secs(190));
        session.work().await.unwrap();
        assert_eq!(coverage(&session, "every").await, [12]);
        // Time goes on, and nothing is said: nothing is due.
        home.clock.pass(MINUTE * 600);
        session.work().await.unwrap();
        assert_eq!(model.calls(), 2);
        assert_eq!(engine.workspace("default").queue().await.unwrap().slots.len(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_background_worker_finds_slots_that_time_makes_due() {
    let home = Home::memory();
    let slots = r#", "slot": [{"name": "idle", "trigger": "idle(60)"}]"#;
    let engine = home.open(with_settings(&Scripted::new(), slots).pace(fast_pace(1))).await;
    let session = engine.session("s");
    session.append(talk(1, 10)).await.unwrap();
    assert!(slot(&session, "idle").await.due_at.is_some());
    home.clock.pass(MINUTE);
    wait_until("the summary", || async { coverage(&session, "idle").await == [10] }).await;
    engine.close().await;
}

#[tokio::test]
async fn a_slot_far_behind_joins_windows_unless_catch_up_is_step() {
    for (catch_up, most) in [("join", 3), ("step", 30)] {
        let home = Home::memory();
        let model = Scripted::new();
        let slots = format!(
            r#", "slot": [{{"name": "short", "trigger": "messages(10)", "catch_up": "{catch_up}"}}]"#
        );
        let engine = home.open(with_settings(&model, &slots)).await;
        let session = engine.session("s");
        session.append(talk(1, 300)).await.unwrap();
        session.work().await.unwrap();
        let all = coverage(&session, "short").await;
        assert!(all.last() == Some(&300) && all.len() <= most, "{catch_up}: {all:?}");
        assert!(catch_up == "join" || all.len() == 30);
        assert_eq!(model.requests().iter().flat_map(prompt_messages).collect::<Vec<_>>(), span(1, 300));
    }
}

#[tokio::test]
async fn the_queue_lists_the_due_slots_of_a_workspace() {
    let home = Home::memory();
    let model = Scripted::new().fails(crate::failing::down());
    let engine = home.open(one_slot(&model)).await;
    let workspace = engine.workspace("default");
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    let queue = workspace.queue().await.unwrap();
    assert_eq!(
        (queue.due, queue.waiting, queue.slots[0].due, &*queue.slots[0].session),
        (1, 0, Some(20), "s")
    );
    session.work().await.unwrap();
    let queue = workspace.queue().await.unwrap();
    assert_eq!((queue.due, queue.waiting, queue.slots[0].attempts), (0, 1, 1));
    assert!(queue.slots[0].last_error.as_deref().unwrap().contains("connection refused"));
    assert_eq!(engine.workspace("other").queue().await.unwrap().slots.len(), 0);
}

#[tokio::test]
async fn messages_over_the_limits_are_refused_as_a_whole() {
    let home = Home::memory();
    let engine =
        home.open(Engine::builder().workers(0).settings(r#"{"limits": {"message": 100, "batch": 3}}"#)).await;
    let session = engine.session("s");
    let long = vec![Message::user("Short."), Message::user("x".repeat(101))];
    let error = session.append(long).await.unwrap_err();
    assert!(error.to_string().starts_with("messages[1]."), "{error}");
    assert!(
        session.append(vec![Message::user("Hi."); 4]).await.unwrap_err().to_string().contains("limits.batch")
    );
    assert!(matches!(session.append(Vec::new()).await, Err(Error::Invalid(_))));
    assert!(matches!(session.info().await, Err(Error::NotFound { .. })), "nothing of it was kept");
}

#[tokio::test]
async fn a_batch_over_the_body_limit_is_refused_as_a_whole() {
    let engine =
        Home::memory().open(Engine::builder().workers(0).settings(r#"{"limits": {"body": 400}}"#)).await;
    let session = engine.session("s");
    let error = session.append(vec![Message::user("x".repeat(150)); 3]).await.unwrap_err();
    assert!(matches!(&error, Error::Invalid(why) if why.contains("limits.body")), "{error}");
    assert!(matches!(session.info().await, Err(Error::NotFound { .. })), "nothing of it was kept");
    session.append(Message::user("x".repeat(150))).await.unwrap();
}

#[tokio::test]
async fn a_limit_in_characters_applies_to_summaries_without_a_model_call() {
    let model = Scripted::new().otherwise(|_| Ok(Reply::complete("They said ping and pong.")));
    let slots = r#", "slot": [{"name": "short", "trigger": "messages(20)", "max_chars": 80}]"#;
    let engine = Home::memory().open(with_settings(&model, slots)).await;
    let session = engine.session("s");
    session.append(vec![Message::user("Ping"); 20]).await.unwrap();
    session.work().await.unwrap();
    let all = session.summaries().await.unwrap();
    assert!(all.iter().all(|summary| summary.text.chars().count() <= 80), "{all:?}");
}
