//! Predicts for each message what condensing would do to it, and why, for people who want to check before they run it.
//!
//! No model is called and nothing is stored. The decision is the one that [`Condenser::before`] would make for a list
//! it has never seen. The text of the summary does not exist yet, so its size is reported as the largest that it may
//! have.

use std::collections::{HashMap, HashSet};

use epitome_core::condense::{Decision, Facts, List, Policy, Standing, Unchanged};
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
/// use epitome::condenser::Why;
/// use epitome::{Call, Condenser, Message};
///
/// let condenser = Condenser::builder()
///     .settings(r#"{"condense": {"trigger": "messages(12)", "keep": "messages(4)"}}"#)
///     .build()?;
/// let list: Vec<Message> =
///     (1..=12).map(|n| Message::user(format!("Order {n} goes to Oslo on ship S{n}042, berth {n}."))).collect();
/// let forecast = condenser.forecast(&Call::of(&list));
/// assert_eq!((forecast.reason.as_str(), forecast.leaving().count()), ("due", 8));
/// assert_eq!((forecast.messages[0].why, forecast.messages[11].why), (Why::Summarized, Why::Newest));
/// # Ok::<(), epitome::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Forecast {
    /// Whether the list would be shortened.
    pub condenses: bool,
    /// Why it would or would not, as in a [`Report`](super::Report).
    pub reason: String,
    /// The same reason as text for people.
    pub told: String,
    /// The strategy that would be applied.
    pub strategy: String,
    /// The trigger that is evaluated.
    pub trigger: String,
    /// How close each condition of the trigger is to being met.
    pub gauges: trigger::Standing,
    /// Tokens of the request as it is, including tools.
    pub tokens: Tokens,
    /// Tokens of the request outside the list, mainly tool definitions.
    pub fixed: Tokens,
    /// Window of the model that the list is for, minus its output reserve, in tokens, or `None` if unknown.
    pub window: Option<Tokens>,
    /// Tokens of the request after condensing, at most.
    pub tokens_after: Tokens,
    /// Largest size of the summary in tokens, if one would be written.
    pub summary: Option<Tokens>,
    /// The model that would write the summary.
    pub model: Option<String>,
    /// Every message, in order.
    pub messages: Vec<Fate>,
}

/// What would happen to one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Fate {
    /// Position in the list, from 1.
    pub place: Seq,
    /// Role of the message.
    pub role: Role,
    /// Size in tokens.
    pub tokens: Tokens,
    /// Whether the message would still be sent verbatim.
    pub stays: bool,
    /// The reason.
    pub why: Why,
}

/// Why a message would stay or leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Why {
    /// Stays: it is a leading system message.
    System,
    /// Stays: it is pinned, or in the same tool-call batch as a pinned message.
    Pinned,
    /// Stays: it is one of the first messages, which stay until there is a summary.
    First,
    /// Stays: it is the last request of the user.
    LastUser,
    /// Stays: it contains a tool call that has no result yet.
    OpenCall,
    /// Stays: it is among the newest messages.
    Newest,
    /// Stays, because nothing would be done.
    Untouched,
    /// Leaves: the summary covers it.
    Summarized,
    /// Leaves: no summary covers it.
    Dropped,
    /// Leaves without being summarized: it is marked as skipped.
    Skipped,
    /// Leaves: it answers a tool call that is not in the list, or that was already answered.
    Stray,
    /// Stays, without most of a tool's output.
    Masked,
    /// A summary by Epitome: it stays unless a new summary is written, which includes it.
    Summary,
}

impl Forecast {
    /// Returns the messages that would no longer be sent verbatim.
    pub fn leaving(&self) -> impl Iterator<Item = &Fate> {
        self.messages.iter().filter(|fate| !fate.stays)
    }
}

impl Condenser {
    /// Predicts what [`Condenser::before`] would do with this list if it had never seen it. Calls no model and stores
    /// nothing.
    pub fn forecast(&self, call: &Call<'_>) -> Forecast {
        let rules = &self.inner.rules;
        // The numbers identify the messages in the list that would be sent.
        let number = |(message, seq): (&Message, Seq)| Message { seq, ..message.clone() };
        let messages: Vec<Message> = call.messages.iter().zip(1..).map(number).collect();
        let mut conversation = Conversation::begun(&messages, None, rules);
        let call = Call { messages: &messages, fixed: self.inner.fixed(call), ..*call };
        let facts = conversation.facts_of_new(&call, rules);
        let (policy, list) = (rules.policy(&facts), &conversation.list);
        let tokens = list.request(&facts);
        let then = match rules.enabled {
            true => Then::of(list, &messages, policy, &facts, &rules.counter),
            false => Err(("off", "condensing is switched off (condense.enabled)".to_owned())),
        };
        let (then, reason, told) = match then {
            Ok(then) if call.force.is_some() => (Some(then), "forced", due(list, policy, &facts)),
            Ok(then) => (Some(then), "due", due(list, policy, &facts)),
            Err((reason, told)) => (None, reason, told),
        };
        let summary = then.as_ref().and_then(|then| then.summary);
        Forecast {
            condenses: then.is_some(),
            reason: reason.to_owned(),
            told,
            strategy: policy.strategy.to_string(),
            trigger: policy.trigger.to_string(),
            gauges: policy.trigger.standing(&list.trigger_facts(&facts)),
            tokens,
            fixed: call.fixed,
            window: facts.room,
            tokens_after: then.as_ref().map_or(tokens, |then| then.tokens),
            summary,
            model: summary.map(|_| self.inner.scribe.writer.model.name().to_owned()),
            messages: fates(&messages, then.as_ref(), &rules.counter),
        }
    }
}

