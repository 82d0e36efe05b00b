//! Messages over HTTP: added in every form, given back as they came, page by page.

use std::sync::Barrier;

use serde_json::{Value, json};

use crate::server::{Client, Server};
use crate::talk::{add, pages, talk, with_tools};

fn chat() -> Value {
    json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where is it?", "name": "ann", "x-own": {"deep": [1, null]}},
        {"role": "assistant", "content": null, "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "track", "arguments": "{\"order\": 7}"}},
        ]},
        {"role": "tool", "tool_call_id": "c1", "content": "in Oslo"},
        {"role": "assistant", "content": "In Oslo."},
        {"role": "user", "content": [
            {"type": "text", "text": "And this?"},
            {"type": "image_url", "image_url": {"url": "https://example.org/a.png", "detail": "low"}},
        ]},
    ])
}

fn blocks() -> Value {
    json!([
        {"role": "user", "content": [{"type": "text", "text": "Where is it?", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Let me look.", "signature": "c2ln"},
            {"type": "tool_use", "id": "t1", "name": "track", "input": {"order": 7}},
        ]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "in Oslo"}]},
        {"role": "assistant", "content": "In Oslo."},
    ])
}

fn items() -> Value {
    json!([
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Where is it?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "track", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "in Oslo"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "In Oslo."}]},
    ])
}

fn own() -> Value {
    json!([
        {"role": "peer", "author": "ann", "parts": [{"type": "text", "text": "Where is it?"}], "pinned": true,
            "at": 1_700_000_000_000_i64, "metadata": {"channel": "mail"}},
        {"role": "assistant", "parts": [
            {"type": "thinking", "text": "Let me look."},
            {"type": "tool_call", "id": "c1", "name": "track", "arguments": "{}"},
        ]},
        {"role": "tool", "parts": [{"type": "tool_result", "call": "c1", "content": [
            {"type": "text", "text": "in Oslo"},
            {"type": "media", "mime": "image/png", "source": {"url": "https://example.org/a.png"}, "size": [10, 20]},
        ]}]},
        {"role": "user", "parts": [{"type": "text", "text": "Thanks."}], "skip": true},
    ])
}

#[test]
fn messages_of_every_format_are_returned_as_sent() {
    let server = Server::start();
    let mut client = server.client();
    for (format, list) in [("openai", chat()), ("anthropic", blocks()), ("responses", items())] {
        add(&mut client, format, &list);
        let back = client.get(&format!("/v1/sessions/{format}/messages?format={format}")).ok();
        assert_eq!(back["items"], list, "{format}");
        add(&mut client, &format!("{format}-told"), &json!({"format": format, "messages": list}));
        let back = client.get(&format!("/v1/sessions/{format}-told/messages?format={format}")).ok();
        assert_eq!(back["items"], list, "{format}, told");
    }
}

#[test]
fn messages_in_epitomes_format_are_returned_with_their_position() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "own", &own());
    let back = client.get("/v1/sessions/own/messages").ok();
    for (at, (came, back)) in
        own().as_array().unwrap().iter().zip(back["items"].as_array().unwrap()).enumerate()
    {
        assert_eq!(back["seq"], at + 1);
        for (key, value) in came.as_object().unwrap() {
            assert_eq!(&back[key], value, "{key} of {at}");
        }
    }
}

#[test]
fn messages_can_be_read_in_another_format() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &blocks());
    let chat = client.get("/v1/sessions/a/messages?format=openai").ok();
    let roles: Vec<&str> =
        chat["items"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "assistant"]);
    assert_eq!(chat["items"][1]["tool_calls"][0]["function"]["name"], "track");
}

#[test]
fn a_message_a_list_and_a_list_with_its_format_are_accepted() {
    let server = Server::start();
    let mut client = server.client();
    let one = json!({"role": "user", "content": "One."});
    assert_eq!(add(&mut client, "a", &one), json!({"from": 1, "through": 1, "repeated": false}));
    assert_eq!(
        add(&mut client, "a", &json!([one, one])),
        json!({"from": 2, "through": 3, "repeated": false})
    );
    let named = json!({"messages": [one], "format": "openai"});
    assert_eq!(add(&mut client, "a", &named), json!({"from": 4, "through": 4, "repeated": false}));
    assert_eq!(add(&mut client, "a", &json!({"messages": [one]}))["through"], 5);
}

