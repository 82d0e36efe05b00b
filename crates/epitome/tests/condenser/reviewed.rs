//! Tests for errors that a review found.

use epitome::Condenser;
use epitome::model::{Model, ModelError, Reply, SummaryRequest};
use epitome::rules::message::{Message, Part};
use epitome::rules::message::{Timestamp, Tokens};
use epitome_testkit::scripted::Scripted;
use std::time::Duration;

fn talk(from: usize, count: usize) -> Vec<Message> {
    let said = |n: usize| {
        let words: Vec<String> = (0..20).map(|word| format!("w{}", (n * 31 + word * 7) % 97)).collect();
        let text = format!("order {n} goes to Oslo {}", words.join(" "));
        if n % 2 == 1 { Message::user(text) } else { Message::assistant(text) }
    };
    (from..from + count).map(said).collect()
}

fn condenser(condense: &str) -> Condenser {
    Condenser::builder().settings(&format!(r#"{{"condense": {{{condense}}}}}"#)).build().unwrap()
}

#[tokio::test]
async fn a_system_prompt_with_the_current_time_is_sent_unchanged_and_causes_no_cut() {
    let model = Scripted::new();
    let settings =
        r#"{"condense": {"trigger": "messages(30)", "keep": "messages(4)", "model": "m", "wait": true}}"#;
    let condenser = Condenser::builder().model("m", model.clone()).settings(settings).build().unwrap();
    let mut history = vec![Message::system("The time is 12:00.")];
    history.extend(talk(1, 21));
    let mut cuts = 0;
    for turn in 0..20 {
        history[0] = Message::system(format!("The time is 12:{:02}.", turn + 1));
        history.extend(talk(22 + 2 * turn, 2));
        let ready = condenser.before_model(&history).await;
        assert_eq!(ready[0], history[0], "turn {turn}");
        assert_eq!(ready.last().map(|m| &m.parts), history.last().map(|m| &m.parts));
        cuts += u64::from(ready.report.condensed);
    }
    assert_eq!((cuts, model.calls()), (2, 2), "as often as 40 messages more make it due");
}

#[tokio::test]
async fn a_change_in_a_long_system_prompt_or_pinned_message_is_noticed_immediately() {
    let condenser = condenser(r#""trigger": "messages(30)", "keep": "messages(4)""#);
    let long = |time: &str| format!("{}{time}{}", "You are careful. ".repeat(30), " Be kind.".repeat(60));
    let mut history = Vec::with_capacity(1_000);
    history.push(Message::system(long("12:01")));
    history.push(Message { pinned: true, ..Message::user(long("12:01")) });
    history.extend(talk(1, 31));
    assert!(condenser.before_model(&history).await.report.condensed);
    for (at, time) in [(0, "12:02"), (1, "12:03")] {
        // Changed in place, with the same length.
        if let Part::Text { text } = &mut history[at].parts[0] {
            *text = long(time);
        }
        history.extend(talk(32 + 2 * at, 2));
        let ready = condenser.before_model(&history).await;
        assert_eq!(ready[at].parts, history[at].parts, "{time}");
    }
}

#[tokio::test]
async fn a_list_that_could_not_be_condensed_is_tried_again_when_it_has_grown() {
    let condenser = condenser(r#""trigger": "tokens(2000)", "keep": "messages(6)", "window": 20000"#);
    let mut history = vec![Message::system("S")];
    let (mut stopped, mut most) = (0, 0);
    for turn in 0..200 {
        history.extend(talk(2 * turn + 1, 2));
        let ready = condenser.before_model(&history).await;
        let own: u64 = ready.iter().map(|message| condenser.counter().message(message)).sum();
        // Tools that the condenser does not count.
        ready.turn().reported(own + 1_500);
        stopped += u64::from(ready.report.reason == "stopped");
        most = most.max(own + 1_500);
    }
    assert!(stopped > 0, "two passes in a row did not help");
    assert!(most < 10_000, "and it went on all the same: {most}");
}

#[tokio::test]
async fn a_summary_loses_nothing_when_few_messages_leave() {
    let condenser = condenser(r#""trigger": "tokens(600)", "keep": "messages(4)""#);
    let mut history = vec![Message::system("S")];
    for n in 0..40 {
        history.push(Message::user(format!(
            "Remember: ticket FACT-{n}7{n} was fixed in src/mod_{n}.rs by {n}7 seconds."
        )));
        history.push(Message::assistant(format!("Noted: FACT-{n}7{n} is fixed, file src/mod_{n}.rs.")));
    }
    history.push(Message::user("Go on."));
    let mut known = Vec::new();
    for pass in 0..10 {
        let ready = condenser.before_model(&history).await;
        let all = epitome::rules::prompt::lines(ready.iter());
        known.push((0..40).filter(|n| all.contains(&format!("FACT-{n}7{n}"))).count());
        history.extend([Message::assistant(format!("Step {pass} is done.")), Message::user("And the next?")]);
    }
    assert!(known[0] >= 20, "{known:?}");
    assert!(known.iter().all(|known_then| *known_then + 3 >= known[0]), "{known:?}");
}

/// Never answers.
struct Silent;

#[async_trait::async_trait]
impl Model for Silent {
    fn name(&self) -> &'static str {
        "gpt-5-mini"
    }

    fn room(&self) -> Option<Tokens> {
        None
    }

    async fn write(&self, _ask: &SummaryRequest) -> Result<Reply, ModelError> {
        std::future::pending().await
    }
}

#[tokio::test]
async fn the_cost_of_an_abandoned_call_is_recorded() {
    let settings = r#"{"condense": {"trigger": "messages(12)", "model": "m"}}"#;
    let engine = epitome::Engine::builder().model("m", Silent).settings(settings).memory().await.unwrap();
    let workspace = engine.workspace("home");
    let condenser = workspace.condenser().await.unwrap().one_shot().build().unwrap();
    let history = talk(1, 20);
    let left = tokio::time::timeout(Duration::from_millis(50), condenser.before_model(&history)).await;
    assert!(left.is_err());
    for _ in 0..500 {
        let rows = workspace.usage(Timestamp(0)).await.unwrap();
        if let Some(row) = rows.first() {
            assert_eq!((&*row.outcome, row.calls), ("dropped", 1));
            assert!(row.input > 200 && row.cost.is_some_and(|cost| cost > 0), "{row:?}");
            engine.close().await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nothing was recorded");
}
