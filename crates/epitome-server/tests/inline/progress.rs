//! B. No loop, and no pass that helps nothing.

use epitome::dialect::Dialect;
use serde_json::json;

use crate::cases;
use crate::cases::out::{provider, request, talk};
use crate::run::Runner;
use epitome_testkit::provider::Act;

const CHAT: Dialect = Dialect::OPENAI;

#[test]
fn case_13_the_command_names_an_overflow_that_history_did_not_cause() {
    cases::progress::an_overflow_that_history_did_not_cause_is_named();
}

#[test]
fn case_14_the_command_calls_no_model_for_a_list_that_stays_whole() {
    cases::progress::where_all_is_kept_nobody_is_asked();
}

#[test]
fn case_15_one_loop_over_the_whole_list_is_left_alone_by_the_command() {
    cases::progress::one_loop_over_the_whole_list_is_left_alone();
}

#[test]
fn case_16_the_command_does_not_condense_for_next_to_nothing() {
    cases::progress::nothing_is_condensed_for_next_to_nothing();
}

#[test]
fn case_17_the_providers_count_decides_for_the_command() {
    let runner = Runner::new();
    let (body, trigger) = (request(30), ["--trigger", "tokens(1200)", "--keep-messages", "4"]);
    let out = runner.strict(CHAT, &body, &trigger);
    out.is_condensed();
    let counted = [&trigger[..], &["--counted", "700"]].concat();
    runner.strict(CHAT, &body, &counted).is_as_it_was("not_due");
    let counted = [&trigger[..], &["--counted", "1200"]].concat();
    runner.strict(CHAT, &body, &counted).is_condensed();
}

#[test]
fn case_18_an_answer_larger_than_what_it_replaces_leaves_the_commands_input_as_it_was() {
    let (provider, _runtime) = provider();
    provider.always(Act::Text((0..3_000).map(|n| format!("Parcel {n} is on its way. ")).collect()));
    let runner = Runner::with_model(&provider, 100_000);
    let out = runner.strict(CHAT, &request(9), &["--force", "--keep-messages", "4", "--model", "main"]);
    out.is_as_it_was("model_failed");
    assert_eq!(provider.calls(), 2, "once more with the reason, and no more");
}

#[test]
fn case_19_a_summary_that_feeds_on_itself_is_refused_by_the_command() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let args = ["--force", "--keep-messages", "4", "--model", "main"];
    let first = runner.strict(CHAT, &request(9), &args);
    let mut grown = first.is_condensed().body();
    let list = grown["messages"].as_array_mut().unwrap();
    list.extend(talk(12));
    list.push(json!({ "role": "user", "content": "And now?" }));
    let said = first.summary().lines().skip(2).collect::<Vec<_>>().join("\n");
    provider.always(Act::Text(said));
    runner.strict(CHAT, &grown, &args).is_as_it_was("model_failed");
    provider.heal();
    let again = runner.strict(CHAT, &grown, &args);
    assert_eq!(
        again.is_condensed().text.matches("<summary covers=").count(),
        1,
        "one, built on the one before"
    );
}

#[test]
fn case_20_the_command_sends_no_doomed_request_twice() {
    let (provider, _runtime) = provider();
    provider.always(Act::TooLong { sent: 9_000, limit: 8_000 });
    let runner = Runner::with_model(&provider, 100_000);
    let out = runner.strict(CHAT, &request(60), &["--force", "--keep-messages", "4", "--model", "main"]);
    out.is_as_it_was("model_failed");
    let prompts: Vec<String> =
        provider.requests().iter().map(epitome_testkit::provider::Request::prompt).collect();
    let distinct: std::collections::HashSet<&String> = prompts.iter().collect();
    assert!(distinct.len() == prompts.len() && prompts.len() < 20, "{} of {}", distinct.len(), prompts.len());
    assert!(prompts.windows(2).all(|pair| pair[1].len() < pair[0].len()), "each one is shorter");
}

#[test]
fn case_21_the_head_is_not_protected_again_at_every_pass_of_the_command() {
    let runner = Runner::new();
    let args = ["--force", "--keep-messages", "2", "--keep-first", "2"];
    let mut body = request(12);
    let first = body["messages"][1]["content"].as_str().unwrap().to_owned();
    for pass in 0..4 {
        let out = runner.strict(CHAT, &body, &args);
        let verbatim = out.is_condensed().body()["messages"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|message| message["content"] == json!(first))
            .count();
        assert_eq!(verbatim, usize::from(pass == 0), "pass {pass}");
        body = out.body();
        let list = body["messages"].as_array_mut().unwrap();
        list.extend(talk(12).into_iter().skip(2));
        list.push(json!({ "role": "user", "content": "Next?" }));
    }
}

#[test]
fn case_22_an_unanswered_call_does_not_stop_the_command() {
    cases::progress::a_call_nobody_answered_stops_nothing();
}
