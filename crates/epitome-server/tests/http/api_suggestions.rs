//! Errors over HTTP name what was probably meant.

use serde_json::{Value, json};

use crate::server::Server;
use crate::talk::{add, talk};

#[test]
fn a_session_that_does_not_exist_is_answered_with_similar_names() {
    let server = Server::start();
    let mut client = server.client();
    for name in ["support-41", "support-42", "ann"] {
        add(&mut client, name, &talk(1, 1));
    }
    let missing = "session `suport-42` not found; similar names: support-42, support-41";
    for path in [
        "",
        "/context",
        "/messages",
        "/summaries",
        "/summaries?history",
        "/summaries/1/messages",
        "/search?q=x",
    ] {
        client.get(&format!("/v1/sessions/suport-42{path}")).refused(404, missing);
    }
    for path in ["fork", "summaries", "summaries/1/undo", "slots/short/rebuild"] {
        let body = if path == "fork" { json!({"name": "x"}) } else { Value::Null };
        client.post(&format!("/v1/sessions/suport-42/{path}"), &body).refused(404, missing);
    }
    client.json("PATCH", "/v1/sessions/suport-42/messages/1", &json!({"skip": true})).refused(404, missing);
    client.send("DELETE", "/v1/sessions/suport-42", &[], None).refused(404, missing);
    let none = "session `zzz` not found; `GET /v1/sessions` lists all sessions";
    client.get("/v1/sessions/zzz").refused(404, none);
    // Names of other workspaces are never suggested.
    let mut other = server.client().with("x-epitome-workspace", "other");
    let nothing = "session `suport-42` not found; `GET /v1/sessions` lists all sessions";
    other.get("/v1/sessions/suport-42").refused(404, nothing);
}

#[test]
fn similar_names_are_found_among_many_sessions() {
    let server = Server::start();
    let mut client = server.client();
    for at in 0..450 {
        add(&mut client, &format!("call-{at:03}"), &talk(1, 1));
    }
    add(&mut client, "visit-7071", &talk(1, 1));
    client.get("/v1/sessions/visit-7017").refused(404, "similar names: visit-7071");
    client.get("/v1/sessions/cal-001").refused(404, "similar names: call-001");
}

#[test]
fn a_mistyped_name_is_answered_with_the_similar_one() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 6));
    client
        .get("/v1/sessions/a/messages?format=opnai")
        .refused(400, "format: no such format; did you mean openai?");
    client.get("/v1/sessions/a/messages?format=xml").refused(400, "format: no such format; use one of: ");
    let named = json!({"format": "antropic", "messages": talk(1, 1)});
    client
        .post("/v1/sessions/a/messages", &named)
        .refused(400, "format: no such format; did you mean anthropic?");
    let named = json!({"format": 5, "messages": talk(1, 1)});
    client.post("/v1/sessions/a/messages", &named).refused(400, "format: ");
    client.post("/v1/sessions/a/summaries", &json!({"slot": "shrt"})).refused(404, "did you mean `short`?");
    client
        .send("POST", "/v1/sessions/a/slots/lnog/rebuild", &[], None)
        .refused(404, "slot `lnog` not found; did you mean `long`? there are: short, long");
    let messages = json!({"formt": "openai", "messages": talk(1, 1)});
    client
        .post("/v1/sessions/a/messages", &messages)
        .refused(400, "\"formt\": no such field; did you mean `format`? allowed are messages and format");
    client.get("/v1/sessions/a/context?token=5").refused(400, "; did you mean `tokens`?");
    client.get("/v1/sessions/a/context?oversize=clp").refused(400, "did you mean `clip`? expected one of");
    client.json("PUT", "/v1/sessions/a", &json!({"setings": {}})).refused(400, "; did you mean `settings`?");
    let mut put = |settings: Value| client.json("PUT", "/v1/sessions/a", &json!({"settings": settings}));
    put(json!({"condense": {"summary_role": "sytem"}})).refused(400, "did you mean `system`?");
    put(json!({"condense": {"model": "locl"}})).refused(400, "did you mean `local`?");
    put(json!({"summarize": {"models": ["locl"]}})).refused(400, "did you mean `local`?");
    client
        .send("DELETE", "/v1/keys/0000", &[], None)
        .refused(404, "key `0000` not found; `GET /v1/keys` lists");
}
