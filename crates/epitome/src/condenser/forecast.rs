//! Predicts what condensing would do to each message of a list, and why. A person can check this before the list is
//! condensed.
//!
//! A forecast calls no model and stores nothing. Its decision is the decision that [`Condenser::before`] would make for
//! a list that the condenser has never seen. No summary is written, so the forecast contains the maximum size of the
//! summary.

use std::collections::{HashMap, HashSet};

use epitome_core::condense::{Decision, List, ListState, Policy, RequestFacts, Unchanged};
use epitome_core::message::{CallId, Message, Role, Seq, Tokens};
use epitome_core::outline::Outline;
use epitome_core::tokens::Counter;
use epitome_core::track::Tracker;
use epitome_core::trigger;
use epitome_core::view;
use serde::Serialize;

use super::conversation::Conversation;
use super::{Call, Condenser};

/// What condensing would do to a list.
///
/// ```
/// use epitome::condenser::ForecastReason;
/// use epitome::{Call, Condenser, Message};
///
/// let condenser = Condenser::builder()
///     .settings(r#"{"condense": {"trigger": "messages(12)", "keep": "messages(4)"}}"#)
///     .build()?;
/// let list: Vec<Message> =
///     (1..=12).map(|n| Message::user(format!("Order {n} goes to Oslo on ship S{n}042, berth {n}."))).collect();
/// let forecast = condenser.forecast(&Call::of(&list));
/// assert_eq!((forecast.reason.as_str(), forecast.leaving().count()), ("due", 8));
/// assert_eq!((forecast.messages[0].why, forecast.messages[11].why), (ForecastReason::Summarized, ForecastReason::Newest));
/// # Ok::<(), epitome::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    /// Whether the list would be shortened.
    pub condenses: bool,
    /// Why the list would or would not be shortened, as one word. [`Report::reason`](super::Report::reason) lists the
    /// words.
    pub reason: String,
    /// The same reason as text for people.
    #[serde(rename = "told")]
    pub explanation: String,
    /// The strategy that would be applied.
    pub strategy: String,
    /// The trigger that decides whether a condensation is due.
    pub trigger: String,
    /// How close each condition of the trigger is to being met.
    pub gauges: trigger::TriggerProgress,
    /// Tokens of the request before condensing, including tool definitions.
    pub tokens: Tokens,
    /// Tokens of the request that are not in the list, mainly tool definitions.
    pub fixed: Tokens,
    /// Window of the model that receives the list, minus the model's output reserve, in tokens. `None` if unknown.
    pub window: Option<Tokens>,
    /// Maximum number of tokens of the request after condensing.
    pub tokens_after: Tokens,
    /// Maximum size of the summary in tokens. `None` if no summary would be written.
    pub summary: Option<Tokens>,
    /// The model that would write the summary. `None` if no summary would be written.
    pub model: Option<String>,
    /// The forecast for every message, in order.
    pub messages: Vec<MessageForecast>,
}

/// What condensing would do to one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MessageForecast {
    /// Position in the list, from 1.
    #[serde(rename = "place")]
    pub position: Seq,
    /// Role of the message.
    pub role: Role,
    /// Size in tokens.
    pub tokens: Tokens,
    /// Whether the message would still be sent verbatim.
    pub stays: bool,
    /// Why the message would stay or leave.
    pub why: ForecastReason,
}

/// Why a message would stay or leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ForecastReason {
    /// The message stays: it is a leading system message.
    System,
    /// The message stays: it is pinned, or in the same batch of tool calls as a pinned message.
    Pinned,
    /// The message stays: it is one of the first `keep_first` messages, which stay until the list contains a summary.
    First,
    /// The message stays: it is the last request of the user.
    LastUser,
    /// The message stays: it contains a tool call that has no result yet.
    OpenCall,
    /// The message stays: it is one of the newest messages.
    Newest,
    /// The message stays: the list would not be condensed.
    Untouched,
    /// The message leaves: the summary covers it.
    Summarized,
    /// The message leaves: it is removed without a summary.
    Dropped,
    /// The message leaves: it is flagged `skip`, so the summary does not cover it.
    Skipped,
    /// The message leaves: it answers a tool call that is not in the list, or that another message already answered.
    Stray,
    /// The message is still sent, but without most of its tool output.
    Masked,
    /// The message is a summary by Epitome. If a new summary is written, the new summary includes its content.
    /// Otherwise the message stays.
    Summary,
}

