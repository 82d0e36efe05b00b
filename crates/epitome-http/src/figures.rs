//! Figures for Prometheus: what is counted all along, and what is looked up when somebody asks.

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::state::HttpState;

/// Requests that were answered.
const REQUESTS: &str = "epitome_http_requests_total";
/// How long they took.
const REQUEST_SECONDS: &str = "epitome_http_request_seconds";
/// Slots with something to do.
const QUEUE: &str = "epitome_queue_slots";
/// For how long the first of them has waited.
const QUEUE_AGE: &str = "epitome_queue_oldest_seconds";
/// Requests that were passed on.
const PASSED_ON: &str = "epitome_proxy_requests_total";
/// What is under way.
const UNDER_WAY: &str = "epitome_http_under_way";

/// Times in seconds.
const TIMES: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

/// Sizes in tokens.
const SIZES: &[f64] = &[250.0, 500.0, 1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 64e3, 128e3];

/// Times and sizes are kept one by one until they are summed up, whether or not anybody ever asks for them.
const SUMMED_UP_EVERY: Duration = Duration::from_secs(2);

/// Where everything is counted; none where something else counts in this process already.
static RECORDER: LazyLock<Option<PrometheusHandle>> = LazyLock::new(|| {
    let built = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), TIMES)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_tokens".to_owned()), SIZES));
    let handle = built.ok()?.install_recorder().ok()?;
    epitome::measure::describe();
    describe_counter!(REQUESTS, Unit::Count, "Requests answered, by route, method and status");
    describe_histogram!(REQUEST_SECONDS, Unit::Seconds, "Time to answer a request, by route");
    describe_counter!(PASSED_ON, Unit::Count, "Requests passed on to a provider, by what was done to them");
    describe_gauge!(QUEUE, Unit::Count, "Slots with something to do, by state, in all workspaces");
    describe_gauge!(QUEUE_AGE, Unit::Seconds, "How long the first slot that can be taken now has waited");
    describe_gauge!(
        UNDER_WAY,
        Unit::Count,
        "Requests under way, waiting for a summary, listening to events, passed on"
    );
    Some(handle)
});

/// Has everything counted from now on. To be called once, before an engine is made.
pub fn count() {
    if let Some(recorder) = LazyLock::force(&RECORDER) {
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SUMMED_UP_EVERY).await;
                recorder.run_upkeep();
            }
        });
    }
}

/// A request was answered.
pub fn answered(route: String, method: &'static str, status: u16, took: Duration) {
    counter!(REQUESTS, "route" => route.clone(), "method" => method, "status" => status.to_string())
        .increment(1);
    histogram!(REQUEST_SECONDS, "route" => route).record(took.as_secs_f64());
}

/// A request was passed on.
pub fn passed_on(outcome: &'static str) {
    counter!(PASSED_ON, "outcome" => outcome).increment(1);
}

/// A context was handed out that had been made before.
pub(crate) fn given_again(tokens: u64) {
    counter!(epitome::measure::CONTEXTS).increment(1);
    histogram!(epitome::measure::CONTEXT_TOKENS).record(precise(tokens));
}

/// All of them, as Prometheus reads them.
pub async fn all(app: &HttpState) -> String {
    if let Ok(backlog) = app.engine.backlog().await {
        for (state, count) in [
            ("due", backlog.due),
            ("working", backlog.working),
            ("waiting", backlog.waiting),
            ("parked", backlog.parked),
        ] {
            gauge!(QUEUE, "state" => state).set(precise(count));
        }
        gauge!(QUEUE_AGE).set(precise(backlog.oldest_millis.unwrap_or(0)) / 1e3);
    }
    let lanes = [
        ("requests", &app.load.requests),
        ("waiting", &app.load.waiting),
        ("listening", &app.load.listening),
        ("forwarding", &app.load.forwarding),
    ];
    for (what, lane) in lanes {
        gauge!(UNDER_WAY, "what" => what).set(precise(lane.taken() as u64));
    }
    let Some(recorder) = RECORDER.as_ref() else { return String::new() };
    recorder.run_upkeep();
    recorder.render()
}

#[expect(clippy::cast_precision_loss, reason = "nothing here is counted past 2^52")]
fn precise(count: u64) -> f64 {
    count as f64
}
