//! Histories of every kind, broken ones too, sent through as agents send them: whole, again and again, a little longer each
//! time. What goes on rewritten is never refused.

use std::cell::RefCell;

use epitome::dialect::Dialect;
use epitome::rules::message::{Message, Part, Role};
use epitome::rules::outline::Cut;
use epitome::rules::tokens::{Counter, Encoding};
use epitome_testkit::restored::restore_body;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Value, json};

use crate::drawn_sessions::{Drawn, Log, session};
use crate::server::Client;
use crate::stage::{ROUTES, Stage, done};
use crate::upstream::{Behavior, Manner};

/// How many histories the gate draws.
const CASES: u32 = 1_500;

/// Each is a workspace with settings of its own.
const STRATEGIES: [&str; 6] = [
    "summarize(messages(2))",
    "amortized(messages(1))",
    "mask(messages(1))",
    "recent(turns(1))",
    "pipeline(mask(messages(1)), summarize(messages(3)))",
    "summarize(tokens(40))",
];

const DIALECTS: [Dialect; 3] = [Dialect::OPENAI, Dialect::RESPONSES, Dialect::ANTHROPIC];

fn request(dialect: Dialect, messages: &[Message], stream: bool) -> Value {
    let mut body: Map<String, Value> = restore_body(dialect, messages);
    body.insert("model".to_owned(), json!("nobody-knows"));
    if dialect == Dialect::OPENAI {
        // Some servers know it, and this one does not.
        for message in body.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten() {
            message.as_object_mut().unwrap().remove("reasoning_content");
        }
    }
    if dialect == Dialect::ANTHROPIC {
        // What is wrong with standing orders stays wrong: they are nobody's to touch.
        if let Some(system) = body.get_mut("system").and_then(Value::as_array_mut) {
            system.retain(|block| block["text"] != "");
        }
        if body.get("system").is_some_and(|system| *system == json!([]) || *system == json!("")) {
            body.remove("system");
        }
        body.insert("max_tokens".to_owned(), json!(64));
    }
    if stream {
        body.insert("stream".to_owned(), json!(true));
    }
    Value::Object(body)
}

/// Without our flags, which go no further than to us.
fn unflagged(mut body: Value) -> Value {
    for field in ["messages", "input"] {
        for message in body.get_mut(field).and_then(Value::as_array_mut).into_iter().flatten() {
            message.as_object_mut().unwrap().remove("epitome");
        }
    }
    body
}

#[derive(Default)]
struct Seen {
    condensed: usize,
    retried: usize,
    steady: usize,
}

#[test]
fn no_request_that_was_rewritten_is_refused() {
    let stage = Stage::with(Manner { window: 1_000_000, keeps: 2, ..Manner::default() }, &[]);
    for (at, strategy) in STRATEGIES.iter().enumerate() {
        let settings = json!({"settings": {"condense": {
            "strategy": strategy, "trigger": "messages(6)", "min_worth": 0.01, "keep_first": at % 3,
            "summary_role": if at == 5 { "system" } else { "user" },
        }}});
        let mut client = stage.server.client().with("x-epitome-workspace", &format!("w{at}"));
        client.json("PUT", "/v1/workspace", &settings).ok();
    }
    let clients: Vec<RefCell<Client>> = (0..STRATEGIES.len())
        .map(|at| RefCell::new(stage.client().with("x-epitome-workspace", &format!("w{at}"))))
        .collect();
    let seen = RefCell::new(Seen::default());
    let drawn = (session(), 0..STRATEGIES.len(), 0..DIALECTS.len(), 1..4usize, prop::bool::weighted(0.1));
    TestRunner::new(epitome_testkit::budget::config(CASES))
        .run(&drawn, |(drawn, strategy, dialect, step, grumbles)| {
            let mut client = clients[strategy].borrow_mut();
            talk(&stage, &mut client, &drawn, (dialect, step, grumbles), &mut seen.borrow_mut())
        })
        .unwrap();
    let seen = seen.into_inner();
    // How often each should happen, in proportion to what was drawn.
    let of = |usual: usize| usual * epitome_testkit::budget::cases(CASES) as usize / CASES as usize;
    assert!(
        seen.condensed > of(1_000) && seen.retried > of(20) && seen.steady > of(400),
        "too little was tried: {} {} {}",
        seen.condensed,
        seen.retried,
        seen.steady
    );
}

/// One history through the proxy.
fn talk(
    stage: &Stage,
    client: &mut Client,
    drawn: &Drawn,
    (at, step, grumbles): (usize, usize, bool),
    seen: &mut Seen,
) -> Result<(), TestCaseError> {
    let (dialect, mut messages) = (DIALECTS[at], drawn.messages());
    if dialect != Dialect::RESPONSES {
        // Only there has a call two ids. Elsewhere a result by the other one answers nothing, and the call stays open.
        for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
            if let Part::ToolCall(call) = part {
                call.item_id = None;
            }
        }
    }
    // Who it is that a tool answers is told on no wire, and who replies only on one: of calls with one id by two agents
    // the first then has the answer.
    for message in &mut messages {
        if message.role == Role::Tool || dialect != Dialect::OPENAI {
            message.author = None;
        }
    }
    let field = if dialect == Dialect::RESPONSES { "input" } else { "messages" };
    let mut before: Option<Vec<Value>> = None;
    // No agent asks its model while calls are open, or right after a reply.
    let log = Log::new(messages.clone(), Counter::new(Encoding::default()));
    let is_asked = |end: &usize| log.end(*end) != Cut::InCall && messages[end - 1].role != Role::Assistant;
    let ends = (1..=messages.len()).filter(is_asked);
    for end in ends.step_by(step) {
        let body = request(dialect, &messages[..end], end % 2 == 0);
        if grumbles && end > messages.len() / 2 {
            stage.upstream.then(Behavior::TooLong);
        }
        let answer = client.post(ROUTES[at].0, &body);
        stage.upstream.always(None);
        let got = stage.got().json();
        let list = got[field].as_array().cloned().unwrap_or_default();
        match done(&answer) {
            "condensed" | "retried" => {
                let told: Value = serde_json::from_str(answer.header("x-epitome-report")).unwrap();
                let grumbled = grumbles
                    && answer.status == 400
                    && ["too long", "exceed"].iter().any(|word| answer.text().contains(word));
                // What is left may end with a call that nobody answered: it is still open, and no model is asked then.
                let open = list
                    .last()
                    .is_some_and(|last| last["role"] == "assistant" || last["type"] == "function_call");
                prop_assert!(answer.status == 200 || grumbled || open, "{}\n{body}\n{got}", answer.text());
                prop_assert!(got.to_string().len() < body.to_string().len() + 400, "{body}\n{got}");
                seen.condensed += 1;
                seen.retried += usize::from(done(&answer) == "retried");
                if let Some(before) = before.as_ref().filter(|_| told["condensed"] == false) {
                    // The last one may have been joined with what came after it.
                    let steady = &before[..before.len().saturating_sub(1)];
                    prop_assert!(list.starts_with(steady), "{:?}\n{:?}", steady, list);
                    seen.steady += 1;
                }
                // What was made harder and not sent, since it is not smaller, holds from the next request on.
                before = Some(list).filter(|_| !grumbles);
            }
            "untouched" => {
                prop_assert_eq!(&got, &unflagged(body));
                before = None;
            }
            word => prop_assert!(false, "{} {} {}", word, answer.text(), answer.header("x-epitome-report")),
        }
    }
    Ok(())
}