impl Forecast {
    /// Returns the messages that would no longer be sent verbatim.
    pub fn leaving(&self) -> impl Iterator<Item = &MessageForecast> {
        self.messages.iter().filter(|fate| !fate.stays)
    }
}

impl Condenser {
    /// Predicts what [`Condenser::before`] would do with this list if the condenser had never seen the list. Calls no
    /// model and stores nothing.
    pub fn forecast(&self, call: &Call<'_>) -> Forecast {
        let rules = &self.inner.rules;
        // Each message gets a number, to find the message in the list that would be sent.
        let number = |(message, seq): (&Message, Seq)| Message { seq, ..message.clone() };
        let messages: Vec<Message> = call.messages.iter().zip(1..).map(number).collect();
        let mut conversation = Conversation::new(&messages, None, rules);
        let call = Call { messages: &messages, fixed: self.inner.fixed(call), ..*call };
        let facts = conversation.facts_of_new_call(&call, rules);
        let (policy, list) = (rules.policy(&facts), &conversation.list);
        let tokens = list.request(&facts);
        let after = match rules.enabled {
            true => AfterCondensing::of(list, &messages, policy, &facts, &rules.counter),
            false => Err(("off", "condensing is switched off (condense.enabled)".to_owned())),
        };
        let (after, reason, explanation) = match after {
            Ok(after) if call.force.is_some() => (Some(after), "forced", due(list, policy, &facts)),
            Ok(after) => (Some(after), "due", due(list, policy, &facts)),
            Err((reason, explanation)) => (None, reason, explanation),
        };
        let summary = after.as_ref().and_then(|after| after.summary);
        Forecast {
            condenses: after.is_some(),
            reason: reason.to_owned(),
            explanation,
            strategy: policy.strategy.to_string(),
            trigger: policy.trigger.to_string(),
            gauges: policy.trigger.progress(&list.trigger_facts(&facts)),
            tokens,
            fixed: call.fixed,
            window: facts.room,
            tokens_after: after.as_ref().map_or(tokens, |after| after.tokens),
            summary,
            model: summary.map(|_| self.inner.summarizer.writer.model.name().to_owned()),
            messages: fates(&messages, after.as_ref(), &rules.counter),
        }
    }
}

/// Returns why a condensation is due, as text for people.
fn due(list: &List, policy: &Policy, facts: &RequestFacts) -> String {
    let other = match facts.force {
        Some(_) => "requested",
        None => "the request is larger than the model's window minus its output reserve",
    };
    let reason = policy.trigger.reason(&list.trigger_facts(facts));
    reason.map_or_else(|| other.to_owned(), |reason| reason.to_string())
}

/// Placeholder for the text of the summary.
const SAMPLE: &str = "x";

/// The list after condensing.
struct AfterCondensing {
    list: ListState,
    /// Positions of the messages that the summary would cover.
    read: HashSet<Seq>,
    /// Maximum size of the summary in tokens. `None` if no summary would be written.
    summary: Option<Tokens>,
    /// Maximum number of tokens of the request.
    tokens: Tokens,
    /// The messages that would be sent: for each position, whether the message is unchanged.
    sent: HashMap<Seq, bool>,
}

impl AfterCondensing {
    fn of(
        list: &List,
        messages: &[Message],
        policy: &Policy,
        facts: &RequestFacts,
        counter: &Counter,
    ) -> Result<Self, (&'static str, String)> {
        let explained = |why: Unchanged| (why.name(), why.to_string());
        let mut after = list.clone();
        let (state, read, summary, report) = match list.decide(messages, policy, facts, counter) {
            Decision::Unchanged(why) => return Err(explained(why)),
            Decision::Apply(done) => {
                (done.state().clone(), HashSet::new(), None, done.apply(&mut after).map_err(explained)?)
            }
            Decision::Summarize(plan) => {
                let (state, limit) = (plan.state.clone(), plan.limit);
                let read = plan.positions.iter().copied().collect();
                (
                    state,
                    read,
                    Some(limit),
                    plan.finish(&mut after, messages, SAMPLE, counter).map_err(explained)?,
                )
            }
        };
        let same = |shown: &Message| {
            let at = usize::try_from(shown.seq).ok()?.checked_sub(1)?;
            Some((shown.seq, messages.get(at)?.parts == shown.parts))
        };
        let sent = after.shown(messages).iter().filter_map(same).collect();
        let words = summary.map_or(0, |limit| limit.saturating_sub(counter.text(SAMPLE)));
        Ok(Self { list: state, read, summary, tokens: report.tokens_after.saturating_add(words), sent })
    }
}