/// Returns why the list is due, as text for people.
fn due(list: &List, policy: &Policy, facts: &Facts) -> String {
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
struct Then {
    standing: Standing,
    /// Messages that the summarizer would read.
    read: HashSet<Seq>,
    /// Largest size of the summary in tokens, if one would be written.
    summary: Option<Tokens>,
    /// Tokens of the request, at most.
    tokens: Tokens,
    /// Whether each message that would be sent is unchanged, by position.
    sent: HashMap<Seq, bool>,
}

impl Then {
    fn of(
        list: &List,
        messages: &[Message],
        policy: &Policy,
        facts: &Facts,
        counter: &Counter,
    ) -> Result<Self, (&'static str, String)> {
        let told = |why: Unchanged| (why.name(), why.to_string());
        let mut then = list.clone();
        let (standing, read, summary, report) = match list.decide(messages, policy, facts, counter) {
            Decision::Unchanged(why) => return Err(told(why)),
            Decision::Done(done) => {
                (done.standing().clone(), HashSet::new(), None, done.apply(&mut then).map_err(told)?)
            }
            Decision::Ask(plan) => {
                let (standing, most) = (plan.standing.clone(), plan.limit);
                let read = plan.places.iter().copied().collect();
                (standing, read, Some(most), plan.finish(&mut then, messages, SAMPLE, counter).map_err(told)?)
            }
        };
        let same = |shown: &Message| {
            let at = usize::try_from(shown.seq).ok()?.checked_sub(1)?;
            Some((shown.seq, messages.get(at)?.parts == shown.parts))
        };
        let sent = then.shown(messages).iter().filter_map(same).collect();
        let words = summary.map_or(0, |most| most.saturating_sub(counter.text(SAMPLE)));
        Ok(Self { standing, read, summary, tokens: report.tokens_after.saturating_add(words), sent })
    }
}

/// Returns what happens to every message. `then` is the list after condensing, or `None` if nothing is done.
fn fates(messages: &[Message], then: Option<&Then>, counter: &Counter) -> Vec<Fate> {
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
        let leaves = then.and_then(|then| then.leaves(outline, view::recognise(message).is_some()));
        let (stays, why) = leaves.unwrap_or_else(|| {
            let why = match then {
                _ if outline.leading => Why::System,
                _ if outline.pinned => Why::Pinned,
                None => Why::Untouched,
                Some(_) if waits(message) => Why::OpenCall,
                Some(then) if outline.seq > then.standing.from => Why::Newest,
                Some(_) if last_user == Some(outline.seq) => Why::LastUser,
                // Otherwise it is in a batch with a pinned message, or among the first.
                Some(then) if then.is_first(outline.seq) => Why::First,
                Some(_) => Why::Pinned,
            };
            (true, why)
        });
        Fate { place: outline.seq, role: outline.role, tokens: outline.tokens, stays, why }
    };
    outlines.iter().zip(messages).map(fate).collect()
}

impl Then {
    /// Returns what happens to a message that leaves or changes. `summary` says that the message is a summary by
    /// Epitome.
    fn leaves(&self, outline: &Outline, summary: bool) -> Option<(bool, Why)> {
        let kept = self.standing.kept.contains(&outline.seq);
        if summary && !kept {
            return Some((self.summary.is_none(), Why::Summary));
        }
        let why = if outline.seq <= self.standing.from && !kept {
            match self.read.contains(&outline.seq) {
                true => Why::Summarized,
                false if outline.skip => Why::Skipped,
                false if outline.stray => Why::Stray,
                false => Why::Dropped,
            }
        } else {
            match self.sent.get(&outline.seq) {
                Some(false) if outline.answers > 0 => Why::Masked,
                None if outline.stray => Why::Stray,
                _ => return None,
            }
        };
        Some((false, why))
    }

