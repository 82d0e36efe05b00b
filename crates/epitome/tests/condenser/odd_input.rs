//! Tests unusual lists: nothing panics, and the result is correct.

use epitome::rules::condense::{ListState, Press};
use epitome::rules::message::{Message, Part, Role};
use epitome::{Call, Condenser};
use epitome_testkit::drawing;

use crate::support::{complaints, forced, talk_of, words};

fn any() -> Vec<Condenser> {
    [
        "noop",
        "recent",
        "mask",
        "summarize",
        "amortized",
        "pipeline(mask, summarize)",
        "summarize(messages(0))",
    ]
    .into_iter()
    .flat_map(|strategy| {
        ["messages(1)", "economic", "tokens(50)"].map(|trigger| {
            let settings = format!(r#""strategy": "{strategy}", "trigger": "{trigger}""#);
            words(&settings).window(1_000).build().unwrap()
        })
    })
    .collect()
}

async fn try_all(list: &[Message]) {
    for condenser in any() {
        for press in [Press::Gently, Press::Hard] {
            let ready = forced(&condenser, list, press).await;
            if ready.is_untouched() {
                assert_eq!(*ready, *list);
            } else {
                assert_eq!(complaints(&ready), Vec::<String>::new(), "{:?}", ready.report);
            }
            ready.turn().reported(u64::MAX);
            ready.turn().too_long(Some(0));
            drop(ready);
            condenser.before_model(list).await.turn().reported(0);
            assert_eq!(condenser.forecast(&Call::of(list)).messages.len(), list.len());
            let huge = Call { fixed: u64::MAX, room: Some(u64::MAX), ..Call::of(list) };
            condenser.before(huge).await;
            condenser.before(Call { room: Some(0), ..Call::of(list) }).await;
        }
        let standing =
            ListState { from: 99, front: vec![7, 3, 900], length: 12, rounds: 2, ..ListState::default() };
        condenser.resume(list, &standing);
        condenser.before_model(list).await;
    }
}

#[tokio::test]
async fn an_empty_list_stays_empty() {
    try_all(&[]).await;
    let condenser = words(r#""trigger": "messages(1)""#).build().unwrap();
    let ready = forced(&condenser, &[], Press::Hard).await;
    assert!(ready.is_empty() && ready.report.reason == "not_due", "{:?}", ready.report);
    // A later list is handled like any other.
    let history = talk_of(1, 30, 20);
    assert!(condenser.before_model(&history).await.report.condensed);
}

#[tokio::test]
async fn a_list_of_system_messages_stays() {
    try_all(&[Message::system("You are alone. ".repeat(100))]).await;
    try_all(&[Message::new(Role::Developer, []), Message::system("")]).await;
}

#[tokio::test]
async fn one_giant_message_stays() {
    try_all(&[Message::user("word ".repeat(20_000))]).await;
    let condenser = words(r#""trigger": "tokens(50)""#).window(1_000).build().unwrap();
    let list = [Message::user("word ".repeat(20_000))];
    let ready = condenser.before_model(&list).await;
    assert_eq!(ready.report.reason, "over_budget_elsewhere");
}

#[tokio::test]
async fn stray_tool_results_do_no_harm() {
    for drawn in [
        "r(x)",
        "a(x) a(x) r(y) r(x) r(x)",
        "r(x):90 r(y):90 a-(z) u:0",
        "a*- a*- u- s d s",
        "u(x) a(x,x) u(x,x)",
    ] {
        try_all(&drawing::messages(drawn).unwrap()).await;
    }
    try_all(&[Message::new(Role::Assistant, [Part::call("", "", "{")]), Message::new(Role::Tool, [])]).await;
}

#[tokio::test]
async fn ten_thousand_tiny_messages_are_condensed() {
    let history: Vec<Message> =
        (0..10_000).map(|n| if n % 2 == 0 { Message::user("k") } else { Message::assistant("") }).collect();
    for strategy in ["recent", "summarize", "amortized"] {
        let condenser =
            words(&format!(r#""strategy": "{strategy}", "trigger": "messages(9000)""#)).build().unwrap();
        let ready = condenser.before_model(&history).await;
        assert!(ready.report.condensed, "{:?}", ready.report);
        assert_eq!(complaints(&ready), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_different_list_on_each_call_is_condensed_correctly() {
    let condenser = words(r#""trigger": "messages(10)", "keep": "messages(2)""#).build().unwrap();
    for n in 0..200 {
        let mut list = talk_of(1 + n * 3 % 17, 8 + n % 9, 12);
        list.rotate_left(n % 5);
        let ready = condenser.before_model(&list).await;
        assert_eq!(ready.last(), list.last());
        assert!(ready.report.condensed == (list.len() >= 10) || !ready.is_untouched());
    }
}
