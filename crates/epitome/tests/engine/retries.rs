//! An append whose response was lost can be repeated.

use epitome::rules::message::Message;
use epitome::{Batch, Error, Remedy};
use epitome_testkit::scripted::Scripted;

use crate::support::{Home, coverage, fast_pace, homes, on_every_store, one_slot, talk, within_timeout};

#[tokio::test]
async fn the_same_key_with_the_same_messages_adds_them_once() {
    on_every_store(async |home| {
        let engine = home.open(one_slot(&Scripted::new())).await;
        let session = engine.session("s");
        let first = session.append(Batch::from(talk(1, 3)).key("turn-1")).await.unwrap();
        assert!(!first.repeated);
        session.append(talk(4, 5)).await.unwrap();
        let again = session.append(Batch::from(talk(1, 3)).key("turn-1")).await.unwrap();
        assert_eq!((again.span, again.repeated), (first.span, true));
        let other = session.append(Batch::from(talk(1, 2)).key("turn-1")).await.unwrap_err();
        assert!(matches!(&other, Error::Conflict(why) if why.contains("idempotency key")), "{other}");
        assert_eq!(other.remedy(), Remedy::ReadState);
        assert_eq!(session.info().await.unwrap().messages, 5);
        // A key is a session's own.
        let elsewhere = engine.session("t").append(Batch::from(talk(1, 3)).key("turn-1")).await.unwrap();
        assert!(!elsewhere.repeated);
        for key in [String::new(), "k".repeat(257), "a\0b".to_owned()] {
            let refused = session.append(Batch::from(talk(1, 1)).key(key)).await;
            assert!(matches!(refused, Err(Error::Invalid(_))));
        }
    })
    .await;
}

#[tokio::test]
async fn an_idempotency_key_is_stored_across_restarts_for_a_week() {
    let home = Home::file();
    let engine = home.open(one_slot(&Scripted::new())).await;
    engine.session("s").append(Batch::from(talk(1, 3)).key("k")).await.unwrap();
    engine.close().await;
    let engine = home.open(one_slot(&Scripted::new())).await;
    let session = engine.session("s");
    let day = std::time::Duration::from_secs(24 * 3_600);
    home.clock.pass(day * 7);
    assert!(session.append(Batch::from(talk(1, 3)).key("k")).await.unwrap().repeated);
    home.clock.pass(std::time::Duration::from_secs(1));
    assert!(!session.append(Batch::from(talk(1, 3)).key("k")).await.unwrap().repeated);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_tasks_that_retry_the_same_append_add_it_once() {
    retried_by_eight().await;
}

pub(crate) async fn retried_by_eight() {
    for home in homes() {
        let engine = home.open(one_slot(&Scripted::new()).pace(fast_pace(1))).await;
        let session = engine.session("s");
        for round in 0..10usize {
            let tasks: Vec<_> = (0..8)
                .map(|_| {
                    let session = session.clone();
                    let batch = Batch::from(talk(round * 4 + 1, round * 4 + 4)).key(format!("turn-{round}"));
                    tokio::spawn(async move { session.append(batch).await.unwrap() })
                })
                .collect();
            let mut fresh = 0;
            for task in tasks {
                let appended = within_timeout("an append", task).await.unwrap();
                assert_eq!(appended.span.from as usize, round * 4 + 1);
                fresh += usize::from(!appended.repeated);
            }
            assert_eq!(fresh, 1);
        }
        within_timeout("the summaries", engine.work()).await.unwrap();
        assert_eq!(session.info().await.unwrap().messages, 40);
        assert_eq!(coverage(&session, "short").await, [20, 40]);
        engine.close().await;
    }
}

#[tokio::test]
async fn a_refused_append_under_a_key_leaves_the_key_free() {
    let home = Home::memory();
    let engine = home.open(one_slot(&Scripted::new())).await;
    let session = engine.session("s");
    let huge = Message::user("x".repeat(2 << 20));
    assert!(session.append(Batch::from(huge).key("k")).await.is_err());
    assert!(!session.append(Batch::from(talk(1, 1)).key("k")).await.unwrap().repeated);
}
