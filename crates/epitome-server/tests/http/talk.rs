//! Conversations to be told to a server, and waiting until it has summed them up.

use std::time::Duration;

use serde_json::{Value, json};

use crate::server::Client;

/// User and assistant by turns, from this message on.
pub fn talk(from: usize, count: usize) -> Value {
    (from..from + count).map(line).collect()
}

fn line(at: usize) -> Value {
    let role = if at % 2 == 1 { "user" } else { "assistant" };
    let words = format!(
        "This is what was said in message number {at}: parcel P-{at} went from Oslo to Bergen on day {at}, and Ann \
         wants to know who signed for it at the door."
    );
    json!({"role": role, "content": words})
}

/// So many rounds of a question, two tools called at once, their answers, and a reply, in OpenAI's form.
pub fn with_tools(rounds: usize) -> Value {
    let mut list = vec![json!({"role": "system", "content": "You look after parcels. Be brief."})];
    for round in 1..=rounds {
        let call = |name: &str| {
            let function = json!({"name": name, "arguments": format!("{{\"order\": {round}}}")});
            json!({"id": format!("{name}_{round}"), "type": "function", "function": function})
        };
        list.push(json!({"role": "user", "content": format!("Where is parcel number {round}, the one for Bergen?")}));
        list.push(
            json!({"role": "assistant", "content": null, "tool_calls": [call("track"), call("stock")]}),
        );
        for name in ["track", "stock"] {
            let found = format!("{name}: parcel {round} was seen in hall {} at noon.", round % 7);
            list.push(json!({"role": "tool", "tool_call_id": format!("{name}_{round}"), "content": found}));
        }
        list.push(
            json!({"role": "assistant", "content": format!("Parcel {round} is in hall {}.", round % 7)}),
        );
    }
    Value::Array(list)
}

/// Adds messages to a session.
#[track_caller]
pub fn add(client: &mut Client, session: &str, messages: &Value) -> Value {
    client.post(&format!("/v1/sessions/{session}/messages"), messages).ok()
}

/// Waits until nothing is left to be summed up in the workspace.
pub fn settle(client: &mut Client) {
    loop {
        let queue = client.get("/v1/queue").ok();
        if queue["due"] == 0 && queue["working"] == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// All items of a list, page by page; every page but the last is full.
#[track_caller]
pub fn pages(client: &mut Client, path: &str, limit: usize) -> Vec<Value> {
    let join = if path.contains('?') { '&' } else { '?' };
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("{path}{join}limit={limit}{after}")).ok();
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= limit);
        all.extend(items.iter().cloned());
        let Some(next) = page["next"].as_str() else { return all };
        assert_eq!(items.len(), limit, "a page before the last is not full");
        after = format!("&after={}", escaped(next));
    }
}

/// A text as it stands in a path or a query.
pub fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
