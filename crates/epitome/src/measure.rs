//! Metrics of the engine's work.
//!
//! All metrics use the `metrics` facade. Without a recorder nothing is stored, and an append pays a few nanoseconds. No
//! label contains a workspace or a session, so metrics reveal nothing about tenants and their number does not grow with
//! them. The label `model` is the name of a model of the program or of its settings.
//!
//! All metric names are defined here, and [`describe`] registers their descriptions.

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use crate::store::{Facts, UsageRow};

/// Messages appended.
pub const APPENDED_MESSAGES: &str = "epitome_appended_messages_total";
/// Tokens of the messages appended.
pub const APPENDED_TOKENS: &str = "epitome_appended_tokens_total";
/// Contexts returned.
pub const CONTEXTS: &str = "epitome_contexts_total";
/// Tokens of a returned context.
pub const CONTEXT_TOKENS: &str = "epitome_context_tokens";
/// Time to make a context, in seconds.
pub const CONTEXT_SECONDS: &str = "epitome_context_seconds";
/// Summaries by outcome, and model calls that produced none.
pub const SUMMARIES: &str = "epitome_summaries_total";
/// Time that models took for a stored summary, in seconds.
pub const SUMMARY_SECONDS: &str = "epitome_summary_seconds";
/// Tokens sent to models and received from them.
pub const MODEL_TOKENS: &str = "epitome_model_tokens_total";
/// Cost of model calls, in millionths of the prices' currency.
pub const SPEND: &str = "epitome_spend_millionths_total";
/// Tokens of what summaries replaced, minus the summaries' own tokens.
pub const SAVED_TOKENS: &str = "epitome_saved_tokens_total";
/// Leases that were lost while a summary was written.
pub const LEASE_LOSSES: &str = "epitome_lease_losses_total";

/// Registers the descriptions with the installed recorder.
pub fn describe() {
    describe_counter!(APPENDED_MESSAGES, Unit::Count, "Messages appended to sessions");
    describe_counter!(APPENDED_TOKENS, Unit::Count, "Tokens of the messages appended");
    describe_counter!(CONTEXTS, Unit::Count, "Contexts returned");
    describe_histogram!(CONTEXT_TOKENS, Unit::Count, "Tokens of a returned context");
    describe_histogram!(CONTEXT_SECONDS, Unit::Seconds, "Time to make a context");
    describe_counter!(
        SUMMARIES,
        Unit::Count,
        "Summaries by outcome: `kept`, `reused` or `stand_in` is one summary, any other is a call without one"
    );
    describe_histogram!(SUMMARY_SECONDS, Unit::Seconds, "Time that models took for a stored summary");
    describe_counter!(MODEL_TOKENS, Unit::Count, "Tokens of model calls: input, cached input, output");
    describe_counter!(SPEND, Unit::Count, "Cost of model calls, in millionths of the prices' currency");
    describe_counter!(SAVED_TOKENS, Unit::Count, "Tokens replaced by summaries, minus their own");
    describe_counter!(LEASE_LOSSES, Unit::Count, "Leases lost to another worker or to an undo");
}

/// Outcome of a call whose answer was accepted.
pub(crate) const KEPT: &str = "kept";

/// Outcome recorded when a stored answer was reused and no model was called.
pub const REUSED: &str = "reused";

/// Outcome of a fallback summary.
const STAND_IN: &str = "stand_in";

/// Counts model calls when they are recorded, so that the metrics and the usage records agree. Calls whose answer was
/// accepted are counted by [`kept`], with their summary.
pub(crate) fn recorded(calls: &[UsageRow]) {
    for call in calls {
        for (kind, tokens) in [("input", call.input), ("cached", call.cached), ("output", call.output)] {
            counter!(MODEL_TOKENS, "model" => call.model.clone(), "kind" => kind).increment(tokens);
        }
        if let Some(cost) = call.cost {
            counter!(SPEND, "model" => call.model.clone()).increment(u64::try_from(cost).unwrap_or(0));
        }
        if call.outcome != KEPT && call.outcome != REUSED {
            let (outcome, model) = (call.outcome.clone(), call.model.clone());
            counter!(SUMMARIES, "outcome" => outcome, "model" => model).increment(1);
        }
    }
}

/// Counts a stored summary, and the calls that it took.
pub(crate) fn kept(facts: &Facts, calls: &[UsageRow]) {
    recorded(calls);
    let reused = calls.last().is_some_and(|call| call.outcome == REUSED);
    let outcome = match (facts.stand_in, reused) {
        (true, _) => STAND_IN,
        (false, true) => REUSED,
        (false, false) => KEPT,
    };
    counter!(SUMMARIES, "outcome" => outcome, "model" => facts.model.clone()).increment(1);
    counter!(SAVED_TOKENS).increment(facts.replaced.saturating_sub(facts.tokens));
    let seconds = std::time::Duration::from_millis(facts.millis).as_secs_f64();
    histogram!(SUMMARY_SECONDS, "model" => facts.model.clone()).record(seconds);
}
