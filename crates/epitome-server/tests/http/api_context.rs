//! Contexts over HTTP: what each parameter does, and that every provider takes what is given.

use serde_json::{Value, json};

use crate::judges;
use crate::server::{Client, Server};
use crate::talk::{add, settle, talk, with_tools};

/// A session with summaries, and the newest messages after them.
fn summed_up(server: &Server) -> Client {
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 30));
    settle(&mut client);
    add(&mut client, "a", &talk(31, 15));
    settle(&mut client);
    client
}

fn context(client: &mut Client, query: &str) -> Value {
    client.get(&format!("/v1/sessions/a/context?{query}")).ok()
}

/// The places of the messages in a context; 0 is the summary's.
fn places(context: &Value) -> Vec<u64> {
    context["messages"].as_array().unwrap().iter().map(|message| message["seq"].as_u64().unwrap()).collect()
}

#[test]
fn a_context_fits_its_budget_and_reports_its_contents() {
    let server = Server::start();
    let mut client = summed_up(&server);
    for tokens in [200, 500, 1000, 2000, 5000] {
        let context = context(&mut client, &format!("tokens={tokens}"));
        let report = &context["report"];
        assert_eq!(report["budget"], tokens);
        assert!(report["tokens"]["total"].as_u64().unwrap() <= tokens, "{report}");
        let parts = ["leading", "pinned", "summary", "messages", "marks"];
        let sum: u64 = parts.iter().map(|part| report["tokens"][part].as_u64().unwrap()).sum();
        assert_eq!(report["tokens"]["total"], sum);
        assert_eq!((&report["through"], &report["encoding"]), (&json!(45), &json!("o200k_base")));
        assert_eq!(places(&context).last(), Some(&45));
    }
}

#[test]
fn a_summary_makes_a_context_exhaustive() {
    let server = Server::start();
    let mut client = summed_up(&server);
    let with = context(&mut client, "tokens=2000");
    assert_eq!((&with["report"]["exhaustive"], &with["report"]["gap"]), (&json!(true), &Value::Null));
    let summary = &with["summary"];
    assert!(summary["text"].as_str().unwrap().len() > 20 && summary["model"] == "local", "{summary}");
    let covers = &with["report"]["covers"];
    assert_eq!((&covers["from"], &covers["through"]), (&json!(1), &summary["through"]));
    assert!(
        summary["age"].is_u64() && summary["created"].is_i64() && summary["slot"].is_string(),
        "{summary}"
    );
    assert_eq!(places(&with).first(), Some(&0));

    let without = context(&mut client, "tokens=500&summary=false");
    assert_eq!((&without["summary"], &without["report"]["exhaustive"]), (&Value::Null, &json!(false)));
    assert_eq!(without["report"]["gap"]["from"], 1);
    assert_eq!(without["report"]["cut"], true);
}

#[test]
fn as_of_returns_the_context_of_that_message() {
    let server = Server::start();
    let mut client = summed_up(&server);
    let then = context(&mut client, "as_of=3");
    assert_eq!((places(&then), &then["summary"]), (vec![1, 2, 3], &Value::Null));
    assert_eq!(then["report"]["through"], 3);
    client.get("/v1/sessions/a/context?as_of=0").refused(400, "as_of");
    assert_eq!(context(&mut client, "as_of=9000")["report"]["through"], 45);
}

#[test]
fn a_scope_selects_one_authors_messages() {
    let server = Server::start();
    let mut client = server.client();
    let said = |author: &str| json!({"role": "peer", "author": author, "parts": [{"type": "text", "text": format!("I am {author}.")}]});
    add(&mut client, "a", &json!([said("ann"), said("bob"), said("ann")]));
    assert_eq!(places(&context(&mut client, "scope=ann")), [1, 3]);
    assert_eq!(places(&context(&mut client, "scope=nobody")), [0_u64; 0]);
}

