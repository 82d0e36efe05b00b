//! What providers refuse, written apart from the code under test.
//!
//! Nothing of the core's tracking is used here: only messages go in, and a list of complaints comes
//! out. The faults planted below show that each complaint can be heard.

use std::collections::HashMap;

use epitome_core::message::{Message, Part, Role, Seq};
pub use epitome_core::valid::complaints;

/// Complaints about reasoning: what is shown of a tool loop either has none of it, or starts with
/// the loop, or starts at a message with reasoning of its own.
pub fn reasoning_complaints(list: &[Message], log: &[Message]) -> Vec<String> {
    let mut out = Vec::new();
    let loop_of = loops(log);
    let place: HashMap<Seq, usize> = list.iter().enumerate().map(|(at, m)| (m.seq, at)).collect();
    for message in list.iter().filter(|m| m.role == Role::Assistant && thinks(m)) {
        let Some(start) = loop_of.get(&message.seq) else { continue };
        // Walk back through the shown part of this loop to where it begins.
        let mut first = message;
        let mut at = place[&message.seq];
        while at > 0 {
            let before = &list[at - 1];
            // A result stands behind its call, wherever it was logged.
            if before.role == Role::Tool {
                at -= 1;
                continue;
            }
            if loop_of.get(&before.seq) != Some(start) {
                // A reply logged in pieces goes under the place of its first piece.
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
                "the loop of message {} is entered at {}, past its reasoning",
                message.seq, first.seq
            ));
        }
    }
    out
}

/// For each message inside a tool loop that reasoning opened: the loop's first message.
fn loops(log: &[Message]) -> HashMap<Seq, Seq> {
    let mut out = HashMap::new();
    let mut current: Option<Seq> = None;
    // By whom, and under which id: two agents may use the same one.
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
        // A call that repeats an open one is none.
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

/// Whether it holds words of its own that are not blank.
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
        hears("u a(x) r(x) r(x)", "nobody waits for a result of x");
        hears("u a(x) r(y) r(x)", "nobody waits for a result of y");
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
        hears("u u(x)", "never says");
        hears("u a*-", "nothing but reasoning");
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

    /// The result is Ann's, so the call of the same name before hers is open still: what repeats it is no call,
    /// and its reasoning opens no loop.
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
