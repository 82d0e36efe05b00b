//! What is counted of an engine's work, for whoever watches over it.
//!
//! Everything goes through the `metrics` facade: without a recorder nothing is kept, and an append pays a few
//! nanoseconds. No workspace and no session is ever in a label, so that numbers tell nothing of tenants and do not grow
//! with them; `model` is the name of a model the program brought or its settings name.
//!
//! Every name stands here, and [`describe`] tells a recorder what they mean.

use metrics::{Unit, counter, describe_counter, describe_histogram, histogram};

use crate::store::{Facts, UsageRow};

/// Messages that were appended.
pub const APPENDED_MESSAGES: &str = "epitome_appended_messages_total";
/// Their tokens.
pub const APPENDED_TOKENS: &str = "epitome_appended_tokens_total";
/// Contexts that were handed out.
pub const CONTEXTS: &str = "epitome_contexts_total";
/// Their sizes.
pub const CONTEXT_TOKENS: &str = "epitome_context_tokens";
/// How long they took.
pub const CONTEXT_SECONDS: &str = "epitome_context_seconds";
/// Summaries that were kept, and calls that gave none.
pub const SUMMARIES: &str = "epitome_summaries_total";
/// How long models took for those that were kept.
pub const SUMMARY_SECONDS: &str = "epitome_summary_seconds";
/// What went to models and came back.
pub const MODEL_TOKENS: &str = "epitome_model_tokens_total";
/// What that cost.
pub const SPEND: &str = "epitome_spend_millionths_total";
/// By how much summaries are smaller than what they replace.
pub const SAVED_TOKENS: &str = "epitome_saved_tokens_total";
/// Slots that were lost while they were worked on.
pub const LEASE_LOSSES: &str = "epitome_lease_losses_total";

/// Tells the recorder that is installed what the numbers mean.
pub fn describe() {
    describe_counter!(APPENDED_MESSAGES, Unit::Count, "Messages appended to sessions");
    describe_counter!(APPENDED_TOKENS, Unit::Count, "Tokens of the messages appended");
    describe_counter!(CONTEXTS, Unit::Count, "Contexts handed out");
    describe_histogram!(CONTEXT_TOKENS, Unit::Count, "Tokens of a context handed out");
    describe_histogram!(CONTEXT_SECONDS, Unit::Seconds, "Time to make a context");
    describe_counter!(
        SUMMARIES,
        Unit::Count,
        "Summaries by outcome: kept, reused or stand_in, once each; any other is a call that gave none"
    );
    describe_histogram!(SUMMARY_SECONDS, Unit::Seconds, "Time models took for a summary that was kept");
    describe_counter!(MODEL_TOKENS, Unit::Count, "Tokens of model calls: input, of those cached, output");
    describe_counter!(SPEND, Unit::Count, "Cost of model calls, in millionths of the price table's money");
    describe_counter!(SAVED_TOKENS, Unit::Count, "Tokens replaced by summaries, less the summaries' own");
    describe_counter!(LEASE_LOSSES, Unit::Count, "Slots lost to others, or to an undo, while worked on");
}

/// What is recorded of a call whose answer passed.
pub(crate) const KEPT: &str = "kept";

/// What is recorded where the answer was there already, and nobody was called.
pub const REUSED: &str = "reused";

/// The same as [`KEPT`], where it only stands in for a model's.
const STAND_IN: &str = "stand_in";

/// Counts calls of models as they are recorded, so that these numbers and the usage agree. Those whose answer was taken
/// are a summary's, and counted with it.
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

/// Counts a summary that was kept, and the calls it took.
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
