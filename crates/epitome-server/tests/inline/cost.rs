//! D. Size and cost.

use epitome::dialect::Dialect;
use serde_json::json;

use crate::cases;
use crate::cases::out::{provider, request};
use crate::run::Runner;

const CHAT: Dialect = Dialect::OPENAI;

#[test]
fn case_36_a_picture_is_no_text_to_the_command() {
    cases::cost::a_picture_is_no_text();
}

#[test]
fn case_37_tools_and_system_prompt_are_counted_by_the_command() {
    cases::cost::tools_and_system_prompt_are_counted();
}

#[test]
fn case_38_the_commands_summarizer_never_overflows() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 8_000);
    let mut body = request(150);
    body["messages"][5]["content"] = json!("A log line that says much the same. ".repeat(6_000));
    let out = runner.strict(CHAT, &body, &["--force", "--keep-messages", "4", "--model", "main"]);
    out.is_condensed();
    assert!(provider.calls() > 1, "in pieces");
    let counter = epitome_core::tokens::Counter::new(epitome_core::tokens::Encoding::O200k);
    for request in provider.requests() {
        assert!(counter.text(&request.prompt()) <= 7_500, "{}", counter.text(&request.prompt()));
    }
    let read: String = provider.requests().iter().map(epitome_testkit::provider::Request::prompt).collect();
    assert!(
        (1..=148).filter(|n| *n != 3).all(|n| read.contains(&format!("P-{n}0071"))),
        "all of it was read"
    );
}

#[test]
fn case_39_one_giant_message_in_the_tail_is_reported_by_the_command() {
    cases::cost::one_giant_message_in_the_kept_tail_is_told();
}

#[test]
fn case_40_under_the_threshold_the_command_changes_no_byte() {
    cases::cost::under_the_threshold_no_byte_changes();
    // A bare list is as good as a request to it.
    let runner = Runner::new();
    for text in ["[]", " [{\"role\": \"tool\", \"tool_call_id\": \"nobody\", \"content\": \"orphan\"}]"] {
        runner.condense(CHAT, text, &[]).is_as_it_was("not_due");
    }
}

#[test]
fn case_42_what_the_command_spends_is_reported() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let out = runner.strict(CHAT, &request(9), &["--force", "--keep-messages", "4", "--model", "main"]);
    let spent = &out.is_condensed().report["spent"][0];
    let expected = (epitome_testkit::provider::INPUT, epitome_testkit::provider::OUTPUT);
    assert_eq!((spent["input"].as_u64().unwrap(), spent["output"].as_u64().unwrap()), expected);
    assert!(spent["cost"].as_i64().unwrap() > 0, "{spent}");
}

#[test]
fn case_43_text_that_looks_like_a_special_token_passes_through_the_command() {
    cases::cost::text_that_looks_like_a_special_token_passes();
}
