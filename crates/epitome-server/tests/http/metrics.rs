//! The metrics page: Prometheus' naming rules, its labels, and that its numbers agree with the API's.

use std::time::Duration;

use epitome_testkit::prometheus::Page;
use serde_json::json;

use crate::api_models::served;
use crate::provider::Act;
use crate::server::{Client, Server};
use crate::talk::{add, settle, talk};

/// A label, and its values if they are a fixed set.
type Label = (&'static str, &'static [&'static str]);

/// Every metric that the server can have, its labels, and the values of those labels that have a fixed set of values. The
/// values of a label do not overlap: a sum over them counts nothing twice.
const METRICS: &[(&str, &[Label])] = &[
    ("epitome_appended_messages_total", &[]),
    ("epitome_appended_tokens_total", &[]),
    ("epitome_build_info", &[("version", &[])]),
    ("epitome_context_duration_seconds", &[]),
    ("epitome_context_tokens", &[]),
    ("epitome_contexts_total", &[]),
    ("epitome_http_request_duration_seconds", &[("route", &[])]),
    (
        "epitome_http_requests_in_progress",
        &[("kind", &["request", "summary_wait", "event_stream", "proxied"])],
    ),
    ("epitome_http_requests_total", &[("method", &[]), ("route", &[]), ("status", &[])]),
    ("epitome_lease_losses_total", &[]),
    ("epitome_model_call_cost", &[("model", &[])]),
    ("epitome_model_calls_total", &[("model", &[]), ("outcome", &[])]),
    (
        "epitome_model_tokens_total",
        &[("kind", &["input_uncached", "input_cached", "output"]), ("model", &[])],
    ),
    ("epitome_proxy_condensed_requests_total", &[]),
    ("epitome_proxy_input_tokens_total", &[]),
    ("epitome_proxy_requests_total", &[("outcome", &[])]),
    ("epitome_proxy_saved_tokens_total", &[]),
    ("epitome_proxy_shadow_saved_tokens_total", &[]),
    ("epitome_queue_oldest_seconds", &[]),
    ("epitome_queue_slots", &[("state", &["due", "working", "waiting", "parked"])]),
    ("epitome_summaries_total", &[("model", &[]), ("outcome", &["kept", "reused", "stand_in"])]),
    ("epitome_summarize_duration_seconds", &[("model", &[])]),
    ("epitome_session_saved_tokens_total", &[]),
    ("process_cpu_seconds_total", &[]),
    ("process_max_fds", &[]),
    ("process_open_fds", &[]),
    ("process_resident_memory_bytes", &[]),
    ("process_start_time_seconds", &[]),
];

fn page(client: &mut Client) -> Page {
    let response = client.get("/metrics");
    assert_eq!(response.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
    Page::parse(&response.text()).unwrap()
}

/// Returns what the page has that [`METRICS`] does not list.
fn unlisted(page: &Page) -> Vec<String> {
    let mut unlisted = Vec::new();
    for metric in &page.metrics {
        let Some((_, labels)) = METRICS.iter().find(|(name, _)| *name == metric.name) else {
            unlisted.push(metric.name.clone());
            continue;
        };
        for sample in &metric.samples {
            let own: Vec<_> = sample.labels.iter().filter(|(name, _)| *name != "le").collect();
            let names_agree =
                own.iter().map(|(name, _)| name.as_str()).eq(labels.iter().map(|(name, _)| *name));
            let is_listed = |(name, value): &(&String, &String)| {
                let values =
                    labels.iter().find(|(label, _)| label == name).map_or(&[][..], |(_, values)| values);
                values.is_empty() || values.contains(&value.as_str())
            };
            if !names_agree || !own.iter().all(is_listed) {
                unlisted.push(format!("{}{own:?}", metric.name));
            }
        }
    }
    unlisted
}

#[test]
fn the_documentation_lists_every_metric() {
    let docs = include_str!("../../../../docs/server.md");
    for (name, labels) in METRICS {
        assert!(docs.contains(&format!("`{name}`")), "docs/server.md does not list {name}");
        let row = docs.lines().find(|line| line.starts_with(&format!("| `{name}`"))).unwrap_or_default();
        for (label, values) in *labels {
            for word in std::iter::once(label).chain(*values) {
                assert!(row.contains(&format!("`{word}`")), "{name} in docs/server.md does not list {word}");
            }
        }
    }
}

#[test]
fn a_new_server_has_all_metrics_without_labels() {
    let server = Server::start();
    let page = page(&mut server.client());
    assert_eq!(page.problems(), [""; 0]);
    assert_eq!(unlisted(&page), [""; 0]);
    for (name, labels) in METRICS {
        let is_counter = name.ends_with("_total") && name.starts_with("epitome_");
        if labels.is_empty() && is_counter {
            assert_eq!(page.metric(name).map(|metric| metric.samples[0].value), Some(0.0), "{name}");
        }
    }
    let version = &page.metric("epitome_build_info").unwrap().samples[0].labels["version"];
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_page_begins_with_the_new_names_of_renamed_metrics() {
    let server = Server::start();
    let text = server.client().get("/metrics").text();
    let comments: Vec<&str> = text.lines().take_while(|line| !line.starts_with("# HELP ")).collect();
    assert_eq!(
        comments,
        [
            "# epitome_spend_millionths_total was renamed to epitome_model_call_cost",
            "# epitome_saved_tokens_total was renamed to epitome_session_saved_tokens_total",
            "# epitome_context_seconds was renamed to epitome_context_duration_seconds",
            "# epitome_summary_seconds was renamed to epitome_summarize_duration_seconds",
            "# epitome_http_request_seconds was renamed to epitome_http_request_duration_seconds",
            "# epitome_http_under_way was renamed to epitome_http_requests_in_progress",
        ]
    );
    let changelog = include_str!("../../../../CHANGELOG.md");
    for comment in comments {
        let (old, new) = comment[2..].split_once(" was renamed to ").unwrap();
        assert!(METRICS.iter().any(|(name, _)| *name == new), "{new}");
        let row = changelog.lines().find(|line| line.starts_with(&format!("| `{old}")));
        assert!(row.is_some_and(|row| row.contains(&format!("`{new}"))), "{old} in CHANGELOG.md: {row:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_reports_its_resources() {
    let server = Server::with(&["--log-level", "error"], &[]);
    let page = page(&mut server.client());
    let value = |name: &str| {
        assert!(page.metric(name).is_some(), "{name}");
        page.sum(name, &[])
    };
    assert!(value("process_cpu_seconds_total") < 600.0);
    let resident = value("process_resident_memory_bytes");
    assert!((1e6..4e9).contains(&resident), "{resident}");
    assert!((3.0..value("process_max_fds")).contains(&value("process_open_fds")));
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let start = value("process_start_time_seconds");
    assert!((now - 600.0..now + 2.0).contains(&start), "{start} {now}");
}

#[test]
fn the_numbers_agree_with_the_api() {
    let (server, provider, _runtime) = served(Act::Good);
    let mut client = server.client();
    provider.then(Act::Empty);
    let added = add(&mut client, "a", &talk(1, 40));
    settle(&mut client);
    client.post("/v1/sessions/a/summaries?wait", &json!({})).ok();
    // The slot whose first call failed is retried after a delay.
    while client.get("/v1/queue").ok()["waiting"] != 0 {
        std::thread::sleep(Duration::from_millis(50));
    }
    settle(&mut client);
    for _ in 0..2 {
        client.get("/v1/sessions/a/context?tokens=1500").ok();
    }
    client.get("/v1/sessions/b").refused(404, "b");
    let usage = client.get("/v1/usage").ok();
    let page = page(&mut client);
    assert_eq!(page.problems(), [""; 0]);
    assert_eq!(unlisted(&page), [""; 0]);
    let sum = |name: &str, labels: &[(&str, &str)]| page.sum(name, labels);
    let total = |field: &str| usage["total"][field].as_f64().unwrap_or_else(|| panic!("{field}: {usage}"));

    let info = client.get("/v1/sessions/a").ok();
    assert_eq!(sum("epitome_appended_messages_total", &[]), 40.0, "{added}");
    assert_eq!(sum("epitome_appended_tokens_total", &[]), info["tokens"].as_f64().unwrap());
    assert_eq!(sum("epitome_contexts_total", &[]), 2.0);
    assert_eq!(sum("epitome_context_tokens_count", &[]), 2.0);
    assert_eq!(sum("epitome_context_duration_seconds_count", &[]), 1.0, "the second is from the cache");

    assert_eq!(sum("epitome_model_calls_total", &[]), total("calls"));
    assert!(sum("epitome_model_calls_total", &[]) > sum("epitome_model_calls_total", &[("outcome", "kept")]));
    let input = total("input");
    let tokens = |kind: &str| sum("epitome_model_tokens_total", &[("kind", kind)]);
    assert_eq!((tokens("input_cached"), tokens("output")), (total("cached"), total("output")));
    assert_eq!(tokens("input_uncached") + tokens("input_cached"), input, "nothing is counted twice");
    let (spent, cost) = (sum("epitome_model_call_cost_sum", &[]), total("cost"));
    assert!((spent - cost).abs() < 1e-9 && cost > 0.0, "{spent} {cost}");

    let written = sum("epitome_summaries_total", &[("outcome", "kept")]);
    assert_eq!(written, sum("epitome_model_calls_total", &[("outcome", "kept")]));
    assert_eq!(sum("epitome_summarize_duration_seconds_count", &[]), written);
    let route = [("route", "/v1/sessions/{session}"), ("method", "GET"), ("status", "404")];
    assert_eq!(sum("epitome_http_requests_total", &route), 1.0);
    assert_eq!(sum("epitome_http_requests_in_progress", &[]), 0.0, "/metrics itself takes no permit");
    assert_eq!(sum("epitome_queue_slots", &[("state", "working")]), 0.0);
}
