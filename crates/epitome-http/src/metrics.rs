//! Metrics for Prometheus. Counters and histograms are updated continuously. Gauges are read at each scrape.
//!
//! The metrics follow the naming rules of Prometheus. Names contain base units (seconds, bytes). The names of counters,
//! and no other names, end in `_total`. Each metric has a description. The tool `promtool check metrics` and a test of
//! the server check these rules. The values of a label never overlap, so a sum over all values counts nothing twice.

use std::sync::LazyLock;
use std::time::Duration;

use epitome::metrics as engine;
use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};

use crate::process;
use crate::state::HttpState;

/// The version of the server, as a label. The value is always 1.
const BUILD_INFO: &str = "epitome_build_info";
/// Requests that were answered.
const REQUESTS: &str = "epitome_http_requests_total";
/// Duration of requests.
const REQUEST_DURATION: &str = "epitome_http_request_duration_seconds";
/// Requests in progress.
const REQUESTS_IN_PROGRESS: &str = "epitome_http_requests_in_progress";
/// Slots with work to do.
const QUEUE_SLOTS: &str = "epitome_queue_slots";
/// How long the oldest slot with work to do has waited.
const QUEUE_OLDEST: &str = "epitome_queue_oldest_seconds";
/// Proxied requests.
const PROXY_REQUESTS: &str = "epitome_proxy_requests_total";
/// Proxied requests that were forwarded with a shorter list.
const PROXY_CONDENSED_REQUESTS: &str = "epitome_proxy_condensed_requests_total";
/// Input tokens of proxied requests.
const PROXY_INPUT_TOKENS: &str = "epitome_proxy_input_tokens_total";
/// Input tokens that condensing saved.
const PROXY_SAVED_TOKENS: &str = "epitome_proxy_saved_tokens_total";
/// Input tokens that condensing would have saved in shadow mode.
const PROXY_SHADOW_SAVED_TOKENS: &str = "epitome_proxy_shadow_saved_tokens_total";

/// Counters without labels. They start with the value 0 on the metrics page, so that the first increase is visible too.
const PLAIN_COUNTERS: &[&str] = &[
    engine::APPENDED_MESSAGES,
    engine::APPENDED_TOKENS,
    engine::CONTEXTS,
    engine::SESSION_SAVED_TOKENS,
    engine::LEASE_LOSSES,
    PROXY_CONDENSED_REQUESTS,
    PROXY_INPUT_TOKENS,
    PROXY_SAVED_TOKENS,
    PROXY_SHADOW_SAVED_TOKENS,
];

/// The metrics that release 0.2 renamed: the old name and the new name. The page begins with a comment for each.
const RENAMED: &[(&str, &str)] = &[
    ("epitome_spend_millionths_total", engine::MODEL_CALL_COST),
    ("epitome_saved_tokens_total", engine::SESSION_SAVED_TOKENS),
    ("epitome_context_seconds", engine::CONTEXT_DURATION),
    ("epitome_summary_seconds", engine::SUMMARIZE_DURATION),
    ("epitome_http_request_seconds", REQUEST_DURATION),
    ("epitome_http_under_way", REQUESTS_IN_PROGRESS),
];

/// Histogram buckets for durations, in seconds.
const SECONDS: &[f64] =
    &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

/// Histogram buckets for sizes, in tokens.
const TOKENS: &[f64] = &[250.0, 500.0, 1e3, 2e3, 4e3, 8e3, 16e3, 32e3, 64e3, 128e3];

/// Histogram buckets for the cost of a model call, in the currency of the prices.
const COSTS: &[f64] = &[0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0];

/// Interval at which histograms are aggregated. Each recorded value takes memory until it is aggregated, even if the
/// metrics are never scraped.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(2);

/// The metrics recorder; `None` if another recorder is already installed in this process.
static RECORDER: LazyLock<Option<PrometheusHandle>> = LazyLock::new(|| {
    let handle = builder().ok()?.install_recorder().ok()?;
    describe();
    for name in PLAIN_COUNTERS {
        counter!(*name).increment(0);
    }
    gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Some(handle)
});

fn builder() -> Result<PrometheusBuilder, BuildError> {
    PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), SECONDS)?
        .set_buckets_for_metric(Matcher::Suffix("_tokens".to_owned()), TOKENS)?
        .set_buckets_for_metric(Matcher::Suffix("_cost".to_owned()), COSTS)
}

