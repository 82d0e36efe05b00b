//! Tests the reported sizes of the full and the sent request, by the local count and by the provider's.

use epitome::Call;

use crate::support::{ANN, Home, Proxy, TWELVE, open, plain, talk, tokens};

#[tokio::test]
async fn both_sizes_are_reported_on_every_turn_by_the_local_count() {
    let engine = plain().await;
    let proxy = Proxy::new(&engine, "home", TWELVE).await;
    let list = talk("a", 30);
    for len in 1..=30 {
        let proxied = proxy.call(&ANN, Call { fixed: 40, ..Call::of(&list[..len]) }).await;
        assert_eq!(proxied.ready.full, tokens(&list[..len]) + 40);
        assert_eq!(proxied.ready.sent, tokens(&proxied.ready) + 40);
        assert_eq!(proxied.ready.full == proxied.ready.sent, len < 12);
    }
}

#[tokio::test]
async fn both_sizes_use_the_providers_count_also_after_a_restart() {
    let home = Home::new();
    let mut engine = open(&home).await;
    let mut proxy = Proxy::new(&engine, "home", TWELVE).await;
    let list = talk("a", 60);
    for len in 10..=60 {
        if len % 7 == 0 {
            engine.close().await;
            engine = open(&home).await;
            proxy = Proxy::new(&engine, "home", TWELVE).await;
        }
        let proxied = proxy.call(&ANN, Call { fixed: 300, ..Call::of(&list[..len]) }).await;
        let (full, sent) = (tokens(&list[..len]) + 300, tokens(&proxied.ready) + 300);
        // The provider counts half as much again. The learned ratio is stored with each condensation.
        let near = |told: u64, ours: u64| told * 100 >= ours * 120 && told * 100 <= ours * 155;
        if len > 30 {
            assert!(near(proxied.ready.full, full), "{len}: {} of {full}", proxied.ready.full);
            assert!(near(proxied.ready.sent, sent), "{len}: {} of {sent}", proxied.ready.sent);
        }
        assert!(proxied.ready.full >= proxied.ready.sent);
        proxied.ready.turn().reported(sent * 3 / 2);
    }
    engine.close().await;
}

#[tokio::test]
async fn a_disabled_condenser_saves_nothing() {
    let engine = plain().await;
    let proxy = Proxy::new(&engine, "home", r#""enabled": false"#).await;
    let list = talk("a", 30);
    let first = proxy.before(&ANN, &list[..20]).await;
    let second = proxy.before(&ANN, &list).await;
    assert!(second.ready.is_untouched() && second.ready.full == second.ready.sent);
    assert_eq!(first.conversation_id, second.conversation_id, "and still it is known");
}
