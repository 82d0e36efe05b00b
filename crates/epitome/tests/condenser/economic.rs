//! Tests the trigger `economic`: the list is cut where that costs least, by the prices of the models.

use epitome::rules::message::Message;
use epitome::{Condenser, CondenserBuilder};
use epitome_testkit::scripted::Scripted;

use crate::support::{talk, words_counted};

/// Twenty words a call, four messages kept of which one is the user's last, and a summary of 60 words at most. So the
/// last request is H = 20, the kept ones K = 60, S = 60, g = 20.
fn builder(condense: &str, more: &str) -> CondenserBuilder {
    let settings = format!(
        r#"{{"condense": {{"trigger": "economic", "keep": "messages(4)", "max_tokens": 60{condense}}}{more}}}"#
    );
    Condenser::builder()
        .counter(words_counted())
        .window(100_000)
        .settings(&settings)
        .model("m", Scripted::new().named("m"))
}

/// Returns the number of messages, one per call, after which the list is first condensed.
async fn first_cut(builder: CondenserBuilder) -> usize {
    let condenser = builder.build().unwrap();
    let history = talk(1, 4_500);
    for len in 1..=history.len() {
        if condenser.before_model(&history[..len]).await.report.condensed {
            return len;
        }
    }
    panic!("never");
}

#[tokio::test]
async fn unknown_prices_assume_a_tenth_for_reads_and_five_quarters_for_writes() {
    // X = 1.15 * 120 = 138; the root of 2 * 138 * 20 / 0.1 is 234.9; T* = 140 + 235 = 375, which 19 messages reach.
    assert_eq!(first_cut(builder("", "")).await, 19);
}

#[tokio::test]
async fn the_prices_of_the_models_determine_the_threshold() {
    // R = 0.25, W = 1: X = 0.75 * 120 = 90; the root of 2 * 90 * 20 / 0.25 is 120; T* = 260, which 13 messages reach.
    let prices = r#", "prices": {"agent": {"input": 2, "output": 10, "cache_read": 0.5, "cache_write": 2}, "m": {"input": 1, "output": 4}}"#;
    assert_eq!(first_cut(builder("", prices).for_model("agent")).await, 13);
    // The summarizer at 0.5 and 2: X = 90 + 0.5 * (2,000 + 60) + 2 * 60 = 1,240; the root of 2 * 1,240 * 20 / 0.25 is
    // 445.4; T* = 140 + 446 = 586, which 30 messages reach.
    let dearer = r#", "model": "m""#;
    assert_eq!(first_cut(builder(dearer, prices).for_model("agent")).await, 30);
}

#[tokio::test]
async fn a_summarizer_with_an_unknown_price_costs_as_much_as_the_model_itself() {
    // X = 138 + 1 * 2,060 + 5 * 60 = 2,498; the root of 2 * 2,498 * 20 / 0.1 is 999.6; T* = 1,140.
    assert_eq!(first_cut(builder(r#", "model": "m""#, "")).await, 57);
}

#[tokio::test]
async fn with_free_reads_the_threshold_is_three_quarters_of_the_window() {
    let prices = r#", "prices": {"agent": {"input": 2, "output": 10, "cache_read": 0, "cache_write": 2}}"#;
    assert_eq!(first_cut(builder("", prices).for_model("agent").window(1_000)).await, 38);
    // The result never exceeds that limit.
    assert_eq!(first_cut(builder(r#", "model": "m""#, "").window(1_000)).await, 38);
}

#[tokio::test]
async fn nothing_is_cut_before_the_third_call() {
    let condenser = builder("", "").build().unwrap();
    let history: Vec<Message> = (0..70).map(|n| Message::user(format!("w{n} {}", "w ".repeat(19)))).collect();
    for (call, len) in [(1, 60), (2, 61)] {
        let ready = condenser.before_model(&history[..len]).await;
        assert!(!ready.report.condensed, "call {call}");
    }
    assert!(condenser.before_model(&history[..62]).await.report.condensed);
    // A list that comes with two replies in it is at its third call.
    let mut long = vec![Message::user("w ".repeat(600)), Message::assistant("w ".repeat(600))];
    long.extend([Message::user("w ".repeat(300)), Message::assistant("w ".repeat(300))]);
    long.extend(history[..6].to_vec());
    assert!(builder("", "").build().unwrap().before_model(&long).await.report.condensed);
    long.remove(1);
    assert!(!builder("", "").build().unwrap().before_model(&long).await.report.condensed);
}

#[tokio::test]
async fn after_a_cut_the_current_summary_counts() {
    let condenser = builder("", "").build().unwrap();
    let history = talk(1, 300);
    let mut cuts = Vec::new();
    for len in 1..=300 {
        if condenser.before_model(&history[..len]).await.report.condensed {
            cuts.push(len);
        }
    }
    let apart: Vec<usize> = cuts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(apart.iter().all(|gap| (9..=15).contains(gap)), "{cuts:?}");
}

#[tokio::test]
async fn a_different_token_count_of_the_provider_does_not_move_the_cuts() {
    let history = talk(1, 120);
    let mut all = Vec::new();
    for (times, of) in [(1, 1), (2, 1), (1, 2)] {
        let condenser = builder("", "").build().unwrap();
        let mut cuts = Vec::new();
        for len in 1..=history.len() {
            let ready = condenser.before_model(&history[..len]).await;
            if ready.report.condensed {
                cuts.push(len);
            }
            let words: u64 = ready.iter().map(|message| words_counted().message(message)).sum();
            ready.turn().reported(words * times / of);
        }
        all.push(cuts);
    }
    assert!(all[0].len() > 3 && all[0] == all[1] && all[0] == all[2], "{all:?}");
}
