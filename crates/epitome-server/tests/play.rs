//! The example `play` plays recordings through the proxy and counts their cost.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on should stop, loudly"
)]

#[path = "../examples/play/main.rs"]
mod play;

use serde_json::{Value, json};

/// An agent's work as it was recorded: with fields that no client sends, ids used twice, an invalid name, and a call that
/// was open at the end.
fn recording(name: &str, steps: usize) -> Value {
    let mut messages = vec![
        json!({ "role": "system", "content": "You are a harbour master." }),
        json!({ "role": "user", "content": format!("Look at each berth of {name}."), "name": "Ann B." }),
    ];
    for step in 0..steps {
        let function = json!({ "name": "look", "arguments": json!({ "berth": step }).to_string() });
        let call = json!({ "id": format!("call_{}", step % 7), "type": "function", "function": function });
        messages.push(
            json!({ "role": "assistant", "content": "", "tool_calls": [call], "usage": { "input": 9 } }),
        );
        let seen =
            format!("berth {step} of {name}: boat {step}{step} has paid, and leaves at {}:15\n", step % 24);
        let result = json!({ "role": "tool", "tool_call_id": format!("call_{}", step % 7), "name": "look", "content": seen.repeat(9) });
        messages.push(result);
    }
    messages.pop();
    json!({ "id": name, "pinned": 2, "messages": messages })
}

#[test]
fn recordings_are_played_and_no_request_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("harbours.jsonl");
    let lines = ["Oslo", "Bergen", "Moss"].map(|name| format!("{}\n", recording(name, 30)));
    // Meetings have no replies.
    let said = (0..40)
        .map(|n| json!({ "role": "user", "name": "Bo", "content": format!("Berth {n} is free, I hear.") }));
    let meeting = json!({ "id": "meeting", "messages": said.collect::<Vec<_>>() });
    std::fs::write(&file, format!("{}{meeting}\n", lines.concat())).unwrap();
    let logs = folder.path().join("logs");
    for (shape, chain) in [("openai", "1"), ("responses", "2"), ("anthropic", "4")] {
        let flags =
            ["--shape", shape, "--chain", chain, "--trigger", "tokens(2000)", "--keep", "tokens(500)"];
        let more =
            ["--set", "condense.max_tokens=300", "--log-to", logs.to_str().unwrap(), file.to_str().unwrap()];
        let options = play::Options::read(flags.into_iter().chain(more).map(str::to_owned)).unwrap();
        assert!(play::play(&options).unwrap(), "{shape}");
        let cost = |pass: &str| play::cost::Cost::of(&logs.join(format!("harbours.{pass}.jsonl"))).unwrap();
        let (plain, cached) = cost("condensed").relative_to(&cost("untouched"));
        assert!(plain < 0.9 && cached > plain, "{shape}: {plain} {cached}");
    }
}

#[test]
fn shared_whole_messages_are_billed_as_cached() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.jsonl");
    let message = |text: &str, tokens: u64| json!({ "role": "user", "content": text, "tokens": tokens });
    let (a, b, c) = (message("a", 1_000), message("b", 500), message("c", 10));
    let lines = [
        json!({ "run": "1", "messages": [a] }),
        json!({ "run": "1", "messages": [a, b] }), // 1,000 shared are too few
        json!({ "run": "2", "messages": [a, b] }), // another run
        json!({ "run": "1", "messages": [a, b, c] }), // 1,500 shared
        json!({ "run": "1", "summarizer": true, "output_tokens": 20, "messages": [message("s", 300)] }),
        json!({ "run": "1", "messages": [b, c] }), // begins with another message
        json!({ "run": "3", "messages": [{ "role": "user", "content": "12345" }] }), // counted by its characters
    ];
    std::fs::write(&log, lines.map(|line| format!("{line}\n")).concat()).unwrap();
    let cost = play::cost::Cost::of(&log).unwrap().sum;
    let last = 9; // 36 letters of JSON
    assert_eq!((cost.plain, cost.summarizer), (1_000 + 1_500 + 1_500 + 1_510 + 510 + last, 300 + 100));
    let expected = 1.25 * (1_000 + 1_500 + 1_500 + 10 + 510 + last) as f64 + 0.1 * 1_500.0;
    assert!((cost.cached() as f64 - expected).abs() <= 0.5, "{} {expected}", cost.cached());
}