    /// Returns whether all messages before this position stay, too.
    fn is_first(&self, place: Seq) -> bool {
        let unbroken = self.standing.kept.iter().zip(1..).take_while(|(kept, at)| **kept == *at);
        unbroken.count() as Seq >= place
    }
}

#[cfg(test)]
mod tests {
    use epitome_core::condense::Press;
    use epitome_testkit::drawing::{messages, word_counter};
    use proptest::prelude::{prop, prop_assert, prop_assert_eq, proptest};

    use super::*;

    /// Returns what would happen to a list in drawing notation: one word per message.
    fn told(drawn: &str, settings: &str, force: bool) -> (String, Forecast) {
        let settings = format!("{{\"condense\": {settings}}}");
        let condenser = Condenser::builder().counter(word_counter()).settings(&settings).build().unwrap();
        let list = messages(drawn).unwrap();
        let call = Call { force: force.then_some(Press::Gently), ..Call::of(&list) };
        let forecast = condenser.forecast(&call);
        let letter = |fate: &Fate| match fate.why {
            Why::System => "sys",
            Why::Pinned => "pin",
            Why::First => "first",
            Why::LastUser => "last",
            Why::OpenCall => "open",
            Why::Newest => "new",
            Why::Untouched => "same",
            Why::Summarized => "-sum",
            Why::Dropped => "-drop",
            Why::Skipped => "-skip",
            Why::Stray => "-stray",
            Why::Masked => "-mask",
            Why::Summary if fate.stays => "summary",
            Why::Summary => "-summary",
        };
        let told: Vec<&str> = forecast.messages.iter().map(letter).collect();
        (told.join(" "), forecast)
    }

    #[test]
    fn each_message_is_told_why_it_stays_or_leaves() {
        let drawn = "s u:90 a:90 u!:9 a~:90 u:90 a:90 u a(x) r(x) a(y)";
        let (why, forecast) = told(drawn, r#"{"keep": "messages(3)"}"#, true);
        assert_eq!(why, "sys -sum -sum pin -skip -sum -sum last new new open");
        assert!(forecast.condenses && forecast.tokens_after < forecast.tokens);
        assert_eq!((forecast.reason.as_str(), forecast.model.as_deref()), ("forced", Some("local")));
    }

    #[test]
    fn the_first_stay_where_that_is_set_and_what_is_dropped_is_told_apart() {
        let settings = r#"{"strategy": "recent(messages(2))", "keep_first": 2}"#;
        let (why, forecast) = told("s u:50 a:50 u:50 a:50 u a", settings, true);
        assert_eq!(why, "sys first first -drop -drop new new");
        assert_eq!((forecast.summary, forecast.model), (None, None));
    }

    #[test]
    fn what_is_masked_is_told_and_stays_in_its_place() {
        let settings = r#"{"strategy": "mask(messages(2))"}"#;
        let (why, _) = told("u:9 a(x) r(x):900 u a", settings, true);
        assert_eq!(why, "new new -mask new new");
    }

    #[test]
    fn where_nothing_is_due_everything_stays() {
        let (why, forecast) = told("s u:90 a:90 u!", r#"{"trigger": "tokens(9000)"}"#, false);
        assert_eq!(why, "sys same same pin");
        assert_eq!((forecast.reason.as_str(), forecast.tokens), ("not_due", forecast.tokens_after));
        let (_, off) = told("u:90 a:90 u:90 a:90 u a u a u a", r#"{"enabled": false}"#, true);
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
        fn what_is_foretold_is_what_is_done(
            turns in prop::collection::vec(prop::sample::select(&TURNS[..]), 1..12),
            strategy in prop::sample::select(&STRATEGIES[..]),
            keep_first in 0..4,
        ) {
            // Makes call ids unique: a repeated id would be renamed.
            let turn = |(n, turn): (usize, &&str)| turn.replace('x', &format!("x{n}")).replace('y', &format!("y{n}"));
            let drawn = format!("s {}", turns.iter().enumerate().map(turn).collect::<Vec<_>>().join(" "));
            let settings = format!(r#"{{"condense": {{"strategy": "{strategy}", "keep_first": {keep_first}}}}}"#);
            let builder = Condenser::builder().counter(word_counter()).settings(&settings).at_once();
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
                    let came = &list[usize::try_from(fate.place).unwrap() - 1];
                    let sent = ready.iter().find(|sent| sent.seq == fate.place);
                    let same = sent.is_some_and(|sent| sent.parts == came.parts);
                    prop_assert_eq!(same, fate.stays, "{} in {}: {:?}", fate.place, drawn, fate.why);
                    prop_assert_eq!(sent.is_some(), fate.stays || fate.why == Why::Masked);
                }
            }
        }
    }
}
