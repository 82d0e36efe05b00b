//! The provider found it too long: once more, strictly smaller, and kept.

use epitome::Call;
use epitome::inline::ProxiedList;
use epitome::rules::condense::Press;
use epitome::rules::message::Message;

use crate::support::{ANN, Desk, Home, assert_own, open, plain, talk, tokens};

async fn pressed<'a>(desk: &Desk, list: &'a [Message]) -> ProxiedList<'a> {
    desk.call(&ANN, Call { force: Some(Press::Hard), ..Call::of(list) }).await
}

#[tokio::test]
async fn what_was_too_long_is_strictly_smaller_the_second_time_or_stays() {
    let settings = r#""trigger": "messages(30)", "keep": "messages(8)", "max_tokens": 200"#;
    let engine = plain().await;
    let desk = Desk::new(&engine, "home", settings).await;
    for (of, len) in [("a", 20), ("b", 30), ("c", 9)] {
        let list = talk(of, len);
        let mut sent = desk.before(&ANN, &list).await;
        let mut smaller = 0;
        loop {
            sent.ready.turn().too_long(None);
            let again = pressed(&desk, &list).await;
            if !again.ready.report.condensed {
                assert_eq!(*again.ready, *sent.ready, "where it cannot, it is the same");
                break;
            }
            assert!(tokens(&again.ready) < tokens(&sent.ready) && again.ready.sent < sent.ready.sent);
            assert_eq!(again.ready.full, sent.ready.full);
            assert_eq!(again.ready.report.reason, "too_long");
            assert_own(&again.ready, &list);
            smaller += 1;
            sent = again;
        }
        assert!((1..8).contains(&smaller), "{smaller}: it ends");
    }
}

#[tokio::test]
async fn a_limit_that_the_provider_names_is_kept_to() {
    let engine = plain().await;
    let desk = Desk::new(&engine, "home", r#""trigger": "messages(90)", "max_tokens": 100"#).await;
    let list = talk("a", 40);
    let sent = desk.before(&ANN, &list).await;
    assert!(sent.ready.is_untouched() && sent.ready.sent > 400);
    sent.ready.turn().too_long(Some(300));
    let again = pressed(&desk, &list).await;
    assert!(again.ready.report.condensed && again.ready.sent <= 300, "{:?}", again.ready.report);
}

#[tokio::test]
async fn what_was_done_under_pressure_stands_after_a_restart() {
    let home = Home::new();
    let settings = r#""trigger": "messages(12)", "keep": "messages(6)", "max_tokens": 200"#;
    let list = talk("a", 14);
    let engine = open(&home).await;
    let desk = Desk::new(&engine, "home", settings).await;
    let sent = desk.before(&ANN, &list[..12]).await;
    assert!(sent.ready.report.condensed);
    // The very same list twice: of the two rows the later one holds.
    sent.ready.turn().too_long(None);
    let again = pressed(&desk, &list[..12]).await;
    assert!(again.ready.report.condensed);
    let shown = again.ready.into_messages();
    engine.close().await;
    let engine = open(&home).await;
    let desk = Desk::new(&engine, "home", settings).await;
    let passing = desk.before(&ANN, &list).await;
    assert!(passing.ready.starts_with(&shown) && !passing.ready.report.condensed);
    engine.close().await;
}

#[tokio::test]
async fn somebody_who_goes_on_meanwhile_is_not_pressed() {
    let settings = r#""trigger": "messages(12)", "keep": "messages(6)", "max_tokens": 200"#;
    let engine = plain().await;
    let desk = Desk::new(&engine, "home", settings).await;
    let list = talk("a", 14);
    let sent = desk.before(&ANN, &list[..12]).await;
    // Before the provider's refusal is there, the conversation goes on.
    let further = desk.before(&ANN, &list).await;
    let again = pressed(&desk, &list[..12]).await;
    assert!(again.ready.report.condensed && again.ready.sent < sent.ready.sent);
    assert_own(&again.ready, &list[..12]);
    let still = desk.before(&ANN, &list).await;
    assert_eq!(*still.ready, *further.ready);
}
