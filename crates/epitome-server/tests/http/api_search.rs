//! Search over HTTP: in a session, in a workspace, beneath a summary, page by page.

use serde_json::{Value, json};

use crate::server::Server;
use crate::talk::{add, pages, settle, talk};

fn found(items: &[Value]) -> Vec<(String, u64)> {
    let place = |item: &Value| {
        (item["session"].as_str().unwrap().to_owned(), item["message"]["seq"].as_u64().unwrap())
    };
    items.iter().map(place).collect()
}

#[test]
fn a_search_covers_summarized_messages_newest_first() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 60));
    settle(&mut client);
    let one = client.get("/v1/sessions/a/search?q=%22number+7%3A%22").ok();
    assert_eq!(found(one["items"].as_array().unwrap()), [("a".to_owned(), 7)]);
    assert!(one["items"][0]["excerpt"].as_str().unwrap().contains("number 7:"));
    let all = pages(&mut client, "/v1/sessions/a/search?q=bergen+PARCEL", 100);
    assert!(found(&all).into_iter().map(|(_, seq)| seq).eq((1..=60).rev()));
    for limit in [1, 7] {
        assert_eq!(pages(&mut client, "/v1/sessions/a/search?q=bergen+PARCEL", limit), all);
    }
    assert_eq!(client.get("/v1/sessions/a/search?q=elephant").ok(), json!({"items": [], "next": null}));
    let quoted = client.get("/v1/sessions/a/search?q=%22number+12%22").ok();
    assert_eq!(found(quoted["items"].as_array().unwrap()), [("a".to_owned(), 12)]);
}

#[test]
fn a_search_can_be_limited_to_what_a_summary_covers() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 30));
    settle(&mut client);
    let beneath = pages(&mut client, "/v1/sessions/a/search?q=parcel&summary=1", 8);
    assert!(found(&beneath).into_iter().map(|(_, seq)| seq).eq((1..=20).rev()));
    client.get("/v1/sessions/a/search?q=parcel&summary=9").refused(404, "summary 9");
}

#[test]
fn a_workspace_search_finds_each_match_once() {
    let server = Server::start();
    let mut client = server.client();
    for name in ["a", "b.c/1", "ünï", "4.x"] {
        client.post(&format!("/v1/sessions/{}/messages", crate::talk::escaped(name)), &talk(1, 9)).ok();
    }
    client
        .post("/v1/sessions/other/messages", &json!({"role": "user", "content": "Nothing of the kind."}))
        .ok();
    let all = found(&pages(&mut client, "/v1/search?q=parcel", 500));
    assert_eq!(all.len(), 36);
    for limit in [1, 5, 9] {
        assert_eq!(found(&pages(&mut client, "/v1/search?q=parcel", limit)), all);
    }
}

#[test]
fn an_invalid_search_is_refused_by_name() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 3));
    let many = vec!["x"; 17].join("+");
    for (query, told) in [
        ("", "missing parameter `q`"),
        ("q=", "query: is empty"),
        ("q=%22%22", "query: is empty"),
        (&format!("q={many}"), "query"),
        (&format!("q={}", "x".repeat(1001)), "q: at most 1000 characters"),
        ("q=x&after=x.a", "after"),
        ("q=x&after=%2B5.a", "after"),
        ("q=x&limit=0", "limit: 1 to 500"),
    ] {
        client.get(&format!("/v1/sessions/a/search?{query}")).refused(400, told);
        client.get(&format!("/v1/search?{query}")).refused(400, told);
    }
    client.get("/v1/search?q=x&after=5").refused(400, "after: is not the `next` of a page");
    client
        .get("/v1/sessions/a/search?q=x&after=1.a")
        .refused(400, "after: \"1.a\" is not allowed; expected a whole number");
    client.get("/v1/search?q=x&after=1.gone").refused(409, "search again from the start");
    client.get("/v1/sessions/nobody/search?q=x").refused(404, "session `nobody` not found");
}
