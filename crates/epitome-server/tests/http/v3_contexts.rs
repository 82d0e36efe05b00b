//! Contexts through Honcho's route: for any size of session and budget, no message is missing, none is repeated, and the
//! budget is never exceeded.

use serde_json::{Value, json};

use crate::server::{Client, Server};

const SESSIONS: &str = "/v3/workspaces/w/sessions";

/// Returns the text of the n-th message, which is no part of another message.
fn said(n: usize) -> String {
    match n {
        // An empty message.
        n if n % 17 == 5 => String::new(),
        n if n % 17 == 11 => " \n".to_owned(),
        n => format!("Parcel <{n}> went from Oslo to Bergen, and somebody signed for it at the harbour."),
    }
}

/// Creates a session of this many messages, and waits until all its summaries are written.
fn told(client: &mut Client, session: &str, messages: usize) -> Vec<String> {
    let mut ids = Vec::new();
    let all: Vec<Value> = (1..=messages)
        .map(|n| json!({"peer_id": if n % 2 == 1 { "ann" } else { "bot" }, "content": said(n)}))
        .collect();
    for batch in all.chunks(100) {
        let added =
            client.post(&format!("{SESSIONS}/{session}/messages"), &json!({ "messages": batch })).ok();
        ids.extend(added.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()));
    }
    for _ in 0..600 {
        let status = client.get(&format!("/v3/workspaces/w/queue/status?session_id={session}")).ok();
        if (status["pending_work_units"].as_u64(), status["in_progress_work_units"].as_u64())
            == (Some(0), Some(0))
        {
            return ids;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    panic!("its summaries never come");
}

/// Compares a context with its session. Returns its number of messages, and whether it has a summary.
#[track_caller]
fn judged(context: &Value, ids: &[String], tokens: Option<u64>) -> (usize, bool) {
    let place = |id: &Value| {
        let found = ids.iter().position(|one| Some(one.as_str()) == id.as_str());
        found.unwrap_or_else(|| panic!("{id} is no message of this session: {context}")) + 1
    };
    let messages = context["messages"].as_array().unwrap();
    let places: Vec<usize> = messages.iter().map(|message| place(&message["id"])).collect();
    let summary = &context["summary"];
    let count = |of: &Value| of["token_count"].as_u64().unwrap_or(0);
    let sum: u64 = messages.iter().map(count).sum::<u64>() + count(summary);
    assert!(tokens.is_none_or(|tokens| sum <= tokens), "{sum} tokens of {tokens:?}: {context}");
    if let (Some(first), Some(last)) = (places.first(), places.last()) {
        // An empty message may not fit.
        let tight = |at: &usize| tokens.is_some_and(|tokens| tokens < 60) && said(*at).trim().is_empty();
        let run: Vec<usize> = (*first..=ids.len()).filter(|at| places.contains(at) || !tight(at)).collect();
        assert_eq!(places, run, "up to {last} of {}: {context}", ids.len());
    }
    if let Some(text) = summary["content"].as_str() {
        let through = place(&summary["message_id"]);
        let next = places.first().copied().unwrap_or(ids.len() + 1);
        assert_eq!(next, through + 1, "the summary covers what is before {next}: {context}");
        assert!(!places.is_empty(), "the context has no message: {context}");
        for at in places.iter().filter(|at| !said(**at).trim().is_empty()) {
            assert!(!text.contains(&format!("<{at}>")), "message {at} is in the context twice: {context}");
        }
    }
    (places.len(), !summary.is_null())
}

const SIZES: [usize; 15] = [1, 2, 3, 19, 20, 21, 28, 39, 40, 41, 59, 60, 61, 80, 110];

const BUDGETS: [Option<u64>; 14] = [
    Some(5),
    Some(15),
    Some(20),
    Some(25),
    Some(30),
    Some(60),
    Some(100),
    Some(200),
    Some(300),
    Some(600),
    Some(1_000),
    Some(2_000),
    Some(4_000),
    None,
];

#[test]
fn contexts_of_any_size_have_no_gap_and_no_duplicate() {
    let server = Server::start();
    let mut client = server.client();
    let mut summed_up = 0;
    for size in SIZES {
        let session = format!("s{size}");
        let ids = told(&mut client, &session, size);
        for tokens in BUDGETS {
            let budget = tokens.map_or(String::new(), |tokens| format!("tokens={tokens}"));
            let ask = |client: &mut Client, summary: bool| {
                let path = format!("{SESSIONS}/{session}/context?{budget}&summary={summary}");
                client.get(&path).ok()
            };
            let (with, has) = judged(&ask(&mut client, true), &ids, tokens);
            let (without, never) = judged(&ask(&mut client, false), &ids, tokens);
            assert!(!never);
            // A summary may replace messages, but not all of them.
            assert!(with > 0 || without == 0, "{size} messages, {tokens:?}: {with} and {without}");
            assert!(with >= 1 || tokens.is_some_and(|tokens| tokens < 60), "{size} messages, {tokens:?}");
            summed_up += usize::from(has);
        }
    }
    assert!(summed_up > 40, "{summed_up}");
}

#[test]
fn a_message_larger_than_the_budget_is_clipped_and_comes_alone() {
    let server = Server::start();
    let mut client = server.client();
    let path = format!("{SESSIONS}/s/messages");
    let long = "The harbour of Bergen has many parcels. ".repeat(80);
    let two = json!([{"peer_id": "ann", "content": long}, {"peer_id": "bot", "content": "Thank you, all of them."}]);
    let added = client.post(&path, &json!({ "messages": two })).ok();
    let ids: Vec<String> =
        added.as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    for tokens in [20, 60, 300, 600, 900] {
        let context = client.get(&format!("{SESSIONS}/s/context?tokens={tokens}")).ok();
        judged(&context, &ids, Some(tokens));
    }
}

#[test]
fn token_counts_use_the_sessions_encoding() {
    let server = Server::start();
    let mut own = server.client().with("x-epitome-workspace", "w");
    own.json("PUT", "/v1/workspace", &json!({"settings": {"encoding": "cl100k_base"}})).ok();
    let mut client = server.client();
    let text = "Überraschungsgäste überqueren naïve Straßencafés: 東京の天気はどうですか。";
    let message = json!({"messages": [{"peer_id": "ann", "content": text}]});
    let added = client.post(&format!("{SESSIONS}/s/messages"), &message).ok();
    own.post("/v1/sessions/s/messages", &json!({"role": "user", "content": text})).ok();
    let listed = client.post(&format!("{SESSIONS}/s/messages/list"), &json!({})).ok();
    let counts: Vec<&Value> =
        listed["items"].as_array().unwrap().iter().map(|one| &one["token_count"]).collect();
    assert_eq!(counts[0], counts[1]);
    assert_eq!(&added[0]["token_count"], counts[0]);
}
