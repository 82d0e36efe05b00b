//! Checks lists of messages against the rules of the providers, independently of the code under test.
//!
//! The checks do not use the tracking of `epitome_core`. Their input is a list of messages, and their result is a
//! list of complaints. The tests below plant faults to show that each complaint can occur.

use std::collections::HashMap;

use epitome_core::message::{Message, Part, Role, Seq};
pub use epitome_core::valid::complaints;

/// Returns complaints about reasoning. `log` is the whole session, and `list` is the part of the session that is sent
/// to a model. The part of a tool loop that is in `list` must meet one of these conditions:
///
/// - The part contains no reasoning.
/// - The part starts with the first message of the loop.
/// - The part starts with a message that contains reasoning.
pub fn reasoning_complaints(list: &[Message], log: &[Message]) -> Vec<String> {
    let mut out = Vec::new();
    let loop_of = loops(log);
    let place: HashMap<Seq, usize> = list.iter().enumerate().map(|(at, m)| (m.seq, at)).collect();
    for message in list.iter().filter(|m| m.role == Role::Assistant && thinks(m)) {
        let Some(start) = loop_of.get(&message.seq) else { continue };
        // Goes back to the first message of this loop that is in `list`.
        let mut first = message;
        let mut at = place[&message.seq];
        while at > 0 {
            let before = &list[at - 1];
            // In `list`, a result follows its call, whatever the result's position in the log is.
            if before.role == Role::Tool {
                at -= 1;
                continue;
            }
            if loop_of.get(&before.seq) != Some(start) {
                // A reply that was logged in several pieces has the `seq` of its first piece.
                if before.role == Role::Assistant && thinks(before) {
                    first = before;
                }
                break;
            }
            if before.role == Role::Assistant {
                first = before;
            }
            at -= 1;
        }
        if first.seq != *start && !thinks(first) {
            out.push(format!(
                "the list contains the tool loop of message {} only from message {} on, without its first reasoning",
                message.seq, first.seq
            ));
        }
    }
    out
}

/// Finds the tool loops that start with reasoning. Maps each message of such a loop to the first message of the loop.
fn loops(log: &[Message]) -> HashMap<Seq, Seq> {
    let mut out = HashMap::new();
    let mut current: Option<Seq> = None;
    // The author and the id of each call without a result. The author is needed because two agents may use the same
    // id.
    let mut open: Vec<(Option<&str>, &str)> = Vec::new();
    for message in log {
        let words = says_something(message);
        let user = matches!(message.role, Role::User | Role::Peer);
        if user || message.role == Role::Tool {
            for result in message.results() {
                let named = |(_, id): &(Option<&str>, &str)| *id == &*result.call;
                let own = open.iter().position(|call| named(call) && call.0 == message.author.as_deref());
                if let Some(answered) = own.or_else(|| open.iter().position(named)) {
                    open.remove(answered);
                }
            }
        }
        if user && words {
            current = None;
            open.clear();
        }
        let reply = message.role == Role::Assistant;
        // If a call with the same author and id is still without a result, the new call does not count.
        let mut calls = false;
        for call in message.calls().filter(|_| reply) {
            let call = (message.author.as_deref(), &*call.id);
            if !open.contains(&call) {
                open.push(call);
                calls = true;
            }
        }
        if calls && current.is_none() && thinks(message) {
            current = Some(message.seq);
        }
        if let Some(start) = current {
            out.insert(message.seq, start);
        }
        if reply && words && message.calls().next().is_none() {
            current = None;
        }
    }
    out
}

/// Returns whether a message contains media or text that is not blank.
pub fn says_something(message: &Message) -> bool {
    message.parts.iter().any(|part| match part {
        Part::Text { text } => !text.trim().is_empty(),
        part => matches!(part, Part::Media(_)),
    })
}

fn thinks(message: &Message) -> bool {
    message.parts.iter().any(|part| matches!(part, Part::Thinking { .. }))
}

#[cfg(test)]
mod tests {
    use crate::drawing;

    use super::*;

    fn hears(drawing: &str, complaint: &str) {
        let heard = complaints(&drawing::messages(drawing).unwrap());
        assert!(heard.iter().any(|c| c.contains(complaint)), "{drawing}: heard only {heard:?}");
    }

    #[test]
    fn planted_faults_are_heard() {
        hears("u r(x)", "a result without its call");
        hears("u a(x) r(x) r(x)", "no open call for the result of x");
        hears("u a(x) r(y) r(x)", "no open call for the result of y");
        hears("u a(x) u", "no result for x");
        hears("u a(x,y) r(x) u", "no result for y");
        hears("u a(x) s r(x)", "no result for x");
        hears("u a(x) r(x) a(x) r(x)", "id x is used twice");
        hears("u a(x,x) r(x)", "id x is used twice");
        hears("a u", "not from the user");
        hears("s a", "no user message");
        hears("s d", "no user message");
        hears("u u-", "is empty");
        hears("u a:0", "blank text");
        hears("u a:0(x) r(x)", "blank text");
        hears("u u(x)", "not allowed in");
        hears("u a*-", "contains only reasoning");
        let mut broken = drawing::messages("u a(x) r(x)").unwrap();
        if let Part::ToolCall(call) = &mut broken[1].parts[1] {
            call.arguments = "{\"path\": \"a".to_owned();
        }
        assert!(complaints(&broken).iter().any(|c| c.contains("not a JSON object")));
    }

    #[test]
    fn a_loop_entered_past_its_reasoning_is_heard() {
        let log = drawing::messages("u a*(x) r(x) a(y) r(y) a*(z) r(z)").unwrap();
        let from = |seq: usize| [&log[..1], &log[seq - 1..]].concat();
        assert!(reasoning_complaints(&log, &log).is_empty());
        assert!(reasoning_complaints(&from(6), &log).is_empty());
        assert_eq!(reasoning_complaints(&from(4), &log).len(), 1);
    }

    /// The result is Ann's, so the earlier call with the same id is still open. The call that repeats it does not
    /// count, and its reasoning opens no loop.
    #[test]
    fn two_agents_may_use_the_same_id() {
        let drawn = "u a(x) a(x)@ann r(x)@ann a*(x) r(x) a(y)@ann r(y)@ann a*(z) r(z)";
        let log = (1..).zip(drawing::messages(drawn).unwrap()).map(|(seq, m)| Message { seq, ..m });
        let log: Vec<Message> = log.collect();
        assert_eq!(reasoning_complaints(&log[6..], &log), Vec::<String>::new());
    }

    #[test]
    fn a_good_list_has_no_complaints() {
        for good in [
            "",
            "u",
            "s u a",
            "s d u a(x,y) r(y) r(x) a",
            "u a(x)",
            "u a(x,y) r(x)",
            "p p a",
            "u a*(x) r(x) a",
        ] {
            assert_eq!(complaints(&drawing::messages(good).unwrap()), Vec::<String>::new(), "{good}");
        }
    }
}
