//! C. Nothing that matters is lost, and nothing is made up.

use epitome::dialect::Dialect;
use serde_json::json;

use crate::cases;
use crate::cases::out::{provider, request, talk};
use crate::run::Runner;
use epitome_testkit::provider::Act;

fn words(message: &epitome_core::message::Message) -> String {
    let texts = message.parts.iter().filter_map(|part| match part {
        epitome_core::message::Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

const CHAT: Dialect = Dialect::OPENAI;
const BY_MODEL: [&str; 5] = ["--force", "--keep-messages", "4", "--model", "main"];

#[test]
fn case_23_the_last_request_is_in_what_the_command_gives() {
    cases::meaning::the_last_request_is_there();
}

#[test]
fn case_24_a_summary_by_the_command_reads_as_history() {
    cases::meaning::a_summary_reads_as_history();
}

#[test]
fn cases_25_31_34_what_is_no_summary_leaves_the_commands_input_as_it_was() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let body = request(9);
    for act in [
        Act::Empty,
        Act::Html,
        Act::ErrorInside,
        Act::WrongShape,
        Act::Garbage,
        Act::CallsTool,
        Act::Declines,
        Act::Loops,
        Act::Length,
        Act::ThinksForEver,
        Act::Text("I'm sorry, but I can't help with that.".to_owned()),
        Act::Text("Sure! What else can I do for you?".to_owned()),
    ] {
        provider.always(act.clone());
        let out = runner.strict(CHAT, &body, &BY_MODEL);
        assert_eq!(out.reason(), "model_failed", "{act:?}: {}", out.report);
        out.is_as_it_was("model_failed");
        assert_eq!(out.errors.lines().count(), 1, "{act:?}: {}", out.errors);
        assert!(
            !out.errors.contains("parcel") && !out.report.to_string().contains("Where is"),
            "{}",
            out.errors
        );
    }
}

#[test]
fn case_26_the_summarizer_of_the_command_reads_all_that_leaves() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let out = runner.strict(CHAT, &request(40), &BY_MODEL);
    assert_eq!(out.is_condensed().report["covers"], json!([2, 78]));
    let prompt = provider.last().prompt();
    for n in 1..=38 {
        assert!(prompt.contains(&format!("P-{n}0071")), "parcel {n}");
    }
}

#[test]
fn case_27_a_network_blip_drops_nothing_from_the_command() {
    let (provider, runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    provider.always(Act::Close);
    runner.strict(CHAT, &request(30), &BY_MODEL).is_as_it_was("model_failed");
    runtime.block_on(provider.leave());
    let out = runner.strict(CHAT, &request(30), &BY_MODEL);
    out.is_as_it_was("model_failed");
    assert!(out.errors.starts_with("epitome: "), "{}", out.errors);
}

#[test]
fn case_28_a_second_pass_of_the_command_builds_on_the_first() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    provider.then(Act::Text(
        "Ann's rule: nothing is sent after 18:00. Parcels 1 to 8 were looked for.".to_owned(),
    ));
    let mut body = runner.strict(CHAT, &request(9), &BY_MODEL).is_condensed().body();
    let list = body["messages"].as_array_mut().unwrap();
    list.extend(talk(9));
    list.push(json!({ "role": "user", "content": "And now?" }));
    let out = runner.strict(CHAT, &body, &BY_MODEL);
    assert!(provider.last().prompt().contains("nothing is sent after 18:00"));
    assert_eq!(out.is_condensed().text.matches("<summary covers=").count(), 1);
    let through = |text: &str| {
        text.split("covers=\\\"1-").nth(1).unwrap().split('\\').next().unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(through(&out.text), 35, "it stands for all of both: {}", out.text);
}

#[test]
fn case_29_pinned_rules_survive_every_pass_of_the_command() {
    let runner = Runner::new();
    let rule = "Rule: never refund without order 10071.";
    for (shape, key) in [(CHAT, "messages"), (Dialect::RESPONSES, "input"), (Dialect::ANTHROPIC, "messages")]
    {
        let mut list = vec![json!({ "role": "user", "content": rule, "epitome": { "pinned": true } })];
        list.push(json!({ "role": "assistant", "content": "Understood." }));
        for pass in 0..5 {
            list.extend(talk(10));
            list.push(json!({ "role": "user", "content": format!("Question {pass}?") }));
            let strategy =
                ["recent", "summarize", "amortized", "pipeline(mask, summarize)", "summarize"][pass];
            let args = ["--force", "--strategy", strategy, "--keep-messages", "3"];
            let out = runner.condense(shape, &json!({ key: list }).to_string(), &args);
            let body = out.is_condensed().body();
            list = body[key].as_array().unwrap().clone();
            let pinned: Vec<String> = epitome::dialect::Body::read(&out.text, Some(shape))
                .unwrap()
                .messages()
                .iter()
                .filter(|message| message.pinned)
                .map(words)
                .collect();
            assert_eq!(pinned, [rule], "{shape} pass {pass}: word for word, and nothing else with it");
            let stripped = runner.strict(shape, &body, &["--strip"]);
            assert!(stripped.text.contains(rule));
        }
    }
}

#[test]
fn case_30_a_call_that_is_still_open_stays_open_through_the_command() {
    cases::meaning::a_call_that_is_still_open_stays_open();
}

#[test]
fn case_32_secrets_do_not_enter_the_commands_summary_and_stay_in_verbatim_messages() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let secret = |n: u64| format!("The key is sk-live-0123456789abcdef{n:04}, use it.");
    for model in ["local", "main"] {
        let mut list = vec![json!({ "role": "user", "content": secret(1) })];
        list.extend(talk(9));
        list.push(json!({ "role": "user", "content": secret(2) }));
        let args = ["--force", "--keep-messages", "2", "--model", model];
        let out = runner.strict(CHAT, &json!({ "messages": list }), &args);
        assert!(!out.is_condensed().text.contains("abcdef0001"), "{}", out.text);
        assert!(out.text.contains("abcdef0002"), "what is kept is kept as it is");
    }
    assert!(provider.calls() == 1 && !provider.last().prompt().contains("abcdef0001"));
}

#[test]
fn case_33_reasoning_is_neither_read_nor_written_by_the_commands_summarizer() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    let mut list = talk(9);
    for reply in list.iter_mut().filter(|message| message["role"] == "assistant") {
        reply["reasoning_content"] = json!("The user seems angry, perhaps a bribe?");
    }
    list.push(json!({ "role": "user", "content": "Next?" }));
    provider.always(Act::Thinks);
    let out = runner.condense(CHAT, &json!({ "messages": list }).to_string(), &BY_MODEL);
    assert!(!provider.last().prompt().contains("bribe"));
    assert!(!out.is_condensed().summary().contains("think"), "{}", out.summary());
}

#[test]
fn case_35_what_failed_is_in_the_next_summary_of_the_command() {
    let (provider, _runtime) = provider();
    let runner = Runner::with_model(&provider, 100_000);
    provider.then(Act::Status(500)).then(Act::Status(500)).then(Act::Status(500)).then(Act::Status(500));
    provider.always(Act::Status(500));
    let out = runner.strict(CHAT, &request(9), &BY_MODEL);
    out.is_as_it_was("model_failed");
    provider.heal();
    let out = runner.strict(CHAT, &out.body(), &BY_MODEL);
    out.is_condensed();
    let prompt = provider.last().prompt();
    assert!((1..=8).all(|n| prompt.contains(&format!("P-{n}0071"))));
}
