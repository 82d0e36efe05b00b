//! B. No loop, and no useless pass. Each case runs on the `crate::run::Runner` of the including test.

use epitome::dialect::Dialect;
use serde_json::json;

use crate::cases::out::{provider, request};
use crate::run::Runner;

const CHAT: Dialect = Dialect::OPENAI;

pub(crate) fn an_overflow_that_history_did_not_cause_is_named() {
    let mut body = request(3);
    body["tools"] =
        json!([{ "type": "function", "function": { "name": "t", "description": "word ".repeat(3_000) } }]);
    let out = Runner::new().strict(CHAT, &body, &["--window", "2000"]);
    out.is_as_it_was("over_budget_elsewhere");
}

pub(crate) fn where_all_is_kept_nobody_is_asked() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let out = runner.strict(CHAT, &request(5), &["--force", "--keep-messages", "50", "--model", "main"]);
    out.is_as_it_was("all_kept");
    assert_eq!(provider.calls(), 0);
}

pub(crate) fn one_loop_over_the_whole_list_is_left_alone() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let drawing = "u:9 a*(x):90 r(x):300 a(y):30 r(y):300 a(z) r(z):300";
    let args = ["--force", "--keep-messages", "1", "--model", "main"];
    let list = crate::judges::signed(&epitome_testkit::drawing::messages(drawing).unwrap());
    // Chat sends no reasoning, so there is no loop to be kept whole.
    for shape in [Dialect::RESPONSES, Dialect::ANTHROPIC] {
        runner.strict(shape, &crate::cases::out::spelled(shape, &list), &args).is_as_it_was("no_legal_cut");
    }
    assert_eq!(provider.calls(), 0);
}

pub(crate) fn nothing_is_condensed_for_next_to_nothing() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let mut body = request(2);
    let list = body["messages"].as_array_mut().unwrap();
    list.push(json!({ "role": "assistant", "content": "word ".repeat(4_000) }));
    list.push(json!({ "role": "user", "content": "Thanks. Next?" }));
    let out = runner.strict(CHAT, &body, &["--force", "--keep-messages", "2", "--model", "main"]);
    out.is_as_it_was("not_worth");
    assert_eq!(provider.calls(), 0);
}

pub(crate) fn a_call_nobody_answered_stops_nothing() {
    for out in Runner::new()
        .drawn("u:300 a(x):9 u:90 a:300 u:90 a:9 u:9", &["--force", "--keep-messages", "2", "--strip"])
    {
        out.is_condensed();
    }
}