#[test]
fn an_invalid_message_is_refused_by_position_and_nothing_is_stored() {
    let server = Server::start();
    let mut client = server.client();
    let good = json!({"role": "user", "content": "Hello."});
    for (body, told) in [
        (json!([]), "messages: is empty"),
        (json!("hello"), "expected a message, a list of messages, or"),
        (json!(7), "expected a message, a list of messages, or"),
        (json!(null), "expected a message, a list of messages, or"),
        (json!([good, {"role": "robot", "content": "x"}]), "messages[1].role: \"robot\" is unknown"),
        (json!([good, 5]), "messages[1]"),
        (json!({"messages": "x"}), "messages: expected a list"),
        (json!({"messages": [good], "form": "openai"}), "\"form\": no such field"),
        (json!({"messages": [good], "format": "xml"}), "format: no such format; use one of: openai"),
        (json!({"role": "tool", "content": "x"}), "tool_call_id: is missing"),
        (json!({"role": "user", "text": "x"}), "content: is missing"),
        (json!({"role": "user", "parts": []}), "parts"),
        (
            json!({"role": "system", "parts": [{"type": "tool_call", "id": "c", "name": "n", "arguments": "{}"}]}),
            "tool call",
        ),
        (json!({"role": "user", "content": "x".repeat((1 << 20) + 1)}), "limits.message"),
        (json!(vec![good.clone(); 1001]), "limits.batch"),
    ] {
        client.post("/v1/sessions/a/messages", &body).refused(400, told);
    }
    client.get("/v1/sessions/a").refused(404, "not found");
}

#[test]
fn pages_contain_every_message_once_in_both_directions() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 503));
    for limit in [1, 7, 100, 500] {
        let seqs =
            |all: Vec<Value>| all.iter().map(|message| message["seq"].as_u64().unwrap()).collect::<Vec<_>>();
        let forward = seqs(pages(&mut client, "/v1/sessions/a/messages", limit));
        assert!(forward.iter().copied().eq(1..=503), "{limit}: {forward:?}");
        let back = seqs(pages(&mut client, "/v1/sessions/a/messages?reverse", limit));
        assert!(back.iter().copied().eq((1..=503).rev()), "{limit}: {back:?}");
    }
    let exact = client.get("/v1/sessions/a/messages?after=403&limit=100").ok();
    assert_eq!((exact["items"].as_array().unwrap().len(), &exact["next"]), (100, &Value::Null));
    assert_eq!(client.get("/v1/sessions/a/messages?after=503").ok(), json!({"items": [], "next": null}));
    assert_eq!(
        client.get("/v1/sessions/a/messages?after=9000000000").ok(),
        json!({"items": [], "next": null})
    );
    for limit in ["0", "501", "-1", "many", ""] {
        client.get(&format!("/v1/sessions/a/messages?limit={limit}")).refused(400, "limit");
    }
}

#[test]
fn a_scoped_page_has_only_the_results_of_that_authors_calls() {
    let server = Server::start();
    let mut client = server.client();
    let said = |author: &str, at: usize| json!({"role": "user", "name": author, "content": format!("{author} {at}")});
    let both: Value = (1..=40).flat_map(|at| [said("ann", at), said("bob", at)]).collect();
    add(&mut client, "a", &both);
    let anns = pages(&mut client, "/v1/sessions/a/messages?scope=ann", 7);
    assert_eq!(anns.len(), 40);
    assert!(anns.iter().all(|message| message["author"] == "ann"));
}

#[test]
fn a_repeated_idempotency_key_adds_nothing() {
    let server = Server::start();
    let mut client = server.client();
    let one = json!({"role": "user", "content": "Once."});
    let mut append = |key: &str, body: &Value| {
        let headers = [("content-type", "application/json"), ("idempotency-key", key)];
        client.send("POST", "/v1/sessions/a/messages", &headers, Some(body.to_string().as_bytes()))
    };
    let first = append("k-1", &one);
    assert_eq!((first.status, first.ok()), (201, json!({"from": 1, "through": 1, "repeated": false})));
    let again = append("k-1", &one);
    assert_eq!((again.status, again.ok()), (200, json!({"from": 1, "through": 1, "repeated": true})));
    append("k-1", &json!({"role": "user", "content": "Twice."})).refused(409, "");
    assert_eq!(append("k-2", &one).ok()["through"], 2);
    assert_eq!(append("clé", &one).ok()["through"], 3);
    append("", &one).refused(400, "idempotency key");
    append(&"k".repeat(257), &one).refused(400, "idempotency key");
    assert_eq!(client.get("/v1/sessions/a").ok()["messages"], 3);
}

#[test]
fn of_two_concurrent_appends_with_one_key_one_is_stored() {
    let server = Server::start();
    let together = Barrier::new(8);
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = server.client().with("idempotency-key", "k-1");
                    together.wait();
                    client
                        .post("/v1/sessions/a/messages", &json!({"role": "user", "content": "Once."}))
                        .status
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 7, "{statuses:?}");
    assert_eq!(server.client().get("/v1/sessions/a").ok()["messages"], 1);
}

