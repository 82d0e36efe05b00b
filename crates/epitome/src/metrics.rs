//! Metrics of the engine's work.
//!
//! The engine reports all metrics through the crate `metrics`. If the program installs no recorder, nothing is stored,
//! and the metrics cost an append only a few nanoseconds. No label contains the name of a workspace or a session. So
//! metrics reveal nothing about tenants, and the number of metrics does not grow with the number of tenants. The label
//! `model` contains only names of models that the program or its settings define. Every event counts under exactly one
//! value of a label, so the sum over all values of a label is the total.
//!
//! All metric names are defined here, and [`describe`] registers their descriptions.

use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use crate::price::Money;
use crate::store::{Facts, UsageRow};

/// Messages appended.
pub const APPENDED_MESSAGES: &str = "epitome_appended_messages_total";
/// Tokens of the messages appended.
pub const APPENDED_TOKENS: &str = "epitome_appended_tokens_total";
/// Contexts returned.
pub const CONTEXTS: &str = "epitome_contexts_total";
/// Tokens of a returned context.
pub const CONTEXT_TOKENS: &str = "epitome_context_tokens";
/// Time to build a context, in seconds.
pub const CONTEXT_DURATION: &str = "epitome_context_duration_seconds";
/// Summaries stored, by model and by how they were written: `kept`, `reused` or `stand_in`.
pub const SUMMARIES: &str = "epitome_summaries_total";
/// Time that models took for a stored summary, in seconds.
pub const SUMMARIZE_DURATION: &str = "epitome_summarize_duration_seconds";
/// Calls of models, by model and outcome. The calls of condensers are included.
pub const MODEL_CALLS: &str = "epitome_model_calls_total";
/// Tokens sent to models and received from models, by kind: `input_uncached`, `input_cached` or `output`.
pub const MODEL_TOKENS: &str = "epitome_model_tokens_total";
/// Cost of a model call, in the currency of the prices. The sum of this histogram is the total cost. The metric is not
/// a counter, because counters of the crate `metrics` are whole numbers.
pub const MODEL_CALL_COST: &str = "epitome_model_call_cost";
/// Tokens of the messages and summaries that new summaries replaced, minus the tokens of the new summaries.
pub const SESSION_SAVED_TOKENS: &str = "epitome_session_saved_tokens_total";
/// Leases that were lost while a summary was written.
pub const LEASE_LOSSES: &str = "epitome_lease_losses_total";

/// Registers the descriptions with the installed recorder.
pub fn describe() {
    describe_counter!(APPENDED_MESSAGES, Unit::Count, "Messages appended to sessions");
    describe_counter!(APPENDED_TOKENS, Unit::Count, "Tokens of the messages appended");
    describe_counter!(CONTEXTS, Unit::Count, "Contexts returned");
    describe_histogram!(CONTEXT_TOKENS, Unit::Count, "Tokens of a returned context");
    describe_histogram!(CONTEXT_DURATION, Unit::Seconds, "Time to build a context");
    describe_counter!(
        SUMMARIES,
        Unit::Count,
        "Summaries stored, by outcome: `kept` (written by a model), `reused` (an earlier reply), `stand_in` (a fallback)"
    );
    describe_histogram!(SUMMARIZE_DURATION, Unit::Seconds, "Time that models took for a stored summary");
    describe_counter!(
        MODEL_CALLS,
        Unit::Count,
        "Calls of summarizing models, by outcome: `kept` (the reply became a summary), or the reason why it did not"
    );
    describe_counter!(
        MODEL_TOKENS,
        Unit::Count,
        "Tokens of model calls: input_uncached, input_cached, output"
    );
    describe_histogram!(MODEL_CALL_COST, "Cost of a model call, in the currency of the prices");
    describe_counter!(
        SESSION_SAVED_TOKENS,
        Unit::Count,
        "Tokens that summaries replaced, minus the tokens of the summaries"
    );
    describe_counter!(LEASE_LOSSES, Unit::Count, "Leases lost to another worker or to an undo");
}

/// Outcome of a call whose reply was accepted.
pub(crate) const ACCEPTED: &str = "kept";

/// Outcome recorded when a stored reply was reused and no model was called.
pub const REUSED: &str = "reused";

/// The outcome under which [`SUMMARIES`] counts a fallback summary.
const FALLBACK: &str = "stand_in";

/// Counts model calls when they are recorded, so that the metrics and the usage records agree.
pub(crate) fn count_calls(calls: &[UsageRow]) {
    for call in calls.iter().filter(|call| call.outcome != REUSED) {
        let uncached = call.input.saturating_sub(call.cached);
        let tokens = [("input_uncached", uncached), ("input_cached", call.cached), ("output", call.output)];
        for (kind, tokens) in tokens {
            counter!(MODEL_TOKENS, "model" => call.model.clone(), "kind" => kind).increment(tokens);
        }
        if let Some(cost) = call.cost {
            histogram!(MODEL_CALL_COST, "model" => call.model.clone()).record(Money::millionths(cost).get());
        }
        let (model, outcome) = (call.model.clone(), call.outcome.clone());
        counter!(MODEL_CALLS, "model" => model, "outcome" => outcome).increment(1);
    }
}

/// Counts a lease that was lost while a summary was written.
pub(crate) fn count_lease_loss() {
    counter!(LEASE_LOSSES).increment(1);
}

/// Counts a stored summary, and the model calls that were made for it.
pub(crate) fn count_summary(facts: &Facts, calls: &[UsageRow]) {
    count_calls(calls);
    let reused = calls.last().is_some_and(|call| call.outcome == REUSED);
    let outcome = match (facts.stand_in, reused) {
        (true, _) => FALLBACK,
        (false, true) => REUSED,
        (false, false) => ACCEPTED,
    };
    counter!(SUMMARIES, "outcome" => outcome, "model" => facts.model.clone()).increment(1);
    counter!(SESSION_SAVED_TOKENS).increment(facts.replaced.saturating_sub(facts.tokens));
    let seconds = Duration::from_millis(facts.millis).as_secs_f64();
    histogram!(SUMMARIZE_DURATION, "model" => facts.model.clone()).record(seconds);
}
