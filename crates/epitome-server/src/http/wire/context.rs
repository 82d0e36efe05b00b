//! Contexts, and what they say of themselves.

use epitome::{Context, ShownSummary};
use serde::Serialize;
use serde_json::Value;

use super::MessageOut;

/// A context: what the agent is given.
#[derive(Debug, Serialize)]
pub(crate) struct ContextOut<'a> {
    pub(crate) messages: Vec<MessageOut<'a>>,
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