/// Registers the descriptions of all metrics.
fn describe() {
    engine::describe();
    describe_gauge!(BUILD_INFO, "Always 1; the label contains the version of the server");
    describe_counter!(REQUESTS, Unit::Count, "Requests answered, by route, method and status");
    describe_histogram!(
        REQUEST_DURATION,
        Unit::Seconds,
        "Time until the response to a request began, by route"
    );
    describe_gauge!(
        REQUESTS_IN_PROGRESS,
        Unit::Count,
        "Requests in progress; each has one kind: request, summary_wait, event_stream or proxied"
    );
    describe_gauge!(QUEUE_SLOTS, Unit::Count, "Slots with work to do, by state, in the whole database");
    describe_gauge!(QUEUE_OLDEST, Unit::Seconds, "How long the oldest slot that can be started has waited");
    describe_counter!(PROXY_REQUESTS, Unit::Count, "Proxied requests, by what was done with them");
    describe_counter!(
        PROXY_CONDENSED_REQUESTS,
        Unit::Count,
        "Proxied requests forwarded with a shorter list: outcomes condensed and retried"
    );
    describe_counter!(
        PROXY_INPUT_TOKENS,
        Unit::Count,
        "Input tokens of proxied requests, as counted by the providers, including cached tokens"
    );
    describe_counter!(
        PROXY_SAVED_TOKENS,
        Unit::Count,
        "Input tokens that condensing saved in proxied requests, in the providers' tokens"
    );
    describe_counter!(
        PROXY_SHADOW_SAVED_TOKENS,
        Unit::Count,
        "Input tokens that condensing would have saved in shadow mode, in the providers' tokens"
    );
}

/// Starts recording metrics. Call it once, before creating an engine.
pub fn install() {
    if let Some(recorder) = LazyLock::force(&RECORDER) {
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(UPKEEP_INTERVAL).await;
                recorder.run_upkeep();
            }
        });
    }
}

/// Records a request that was answered.
pub fn record_request(route: String, method: &'static str, status: u16, duration: Duration) {
    counter!(REQUESTS, "route" => route.clone(), "method" => method, "status" => status.to_string())
        .increment(1);
    histogram!(REQUEST_DURATION, "route" => route).record(duration.as_secs_f64());
}

/// Records a proxied request: what was done with it, and whether it was forwarded with a shorter list.
pub fn record_proxied(outcome: &'static str, is_condensed: bool) {
    counter!(PROXY_REQUESTS, "outcome" => outcome).increment(1);
    if is_condensed {
        counter!(PROXY_CONDENSED_REQUESTS).increment(1);
    }
}

/// Records the input tokens of a proxied request, as counted by the provider, and the number of input tokens that
/// condensing saved. In shadow mode, the request was sent unchanged, and `saved` is the number that condensing would
/// have saved.
pub fn record_proxied_tokens(input: u64, saved: u64, is_shadow: bool) {
    counter!(PROXY_INPUT_TOKENS).increment(input);
    counter!(if is_shadow { PROXY_SHADOW_SAVED_TOKENS } else { PROXY_SAVED_TOKENS }).increment(saved);
}

/// Records a context that was returned from the cache.
pub(crate) fn record_cached_context(tokens: u64) {
    counter!(engine::CONTEXTS).increment(1);
    histogram!(engine::CONTEXT_TOKENS).record(float(tokens));
}

/// Renders all metrics in the Prometheus text format, including the metrics of the process. The first lines are
/// comments with the new names of renamed metrics.
pub async fn render(app: &HttpState) -> String {
    if let Ok(backlog) = app.engine.backlog().await {
        for (state, count) in [
            ("due", backlog.due),
            ("working", backlog.working),
            ("waiting", backlog.waiting),
            ("parked", backlog.parked),
        ] {
            gauge!(QUEUE_SLOTS, "state" => state).set(float(count));
        }
        gauge!(QUEUE_OLDEST).set(float(backlog.oldest_millis.unwrap_or(0)) / 1e3);
    }
    // A request has only one permit at a time, so it counts for only one kind.
    let pools = [
        ("request", &app.permits.requests),
        ("summary_wait", &app.permits.summary_waits),
        ("event_stream", &app.permits.event_streams),
        ("proxied", &app.permits.proxied_requests),
    ];
    for (kind, pool) in pools {
        gauge!(REQUESTS_IN_PROGRESS, "kind" => kind).set(float(pool.in_use() as u64));
    }
    let Some(recorder) = RECORDER.as_ref() else { return String::new() };
    recorder.run_upkeep();
    let mut page = String::new();
    for (old, new) in RENAMED {
        page += &format!("# {old} was renamed to {new}\n");
    }
    page + &recorder.render() + &process::render()
}

#[expect(clippy::cast_precision_loss, reason = "no count here exceeds 2^52")]
fn float(count: u64) -> f64 {
    count as f64
}
