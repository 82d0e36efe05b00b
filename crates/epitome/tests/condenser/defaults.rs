//! Tests the default settings, and the forms in which settings can be written.

use epitome::rules::condense::Press;
use epitome::rules::message::Message;
use epitome::rules::tokens::{Counter, Encoding};
use epitome::{Call, Condenser};
use serde_json::json;

use crate::support::{forced, summary, talk, talk_of, words, words_counted};

fn plain() -> epitome::CondenserBuilder {
    Condenser::builder().counter(words_counted())
}

/// Returns a list with this total number of words.
fn of_words(total: usize) -> Vec<Message> {
    let mut list = talk_of(1, 40, total / 40);
    let left = total - total / 40 * 40;
    list.push(Message::user("w ".repeat(left.max(1)).trim_end()));
    list.truncate(if left == 0 { 40 } else { 41 });
    list
}

#[tokio::test]
async fn it_is_due_at_170_000_tokens_or_three_quarters_of_the_window() {
    for (window, due) in [(None, 170_000), (Some(1_000_000), 170_000), (Some(100_000), 75_000)] {
        let build = || {
            let builder = plain();
            window.map_or_else(plain, |window| builder.window(window)).build().unwrap()
        };
        let before = of_words(due - 1);
        let ready = build();
        let ready = ready.before_model(&before).await;
        assert!(!ready.report.condensed, "{window:?}: {:?}", ready.report);
        assert_eq!(ready.report.percent, window.map(|window| (due as u64 - 1) * 100 / window));
        let reached = of_words(due);
        let ready = build();
        let ready = ready.before_model(&reached).await;
        assert!(ready.report.condensed, "met when reached: {:?}", ready.report);
    }
}

#[tokio::test]
async fn the_models_window_and_output_reserve_are_looked_up() {
    let condenser = plain().for_model("claude-sonnet-4-5").build().unwrap();
    let window = condenser.before_model(&[Message::user("Hello")]).await.report.window.unwrap();
    assert!(window < 200_000 && window > 100_000, "{window}");
    // A setting takes precedence.
    let condenser =
        plain().for_model("claude-sonnet-4-5").window(50_000).output_reserve(8_000).build().unwrap();
    assert_eq!(condenser.before_model(&[Message::user("Hello")]).await.report.window, Some(42_000));
    // The values of a call take precedence over both.
    let list = [Message::user("Hello")];
    let ready = condenser.before(Call { room: Some(9_000), ..Call::of(&list) }).await;
    assert_eq!(ready.report.window, Some(9_000));
    assert_eq!(condenser.counter().name(), "words");
    let own = Condenser::builder().for_model("gpt-5-mini").build().unwrap();
    assert_eq!(own.counter().name(), Counter::new(Encoding::for_model("gpt-5-mini").unwrap()).name());
}

