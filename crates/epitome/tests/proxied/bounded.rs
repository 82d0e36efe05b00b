//! Tests that the stored state is bounded, and that messages are counted once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use epitome::Call;
use epitome::rules::message::Message;
use epitome::rules::tokens::Counter;

use crate::support::{ANN, Home, Proxy, TWELVE, open, plain, said, talk};

#[tokio::test]
async fn a_row_is_bounded_for_any_conversation() {
    let home = Home::new();
    let engine = open(&home).await;
    // A summary of the largest size, of many messages.
    let settings = r#""trigger": "tokens(50000)", "keep": "messages(4)", "max_tokens": 100000"#;
    let proxy = Proxy::new(&engine, "home", settings).await;
    let list: Vec<Message> = (1..=400)
        .map(|n| {
            let lines: Vec<String> = (0..40)
                .map(|line| format!("Order {n}-{line} goes to /srv/b{n}/{line}.rs as id-{n}{line}."))
                .collect();
            Message::user(lines.join("\n"))
        })
        .collect();
    for len in [200, 300, 400] {
        assert!(proxy.before(&ANN, &list[..len]).await.ready.report.condensed);
    }
    engine.close().await;
    let (rows, longest) = home.rows();
    assert!(rows > 0 && longest < 1 << 20, "{rows} rows, the longest of {longest}");
    // It is still read after a restart.
    let engine = open(&home).await;
    let proxy = Proxy::new(&engine, "home", settings).await;
    assert!(!proxy.before(&ANN, &list).await.ready.report.condensed);
    engine.close().await;
}

#[tokio::test]
async fn no_row_is_written_without_a_condensation() {
    let home = Home::new();
    let engine = open(&home).await;
    let proxy = Proxy::new(&engine, "home", TWELVE).await;
    let list = talk("a", 15);
    for len in 1..=15 {
        proxy.before(&ANN, &list[..len]).await;
    }
    proxy.before(&ANN, &[]).await;
    proxy.before(&ANN, &[Message::system("Alone.")]).await;
    engine.close().await;
    let (rows, _) = home.rows();
    assert_eq!(rows, 1, "once, when it was condensed");
}

#[tokio::test]
async fn messages_are_counted_once() {
    let engine = plain().await;
    let workspace = engine.workspace("home");
    let counted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&counted);
    let counter = Counter::custom("letters", move |text: &str| {
        count.fetch_add(1, Ordering::Relaxed);
        text.len() as u64 / 4
    });
    let condenser = workspace.condenser().await.unwrap().counter(counter).build().unwrap();
    let mut list = talk("a", 2_000);
    for n in 2_001..=2_020 {
        workspace.inline().before(&condenser, &ANN, Call::of(&list)).await;
        let before = counted.load(Ordering::Relaxed);
        list.push(said("a", n));
        workspace.inline().before(&condenser, &ANN, Call::of(&list)).await;
        let more = counted.load(Ordering::Relaxed) - before;
        assert!(more <= 4, "{more} texts were counted for one message more");
    }
}
