//! What would have been sent, and what is: by our count, and as the provider counts where it told.

use epitome::Call;

use crate::support::{ANN, Desk, Home, TWELVE, open, plain, talk, tokens};

#[tokio::test]
async fn both_are_told_on_every_turn_by_our_count() {
    let engine = plain().await;
    let desk = Desk::new(&engine, "home", TWELVE).await;
    let list = talk("a", 30);
    for len in 1..=30 {
        let passing = desk.call(&ANN, Call { fixed: 40, ..Call::of(&list[..len]) }).await;
        assert_eq!(passing.ready.full, tokens(&list[..len]) + 40);
        assert_eq!(passing.ready.sent, tokens(&passing.ready) + 40);
        assert_eq!(passing.ready.full == passing.ready.sent, len < 12);
    }
}

#[tokio::test]
async fn as_the_provider_counts_where_it_told_also_after_a_restart() {
    let home = Home::new();
    let mut engine = open(&home).await;
    let mut desk = Desk::new(&engine, "home", TWELVE).await;
    let list = talk("a", 60);
    for len in 10..=60 {
        if len % 7 == 0 {
            engine.close().await;
            engine = open(&home).await;
            desk = Desk::new(&engine, "home", TWELVE).await;
        }
        let passing = desk.call(&ANN, Call { fixed: 300, ..Call::of(&list[..len]) }).await;
        let (full, sent) = (tokens(&list[..len]) + 300, tokens(&passing.ready) + 300);
        // It counts half as much again, and what was learnt of that is kept whenever something is condensed.
        let near = |told: u64, ours: u64| told * 100 >= ours * 120 && told * 100 <= ours * 155;
        if len > 30 {
            assert!(near(passing.ready.full, full), "{len}: {} of {full}", passing.ready.full);
            assert!(near(passing.ready.sent, sent), "{len}: {} of {sent}", passing.ready.sent);
        }
        assert!(passing.ready.full >= passing.ready.sent);
        passing.ready.turn().reported(sent * 3 / 2);
    }
    engine.close().await;
}

#[tokio::test]
async fn where_condensing_is_off_nothing_is_saved() {
    let engine = plain().await;
    let desk = Desk::new(&engine, "home", r#""enabled": false"#).await;
    let list = talk("a", 30);
    let first = desk.before(&ANN, &list[..20]).await;
    let second = desk.before(&ANN, &list).await;
    assert!(second.ready.is_untouched() && second.ready.full == second.ready.sent);
    assert_eq!(first.conversation_id, second.conversation_id, "and still it is known");
}
