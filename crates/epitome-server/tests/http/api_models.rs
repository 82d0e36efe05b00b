//! Summaries by a provider, seen over HTTP: what they cost, and that nobody waits for them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::event_stream::EventStream;
use crate::provider::{Act, CACHED, INPUT, OUTPUT, Provider};
use crate::server::Server;
use crate::talk::{add, settle, talk};

/// A server whose summaries are written by a provider, who does this.
pub fn served(act: Act) -> (Server, Provider, Runtime) {
    let runtime = Runtime::new().unwrap();
    let provider = runtime.block_on(Provider::start());
    provider.always(act);
    let folder = tempfile::tempdir().unwrap();
    let settings = format!(
        "[summarize]\nmodels = [\"main\"]\nstand_in_after = \"never\"\n\
         [models.main]\nprovider = \"openai\"\nmodel = \"stand-in-1\"\nbase_url = \"{}\"\nwindow = 100000\n\
         [prices.\"stand-in-1\"]\ninput = 2.0\noutput = 10.0\ncache_read = 0.5\n",
        provider.url()
    );
    std::fs::write(folder.path().join("epitome.toml"), settings).unwrap();
    (Server::in_folder(folder, &["--config", "epitome.toml"], &[]), provider, runtime)
}

#[test]
fn costs_are_reported_by_session_and_time() {
    let (server, _provider, _runtime) = served(Act::Good);
    let mut client = server.client();
    // What two sessions ask alike is asked once; these have other messages each.
    for (session, from) in [("a", 1), ("b", 21)] {
        add(&mut client, session, &talk(from, 20));
        settle(&mut client);
    }
    let summary = client.get("/v1/sessions/a/summaries").ok()["items"][0].clone();
    let cost = ((INPUT - CACHED) as f64 * 2.0 + CACHED as f64 * 0.5 + OUTPUT as f64 * 10.0) / 1e6;
    assert_eq!((&summary["model"], &summary["cost"]), (&json!("stand-in-1"), &json!(cost)));
    assert_eq!((&summary["input_tokens"], &summary["output_tokens"]), (&json!(INPUT), &json!(OUTPUT)));
    let usage = client.get("/v1/usage").ok();
    assert_eq!((&usage["total"]["calls"], &usage["total"]["cost"]), (&json!(2), &json!(2.0 * cost)));
    let one = client.get("/v1/usage?session=a").ok();
    let item = &one["items"][0];
    assert_eq!(
        (&item["slot"], &item["model"], &item["outcome"]),
        (&json!("short"), &json!("stand-in-1"), &json!("kept"))
    );
    assert_eq!(
        (&item["input"], &item["cached"], &item["output"]),
        (&json!(INPUT), &json!(CACHED), &json!(OUTPUT))
    );
    let none = json!({
        "requests": 0, "shorter": 0, "retried": 0, "cut_off": 0, "uncounted": 0, "input": 0, "cached": 0, "output": 0,
        "saved": 0, "cost": null, "saved_cost": null,
    });
    assert_eq!(
        client.get("/v1/usage?since=4000000000000").ok(),
        json!({
            "total": {"calls": 0, "input": 0, "cached": 0, "output": 0, "cost": null, "millis": 0}, "items": [],
            "proxy": {"total": none, "shadow": none, "items": []},
        })
    );
    assert_eq!(one.get("proxy"), None, "what goes through the proxy belongs to no session");
    assert_eq!(client.get("/v1/usage?session=nobody").ok()["total"]["calls"], 0);
    client.get("/v1/usage?since=yesterday").refused(400, "since");
}

#[test]
fn a_silent_model_delays_no_append_and_no_context() {
    let (server, provider, _runtime) = served(Act::Silent);
    let mut client = server.client();
    add(&mut client, "a", &talk(1, 20));
    while provider.calls() == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    for at in 21..=50 {
        add(&mut client, "a", &talk(at, 1));
        let context = client.get("/v1/sessions/a/context?tokens=1000").ok();
        assert_eq!((&context["report"]["through"], &context["summary"]), (&json!(at), &Value::Null));
    }
    assert_eq!((provider.calls(), provider.open()), (1, 1), "it was asked, and is still being waited for");
    let queue = client.get("/v1/queue").ok();
    assert_eq!((&queue["working"], &queue["slots"][0]["session"]), (&json!(1), &json!("a")));
}

#[test]
fn a_failing_model_is_reported_and_changes_nothing() {
    let (server, _provider, _runtime) = served(Act::Status(500));
    let mut client = server.client();
    let mut events = EventStream::open(&server, "?after=0", &[]);
    add(&mut client, "a", &talk(1, 20));
    let failed = events.next_of("failed");
    assert_eq!((&failed.data["session"], &failed.data["slot"]), (&json!("a"), &json!("short")));
    assert!(failed.data["attempts"].as_u64() >= Some(1) && failed.data["not_before"].is_i64(), "{failed:?}");
    let reason = failed.data["reason"].as_str().unwrap();
    assert!(reason.contains("500") && !reason.contains("parcel"), "{reason}");
    assert_eq!(client.get("/v1/sessions/a/summaries").ok()["items"], json!([]));
    let session = client.get("/v1/sessions/a").ok();
    let slot = session["slots"].as_array().unwrap().iter().find(|slot| slot["slot"] == "short").unwrap();
    assert!(slot["last_error"].as_str().unwrap().contains("500"), "{slot}");
    let wish = client.post("/v1/sessions/a/summaries?wait=true", &json!({}));
    assert_eq!(wish.refused(503, "500")["type"], "urn:epitome:no-summary-yet");
    assert_eq!(wish.header("retry-after"), "5");
    assert_eq!(client.get("/v1/sessions/a/context").ok()["report"]["exhaustive"], true);
}

#[test]
fn a_model_that_recovers_is_called_again() {
    let (server, provider, _runtime) = served(Act::Status(500));
    let mut client = server.client();
    let mut events = EventStream::open(&server, "?after=0", &[]);
    add(&mut client, "a", &talk(1, 20));
    events.next_of("failed");
    provider.heal();
    let written = client.post("/v1/sessions/a/summaries?wait=true", &json!({"focus": "parcels"})).ok();
    assert_eq!(written["status"], "written");
    assert!(provider.last().prompt().contains("parcels"));
}

#[test]
fn tenants_never_see_model_addresses() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[models.main]\nprovider = \"openai\"\nbase_url = \"http://127.0.0.1:9/inner\"\nmodel = \"m\"\n\
                    window = 8000\n[summarize]\nmodels = [\"main\"]\nstand_in_after = \"never\"\n";
    std::fs::write(folder.path().join("e.toml"), settings).unwrap();
    let server = Server::in_folder(folder, &["--config", "e.toml"], &[]);
    let mut client = server.client();
    crate::talk::add(&mut client, "ann", &crate::talk::talk(1, 40));
    let failed = client.post("/v1/sessions/ann/summaries?wait", &json!({}));
    for told in [failed, client.get("/v1/queue"), client.get("/v1/sessions/ann")] {
        assert!(!told.text().contains("127.0.0.1:9"), "{}", told.text());
    }
}
