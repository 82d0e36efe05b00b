//! `POST /v1/condense`: a request in, the same with a shorter list out.

use std::time::Duration;

use serde_json::{Value, json};

use crate::provider::{Act, INPUT, Provider};
use crate::server::{Answer, Client, Server};

/// So many turns about orders.
fn list(turns: usize) -> Vec<Value> {
    let mut list = vec![json!({"role": "system", "content": "You are a harbour master."})];
    for n in 1..=turns {
        list.push(json!({"role": "user", "content": format!("Where is order {n}0071? It was to be in Oslo by now.")}));
        list.push(json!({"role": "assistant", "content": format!("Order {n}0071 is at berth {n} and leaves on Monday.")}));
    }
    list.push(json!({"role": "user", "content": "And the last one?"}));
    list
}

fn sent(turns: usize) -> String {
    let list = Value::from(list(turns));
    format!(
        "{{\"model\": \"gpt-4o\", \"temperature\": 1.0e0,\n \"messages\": {list:#}, \"x\": \"\\u00e9\"}}\n"
    )
}

impl Client {
    fn condense(&mut self, query: &str, body: &str) -> Answer {
        let json = [("content-type", "application/json")];
        self.send("POST", &format!("/v1/condense{query}"), &json, Some(body.as_bytes()))
    }
}

fn report(answer: &Answer) -> Value {
    let text = answer.header("x-epitome-report");
    assert!(text.is_ascii(), "{text}");
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?} {answer:?}"))
}

#[test]
fn if_nothing_is_due_the_same_bytes_are_returned() {
    let server = Server::start();
    let mut client = server.client();
    for body in [sent(3), "[]".to_owned(), " [ ] \n".to_owned()] {
        let answer = client.condense("", &body);
        assert_eq!((answer.status, answer.text()), (200, body));
        assert_eq!(answer.header("content-type"), "application/json");
        let report = report(&answer);
        assert_eq!((&report["condensed"], &report["reason"]), (&json!(false), &json!("not_due")));
    }
    assert_eq!(client.condense("?force&strategy=noop", &sent(30)).text(), sent(30));
}

#[test]
fn a_due_list_is_returned_shorter_and_all_else_unchanged() {
    let server = Server::start();
    let mut client = server.client();
    let answer = client.condense("?trigger=messages(50)&keep_messages=4", &sent(30));
    let text = answer.text();
    assert!(text.starts_with("{\"model\": \"gpt-4o\", \"temperature\": 1.0e0,\n \"messages\": ["), "{text}");
    assert!(text.ends_with(", \"x\": \"\\u00e9\"}\n"), "{text}");
    let messages = answer.ok()["messages"].as_array().unwrap().clone();
    assert_eq!((messages.len(), &messages[2..]), (1 + 1 + 4, &list(30)[58..]));
    let report = report(&answer);
    assert_eq!((&report["reason"], &report["covers"]), (&json!("due"), &json!([2, 58])), "{report}");
    assert_eq!((&report["model"], &report["messages_after"]), (&json!("local"), &json!(6)));
    assert_eq!(report["window"], 128_000 - 16_384);
    // A bare list, and one in another form.
    assert!(client.condense("?force", &Value::from(list(30)).to_string()).ok().is_array());
    let input: Vec<Value> = list(30).split_off(1);
    let responses = json!({"instructions": "Be brief.", "input": input}).to_string();
    assert_eq!(
        client.condense("?force&keep_turns=1", &responses).ok()["input"].as_array().unwrap().len(),
        1 + 1
    );
    // Nothing is kept of it.
    assert_eq!(client.get("/v1/sessions").ok()["items"], json!([]));
}

