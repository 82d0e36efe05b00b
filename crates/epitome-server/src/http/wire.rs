//! Maps the engine's types to the JSON of requests and responses. The command line prints the same objects (`--json`).
//!
//! Clients may see all fields of these engine types: messages, sessions, slots, summaries, the queue and keys. The
//! fields of these types are serialized unchanged, and each time is added as RFC 3339. `openapi/shapes.json` describes
//! the resulting objects. All other types are mapped field by field, so that no field is exposed by accident. For
//! example, internal ids of the store would reveal activity of other workspaces.

use epitome::key::{CreatedKey, Key};
use epitome::rules::message::{Message, Seq, Timestamp};
use epitome::settings::Money;
use epitome::store::{ProxyUsage, UsageSum};
use epitome::{
    Context, Explanation, Queue, QueueEntry, SearchHit, SessionInfo, ShownSummary, SlotExplanation,
    Summarized, Summary,
};
use epitome_http::scrub::scrub;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::openapi::{SessionSettings, Settings};

/// A page of a list.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    /// The items of this page.
    pub(crate) items: Vec<T>,
    /// The value of `after` for the next page; null on the last page.
    pub(crate) next: Option<String>,
}

impl<T> Page<T> {
    /// Builds a page. If more items exist, `items` must have one item more than `limit`. `cursor` returns the cursor
    /// that continues after an item.
    pub(crate) fn new(mut items: Vec<T>, limit: usize, cursor: impl Fn(&T) -> String) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(cursor);
        Self { items, next }
    }
}

/// A time, serialized as RFC 3339 in UTC with milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rfc3339(pub(crate) Timestamp);

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339())
    }
}

/// A message.
#[derive(Debug, Serialize)]
pub(crate) struct MessageOut {
    #[serde(flatten)]
    message: Message,
    /// None for a message that exists only in a context, because such a message has no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<Rfc3339>,
}

impl MessageOut {
    /// Removes the provider's original JSON, which only the code of the provider's format uses.
    pub(crate) fn new(message: Message) -> Self {
        let created_at = (message.at != Timestamp::default()).then_some(Rfc3339(message.at));
        Self { message: Message { wire: None, ..message }, created_at }
    }
}

/// Renders a match of a search. The match has no cursor, because the page has one cursor for all its matches.
pub(crate) fn search_hit(SearchHit { session, excerpt, message, .. }: SearchHit) -> Value {
    json!({"session": session, "excerpt": excerpt, "message": MessageOut::new(message)})
}

/// A context.
#[derive(Debug, Serialize)]
pub(crate) struct ContextOut {
    messages: Vec<MessageOut>,
    report: Value,
    // The last field, because the JSON must end with the summary's age, which grows while the context is cached.
    summary: Option<ShownSummaryOut>,
}

/// The summary in a context.
#[derive(Debug, Serialize)]
struct ShownSummaryOut {
    created_at: Option<Rfc3339>,
    /// The same as the field `told`, which is its older name.
    text_through: Seq,
    // The last field, because the JSON must end with the summary's age.
    #[serde(flatten)]
    summary: ShownSummary,
}

impl ContextOut {
    pub(crate) fn new(context: Context) -> Self {
        let report = report(&context);
        let messages = context.messages.into_iter().map(MessageOut::new).collect();
        let summary = context.summary.map(|summary| ShownSummaryOut {
            created_at: summary.created.map(Rfc3339),
            text_through: summary.text_through,
            summary,
        });
        Self { messages, report, summary }
    }
}

/// Renders a context's report. Adds the sum of its tokens, the newest message of the session and the encoding.
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

/// A session.
#[derive(Debug, Serialize)]
pub(crate) struct SessionOut {
    #[serde(flatten)]
    session: SessionInfo,
    created_at: Rfc3339,
    updated_at: Rfc3339,
}

impl SessionOut {
    pub(crate) fn new(session: SessionInfo) -> Self {
        let (created_at, updated_at) = (Rfc3339(session.created), Rfc3339(session.updated));
        Self { session, created_at, updated_at }
    }

    /// Returns the session's name.
    pub(crate) fn name(&self) -> &str {
        &self.session.name
    }
}

/// The state of a slot.
#[derive(Debug, Serialize)]
pub(crate) struct SlotOut {
    #[serde(flatten)]
    slot: SlotExplanation,
    next_due_at: Option<Rfc3339>,
    first_failed_at: Option<Rfc3339>,
    retry_at: Option<Rfc3339>,
}

impl SlotOut {
    pub(crate) fn new(slot: SlotExplanation) -> Self {
        let next_due_at = slot.due_at.map(Rfc3339);
        let (first_failed_at, retry_at) = (slot.failing_since.map(Rfc3339), slot.not_before.map(Rfc3339));
        Self { slot, next_due_at, first_failed_at, retry_at }
    }
}

