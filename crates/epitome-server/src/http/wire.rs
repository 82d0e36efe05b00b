//! What goes over the wire, field by field.
//!
//! Where the engine's own type is what a client may see (messages, sessions, slots, summaries, the queue, keys), or is what a
//! client sends (a fork, a key to be made), it goes out and comes in as it is, described in `openapi/shapes.json`. The others
//! are mapped by hand, so that nothing goes out by accident: numbers of the store's own, say, which would tell of other
//! workspaces.

use epitome::rules::message::Message;
use epitome::store::{Passed, UsageSum};
use epitome::{Context, Explanation, Found, SessionInfo, ShownSummary, SlotExplanation};
use epitome_http::discreet::discreet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::openapi::{self, SessionSettings, Settings};

/// A page of something.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    /// What is on this page.
    pub(crate) items: Vec<T>,
    /// What to give as `after` for the next page; nothing where this is the last.
    pub(crate) next: Option<String>,
}

impl<T> Page<T> {
    /// What was read, one more than was asked for where there are more; and how to go on after an item.
    pub(crate) fn new(mut items: Vec<T>, limit: usize, place: impl Fn(&T) -> String) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(place);
        Self { items, next }
    }
}

/// A message as it is shown: what its provider said besides is nobody's but its dialect's.
pub(crate) fn shown(message: Message) -> Message {
    Message { wire: None, ..message }
}

/// A message found by its words.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Found)]
pub(crate) struct FoundOut {
    /// In which session.
    session: String,
    /// The words around the first match.
    excerpt: String,
    #[schema(value_type = openapi::Message)]
    message: Message,
}

impl From<Found> for FoundOut {
    fn from(Found { session, excerpt, message, .. }: Found) -> Self {
        Self { session: session.to_string(), excerpt, message: shown(message) }
    }
}

/// A context: what the agent is given.
#[derive(Debug, Serialize)]
pub(crate) struct ContextOut<'a> {
    pub(crate) messages: Vec<Message>,
    pub(crate) report: Value,
    // Last, since what changes by itself is in it.
    pub(crate) summary: Option<&'a ShownSummary>,
}

/// What a context holds and what it leaves out, with the sum of its tokens.
pub(crate) fn report(context: &Context) -> Value {
    let mut report = serde_json::to_value(&context.report).unwrap_or_default();
    if let Some(tokens) = report.get_mut("tokens").and_then(Value::as_object_mut) {
        tokens.insert("total".to_owned(), context.report.tokens.total().into());
    }
    if let Some(report) = report.as_object_mut() {
        report.insert("through".to_owned(), context.through.into());
        report.insert("encoding".to_owned(), context.encoding.as_str().into());
    }
    report
}

/// A session with its slots and settings.
#[derive(Debug, Serialize)]
pub(crate) struct SessionWhole {
    #[serde(flatten)]
    session: SessionInfo,
    slots: Vec<SlotExplanation>,
    settings: Value,
}

impl SessionWhole {
    /// Leaves out what only the operator may see: who works on a slot, and where its models are.
    pub(crate) fn new(Explanation { session, mut slots }: Explanation, settings: Value) -> Self {
        for slot in &mut slots {
            slot.owner = None;
            slot.why = discreet(&slot.why);
            slot.last_error = slot.last_error.as_deref().map(discreet);
        }
        Self { session, slots, settings }
    }
}

/// What a session shall be.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SetSession)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionIn {
    /// Settings of this session alone: what is named is changed, null takes a change back.
    #[schema(value_type = Option<SessionSettings>)]
    pub(crate) settings: Option<Map<String, Value>>,
    /// The caller's notes, in place of those there are; 64 KiB at most.
    #[schema(value_type = Option<Object>)]
    pub(crate) metadata: Option<Map<String, Value>>,
}

/// What a workspace's settings shall be.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SetWorkspace)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkspaceIn {
    /// What is named is changed, null takes a change back.
    #[schema(value_type = Settings)]
    pub(crate) settings: Map<String, Value>,
}

/// Calls of models, added up.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Usage)]
pub(crate) struct UsageOut {
    /// All of them together.
    pub(crate) total: UsageSumOut,
    /// By slot, model and outcome.
    pub(crate) items: Vec<UsageItemOut>,
    /// What went through the proxy. Not there where one session is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub(crate) proxy: Option<ProxiedOut>,
}

#[derive(Debug, Default, Clone, Copy, Serialize, ToSchema)]
#[schema(as = UsageSum)]
pub(crate) struct UsageSumOut {
    /// How many calls.
    pub(crate) calls: u64,
    /// Tokens sent.
    pub(crate) input: u64,
    /// Of those, read from the provider's cache.
    pub(crate) cached: u64,
    /// Tokens written.
    pub(crate) output: u64,
    /// In the price table's money; nothing where no price was known for any of them.
    pub(crate) cost: Option<f64>,
    /// How long they took together.
    pub(crate) millis: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UsageItem)]
pub(crate) struct UsageItemOut {
    /// Whose messages; everybody's where nobody is named.
    pub(crate) scope: Option<String>,
    pub(crate) slot: String,
    pub(crate) model: String,
    /// `kept`, or what was wrong.
    pub(crate) outcome: String,
    #[serde(flatten)]
    pub(crate) sum: UsageSumOut,
}

