//! Tests that a turn counts only its new messages, and copies no old ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use epitome::rules::message::{Message, Part};
use epitome::rules::tokens::{Counter, Overhead};
use epitome::{Condenser, ReadyList};

use crate::support::talk_of;

/// Returns a counter of words, and how often it was called.
fn counted() -> (Counter, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    let words = move |text: &str| {
        counts.fetch_add(1, Ordering::Relaxed);
        text.split_whitespace().count() as u64
    };
    (Counter::custom("words", words).with_overhead(Overhead::none()), asked)
}

fn condenser(counter: Counter, strategy: &str) -> Condenser {
    let settings = format!(
        r#"{{"condense": {{"trigger": "tokens(60000)", "strategy": "{strategy}", "max_tokens": 200}}}}"#
    );
    Condenser::builder().counter(counter).settings(&settings).build().unwrap()
}

/// Returns the memory address of the first message's text.
fn text_address(ready: &ReadyList<'_>) -> *const u8 {
    match &ready[0].parts[0] {
        Part::Text { text } => text.as_ptr(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_turn_without_condensation_counts_only_new_messages() {
    // Before a condensation: 5,000 messages of 10 words.
    let (counter, asked) = counted();
    let condenser = condenser(counter, "amortized");
    let all = talk_of(1, 5_900, 10);
    let mut history = all[..5_000].to_vec();
    condenser.before_model(&history).await;
    for (at, new) in [1, 3, 1, 2].into_iter().enumerate() {
        history.extend_from_slice(&all[5_000 + at * 5..5_000 + at * 5 + new]);
        let before = asked.load(Ordering::Relaxed);
        let ready = condenser.before_model(&history).await;
        assert!(ready.is_untouched());
        assert_eq!(asked.load(Ordering::Relaxed) - before, new, "{new} came");
    }
}

#[tokio::test]
async fn after_a_condensation_too_with_either_list() {
    for returned in [false, true] {
        let (counter, asked) = counted();
        let condenser = condenser(counter, "amortized");
        let all = talk_of(1, 7_000, 10);
        let mut list = all[..6_000].to_vec();
        let ready = condenser.before_model(&list).await;
        assert!(ready.report.condensed && ready.len() > 2_500);
        if returned {
            list = ready.into_messages();
        }
        for turn in 0..20 {
            list.push(all[6_000 + turn].clone());
            let before = asked.load(Ordering::Relaxed);
            let ready = condenser.before_model(&list).await;
            assert!(!ready.report.condensed);
            let cost = asked.load(Ordering::Relaxed) - before;
            // A returned list is counted again when the caller passes it for the first time. Otherwise a message is
            // counted once as it came, and once as it is sent.
            assert!(cost <= 2 || (returned && turn == 0), "{cost} in turn {turn}, handed: {returned}");
        }
    }
}

#[tokio::test]
async fn the_condensed_list_is_not_copied_if_the_caller_dropped_the_previous_one() {
    let (counter, _) = counted();
    let condenser = condenser(counter, "amortized");
    let all = talk_of(1, 6_100, 10);
    let first = text_address(&condenser.before_model(&all[..6_000]).await);
    for len in 6_001..6_010 {
        let ready = condenser.before_model(&all[..len]).await;
        assert_eq!(text_address(&ready), first, "the very same words in memory");
        assert_eq!(ready.last(), all[..len].last());
    }
    // A caller that still has the previous list keeps it unchanged; the conversation continues with a copy.
    let held = condenser.before_model(&all[..6_010]).await;
    let ready = condenser.before_model(&all[..6_011]).await;
    assert_eq!((held.last(), ready.last()), (all[..6_010].last(), all[..6_011].last()));
    assert_eq!(ready.len(), held.len() + 1);
    assert_ne!(text_address(&ready), text_address(&held));
}

#[tokio::test]
async fn a_list_that_is_not_due_is_returned_without_a_copy() {
    let (counter, _) = counted();
    let condenser = condenser(counter, "summarize");
    let history: Vec<Message> = talk_of(1, 100, 10);
    let ready = condenser.before_model(&history).await;
    assert!(ready.is_untouched() && std::ptr::eq(ready.as_ptr(), history.as_ptr()));
}