#[tokio::test]
async fn summarize_and_amortized_keep_six_and_recent_fifty() {
    let history = talk_of(1, 120, 50);
    for (strategy, kept) in [("summarize", 1 + 6), ("recent", 50)] {
        let condenser = words(&format!(r#""strategy": "{strategy}""#)).build().unwrap();
        let ready = forced(&condenser, &history, Press::Gently).await;
        assert_eq!((ready.len(), ready.report.strategy.as_str()), (kept, strategy));
        assert_eq!(ready[ready.len() - 6..], history[114..]);
    }
    // Half of the tokens, and never fewer than six messages.
    let condenser = words(r#""strategy": "amortized""#).build().unwrap();
    let ready = forced(&condenser, &history, Press::Gently).await;
    assert_eq!((ready.len(), &ready[1..]), (1 + 60, &history[60..]));
    let mut heavy = talk_of(1, 20, 400);
    heavy.extend(talk_of(21, 7, 2_000));
    let condenser = words(r#""strategy": "amortized""#).build().unwrap();
    let ready = forced(&condenser, &heavy, Press::Gently).await;
    assert!(ready.len() > 6, "{}", ready.len());
}

#[tokio::test]
async fn the_short_settings_equal_the_long_ones() {
    let history = talk(1, 60);
    let mut lists = Vec::new();
    for settings in
        [r#""threshold": 0.5, "keep_last": 3"#, r#""trigger": "window(0.5)", "keep": "messages(3)""#]
    {
        let condenser = words(settings).window(2_000).build().unwrap();
        assert!(!condenser.before_model(&history[..48]).await.report.condensed);
        let ready = condenser.before_model(&history[..50]).await;
        assert!(ready.report.condensed);
        lists.push(ready.len());
    }
    assert_eq!(lists[0], lists[1]);
}

#[tokio::test]
async fn a_disabled_condenser_reports_off() {
    let condenser = words(r#""enabled": false, "trigger": "messages(2)""#).build().unwrap();
    let history = talk(1, 60);
    let ready = forced(&condenser, &history, Press::Hard).await;
    assert!(ready.is_untouched() && !ready.report.condensed);
    assert_eq!((ready.report.reason.as_str(), ready.report.messages_after), ("off", 60));
    // Reports to its turns do no harm.
    ready.turn().reported(5);
    ready.turn().too_long(Some(1));
    assert!(condenser.before_model(&history).await.is_untouched());
}

#[test]
fn invalid_settings_are_refused_by_name() {
    let refused = |builder: epitome::CondenserBuilder| builder.build().unwrap_err().to_string();
    let told = refused(words(r#""model": "nobody""#));
    assert!(
        told.contains(
            "condense.model: no model named `nobody`; define [models.nobody], or use one of: local, same"
        ),
        "{told}"
    );
    let told = refused(words(r#""trigger": "window(0.5)""#));
    assert!(told.contains("condense.trigger: window(0.5): the model's window is unknown"), "{told}");
    let told = refused(words(r#""threshold": 0.5"#).for_model("a-model-nobody-knows"));
    assert!(told.contains("condense.trigger: window(0.5)"), "{told}");
    let told = refused(words(r#""threshold": 0.5, "trigger": "messages(3)""#));
    assert!(told.contains("condense.threshold"), "{told}");
    let told = refused(words(r#""strategies": "noop""#));
    assert!(told.contains("condense.strategies"), "{told}");
    assert!(words(r#""trigger": "window(0.5)""#).window(1_000).build().is_ok());
}

#[tokio::test]
async fn tools_are_counted_with_every_call_by_default() {
    let tool = json!({"name": "read", "description": "word ".repeat(300), "parameters": {"type": "object"}});
    let condenser =
        words(r#""trigger": "tokens(500)", "keep": "messages(2)""#).tools([tool]).build().unwrap();
    let history = talk(1, 12);
    let with = condenser.before_model(&history[..2]).await.report.tokens_before;
    assert!(with > 300, "{with}");
    let asked = Call { room: Some(9_000), ..Call::of(&history[..2]) };
    assert_eq!(condenser.before(asked).await.report.tokens_before, with);
    assert_eq!(condenser.forecast(&asked).tokens, with);
    let told = Call { fixed: 7, ..Call::of(&history[..2]) };
    assert_eq!(condenser.before(told).await.report.tokens_before, 40 + 7);
    assert!(condenser.before_model(&history).await.report.condensed, "40 words and twelve messages");
}

#[tokio::test]
async fn a_forecast_predicts_and_changes_nothing() {
    let condenser = words(r#""trigger": "messages(12)", "keep": "messages(4)""#).build().unwrap();
    let mut history = talk(1, 12);
    history[2].pinned = true;
    let forecast = condenser.forecast(&Call::of(&history));
    assert!(forecast.condenses && forecast.reason == "due");
    let leaves: Vec<u64> =
        forecast.messages.iter().filter(|fate| !fate.stays).map(|fate| fate.position).collect();
    let ready = condenser.before_model(&history).await;
    assert!(
        ready.report.condensed && ready.report.tokens_after <= forecast.tokens_after,
        "nothing was done before"
    );
    for (place, message) in (1..).zip(&history) {
        assert_eq!(!ready.contains(message), leaves.contains(&place), "{place}");
    }
    assert!(summary(&ready).is_some());
}