/// A session with its slots and settings.
#[derive(Debug, Serialize)]
pub(crate) struct SessionWhole {
    #[serde(flatten)]
    session: SessionOut,
    slots: Vec<SlotOut>,
    settings: Value,
}

impl SessionWhole {
    /// Removes the data that only the operator may see: which worker has leased a slot, and details in error texts,
    /// such as addresses of models.
    pub(crate) fn new(Explanation { session, mut slots }: Explanation, settings: Value) -> Self {
        for slot in &mut slots {
            slot.owner = None;
            slot.why = scrub(&slot.why);
            slot.last_error = slot.last_error.as_deref().map(scrub);
        }
        Self::for_operator(Explanation { session, slots }, settings)
    }

    /// Removes nothing, because only the operator uses the command line.
    pub(crate) fn for_operator(Explanation { session, slots }: Explanation, settings: Value) -> Self {
        let slots = slots.into_iter().map(SlotOut::new).collect();
        Self { session: SessionOut::new(session), slots, settings }
    }
}

/// The summaries that are due in a workspace.
#[derive(Debug, Serialize)]
pub(crate) struct QueueOut {
    due: u64,
    working: u64,
    waiting: u64,
    parked: u64,
    slots: Vec<QueueEntryOut>,
}

#[derive(Debug, Serialize)]
struct QueueEntryOut {
    #[serde(flatten)]
    entry: QueueEntry,
    queued_at: Option<Rfc3339>,
    retry_at: Option<Rfc3339>,
}

impl QueueOut {
    pub(crate) fn new(Queue { due, working, waiting, parked, slots }: Queue) -> Self {
        let entry = |entry: QueueEntry| {
            let (queued_at, retry_at) = (entry.since.map(Rfc3339), entry.not_before.map(Rfc3339));
            QueueEntryOut { entry, queued_at, retry_at }
        };
        Self { due, working, waiting, parked, slots: slots.into_iter().map(entry).collect() }
    }
}

/// A summary with all its details.
#[derive(Debug, Serialize)]
pub(crate) struct SummaryOut {
    #[serde(flatten)]
    summary: Summary,
    /// The position of the message at which the summary became due. The older field `fired_at` has the same value, but
    /// its name could mean a time.
    fired_at_seq: u64,
    created_at: Rfc3339,
}

impl SummaryOut {
    pub(crate) fn new(summary: Summary) -> Self {
        let (fired_at_seq, created_at) = (summary.fired_at, Rfc3339(summary.created));
        Self { summary, fired_at_seq, created_at }
    }

    /// Returns the summary's id.
    pub(crate) fn id(&self) -> i64 {
        self.summary.id
    }
}

/// Renders the result of requesting a summary.
pub(crate) fn summarized(summarized: Summarized) -> Value {
    let (status, summary, reason) = match summarized {
        Summarized::NothingNew { summary } => ("nothing_new", summary, None),
        Summarized::Written { summary } => ("written", Some(summary), None),
        Summarized::Pending { reason } => ("pending", None, reason),
    };
    json!({"status": status, "summary": summary.map(SummaryOut::new), "reason": reason})
}

/// Renders the result of an undo: the id of the undone summary, and the summary that is current now.
pub(crate) fn undone(id: i64, current: Option<Summary>) -> Value {
    json!({"undone": id, "stands": current.map(SummaryOut::new)})
}

/// A key without its secret.
#[derive(Debug, Serialize)]
pub(crate) struct KeyOut {
    #[serde(flatten)]
    key: Key,
    state: &'static str,
    created_at: Rfc3339,
    expires_at: Option<Rfc3339>,
    revoked_at: Option<Rfc3339>,
}

impl KeyOut {
    /// Renders a key, with its state at this time.
    pub(crate) fn new(key: Key, now: Timestamp) -> Self {
        let state = match key.revoked {
            Some(_) => "revoked",
            None if key.is_valid_at(now) => "good",
            None => "expired",
        };
        let (expires_at, revoked_at) = (key.expires.map(Rfc3339), key.revoked.map(Rfc3339));
        Self { state, created_at: Rfc3339(key.created), expires_at, revoked_at, key }
    }

    /// Returns the key's id.
    pub(crate) fn id(&self) -> &str {
        &self.key.id
    }

    /// Returns whether the key is valid: `good`, `expired` or `revoked`.
    pub(crate) fn state(&self) -> &'static str {
        self.state
    }
}

/// A new key with its secret.
#[derive(Serialize)]
pub(crate) struct CreatedKeyOut {
    #[serde(flatten)]
    key: KeyOut,
    secret: String,
}

impl CreatedKeyOut {
    pub(crate) fn new(CreatedKey { key, secret }: CreatedKey, now: Timestamp) -> Self {
        Self { key: KeyOut::new(key, now), secret }
    }
}

