//! Maps the engine's types to the JSON that clients send and receive.
//!
//! If a client may see all of an engine type (messages, sessions, slots, summaries, the queue, keys), or sends one (a fork,
//! a new key), it is serialized as it is and described in `openapi/shapes.json`. Other types are mapped by hand, so that no
//! field is exposed by accident, such as internal ids of the store, which would reveal activity of other workspaces.

use epitome::rules::message::Message;
use epitome::settings::Money;
use epitome::store::{Passed, UsageSum};
use epitome::{Context, Explanation, Found, SessionInfo, ShownSummary, SlotExplanation};
use epitome_http::discreet::discreet;
use serde::{Deserialize, Serialize};
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
    /// Builds a page. `items` has one more item than `limit` if there are more. `place` returns the cursor after an item.
    pub(crate) fn new(mut items: Vec<T>, limit: usize, place: impl Fn(&T) -> String) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(place);
        Self { items, next }
    }
}

/// Returns a message as clients see it: without the provider's original JSON, which only its dialect uses.
pub(crate) fn shown(message: Message) -> Message {
    Message { wire: None, ..message }
}

/// Renders a match of a search. Its cursor is in the page, not in the match.
pub(crate) fn found(Found { session, excerpt, message, .. }: Found) -> Value {
    json!({"session": session, "excerpt": excerpt, "message": shown(message)})
}

/// A context, as returned to the agent.
#[derive(Debug, Serialize)]
pub(crate) struct ContextOut<'a> {
    pub(crate) messages: Vec<Message>,
    pub(crate) report: Value,
    // Last, because it contains the summary's age, which changes by itself.
    pub(crate) summary: Option<&'a ShownSummary>,
}

/// Renders a context's report, with the sum of its tokens.
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
    /// Removes what only the operator may see: which worker holds a slot, and the addresses of its models.
    pub(crate) fn new(Explanation { session, mut slots }: Explanation, settings: Value) -> Self {
        for slot in &mut slots {
            slot.owner = None;
            slot.why = discreet(&slot.why);
            slot.last_error = slot.last_error.as_deref().map(discreet);
        }
        Self { session, slots, settings }
    }
}

/// Changes to a session.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SetSession)]
#[serde(deny_unknown_fields)]
pub(crate) struct SessionIn {
    /// Settings of this session only. Only the named settings are changed; null reverts a change.
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
    /// Only the named settings are changed; null reverts a change.
    #[schema(value_type = Settings)]
    pub(crate) settings: Map<String, Value>,
}

/// Renders model calls: their sum, and sums by slot, model and outcome.
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

/// Renders proxied requests that were answered: their sum, and sums by model.
pub(crate) fn proxied(rows: &[Passed]) -> Value {
    let of = |shadow: bool| proxied_sum(rows.iter().filter(move |row| row.shadow == shadow));
    let item = |row: &Passed| {
        let own = [("model".to_owned(), json!(row.model)), ("shadow".to_owned(), json!(row.shadow))];
        own.into_iter().chain(proxied_sum(std::iter::once(row))).collect::<Map<_, _>>()
    };
    json!({"total": of(false), "shadow": of(true), "items": rows.iter().map(item).collect::<Vec<_>>()})
}

fn proxied_sum<'a>(rows: impl Iterator<Item = &'a Passed>) -> Map<String, Value> {
    let (mut sum, mut priced) = (Passed::default(), false);
    for row in rows {
        sum.add(row);
        // A model has a price if any of its requests cost something.
        priced |= row.cost != 0;
    }
    let mut told = json!(sum).as_object().cloned().unwrap_or_default();
    told.retain(|name, _| name != "model" && name != "shadow");
    for (name, cost) in [("cost", sum.cost), ("saved_cost", sum.saved_cost)] {
        told.insert(name.to_owned(), json!(priced.then(|| Money::millionths(cost).get())));
    }
    told
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
        let out = proxied(&rows);
        assert_eq!((&out["total"]["requests"], &out["total"]["saved"]), (&json!(6), &json!(2_700)));
        assert_eq!((&out["total"]["cost"], &out["total"]["saved_cost"]), (&json!(2.0), &json!(0.75)));
        let shadow = &out["shadow"];
        assert_eq!((&shadow["requests"], &shadow["cost"]), (&json!(2), &json!(0.00003)));
        assert_eq!(shadow["saved_cost"], json!(4.0));
        let cost = |at: usize| (out["items"][at]["cost"].clone(), out["items"][at]["saved_cost"].clone());
        assert_eq!(cost(1), (Value::Null, Value::Null));
        assert_eq!(cost(0), (json!(1.5), json!(-0.25)));
        assert_eq!(proxied(&[])["total"]["cost"], Value::Null);
    }
}
