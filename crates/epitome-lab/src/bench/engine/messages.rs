//! Generates the messages of the measured sessions. The messages are short, differ from each other, and contain names.

use epitome::rules::message::{Message, Part, Role};
use serde::Serialize;

const TOWNS: [&str; 8] = ["Oslo", "Lagos", "Lima", "Pune", "Turin", "Quito", "Busan", "Perth"];
const GOODS: [&str; 7] = ["lamps", "ropes", "pumps", "tiles", "seeds", "books", "bolts"];
const DAYS: [&str; 5] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"];

/// Returns the n-th message of a conversation between a user and an assistant. Each message has about thirty tokens.
pub fn short_message(n: u64) -> Message {
    let (town, goods, day) = (of(&TOWNS, n / 2), of(&GOODS, n / 3), of(&DAYS, n / 5));
    let order = 40_071 + n / 2 * 37;
    if n.is_multiple_of(2) {
        Message::user(format!(
            "Please look at order {order}: the {goods} for {town} have not arrived, and the customer wrote twice since {day}."
        ))
    } else {
        Message::assistant(format!(
            "Order {order} left the depot in {town} with carrier {}; it arrives on {day}, and the customer was told so.",
            n % 19
        ))
    }
}

/// Returns the n-th message of an agent with a tool. Four messages are one turn: the user's question, a tool call, the
/// call's result, and the agent's reply. Each message has twenty to forty tokens.
pub fn agent_message(n: u64) -> Message {
    let turn = n / 4;
    let (town, goods, day) = (of(&TOWNS, turn), of(&GOODS, turn / 2), of(&DAYS, turn / 3));
    let order = 40_071 + turn * 37;
    let call = format!("call_{turn}");
    match n % 4 {
        0 => Message::user(format!(
            "Please look at order {order}: the {goods} for {town} have not arrived, and the customer wrote twice since {day}."
        )),
        1 => {
            Message::new(Role::Assistant, [Part::call(call, "find_order", format!("{{\"order\": {order}}}"))])
        }
        2 => Message::tool(
            call,
            format!(
                "order {order}, {} {goods}: left the depot in {town} with carrier {} on {day}; not yet signed for",
                turn % 89 + 1,
                turn % 19
            ),
        ),
        _ => Message::assistant(format!(
            "Order {order} left the depot in {town} with carrier {}; it arrives after {day}, and the customer was told so.",
            turn % 19
        )),
    }
}

/// Returns `count` messages of [`short_message`], starting with message number `from`.
pub fn short_messages(from: u64, count: u64) -> Vec<Message> {
    (from..from.saturating_add(count)).map(short_message).collect()
}

/// Returns a message as JSON text in the store's format. The bare loops, which are the baselines, insert this text.
pub(super) fn body_json(message: &Message) -> Result<String, serde_json::Error> {
    #[derive(Serialize)]
    struct Body<'a> {
        parts: &'a [Part],
    }
    serde_json::to_string(&Body { parts: &message.parts })
}

fn of(words: &[&'static str], n: u64) -> &'static str {
    let count = words.len() as u64;
    usize::try_from(n % count).ok().and_then(|at| words.get(at).copied()).unwrap_or_default()
}
