//! Metrics: every event is counted, and no label names a tenant.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use epitome::Batch;
use epitome::model::{Reply, TokenUsage};
use epitome_testkit::scripted::{Gate, Scripted};
use metrics::{
    Counter, CounterFn, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

use crate::failing::down;
use crate::support::{Home, MINUTE, current_summary, one_slot, talk, with_settings, within_timeout};

/// Stores the recorded values by name and labels.
#[derive(Clone, Default)]
pub(crate) struct Seen(Arc<Mutex<BTreeMap<String, Vec<f64>>>>);

/// One of the numbers.
struct One(Seen, String);

impl CounterFn for One {
    fn increment(&self, value: u64) {
        self.record(value as f64);
    }

    fn absolute(&self, value: u64) {
        self.record(value as f64);
    }
}

impl HistogramFn for One {
    fn record(&self, value: f64) {
        self.0.0.lock().unwrap().entry(self.1.clone()).or_default().push(value);
    }
}

impl Seen {
    fn one(&self, key: &Key) -> Arc<One> {
        let labels: Vec<String> =
            key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        Arc::new(One(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }

    pub(crate) fn sum(&self, name: &str) -> f64 {
        self.0.lock().unwrap().get(name).map_or(0.0, |values| values.iter().sum())
    }
}

impl Recorder for Seen {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        self.0.lock().unwrap().insert(format!("described {}", key.as_str()), Vec::new());
    }

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, key: KeyName, unit: Option<Unit>, text: SharedString) {
        self.describe_counter(key, unit, text);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.one(key))
    }
}

#[tokio::test]
async fn metrics_count_every_event_without_names_of_tenants() {
    let seen = Seen::default();
    let _guard = metrics::set_default_local_recorder(&seen);
    epitome::metrics::describe();
    let home = Home::memory();
    let usage = TokenUsage { input: 10_000, cached: 2_000, output: 1_000 };
    let model = Scripted::new().named("gpt-test").fails(down()).answers(move |_| {
        Ok(Reply { usage: Some(usage), ..Reply::complete("Customers in Oslo wait for parcels.") })
    });
    let settings = r#", "slot": [{"name": "short", "trigger": "messages(20)"}],
        "summarize": {"models": ["main"], "stand_in_after": "never"},
        "prices": {"gpt-test": {"input": 2.5, "output": 10, "cache_read": 0.25}}"#;
    let engine = home.open(with_settings(&model, settings)).await;
    let session = engine.workspace("acme").session("secret-project");
    let batch = || Batch::from(talk(1, 20)).key("k");
    session.append(batch()).await.unwrap();
    session.append(batch()).await.unwrap();
    for _ in 0..2 {
        session.work().await.unwrap();
        home.clock.pass(MINUTE);
    }
    let context = session.context(1_000).await.unwrap();
    let summary = current_summary(&session, "short").await.unwrap();
    let info = session.info().await.unwrap();

    let saved = summary.replaced_tokens - summary.tokens;
    for (name, value) in [
        ("epitome_appended_messages_total{}", 20.0),
        ("epitome_appended_tokens_total{}", info.tokens as f64),
        ("epitome_contexts_total{}", 1.0),
        ("epitome_context_tokens{}", context.report.tokens.total() as f64),
        ("epitome_summaries_total{outcome=kept,model=gpt-test}", 1.0),
        ("epitome_model_calls_total{model=gpt-test,outcome=kept}", 1.0),
        ("epitome_model_calls_total{model=gpt-test,outcome=no_answer}", 1.0),
        ("epitome_model_tokens_total{model=gpt-test,kind=input_uncached}", 8_000.0),
        ("epitome_model_tokens_total{model=gpt-test,kind=input_cached}", 2_000.0),
        ("epitome_model_tokens_total{model=gpt-test,kind=output}", 1_000.0),
        ("epitome_model_call_cost{model=gpt-test}", 0.030_5),
        ("epitome_session_saved_tokens_total{}", saved as f64),
        ("epitome_lease_losses_total{}", 0.0),
    ] {
        assert_eq!(seen.sum(name), value, "{name}");
    }
    let all = seen.0.lock().unwrap().clone();
    for name in ["epitome_context_duration_seconds{}", "epitome_summarize_duration_seconds{model=gpt-test}"] {
        assert_eq!(all.get(name).map(Vec::len), Some(1), "{name}");
    }
    for name in all.keys().filter(|name| !name.starts_with("described ")) {
        assert!(!name.contains("acme") && !name.contains("secret"), "{name}");
        let plain = name.split('{').next().unwrap();
        assert!(all.contains_key(&format!("described {plain}")), "{plain} is not described");
    }
}

#[tokio::test]
async fn a_lease_lost_during_a_model_call_is_counted_and_the_call_is_unused() {
    let seen = Seen::default();
    let _guard = metrics::set_default_local_recorder(&seen);
    let gate = Gate::new();
    let model = Scripted::new()
        .named("gpt-test")
        .waits_for(&gate)
        .answers(|ask| Ok(Scripted::plain(ask)))
        .otherwise(|ask| Ok(Scripted::plain(ask)));
    let engine = Home::memory().open(one_slot(&model)).await;
    let session = engine.session("s");
    session.append(talk(1, 20)).await.unwrap();
    let working = tokio::spawn({
        let session = session.clone();
        async move { session.work().await.unwrap() }
    });
    within_timeout("the call", gate.reached()).await;
    // Whoever rebuilds raises the fence.
    assert!(session.rebuild(None, "short").await.unwrap());
    gate.open();
    within_timeout("the work", working).await.unwrap();
    assert_eq!(seen.sum("epitome_lease_losses_total{}"), 1.0);
    assert_eq!(seen.sum("epitome_model_calls_total{model=gpt-test,outcome=unused}"), 1.0);
    assert_eq!(seen.sum("epitome_summaries_total{outcome=kept,model=gpt-test}"), 1.0);
}
