//! Checks the core's lists against the rules of the three wire formats.
//!
//! The validators, which are independent of the core, are in [`epitome_testkit::judges`].

mod contexts;
mod faults;
mod spelling;

use epitome_core::message::Message;
use epitome_testkit::judges::{Spelled, anthropic, chat, responses, signed};
use serde_json::Value;

/// Returns the complaints of all three providers about this list.
///
/// Generated reasoning has no signature, and Anthropic requires one, so it is signed first.
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

/// Returns Anthropic's further complaints if thinking is enabled explicitly: see [`anthropic::late_thinking`]. The rule
/// does not apply to every list, because a log itself may break it.
pub(crate) fn late_thinking(list: &[Message]) -> Vec<String> {
    anthropic::late_thinking(&anthropic::spell(&signed(list)).body)
}