/// Returns what happens to every message. `after` is the list after condensing, or `None` if nothing is done.
fn fates(messages: &[Message], after: Option<&AfterCondensing>, counter: &Counter) -> Vec<MessageForecast> {
    let mut tracker = Tracker::default();
    let outlines: Vec<Outline> = messages.iter().map(|message| tracker.push(message, counter)).collect();
    let last_user = outlines.iter().rfind(|outline| outline.opens_turn).map(|outline| outline.seq);
    let answered: HashSet<&CallId> =
        messages.iter().flat_map(Message::results).map(|result| &result.call).collect();
    let waits = |message: &Message| {
        let answered = |id: &CallId| answered.contains(id);
        message.calls().any(|call| !answered(&call.id) && !call.item_id.as_ref().is_some_and(answered))
    };
    let fate = |(outline, message): (&Outline, &Message)| {
        let leaves = after.and_then(|after| after.leaves(outline, view::recognise(message).is_some()));
        let (stays, why) = leaves.unwrap_or_else(|| {
            let why = match after {
                _ if outline.leading => ForecastReason::System,
                _ if outline.pinned => ForecastReason::Pinned,
                None => ForecastReason::Untouched,
                Some(_) if waits(message) => ForecastReason::OpenCall,
                Some(after) if outline.seq > after.list.from => ForecastReason::Newest,
                Some(_) if last_user == Some(outline.seq) => ForecastReason::LastUser,
                // Otherwise the message is one of the first messages, or in the same batch of tool calls as a pinned
                // message.
                Some(after) if after.is_first(outline.seq) => ForecastReason::First,
                Some(_) => ForecastReason::Pinned,
            };
            (true, why)
        });
        MessageForecast { position: outline.seq, role: outline.role, tokens: outline.tokens, stays, why }
    };
    outlines.iter().zip(messages).map(fate).collect()
}

impl AfterCondensing {
    /// Returns what happens to a message that leaves or changes. Returns `None` if the message stays unchanged.
    /// `summary` is true if the message is a summary by Epitome.
    fn leaves(&self, outline: &Outline, summary: bool) -> Option<(bool, ForecastReason)> {
        let in_front = self.list.front.contains(&outline.seq);
        if summary && !in_front {
            return Some((self.summary.is_none(), ForecastReason::Summary));
        }
        let why = if outline.seq <= self.list.from && !in_front {
            match self.read.contains(&outline.seq) {
                true => ForecastReason::Summarized,
                false if outline.skip => ForecastReason::Skipped,
                false if outline.stray => ForecastReason::Stray,
                false => ForecastReason::Dropped,
            }
        } else {
            match self.sent.get(&outline.seq) {
                Some(false) if outline.answers > 0 => ForecastReason::Masked,
                None if outline.stray => ForecastReason::Stray,
                _ => return None,
            }
        };
        Some((false, why))
    }

    /// Returns whether the message at this position and all messages before it stay.
    fn is_first(&self, position: Seq) -> bool {
        let unbroken = self.list.front.iter().zip(1..).take_while(|(in_front, at)| **in_front == *at);
        unbroken.count() as Seq >= position
    }
}

#[cfg(test)]
mod tests {
    use epitome_core::condense::Press;
    use epitome_testkit::drawing::{messages, word_counter};
    use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    /// Returns what would happen to a list in drawing notation: one word per message.
    fn drawn_forecast(drawn: &str, settings: &str, force: bool) -> (String, Forecast) {
        let settings = format!("{{\"condense\": {settings}}}");
        let condenser = Condenser::builder().counter(word_counter()).settings(&settings).build().unwrap();
        let list = messages(drawn).unwrap();
        let call = Call { force: force.then_some(Press::Gently), ..Call::of(&list) };
        let forecast = condenser.forecast(&call);
        let word = |fate: &MessageForecast| match fate.why {
            ForecastReason::System => "sys",
            ForecastReason::Pinned => "pin",
            ForecastReason::First => "first",
            ForecastReason::LastUser => "last",
            ForecastReason::OpenCall => "open",
            ForecastReason::Newest => "new",
            ForecastReason::Untouched => "same",
            ForecastReason::Summarized => "-sum",
            ForecastReason::Dropped => "-drop",
            ForecastReason::Skipped => "-skip",
            ForecastReason::Stray => "-stray",
            ForecastReason::Masked => "-mask",
            ForecastReason::Summary if fate.stays => "summary",
            ForecastReason::Summary => "-summary",
        };
        let words: Vec<&str> = forecast.messages.iter().map(word).collect();
        (words.join(" "), forecast)
    }

