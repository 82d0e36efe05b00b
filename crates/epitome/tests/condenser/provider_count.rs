//! Tests that the provider's token count decides when a list is due, whether condensing helps, and what fits.

use epitome::rules::condense::Press;
use epitome::rules::message::Message;
use epitome::rules::tokens::Counter;
use epitome::{Call, Condenser};

use crate::support::{complaints, forced, talk, talk_of, words, words_counted};

fn at(tokens: u64) -> Condenser {
    words(&format!(r#""trigger": "tokens({tokens})", "keep": "messages(4)", "max_tokens": 60"#))
        .build()
        .unwrap()
}

fn count(messages: &[Message]) -> u64 {
    let counter: Counter = words_counted();
    messages.iter().map(|message| counter.message(message)).sum()
}

#[tokio::test]
async fn a_local_count_over_the_threshold_does_not_condense_if_the_provider_counts_half() {
    let condenser = at(2_000);
    let history = talk_of(1, 39, 100);
    for len in 1..=39 {
        let ready = condenser.before_model(&history[..len]).await;
        assert!(!ready.report.condensed, "{:?}", ready.report);
        ready.turn().reported(count(&history[..len]) / 2);
    }
    // The report contains the provider's count.
    let ready = condenser.before_model(&history).await;
    assert_eq!(ready.report.tokens_before, count(&history) / 2);
}

#[tokio::test]
async fn a_local_count_under_the_threshold_condenses_if_the_provider_counts_double() {
    let condenser = at(2_000);
    let history = talk_of(1, 30, 100);
    let ready = condenser.before_model(&history[..9]).await;
    assert!(!ready.report.condensed);
    ready.turn().reported(1_800);
    drop(ready);
    let ready = condenser.before_model(&history[..11]).await;
    assert!(ready.report.condensed, "1,800 and two more of at least 100: {:?}", ready.report);
}

/// Runs a session with a provider that reports the same count for every request. Returns the lengths at which the list
/// was condensed, and the reasons.
async fn run_session(condenser: &Condenser, history: &[Message], reported: u64) -> (Vec<usize>, Vec<String>) {
    let (mut passes, mut reasons) = (Vec::new(), Vec::new());
    for len in 1..=history.len() {
        let ready = condenser.before_model(&history[..len]).await;
        if ready.report.condensed {
            passes.push(len);
        }
        reasons.push(ready.report.reason.clone());
        ready.turn().reported(reported);
    }
    (passes, reasons)
}

#[tokio::test]
async fn after_two_condensations_that_did_not_help_it_stops_and_reports_it() {
    let condenser = at(400);
    let history = talk(1, 90);
    let (passes, reasons) = run_session(&condenser, &history, 500).await;
    assert_eq!(passes.len(), 2, "{reasons:?}");
    assert_eq!(reasons.last().unwrap(), "stopped");
    let ready = condenser.before_model(&history).await;
    assert!(
        ready.report.notice.contains("the last 2 condensations saved too little"),
        "{}",
        ready.report.notice
    );
    drop(ready);

    // A forced call condenses nevertheless.
    let ready = forced(&condenser, &history, Press::Gently).await;
    assert_eq!((ready.report.condensed, ready.report.reason.as_str()), (true, "forced"));
    // Condensing still does not help, so it stays stopped.
    ready.turn().reported(500);
    drop(ready);
    let mut more = history.clone();
    more.extend(talk(91, 30));
    assert_eq!(condenser.before_model(&more[..91]).await.report.reason, "stopped");

    // Now it helps, so condensing continues.
    let ready = forced(&condenser, &more, Press::Gently).await;
    ready.turn().reported(60);
    drop(ready);
    more.extend(talk(121, 60));
    let ready = condenser.before_model(&more).await;
    assert_eq!((ready.report.condensed, ready.report.reason.as_str()), (true, "due"), "{:?}", ready.report);
}

#[tokio::test]
async fn condensations_that_help_never_stop_it() {
    let condenser = at(400);
    let history = talk(1, 200);
    let mut passes = 0;
    for len in 1..=history.len() {
        let ready = condenser.before_model(&history[..len]).await;
        passes += usize::from(ready.report.condensed);
        ready.turn().reported(count(&ready));
    }
    assert!(passes >= 10, "{passes}");
}

#[tokio::test]
async fn the_next_list_fits_the_limit_that_the_provider_reported() {
    for limit in [900, 500, 300, 200] {
        let condenser = at(170_000);
        let history = talk(1, 60);
        let ready = condenser.before_model(&history).await;
        assert!(!ready.report.condensed);
        ready.turn().too_long(Some(limit));
        drop(ready);
        let ready = condenser.before_model(&history).await;
        assert_eq!((ready.report.condensed, ready.report.reason.as_str()), (true, "too_long"));
        assert!(count(&ready) <= limit, "{} of {limit}", count(&ready));
        assert_eq!((ready.report.window, ready.last()), (Some(limit), history.last()));
        assert_eq!(complaints(&ready), Vec::<String>::new());
        drop(ready);
        // The limit stays: no larger request is sent.
        let mut more = history.clone();
        for n in 61..120 {
            more.extend(talk(n, 1));
            let ready = condenser.before_model(&more).await;
            assert!(count(&ready) <= limit, "{} of {limit}", count(&ready));
        }
    }
}

#[tokio::test]
async fn without_a_reported_limit_each_next_list_is_smaller() {
    let condenser = at(170_000);
    let history = talk(1, 200);
    let mut size = count(&history);
    for _ in 0..4 {
        let ready = condenser.before_model(&history).await;
        ready.turn().too_long(None);
        drop(ready);
        let ready = condenser.before_model(&history).await;
        if !ready.report.condensed {
            break;
        }
        assert!(count(&ready) < size);
        size = count(&ready);
    }
    assert!(size < 400, "{size}");
    // The rejection has an effect on one turn only.
    let ready = condenser.before_model(&history).await;
    assert_eq!((ready.report.condensed, ready.report.reason.as_str()), (false, "not_due"));
}

#[tokio::test]
async fn a_request_that_is_too_long_because_of_its_tools_is_reported_and_not_condensed_forever() {
    let condenser = at(170_000);
    let history = talk(1, 30);
    let call = |fixed| Call { fixed, ..Call::of(&history) };
    condenser.before(call(5_000)).await.turn().too_long(Some(4_000));
    let ready = condenser.before(call(5_000)).await;
    assert_eq!((ready.report.condensed, ready.report.reason.as_str()), (false, "over_budget_elsewhere"));
    assert!(ready.report.notice.contains("over budget elsewhere: tools"), "{}", ready.report.notice);
    assert!(ready.is_untouched());
    drop(ready);
    // With fewer tools the history can be condensed again.
    let ready = condenser.before(call(3_700)).await;
    assert!(ready.report.condensed && count(&ready) + 3_700 <= 4_000, "{:?}", ready.report);
}

#[tokio::test]
async fn a_report_for_an_old_turn_does_no_harm() {
    let condenser = at(400);
    let history = talk(1, 60);
    let first = condenser.before_model(&history[..10]).await.turn();
    condenser.before_model(&history[..30]).await;
    first.reported(180);
    let ready = condenser.before_model(&history[..31]).await;
    assert!(!ready.report.condensed && ready.report.tokens_before < 400, "{:?}", ready.report);
}
