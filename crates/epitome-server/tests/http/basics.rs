//! The way everybody goes first: messages in, a context out.

use serde_json::json;

use crate::server::Server;

#[test]
fn messages_are_appended_and_read_as_a_context() {
    let server = Server::start();
    let mut client = server.client();
    let added = client.post("/v1/sessions/ann/messages", &json!({"role": "user", "content": "Hello."}));
    assert_eq!((added.status, added.ok()), (201, json!({"from": 1, "through": 1, "repeated": false})));
    let context = client.get("/v1/sessions/ann/context?tokens=1000&format=openai").ok();
    assert_eq!(context, json!({"messages": [{"role": "user", "content": "Hello."}]}));
}

#[test]
fn a_session_that_does_not_exist_is_404() {
    let server = Server::start();
    server.client().get("/v1/sessions/nobody/context").refused(404, "session `nobody` not found");
}

#[test]
fn settings_over_http_contain_no_model_address() {
    let set =
        ["models.cheap.provider=openai", "models.cheap.model=m", "models.cheap.base_url=http://10.1.2.3/v1"];
    let flags: Vec<&str> = set.iter().flat_map(|set| ["--set", set]).collect();
    let server = Server::with(&flags, &[]);
    let mut client = server.client();
    client.post("/v1/sessions/ann/messages", &json!({"role": "user", "content": "Hello."})).ok();
    for path in ["/v1/sessions/ann", "/v1/workspace"] {
        let answer = client.get(path);
        assert!(answer.ok()["settings"]["summarize"].is_object());
        assert!(!answer.text().contains("10.1.2.3"), "{}", answer.text());
    }
}

/// A slip of the pen would do nothing without a word.
#[test]
fn an_unknown_parameter_is_refused_on_every_route() {
    let server = Server::start();
    let mut client = server.client();
    client.post("/v1/sessions/ann/messages", &json!({"role": "user", "content": "Hello."})).ok();
    client.get("/v1/sessions/ann?tokens=5").refused(400, "unknown parameter `tokens`, none are allowed here");
    client.get("/v1/queue?x").refused(400, "unknown parameter `x`");
    client
        .send("DELETE", "/v1/sessions/ann?dry_run=true", &[], None)
        .refused(400, "unknown parameter `dry_run`");
    client.get("/v1/sessions/ann").ok();
}

#[test]
fn an_invalid_body_is_refused_by_field() {
    let server = Server::start();
    let mut client = server.client();
    client.post("/v1/sessions/ann/messages", &json!({"role": "user", "content": "Hello."})).ok();
    let flags = json!({"skip": true, "pinned": "yes"});
    client.json("PATCH", "/v1/sessions/ann/messages/1", &flags).refused(400, "pinned: invalid type: string");
    client.json("PUT", "/v1/sessions/ann", &json!({"metadata": []})).refused(400, "metadata: invalid type");
    client.post("/v1/sessions/ann/fork", &json!({"name": "bob", "at": -1})).refused(400, "at: invalid value");
    client.post("/v1/sessions/ann/fork", &json!({"at": 1})).refused(400, "missing field `name`");
    client.get("/v1/search").refused(400, "missing parameter `q`");
}
