//! Ids of summaries count within their session, so they reveal nothing about other sessions.

use epitome::{Engine, Error, Fork, Session};
use epitome_testkit::scripted::Scripted;

use crate::support::{Home, current_summary, history, on_every_store, one_slot, talk};

#[tokio::test]
async fn summary_ids_count_within_their_session() {
    on_every_store(async |home| {
        let engine = home.open(one_slot(&Scripted::new())).await;
        let (ours, theirs) = (engine.workspace("we").session("s"), engine.workspace("they").session("s"));
        for (n, session) in [&theirs, &theirs, &ours, &theirs, &ours].into_iter().enumerate() {
            let from = 1 + 20 * n;
            session.append(talk(from, from + 19)).await.unwrap();
            session.work().await.unwrap();
        }
        let numbers = async |session| -> Vec<i64> {
            history(session, "short").await.iter().map(|summary| summary.id).collect()
        };
        assert_eq!((numbers(&ours).await, numbers(&theirs).await), (vec![1, 2], vec![1, 2, 3]));
        assert!(matches!(ours.expand(3, Default::default()).await, Err(Error::NotFound { .. })));
        assert!(matches!(ours.undo(3).await, Err(Error::NotFound { .. })));
        let fork = ours.fork(Fork::whole("fork")).await.unwrap();
        assert_eq!(numbers(&fork).await, [1, 2]);
        ours.undo(2).await.unwrap();
        assert_eq!(current_summary(&fork, "short").await.unwrap().id, 2);
        assert_eq!(engine.verify().await.unwrap(), []);
    })
    .await;
}

/// A session whose summaries `local` writes: they are rendered again in every size, and cached.
async fn alone(engine: &Engine, name: &str, from: usize) -> Session {
    let session = engine.session(name);
    session.append(talk(from, from + 19)).await.unwrap();
    session.work().await.unwrap();
    session
}

#[tokio::test]
async fn a_cached_text_is_not_used_for_a_summary_with_the_same_id_in_another_session() {
    on_every_store(async |home| {
        let settings = r#"{"slot": [{"name": "short", "trigger": "messages(20)"}]}"#;
        let builder = || Engine::builder().workers(0).settings(settings);
        let engine = home.open(builder()).await;
        let (one, two) = (alone(&engine, "one", 1).await, alone(&engine, "two", 101).await);
        for tokens in [2_000, 400, 300, 400] {
            let elsewhere = Home::memory().open(builder()).await;
            let by_itself = alone(&elsewhere, "two", 101).await.context(tokens).await.unwrap();
            let (first, second) = (one.context(tokens).await.unwrap(), two.context(tokens).await.unwrap());
            let (first, second) = (first.summary.unwrap(), second.summary.unwrap());
            assert_eq!((first.id, second.id), (Some(1), Some(1)));
            assert_eq!(second.text, by_itself.summary.unwrap().text, "{tokens}");
            assert_ne!(first.text, second.text, "{tokens}");
        }
    })
    .await;
}
