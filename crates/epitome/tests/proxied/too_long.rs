//! Tests requests that the provider rejected as too long: they are sent again, smaller, and the condensation is stored.

use epitome::Call;
use epitome::inline::ProxiedList;
use epitome::rules::condense::Press;
use epitome::rules::message::Message;

use crate::support::{ANN, Home, Proxy, assert_own, open, plain, talk, tokens};

async fn pressed<'a>(proxy: &Proxy, list: &'a [Message]) -> ProxiedList<'a> {
    proxy.call(&ANN, Call { force: Some(Press::Hard), ..Call::of(list) }).await
}

#[tokio::test]
async fn a_list_that_was_too_long_becomes_smaller_or_stays_the_same() {
    let settings = r#""trigger": "messages(30)", "keep": "messages(8)", "max_tokens": 200"#;
    let engine = plain().await;
    let proxy = Proxy::new(&engine, "home", settings).await;
    for (of, len) in [("a", 20), ("b", 30), ("c", 9)] {
        let list = talk(of, len);
        let mut sent = proxy.before(&ANN, &list).await;
        let mut smaller = 0;
        loop {
            sent.ready.turn().too_long(None);
            let again = pressed(&proxy, &list).await;
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
async fn the_next_list_obeys_the_limit_that_the_provider_reported() {
    let engine = plain().await;
    let proxy = Proxy::new(&engine, "home", r#""trigger": "messages(90)", "max_tokens": 100"#).await;
    let list = talk("a", 40);
    let sent = proxy.before(&ANN, &list).await;
    assert!(sent.ready.is_untouched() && sent.ready.sent > 400);
    sent.ready.turn().too_long(Some(300));
    let again = pressed(&proxy, &list).await;
    assert!(again.ready.report.condensed && again.ready.sent <= 300, "{:?}", again.ready.report);
}

#[tokio::test]
async fn a_hard_condensation_survives_a_restart() {
    let home = Home::new();
    let settings = r#""trigger": "messages(12)", "keep": "messages(6)", "max_tokens": 200"#;
    let list = talk("a", 14);
    let engine = open(&home).await;
    let proxy = Proxy::new(&engine, "home", settings).await;
    let sent = proxy.before(&ANN, &list[..12]).await;
    assert!(sent.ready.report.condensed);
    // The same list twice: of the two rows the later one counts.
    sent.ready.turn().too_long(None);
    let again = pressed(&proxy, &list[..12]).await;
    assert!(again.ready.report.condensed);
    let shown = again.ready.into_messages();
    engine.close().await;
    let engine = open(&home).await;
    let proxy = Proxy::new(&engine, "home", settings).await;
    let proxied = proxy.before(&ANN, &list).await;
    assert!(proxied.ready.starts_with(&shown) && !proxied.ready.report.condensed);
    engine.close().await;
}

#[tokio::test]
async fn a_caller_that_continued_in_the_meantime_is_not_condensed_harder() {
    let settings = r#""trigger": "messages(12)", "keep": "messages(6)", "max_tokens": 200"#;
    let engine = plain().await;
    let proxy = Proxy::new(&engine, "home", settings).await;
    let list = talk("a", 14);
    let sent = proxy.before(&ANN, &list[..12]).await;
    // The conversation continues before the provider's rejection arrives.
    let further = proxy.before(&ANN, &list).await;
    let again = pressed(&proxy, &list[..12]).await;
    assert!(again.ready.report.condensed && again.ready.sent < sent.ready.sent);
    assert_own(&again.ready, &list[..12]);
    let still = proxy.before(&ANN, &list).await;
    assert_eq!(*still.ready, *further.ready);
}