#[test]
fn after_appends_only_to_that_newest_message() {
    let server = Server::start();
    let mut client = server.client();
    let one = json!({"role": "user", "content": "Next."});
    let mut after = |seq: &str| client.post(&format!("/v1/sessions/a/messages?after={seq}"), &one);
    assert_eq!(after("0").ok()["through"], 1);
    after("0").refused(409, "");
    assert_eq!(after("1").ok()["through"], 2);
    after("7").refused(409, "");
    after("x").refused(400, "after: \"x\" is not allowed; expected a whole number");
    assert_eq!(client.get("/v1/sessions/a").ok()["messages"], 2);
}

#[test]
fn only_flags_can_be_changed() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 3));
    let before = client.get("/v1/sessions/a/messages").ok();
    let mut patch =
        |seq: &str, flags: &Value| client.json("PATCH", &format!("/v1/sessions/a/messages/{seq}"), flags);
    let pinned = patch("2", &json!({"pinned": true})).ok();
    assert_eq!((&pinned["seq"], &pinned["pinned"]), (&json!(2), &json!(true)));
    assert_eq!(patch("2", &json!({"skip": true})).ok()["pinned"], true);
    patch("2", &json!({})).ok();
    patch("2", &json!({"pinned": false, "skip": false})).ok();
    patch("2", &json!({"content": "other"})).refused(400, "unknown field `content`");
    patch("2", &json!({"pinned": "yes"})).refused(400, "");
    patch("2", &json!([true, true])).refused(400, "expected a JSON object");
    patch("4", &json!({"pinned": true})).refused(404, "message 4");
    patch("0", &json!({"pinned": true})).refused(404, "message 0");
    patch("two", &json!({"pinned": true})).refused(400, "seq: expected a whole number");
    assert_eq!(client.get("/v1/sessions/a/messages").ok(), before);
}

#[test]
fn flags_in_messages_are_stored_and_returned() {
    let server = Server::start();
    let mut client = server.client();
    add(
        &mut client,
        "a",
        &json!([{"role": "user", "content": "Always.", "epitome": {"pinned": true}}, {"role": "user", "content": "Hello."}]),
    );
    assert_eq!(client.get("/v1/sessions/a/messages").ok()["items"][0]["pinned"], true);
    let context = client.get("/v1/sessions/a/context?format=openai").ok();
    assert!(!context.to_string().contains("epitome"), "{context}");
}

#[test]
fn session_names_allow_all_but_control_characters() {
    let server = Server::start();
    let mut client = server.client();
    let long = "x".repeat(512);
    let names = ["a/b", "a b", "ünï", "100%", "%2F", "..", ".", "a?b#c", "日本語", "+", "a&b=c", "\"", &long];
    for name in names {
        let place = format!("/v1/sessions/{}", crate::talk::escaped(name));
        client.post(&format!("{place}/messages"), &json!({"role": "user", "content": name})).ok();
        assert_eq!(client.get(&place).ok()["name"], name);
        let context = client.get(&format!("{place}/context?format=openai")).ok();
        assert_eq!(context["messages"][0]["content"], name);
    }
    let mut listed: Vec<String> = pages(&mut client, "/v1/sessions", 3)
        .iter()
        .map(|session| session["name"].as_str().unwrap().to_owned())
        .collect();
    let mut wanted = names.map(str::to_owned).to_vec();
    listed.sort();
    wanted.sort();
    assert_eq!(listed, wanted);
    let refused = |client: &mut Client, name: &str, told: &str| {
        client
            .post(&format!("/v1/sessions/{name}/messages"), &json!({"role": "user", "content": "x"}))
            .refused(400, told);
    };
    refused(&mut client, &"x".repeat(513), "1 to 512 bytes");
    refused(&mut client, "a%00b", "control characters");
    refused(&mut client, "a%0Ab", "control characters");
    refused(&mut client, "a%FFb", "UTF-8");
}

#[test]
fn many_tool_calls_are_stored_and_returned() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &with_tools(30));
    let back = pages(&mut client, "/v1/sessions/a/messages?format=openai", 500);
    assert_eq!(Value::Array(back), with_tools(30));
}

/// A number of more digits than most programs hold is a number all the same, and whoever wrote it wants it back.
#[test]
fn numbers_are_returned_with_every_digit() {
    let server = Server::start();
    let mut client = server.client();
    let one =
        r#"{"role":"user","content":"Hello.","x-id":12345678901234567890123,"x-rate":1.50,"x-much":1e2}"#;
    let bodies =
        [one.to_owned(), format!("[{one}]"), format!(r#"{{"messages": [{one}], "format": "openai"}}"#)];
    for (at, body) in bodies.iter().enumerate() {
        let path = format!("/v1/sessions/{at}/messages");
        let headers = [("content-type", "application/json")];
        client.send("POST", &path, &headers, Some(body.as_bytes())).ok();
        let back = client.get(&format!("{path}?format=openai")).text();
        assert_eq!(back, format!(r#"{{"items":[{one}],"next":null}}"#));
    }
}
