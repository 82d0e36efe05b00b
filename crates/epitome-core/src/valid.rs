//! Validates message lists as a strict provider would do. The validation does not depend on the code that repairs
//! lists.
//!
//! This module does not use [`crate::track`]. Its input is a list of messages, and its output is a list of problems.

use std::collections::HashSet;

use crate::message::{Message, Part, Role};

/// Returns the problems that a strict provider would report for this list. Each problem is one line and contains no
/// message text.
///
/// ```
/// use epitome_core::valid::complaints;
/// use epitome_core::message::Message;
///
/// assert!(complaints(&[Message::user("Hello")]).is_empty());
/// assert_eq!(complaints(&[Message::tool("c1", "42")]), [
///     "the first message is from tool, not from the user",
///     "no user message",
///     "message 1: a result without its call directly before it",
/// ]);
/// ```
pub fn complaints(list: &[Message]) -> Vec<String> {
    let mut out = Vec::new();
    let body: Vec<&Message> = list.iter().skip_while(|m| m.role.is_system()).collect();
    if let Some(first) = body.first()
        && first.role != Role::User
        && first.role != Role::Peer
    {
        out.push(format!("the first message is from {}, not from the user", first.role));
    }
    if !list.is_empty() && !list.iter().any(|m| matches!(m.role, Role::User | Role::Peer)) {
        out.push("no user message".to_owned());
    }
    let mut seen: HashSet<&str> = HashSet::new();
    let mut at = 0;
    while let Some(message) = list.get(at) {
        at += 1;
        if message.parts.is_empty() {
            out.push(format!("message {at} is empty"));
        }
        if message.parts.iter().any(|part| matches!(part, Part::Text { text } if text.trim().is_empty())) {
            out.push(format!("message {at}: blank text"));
        }
        for part in &message.parts {
            let home = match part {
                Part::ToolCall(_) | Part::Thinking { .. } => message.role == Role::Assistant,
                Part::ToolResult(_) => message.role == Role::Tool,
                Part::Text { .. } | Part::Media(_) => message.role != Role::Tool,
            };
            if !home {
                out.push(format!("message {at}: a part that is not allowed in {} messages", message.role));
            }
        }
        if message.role == Role::Assistant
            && message.parts.iter().all(|part| matches!(part, Part::Thinking { .. }))
        {
            out.push(format!("message {at}: contains only reasoning"));
        }
        if message.role == Role::Tool {
            out.push(format!("message {at}: a result without its call directly before it"));
        }
        let mut waiting: Vec<&str> = Vec::new();
        for call in message.calls() {
            if !seen.insert(&call.id) {
                out.push(format!("message {at}: id {} is used twice", call.id));
            }
            if !serde_json::from_str::<serde_json::Value>(&call.arguments).is_ok_and(|v| v.is_object()) {
                out.push(format!("message {at}: arguments of {} are not a JSON object", call.id));
            }
            waiting.push(&call.id);
        }
        if waiting.is_empty() {
            continue;
        }
        while let Some(answer) = list.get(at).filter(|m| m.role == Role::Tool) {
            at += 1;
            for result in answer.results() {
                match waiting.iter().position(|id| **id == *result.call) {
                    Some(found) => drop(waiting.remove(found)),
                    None => out.push(format!("message {at}: no open call for the result of {}", result.call)),
                }
            }
        }
        if at < list.len() && !waiting.is_empty() {
            out.push(format!("before message {}: no result for {}", at + 1, waiting.join(", ")));
        }
    }
    out
}
