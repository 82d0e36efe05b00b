//! The same summaries in the same order for any sizes of appended batches.

use epitome::rules::message::{Message, Part, Role};
use epitome::rules::slot::Limit;
use epitome::{Engine, Session};
use epitome_testkit::scripted::Scripted;

use crate::support::{
    Home, assert_complete, coverage, current_summary, engine_of_model, fast_pace, history, on_every_store,
    one_slot, prompt_messages, slot, span, talk, wait_until,
};

/// Each is built on the one before, which it replaced.
async fn assert_chained(session: &Session, name: &str) {
    let all = history(session, name).await;
    assert_eq!((all[0].parent, all[0].built_on), (None, None));
    for pair in all.windows(2) {
        assert_eq!((pair[1].parent, pair[1].built_on), (Some(pair[0].id), Some(pair[0].id)));
        assert_eq!(pair[1].span.unwrap().from, pair[0].through + 1);
    }
}

async fn assert_summaries_of_a_hundred(engine: &Engine, session: &Session) {
    assert_eq!(coverage(session, "short").await, [20, 40, 60, 80, 100]);
    assert_eq!(coverage(session, "long").await, [60]);
    assert_chained(session, "short").await;
    assert_chained(session, "long").await;
    let stand = session.summaries().await.unwrap();
    let stand: Vec<_> = stand.iter().map(|summary| (summary.slot.as_str(), summary.through)).collect();
    assert_eq!(stand, [("long", 60), ("short", 100)]);
    for budget in [1_000, 4_000, 100_000] {
        assert_complete(&session.context(budget).await.unwrap(), 100);
    }
    assert_eq!(engine.verify().await.unwrap(), []);
}

#[tokio::test]
async fn a_hundred_messages_in_one_batch_get_five_short_summaries_and_one_long_in_order() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(engine_of_model(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 100)).await.unwrap();
        session.work().await.unwrap();
        assert_summaries_of_a_hundred(&engine, &session).await;
        assert_eq!(model.calls(), 6);
        // Each of them was shown the one before and what came after it.
        let history = history(&session, "short").await;
        let asks = model.requests();
        let short: Vec<_> = asks.iter().filter(|ask| ask.limit == Limit::Tokens(1_000)).collect();
        for (at, ask) in short.iter().enumerate() {
            let at = at as u64;
            assert_eq!(prompt_messages(ask), span(at * 20 + 1, at * 20 + 20));
            let before = at.checked_sub(1).map(|at| history[at as usize].text.as_str());
            assert_eq!(ask.previous.as_deref(), before);
        }
    })
    .await;
}

#[tokio::test]
async fn local_writes_the_same_summaries_without_a_key() {
    on_every_store(async |home| {
        let engine = home.open(Engine::builder().workers(0)).await;
        let session = engine.session("s");
        session.append(talk(1, 100)).await.unwrap();
        session.work().await.unwrap();
        assert_summaries_of_a_hundred(&engine, &session).await;
        assert!(history(&session, "short").await.iter().all(|summary| summary.model == "local"));
    })
    .await;
}

#[tokio::test]
async fn a_background_worker_writes_the_same_summaries_without_a_request() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(engine_of_model(&model).pace(fast_pace(2))).await;
        let session = engine.session("s");
        session.append(talk(1, 100)).await.unwrap();
        wait_until("both summaries", || async {
            let short =
                current_summary(&session, "short").await.is_some_and(|summary| summary.through == 100);
            short && current_summary(&session, "long").await.is_some()
        })
        .await;
        assert_summaries_of_a_hundred(&engine, &session).await;
        engine.close().await;
    })
    .await;
}