#[test]
fn the_assistant_among_peers_can_be_named() {
    let server = Server::start();
    let mut client = server.client();
    let said = |author: &str| json!({"role": "peer", "author": author, "parts": [{"type": "text", "text": "Hello."}]});
    add(&mut client, "a", &json!([said("ann"), said("bob")]));
    let roles = |context: Value| {
        let messages = context["messages"].as_array().unwrap().clone();
        messages.iter().map(|message| message["role"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(roles(context(&mut client, "format=openai&assistant=bob")), ["user", "assistant"]);
    assert_eq!(roles(context(&mut client, "format=openai")), ["user", "user"]);
}

#[test]
fn a_newest_message_over_the_budget_is_clipped_on_request() {
    let server = Server::start();
    let mut client = server.client();
    add(&mut client, "a", &json!({"role": "user", "content": "A long tale of a parcel. ".repeat(200)}));
    let empty = context(&mut client, "tokens=100");
    assert_eq!(
        (empty["messages"].as_array().unwrap().len(), &empty["report"]["empty"]),
        (0, &json!("newest_over_budget"))
    );
    let clipped = context(&mut client, "tokens=100&oversize=clip");
    assert_eq!(clipped["messages"].as_array().unwrap().len(), 1);
    assert!(clipped["report"]["tokens"]["total"].as_u64().unwrap() <= 100);
    assert_eq!(context(&mut client, "tokens=100&oversize=empty"), empty);
}

#[test]
fn only_fit_shortens_a_summary() {
    let server = Server::start();
    let mut client = summed_up(&server);
    let fitted = context(&mut client, "tokens=700&fit=true");
    let plain = context(&mut client, "tokens=700&fit=false");
    assert_eq!(plain["report"]["fitted"], false);
    assert_eq!(fitted["messages"], context(&mut client, "tokens=700")["messages"], "fit is the default");
    let largest = fitted["report"]["tokens"]["summary"].as_u64().unwrap();
    assert!(largest <= 280, "over its share: {largest}");
}

#[test]
fn fill_uses_the_rest_of_the_budget_and_excludes_steady() {
    let server = Server::start();
    let mut client = summed_up(&server);
    let plain = context(&mut client, "tokens=2500");
    let filled = context(&mut client, "tokens=2500&fill=true");
    let count = |context: &Value| context["messages"].as_array().unwrap().len();
    assert!(count(&filled) > count(&plain), "{} {}", count(&filled), count(&plain));
    assert!(filled["report"]["tokens"]["total"].as_u64().unwrap() <= 2500);
    client.get("/v1/sessions/a/context?fill=true&steady=true").refused(400, "steady");
}

#[test]
fn steady_moves_the_start_rarely() {
    let server = Server::start();
    let mut client = server.client();
    let mut starts = Vec::new();
    for at in 1..=40 {
        add(&mut client, "a", &talk(at, 1));
        starts.push(places(&context(&mut client, "tokens=600&summary=false&steady=true"))[0]);
    }
    starts.dedup();
    assert!((2..=20).contains(&starts.len()), "{starts:?}");
}

#[test]
fn invalid_parameters_of_a_context_are_refused_by_name() {
    let server = Server::start();
    let mut client = summed_up(&server);
    for (query, told) in [
        ("tokens=0", "tokens"),
        ("tokens=100001", "100000"),
        ("tokens=-1", "tokens"),
        ("tokens=1e3", "tokens"),
        ("token=100", "unknown parameter `token`"),
        ("tokens=100&tokens=200", "duplicate parameter"),
        ("format=xml", "format: no such format; use one of: openai, responses, anthropic, epitome"),
        ("oversize=cut", "expected one of empty, clip"),
        ("summary=maybe", "true or false"),
        ("scope=%FF", "UTF-8"),
    ] {
        client.get(&format!("/v1/sessions/a/context?{query}")).refused(400, told);
    }
    client.get("/v1/sessions/nobody/context").refused(404, "session `nobody` not found");
}

#[test]
fn strict_providers_accept_contexts_of_every_size() {
    let server = Server::start();
    let mut client = server.client();
    let all = with_tools(60);
    for some in all.as_array().unwrap().chunks(50) {
        add(&mut client, "a", &Value::from(some));
        settle(&mut client);
    }
    let standing = client.get("/v1/sessions/a/summaries").ok();
    assert_eq!(standing["items"].as_array().unwrap().len(), 2, "{standing}");
    for tokens in [150, 300, 600, 1200, 2400, 4800, 9600] {
        for more in ["", "&fill=true", "&steady=true", "&summary=false", "&oversize=clip&fit=false"] {
            for (format, complaints) in [
                ("openai", judges::chat::complaints as fn(&Value) -> Vec<String>),
                ("responses", judges::responses::complaints),
                ("anthropic", judges::anthropic::complaints),
            ] {
                let answer =
                    client.get(&format!("/v1/sessions/a/context?tokens={tokens}&format={format}{more}"));
                let report: Value = serde_json::from_str(answer.header("x-epitome-report")).unwrap();
                assert!(report["tokens"]["total"].as_u64().unwrap() <= tokens);
                if report["empty"].is_null() {
                    let wrong = complaints(&answer.ok());
                    assert!(wrong.is_empty(), "{tokens} {format}{more}: {wrong:?}");
                }
            }
        }
    }
}

#[test]
fn the_report_is_the_same_in_every_format() {
    let server = Server::start();
    let mut client = summed_up(&server);
    let own = context(&mut client, "tokens=1500")["report"].clone();
    for format in ["openai", "responses", "anthropic", "epitome"] {
        let answer = client.get(&format!("/v1/sessions/a/context?tokens=1500&format={format}"));
        assert_eq!(
            serde_json::from_str::<Value>(answer.header("x-epitome-report")).unwrap(),
            own,
            "{format}"
        );
        assert!(answer.ok().get("report").is_none(), "{format}");
    }
}
