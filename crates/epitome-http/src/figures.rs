//! Metrics for Prometheus: counters that are updated continuously, and gauges that are read at each scrape.

use std::sync::LazyLock;
use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::state::HttpState;

/// Requests that were answered.
const REQUESTS: &str = "epitome_http_requests_total";
/// Duration of requests.
const REQUEST_SECONDS: &str = "epitome_http_request_seconds";
/// Slots with work to do.
const QUEUE: &str = "epitome_queue_slots";
/// How long the oldest of these slots has waited.
const QUEUE_AGE: &str = "epitome_queue_oldest_seconds";
/// Proxied requests.
const PASSED_ON: &str = "epitome_proxy_requests_total";
/// Requests in progress.
const UNDER_WAY: &str = "epitome_http_under_way";

/// Histogram buckets for durations, in seconds.
const TIMES: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

/// Histogram buckets for sizes, in tokens.
const SIZES: &[f64] = &[250.0, 500.0, 1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 64e3, 128e3];

/// How often histograms are aggregated. Until then each value takes memory, even if the metrics are never scraped.
const SUMMED_UP_EVERY: Duration = Duration::from_secs(2);

/// The metrics recorder; none if another recorder is installed in this process already.
static RECORDER: LazyLock<Option<PrometheusHandle>> = LazyLock::new(|| {
    let built = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), TIMES)
        .and_then(|builder| builder.set_buckets_for_metric(Matcher::Suffix("_tokens".to_owned()), SIZES));
    let handle = built.ok()?.install_recorder().ok()?;
    epitome::measure::describe();
    describe_counter!(REQUESTS, Unit::Count, "Requests answered, by route, method and status");
    describe_histogram!(REQUEST_SECONDS, Unit::Seconds, "Time to answer a request, by route");
    describe_counter!(PASSED_ON, Unit::Count, "Requests sent on to a provider, by what was done to them");
    describe_gauge!(QUEUE, Unit::Count, "Slots with work to do, by state, in all workspaces");
    describe_gauge!(QUEUE_AGE, Unit::Seconds, "How long the oldest slot that can be started has waited");
    describe_gauge!(
        UNDER_WAY,
        Unit::Count,
        "Requests in progress, waiting for a summary, listening to events, proxied"
    );
    Some(handle)
});

/// Starts recording metrics. Call it once, before creating an engine.
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

/// Records a request that was answered.
pub fn answered(route: String, method: &'static str, status: u16, took: Duration) {
    counter!(REQUESTS, "route" => route.clone(), "method" => method, "status" => status.to_string())
        .increment(1);
    histogram!(REQUEST_SECONDS, "route" => route).record(took.as_secs_f64());
}

/// Records a proxied request.
pub fn passed_on(outcome: &'static str) {
    counter!(PASSED_ON, "outcome" => outcome).increment(1);
}

/// Records a context that was returned from the cache.
pub(crate) fn given_again(tokens: u64) {
    counter!(epitome::measure::CONTEXTS).increment(1);
    histogram!(epitome::measure::CONTEXT_TOKENS).record(precise(tokens));
}

/// Renders all metrics in the Prometheus text format.
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