/// Changes to a session.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SetSession)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionIn {
    /// Settings of this session only. Only the settings in this object are changed. Null removes the session's own
    /// value.
    #[schema(value_type = Option<SessionSettings>)]
    pub(crate) settings: Option<Map<String, Value>>,
    /// The caller's metadata, at most 64 KiB. It replaces the current metadata.
    #[schema(value_type = Option<Object>)]
    pub(crate) metadata: Option<Map<String, Value>>,
}

/// Changes to a workspace.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SetWorkspace)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkspaceIn {
    /// Only the settings in this object are changed. Null removes the workspace's own value.
    #[schema(value_type = Settings)]
    pub(crate) settings: Map<String, Value>,
}

/// Renders the usage of model calls: the sum, and sums by slot, model and outcome.
pub(crate) fn usage(rows: &[UsageSum]) -> Value {
    let cost = |cost: Option<i64>| cost.map(|cost| Money::millionths(cost).get());
    let item = |row: &UsageSum| {
        let UsageSum { slot, model, outcome, calls, input, cached, output, millis, .. } = row;
        let scope = Some(&row.scope).filter(|scope| !scope.is_empty());
        json!({
            "scope": scope, "slot": slot, "model": model, "outcome": outcome,
            "calls": calls, "input": input, "cached": cached, "output": output, "cost": cost(row.cost), "millis": millis,
        })
    };
    let sum = |of: fn(&UsageSum) -> u64| rows.iter().map(of).fold(0, u64::saturating_add);
    let (calls, input, cached) = (sum(|row| row.calls), sum(|row| row.input), sum(|row| row.cached));
    let (output, millis) = (sum(|row| row.output), sum(|row| row.millis));
    let cost = cost(rows.iter().filter_map(|row| row.cost).reduce(i64::saturating_add));
    let items: Vec<Value> = rows.iter().map(item).collect();
    let total = json!({
        "calls": calls, "input": input, "cached": cached, "output": output, "cost": cost, "millis": millis,
    });
    json!({"total": total, "items": items})
}

/// Renders the usage of proxied requests that were answered: the sum, and sums by model.
pub(crate) fn proxy_usage(rows: &[ProxyUsage]) -> Value {
    let of = |shadow: bool| proxy_usage_sum(rows.iter().filter(move |row| row.shadow == shadow));
    let item = |row: &ProxyUsage| {
        let own = [("model".to_owned(), json!(row.model)), ("shadow".to_owned(), json!(row.shadow))];
        own.into_iter().chain(proxy_usage_sum(std::iter::once(row))).collect::<Map<_, _>>()
    };
    json!({"total": of(false), "shadow": of(true), "items": rows.iter().map(item).collect::<Vec<_>>()})
}

fn proxy_usage_sum<'a>(rows: impl Iterator<Item = &'a ProxyUsage>) -> Map<String, Value> {
    let (mut sum, mut priced) = (ProxyUsage::default(), false);
    for row in rows {
        sum.add(row);
        // A model has a price if any of its requests has a cost.
        priced |= row.cost != 0;
    }
    let mut fields = json!(sum).as_object().cloned().unwrap_or_default();
    fields.retain(|name, _| name != "model" && name != "shadow");
    for (name, cost) in [("cost", sum.cost), ("saved_cost", sum.saved_cost)] {
        fields.insert(name.to_owned(), json!(priced.then(|| Money::millionths(cost).get())));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(model: &str, shadow: bool, cost: i64, saved_cost: i64) -> ProxyUsage {
        let model = model.to_owned();
        ProxyUsage {
            model,
            shadow,
            requests: 2,
            shorter: 1,
            input: 100,
            saved: 900,
            cost,
            saved_cost,
            ..ProxyUsage::default()
        }
    }

    #[test]
    fn shadow_requests_have_their_own_sum_and_models_without_a_price_no_cost() {
        let rows = vec![
            row("a", false, 1_500_000, -250_000),
            row("b", false, 0, 0),
            row("c", false, 500_000, 1_000_000),
            row("a", true, 30, 4_000_000),
        ];
        let out = proxy_usage(&rows);
        assert_eq!((&out["total"]["requests"], &out["total"]["saved"]), (&json!(6), &json!(2_700)));
        assert_eq!((&out["total"]["cost"], &out["total"]["saved_cost"]), (&json!(2.0), &json!(0.75)));
        let shadow = &out["shadow"];
        assert_eq!((&shadow["requests"], &shadow["cost"]), (&json!(2), &json!(0.00003)));
        assert_eq!(shadow["saved_cost"], json!(4.0));
        let cost = |at: usize| (out["items"][at]["cost"].clone(), out["items"][at]["saved_cost"].clone());
        assert_eq!(cost(1), (Value::Null, Value::Null));
        assert_eq!(cost(0), (json!(1.5), json!(-0.25)));
        assert_eq!(proxy_usage(&[])["total"]["cost"], Value::Null);
    }
}
