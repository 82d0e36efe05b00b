//! What the three wires refuse, held against what the core hands out.
//!
//! The judges themselves, who know nothing of the core, are in [`epitome_testkit::judges`].

mod contexts;
mod faults;
mod spelling;

use epitome_core::message::Message;
use epitome_testkit::judges::{Spelled, anthropic, chat, responses, signed};
use serde_json::Value;

/// What all three providers would have to say about this list.
///
/// Drawn reasoning has no signature, and Anthropic takes none without; so it is signed first.
pub(crate) fn complaints_of_all(list: &[Message]) -> Vec<String> {
    let list = signed(list);
    let mut out = Vec::new();
    for (dialect, spelled, judge) in [
        ("chat", chat::spell(&list), chat::complaints as fn(&Value) -> Vec<String>),
        ("responses", responses::spell(&list), responses::complaints),
        ("anthropic", anthropic::spell(&list), anthropic::complaints),
    ] {
        let heard = spelled.unspelled.into_iter().chain(judge(&spelled.body));
        out.extend(heard.map(|complaint| format!("{dialect}: {complaint}")));
    }
    out
}

/// What Anthropic would say besides where thinking is switched on by hand: see
/// [`anthropic::late_thinking`]. It is no rule for every list, since a log may break it by itself.
pub(crate) fn late_thinking(list: &[Message]) -> Vec<String> {
    anthropic::late_thinking(&anthropic::spell(&signed(list)).body)
}