    #[test]
    fn each_message_has_a_reason_to_stay_or_leave() {
        let drawn = "s u:90 a:90 u!:9 a~:90 u:90 a:90 u a(x) r(x) a(y)";
        let (why, forecast) = drawn_forecast(drawn, r#"{"keep": "messages(3)"}"#, true);
        assert_eq!(why, "sys -sum -sum pin -skip -sum -sum last new new open");
        assert!(forecast.condenses && forecast.tokens_after < forecast.tokens);
        assert_eq!((forecast.reason.as_str(), forecast.model.as_deref()), ("forced", Some("local")));
    }

    #[test]
    fn the_first_messages_stay_with_keep_first_and_dropped_messages_have_their_own_reason() {
        let settings = r#"{"strategy": "recent(messages(2))", "keep_first": 2}"#;
        let (why, forecast) = drawn_forecast("s u:50 a:50 u:50 a:50 u a", settings, true);
        assert_eq!(why, "sys first first -drop -drop new new");
        assert_eq!((forecast.summary, forecast.model), (None, None));
    }

    #[test]
    fn masked_messages_are_reported_and_stay_in_the_list() {
        let settings = r#"{"strategy": "mask(messages(2))"}"#;
        let (why, _) = drawn_forecast("u:9 a(x) r(x):900 u a", settings, true);
        assert_eq!(why, "new new -mask new new");
    }

    #[test]
    fn if_nothing_is_due_every_message_stays() {
        let (why, forecast) = drawn_forecast("s u:90 a:90 u!", r#"{"trigger": "tokens(9000)"}"#, false);
        assert_eq!(why, "sys same same pin");
        assert_eq!((forecast.reason.as_str(), forecast.tokens), ("not_due", forecast.tokens_after));
        let (_, off) = drawn_forecast("u:90 a:90 u:90 a:90 u a u a u a", r#"{"enabled": false}"#, true);
        assert_eq!((off.reason.as_str(), off.condenses), ("off", false));
    }

    const TURNS: [&str; 7] = [
        "u:40 a:40",
        "u:9 a(x) r(x):200 a:20",
        "u!:9 a:30",
        "u:30 a~:30",
        "u:20 a(x,y) r(y):90 r(x):90",
        "u a",
        "u",
    ];
    const STRATEGIES: [&str; 6] = [
        "summarize",
        "amortized",
        "recent(messages(4))",
        "mask(messages(2))",
        "pipeline(mask, summarize)",
        "noop",
    ];

    proptest! {
        #![proptest_config(epitome_testkit::budget::config(256))]

        #[test]
        fn condensing_does_what_was_predicted(
            turns in prop::collection::vec(prop::sample::select(&TURNS[..]), 1..12),
            strategy in prop::sample::select(&STRATEGIES[..]),
            keep_first in 0..4,
        ) {
            // Makes call ids unique: a repeated id would be renamed.
            let turn = |(n, turn): (usize, &&str)| turn.replace('x', &format!("x{n}")).replace('y', &format!("y{n}"));
            let drawn = format!("s {}", turns.iter().enumerate().map(turn).collect::<Vec<_>>().join(" "));
            let settings = format!(r#"{{"condense": {{"strategy": "{strategy}", "keep_first": {keep_first}}}}}"#);
            let builder = Condenser::builder().counter(word_counter()).settings(&settings).one_shot();
            let condenser = builder.build().unwrap();
            let list: Vec<Message> = messages(&drawn).unwrap();
            let list: Vec<Message> = list.into_iter().zip(1..).map(|(message, seq)| Message { seq, ..message }).collect();
            let call = Call { force: Some(Press::Gently), ..Call::of(&list) };
            let forecast = condenser.forecast(&call);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let ready = runtime.block_on(condenser.before(call));
            // The real summary may save too little.
            prop_assert!(forecast.condenses || ready.is_untouched());
            if !ready.is_untouched() {
                prop_assert!(ready.report.tokens_after <= forecast.tokens_after, "{} {:?}", drawn, ready.report);
                for fate in &forecast.messages {
                    let came = &list[usize::try_from(fate.position).unwrap() - 1];
                    let sent = ready.iter().find(|sent| sent.seq == fate.position);
                    let same = sent.is_some_and(|sent| sent.parts == came.parts);
                    prop_assert_eq!(same, fate.stays, "{} in {}: {:?}", fate.position, drawn, fate.why);
                    prop_assert_eq!(sent.is_some(), fate.stays || fate.why == ForecastReason::Masked);
                }
            }
        }
    }
}