#[test]
fn the_largest_allowed_body_is_read_completely() {
    let server = Server::start();
    let body =
        format!(r#"{{"messages": [{{"role": "user", "content": "Hi"}}], "x": "{}"}}"#, "y".repeat(15 << 20));
    let answer = server.client().condense("", &body);
    assert_eq!((answer.status, answer.body.len()), (200, body.len()));
    assert!(answer.body == body.as_bytes());
}

#[test]
fn explain_returns_a_forecast_and_changes_nothing() {
    let server = Server::start();
    let told = server.client().condense("?explain&force&keep_messages=2", &sent(30));
    assert_eq!(told.header("x-epitome-report"), "");
    let told = told.ok();
    assert_eq!(
        (&told["condenses"], &told["format"], &told["for_model"]),
        (&json!(true), &json!("openai"), &json!("gpt-4o"))
    );
    let stay = told["messages"].as_array().unwrap().iter().filter(|message| message["stays"] == true).count();
    assert_eq!(stay, 1 + 2);
}

#[test]
fn invalid_requests_are_refused_by_field_without_content() {
    let server = Server::with(&["--set", "limits.body=100000"], &[]);
    let mut client = server.client();
    for (query, body, detail) in [
        ("", "", "empty"),
        ("", "nonsense", "JSON"),
        ("", "\"Hello\"", "a request or a list of messages"),
        ("", "{}", "messages: is missing"),
        ("", "[{\"role\": \"robot\", \"content\": \"secret words\"}]", "role"),
        ("?format=responses", "{\"messages\": []}", "input: is missing"),
        (
            "?strategy=sumarize",
            "[]",
            "strategy: position 1: `sumarize` is unknown; did you mean `summarize`?",
        ),
        ("?trigger=messages(0)", "[]", "trigger: messages: 0 is not allowed"),
        ("?trigger=window(0.5)", "[]", "window is unknown"),
        ("?keep_messages=1&keep_turns=1", "[]", "use one of them"),
        ("?window=0", "[]", "window: expected a whole number from 1"),
        ("?model=gpt-9", "[]", "model: no model named `gpt-9`; "),
        ("?keep=5", "[]", "unknown parameter `keep`"),
        ("?format=xml", "[]", "format"),
    ] {
        let problem = client.condense(query, body).refused(400, detail);
        assert!(!problem.to_string().contains("secret"), "{problem}");
    }
    client
        .send("POST", "/v1/condense", &[("content-type", "text/plain")], Some(b"[]"))
        .refused(415, "application/json");
    client.condense("", &format!("[\"{}\"]", "x".repeat(100_001))).refused(413, "limits.body");
    client
        .send("POST", "/v1/condense", &[("content-type", "application/json")], Some(b"[\xff]"))
        .refused(400, "UTF-8");
    client.get("/v1/condense").refused(405, "allow");
}

#[test]
fn a_workspaces_settings_apply_to_condensing() {
    let server = Server::start();
    let mut client = server.client().with("x-epitome-workspace", "small");
    let settings =
        json!({"settings": {"condense": {"trigger": "messages(9)", "keep_last": 3, "strategy": "recent"}}});
    client.json("PUT", "/v1/workspace", &settings).ok();
    assert_eq!(client.condense("", &sent(30)).ok()["messages"].as_array().unwrap().len(), 1 + 3);
    assert_eq!(client.condense("?keep_turns=1", &sent(30)).ok()["messages"].as_array().unwrap().len(), 1 + 1);
    assert_eq!(server.client().condense("", &sent(30)).text(), sent(30), "and for no other");
    let wrong = json!({"settings": {"condense": {"model": "gpt-9"}}});
    client.json("PUT", "/v1/workspace", &wrong).refused(400, "condense.model: no model named `gpt-9`");
}

/// A server whose inline summaries are written by a provider, who does this.
fn served(act: Act, more: &str, flags: &[&str]) -> (Server, Provider, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let provider = runtime.block_on(Provider::start());
    provider.always(act);
    let folder = tempfile::tempdir().unwrap();
    let settings = format!(
        "[condense]\nmodel = \"main\"\n{more}\
         [models.main]\nprovider = \"openai\"\nmodel = \"stand-in-1\"\nbase_url = \"{}\"\nwindow = 100000\n\
         [prices.\"stand-in-1\"]\ninput = 2.0\noutput = 10.0\n",
        provider.url()
    );
    std::fs::write(folder.path().join("epitome.toml"), settings).unwrap();
    let flags = [&["--config", "epitome.toml"], flags].concat();
    (Server::in_folder(folder, &flags, &[]), provider, runtime)
}

#[test]
fn model_costs_are_counted_for_the_workspace() {
    let (server, provider, _runtime) = served(Act::Good, "", &[]);
    let mut client = server.client().with("x-epitome-workspace", "theirs");
    assert_eq!(client.condense("", &sent(30)).text(), sent(30));
    assert_eq!(provider.calls(), 0, "nothing is due, and nobody is asked");
    client.condense("?explain&force", &sent(30)).ok();
    assert_eq!(provider.calls(), 0, "an explanation asks nobody");
    let answer = client.condense("?force", &sent(30));
    let report = report(&answer);
    assert_eq!((&report["model"], &report["condensed"]), (&json!("stand-in-1"), &json!(true)), "{report}");
    assert_eq!(report["spent"][0]["input"], INPUT);
    let usage = client.get("/v1/usage").ok();
    assert_eq!(
        (&usage["total"]["calls"], &usage["items"][0]["slot"]),
        (&json!(1), &json!("condense")),
        "{usage}"
    );
    assert_eq!(server.client().get("/v1/usage").ok()["total"]["calls"], 0);
}

#[test]
fn a_model_that_fails_leaves_the_request_as_it_was() {
    let (server, _provider, _runtime) = served(Act::Status(400), "", &[]);
    let answer = server.client().condense("?force", &sent(30));
    assert_eq!((answer.status, answer.text()), (200, sent(30)));
    let told = report(&answer);
    assert_eq!((&told["reason"], &told["condensed"]), (&json!("model_failed"), &json!(false)), "{told}");
    assert!(
        !answer.header("x-epitome-report").contains("127.0.0.1"),
        "where models are asked is nobody's matter"
    );
}

#[test]
fn the_spend_cap_applies_to_condensing() {
    let (server, provider, _runtime) = served(Act::Good, "[summarize]\nspend_cap_per_day = 0.000001\n", &[]);
    let answer = server.client().condense("?force", &sent(30));
    assert_eq!((answer.text(), provider.calls()), (sent(30), 0));
    assert_eq!(report(&answer)["reason"], "model_failed");
}

#[test]
fn requests_without_a_model_are_answered_while_others_wait_for_one() {
    let (server, provider, _runtime) = served(Act::Silent, "", &["--bound", "waiting=1"]);
    let mut first = server.client();
    let waiting = std::thread::spawn(move || first.condense("?force", &sent(30)));
    while provider.calls() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut client = server.client();
    let busy = client.condense("?force", &sent(31));
    assert!(busy.status == 503 || busy.status == 429, "{busy:?}");
    assert_eq!(client.condense("", &sent(31)).text(), sent(31));
    let recent = client.condense("?force&strategy=recent(messages(2))", &sent(31));
    assert_eq!(report(&recent)["condensed"], true);
    assert!(client.condense("?force&explain", &sent(31)).ok()["condenses"].as_bool().unwrap());
    // Told to end, the server lets nobody wait in vain.
    server.signal("TERM");
    let answer = waiting.join().unwrap();
    assert_eq!((answer.status, answer.text()), (200, sent(30)));
    let told = report(&answer);
    assert_eq!((&told["reason"], &told["condensed"]), (&json!("model_failed"), &json!(false)), "{told}");
}