#[tokio::test]
async fn batch_sizes_do_not_change_the_summaries() {
    let mut seen = Vec::new();
    for sizes in [vec![1; 100], vec![7; 14], vec![33, 33, 34], vec![100]] {
        let home = Home::memory();
        let engine = home.open(Engine::builder().workers(0)).await;
        let session = engine.session("s");
        let mut said = 0;
        for size in sizes {
            session.append(talk(said + 1, said + size)).await.unwrap();
            said += size;
            session.work().await.unwrap();
        }
        session.append(talk(said + 1, 101)).await.unwrap();
        session.work().await.unwrap();
        let texts: Vec<_> =
            history(&session, "short").await.into_iter().map(|s| (s.through, s.text)).collect();
        seen.push(texts);
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]));
}

#[tokio::test]
async fn of_thirty_messages_twenty_are_covered_and_the_fortieth_fires_again() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(engine_of_model(&model)).await;
        let session = engine.session("s");
        session.append(talk(1, 30)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(coverage(&session, "short").await, [20]);
        assert_complete(&session.context(4_000).await.unwrap(), 30);
        session.append(talk(31, 39)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!((coverage(&session, "short").await, model.calls()), (vec![20], 1));
        assert_eq!(slot(&session, "short").await.why, "not due: messages 19 of 20");
        session.append(talk(40, 40)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(coverage(&session, "short").await, [20, 40]);
        assert_eq!(prompt_messages(&model.requests()[1]), span(21, 40));
    })
    .await;
}

#[tokio::test]
async fn twenty_one_word_messages_are_summarized_without_a_model_call() {
    on_every_store(async |home| {
        let model = Scripted::new();
        let engine = home.open(engine_of_model(&model)).await;
        let session = engine.session("s");
        let words: Vec<Message> =
            (0..10).flat_map(|_| [Message::user("Ping"), Message::assistant("Pong")]).collect();
        session.append(words).await.unwrap();
        session.work().await.unwrap();
        let summary = current_summary(&session, "short").await.unwrap();
        assert_eq!((summary.through, summary.model.as_str(), model.calls()), (20, "verbatim", 0));
        assert_eq!(summary.text.matches("Pong").count(), 10, "{}", summary.text);
        assert_complete(&session.context(500).await.unwrap(), 20);
    })
    .await;
}

#[tokio::test]
async fn a_secret_in_short_messages_is_redacted_from_their_summary() {
    let home = Home::memory();
    let engine = home.open(Engine::builder().workers(0)).await;
    let session = engine.session("s");
    let mut words: Vec<Message> = (0..19).map(|_| Message::user("Ping")).collect();
    words.insert(3, Message::user("My password is hunter22."));
    session.append(words).await.unwrap();
    session.work().await.unwrap();
    let summary = current_summary(&session, "short").await.unwrap();
    assert_eq!(summary.model, "verbatim");
    assert!(!summary.text.contains("hunter22") && summary.text.contains("[redacted:"), "{}", summary.text);
    assert_eq!(session.search("hunter22", None, None, 9).await.unwrap().len(), 1, "the log is untouched");
}

#[tokio::test]
async fn messages_without_text_do_not_block_their_slot() {
    let blank = || (0..20).map(|_| Message::user(" ")).collect::<Vec<_>>();
    let reasoning = || {
        let part =
            || Part::thinking("Let me think about that for a while, step by step, and then once more.");
        (0..20).map(|_| Message::new(Role::Assistant, [part()])).collect::<Vec<_>>()
    };
    for wordless in [blank, reasoning] as [fn() -> Vec<Message>; 2] {
        let home = Home::memory();
        let model = Scripted::new();
        let engine = home.open(one_slot(&model)).await;
        let session = engine.session("s");
        session.append(wordless()).await.unwrap();
        session.work().await.unwrap();
        assert_eq!((model.calls(), slot(&session, "short").await.due), (0, None));
        session.append(talk(21, 40)).await.unwrap();
        session.work().await.unwrap();
        assert_eq!(coverage(&session, "short").await, [40]);
        session.append(wordless()).await.unwrap();
        session.work().await.unwrap();
        let all = history(&session, "short").await;
        assert_eq!((all[1].through, &all[1].text, model.calls()), (60, &all[0].text, 1));
    }
}
