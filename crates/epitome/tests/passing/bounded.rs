//! What is kept is bounded, in the store and in memory, and no turn costs more than it must.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use epitome::Call;
use epitome::rules::message::Message;
use epitome::rules::tokens::Counter;

use crate::support::{ANN, Desk, Home, TWELVE, open, plain, said, talk};

#[tokio::test]
async fn a_row_is_bounded_whatever_was_said() {
    let home = Home::new();
    let engine = open(&home).await;
    // A summary as large as they get, of very much.
    let settings = r#""trigger": "tokens(50000)", "keep": "messages(4)", "max_tokens": 100000"#;
    let desk = Desk::new(&engine, "home", settings).await;
    let list: Vec<Message> = (1..=400)
        .map(|n| {
            let lines: Vec<String> = (0..40)
                .map(|line| format!("Order {n}-{line} goes to /srv/b{n}/{line}.rs as id-{n}{line}."))
                .collect();
            Message::user(lines.join("\n"))
        })
        .collect();
    for len in [200, 300, 400] {
        assert!(desk.before(&ANN, &list[..len]).await.ready.report.condensed);
    }
    engine.close().await;
    let (rows, longest) = home.rows();
    assert!(rows > 0 && longest < 1 << 20, "{rows} rows, the longest of {longest}");
    // And still it is taken up.
    let engine = open(&home).await;
    let desk = Desk::new(&engine, "home", settings).await;
    assert!(!desk.before(&ANN, &list).await.ready.report.condensed);
    engine.close().await;
}

#[tokio::test]
async fn no_row_is_written_where_nothing_was_condensed() {
    let home = Home::new();
    let engine = open(&home).await;
    let desk = Desk::new(&engine, "home", TWELVE).await;
    let list = talk("a", 15);
    for len in 1..=15 {
        desk.before(&ANN, &list[..len]).await;
    }
    desk.before(&ANN, &[]).await;
    desk.before(&ANN, &[Message::system("Alone.")]).await;
    engine.close().await;
    let (rows, _) = home.rows();
    assert_eq!(rows, 1, "once, when it was condensed");
}

#[tokio::test]
async fn what_was_taken_in_is_not_counted_again() {
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