impl From<Vec<UsageSum>> for UsageOut {
    fn from(sums: Vec<UsageSum>) -> Self {
        let mut total = UsageSumOut::default();
        let mut items = Vec::new();
        for row in sums {
            let sum = UsageSumOut {
                calls: row.calls,
                input: row.input,
                cached: row.cached,
                output: row.output,
                cost: row.cost.map(money),
                millis: row.millis,
            };
            total.calls = total.calls.saturating_add(sum.calls);
            total.input = total.input.saturating_add(sum.input);
            total.cached = total.cached.saturating_add(sum.cached);
            total.output = total.output.saturating_add(sum.output);
            total.millis = total.millis.saturating_add(sum.millis);
            if let Some(cost) = sum.cost {
                total.cost = Some(total.cost.unwrap_or_default() + cost);
            }
            let scope = Some(row.scope).filter(|scope| !scope.is_empty());
            items.push(UsageItemOut { scope, slot: row.slot, model: row.model, outcome: row.outcome, sum });
        }
        Self { total, items, proxy: None }
    }
}

/// Millionths to whole money.
#[expect(clippy::cast_precision_loss, reason = "nobody pays 2^52 millionths")]
fn money(millionths: i64) -> f64 {
    millionths as f64 / 1_000_000.0
}

/// Requests that went through the proxy and were answered, added up.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = Proxied)]
pub(crate) struct ProxiedOut {
    /// All of them together, those of the shadow mode excepted.
    pub(crate) total: ProxiedSumOut,
    /// Those of the shadow mode: they went out as they came, and `shorter`, `saved` and `saved_cost` are what would have been.
    pub(crate) shadow: ProxiedSumOut,
    /// By model, and whether in the shadow mode.
    pub(crate) items: Vec<ProxiedItemOut>,
}

#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(as = ProxiedSum)]
pub(crate) struct ProxiedSumOut {
    /// How many requests.
    pub(crate) requests: u64,
    /// How many went out shorter than they came.
    pub(crate) shorter: u64,
    /// How many were sent a second time because the provider found them too long.
    pub(crate) retried: u64,
    /// How many answers broke off.
    pub(crate) cut_off: u64,
    /// Of how many the provider did not tell what it counted. They are in none of the sums below.
    pub(crate) uncounted: u64,
    /// Tokens that went in, by the provider's count.
    pub(crate) input: u64,
    /// Of those, read from the provider's cache.
    pub(crate) cached: u64,
    /// Tokens that came out.
    pub(crate) output: u64,
    /// How many tokens more would have gone in.
    pub(crate) saved: u64,
    /// In the price table's money; nothing where no price was known for any of them.
    pub(crate) cost: Option<f64>,
    /// How much more it would have cost, with what the provider's cache would have had; less than nothing where condensing
    /// cost more than it saved. What was paid for summaries is not in it.
    pub(crate) saved_cost: Option<f64>,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ProxiedItem)]
pub(crate) struct ProxiedItemOut {
    /// The model that was asked for; `other` where there were too many in an hour.
    pub(crate) model: String,
    /// Whether nothing was changed, and this is what would have been.
    pub(crate) shadow: bool,
    #[serde(flatten)]
    pub(crate) sum: ProxiedSumOut,
}

impl From<Vec<Passed>> for ProxiedOut {
    fn from(rows: Vec<Passed>) -> Self {
        let of = |shadow: bool| rows.iter().filter(move |row| row.shadow == shadow);
        let (total, shadow) = (ProxiedSumOut::of(of(false)), ProxiedSumOut::of(of(true)));
        let item = |row: &Passed| ProxiedItemOut {
            model: row.model.clone(),
            shadow: row.shadow,
            sum: ProxiedSumOut::of(std::iter::once(row)),
        };
        Self { total, shadow, items: rows.iter().map(item).collect() }
    }
}

impl ProxiedSumOut {
    fn of<'a>(rows: impl Iterator<Item = &'a Passed>) -> Self {
        let (mut sum, mut priced) = (Passed::default(), false);
        for row in rows {
            sum.add(row);
            // What has a price costs something.
            priced |= row.cost != 0;
        }
        let Passed { requests, shorter, retried, cut_off, uncounted, input, cached, output, saved, .. } = sum;
        let cost = priced.then(|| money(sum.cost));
        let saved_cost = priced.then(|| money(sum.saved_cost));
        Self {
            requests,
            shorter,
            retried,
            cut_off,
            uncounted,
            input,
            cached,
            output,
            saved,
            cost,
            saved_cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(model: &str, shadow: bool, cost: i64, saved_cost: i64) -> Passed {
        let model = model.to_owned();
        Passed {
            model,
            shadow,
            requests: 2,
            shorter: 1,
            input: 100,
            saved: 900,
            cost,
            saved_cost,
            ..Passed::default()
        }
    }

    #[test]
    fn the_shadow_is_added_up_apart_and_models_without_a_price_have_no_cost() {
        let rows = vec![
            row("a", false, 1_500_000, -250_000),
            row("b", false, 0, 0),
            row("c", false, 500_000, 1_000_000),
            row("a", true, 30, 4_000_000),
        ];
        let out = ProxiedOut::from(rows);
        assert_eq!((out.total.requests, out.total.saved), (6, 2_700));
        assert_eq!((out.total.cost, out.total.saved_cost), (Some(2.0), Some(0.75)));
        assert_eq!(
            (out.shadow.requests, out.shadow.cost, out.shadow.saved_cost),
            (2, Some(0.00003), Some(4.0))
        );
        let costs: Vec<_> = out.items.iter().map(|item| (item.sum.cost, item.sum.saved_cost)).collect();
        assert_eq!(costs[1], (None, None));
        assert_eq!(costs[0], (Some(1.5), Some(-0.25)));
        assert_eq!(ProxiedOut::from(Vec::new()).total.cost, None);
    }
}
