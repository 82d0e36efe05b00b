//! Checks the core's contexts against the three wire formats.

use epitome_core::message::{Message, Part, Role};
use epitome_core::view::repair;
use epitome_testkit::drawing::draw;
use proptest::prelude::*;

use super::{complaints_of_all, late_thinking};
use crate::drawn::{Drawn, Log, session, summaries};
use crate::promises::{config, counter, picks, request};
use epitome_testkit::odd::odd;

/// Turns of an agent whose reasoning follows the provider's rules: a turn contains reasoning from its first reply on, or
/// none at all, and ends with its last reply.
fn thinking_session() -> impl Strategy<Value = Drawn> {
    let flag = || prop::sample::select(vec!["", "", "", "", "!", "~"]);
    let step = (any::<bool>(), flag(), flag(), 1..20u8, 1..3usize);
    let turn = (any::<bool>(), flag(), 1..20u8, prop::collection::vec(step, 0..5), any::<bool>());
    prop::collection::vec(turn, 1..6).prop_map(|turns| {
        let mut words = vec!["s".to_owned()];
        for (thinks, pin, size, steps, ends) in turns {
            words.push(format!("u{pin}:{size}"));
            for (at, (again, asks, tells, size, calls)) in steps.into_iter().enumerate() {
                let thinks = if thinks && (at == 0 || again) { "*" } else { "" };
                let ids = ["x", "y"];
                words.push(format!("a{thinks}({}){asks}:{size}", ids[..calls].join(",")));
                words.extend(ids[..calls].iter().map(|id| format!("r({id}){tells}:{size}")));
            }
            words.extend(ends.then(|| format!("a:{size}")));
        }
        Drawn(words.join(" "))
    })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn every_context_is_taken_on_every_wire(drawn in session(), request in request(), picks in picks()) {
        let log = drawn.log(&counter());
        let given = log.context(log.len(), &request, &summaries(&log, &picks));
        if !given.messages.is_empty() {
            prop_assert_eq!(complaints_of_all(&given.messages), Vec::<String>::new());
        }
    }

    #[test]
    fn every_authors_own_context_is_taken_on_every_wire(
        drawn in session(), request in request(), pick in any::<(u16, u8)>(),
    ) {
        let log = drawn.log(&counter());
        let given = log.scoped_context("ann", &request, &summaries(&log, &[pick]));
        if !given.messages.is_empty() {
            prop_assert_eq!(complaints_of_all(&given.messages), Vec::<String>::new());
        }
    }

    #[test]
    fn every_mended_list_is_taken_on_every_wire(drawn in session()) {
        let list = repair(drawn.messages());
        let first = list.iter().find(|message| !message.role.is_system());
        if first.is_some_and(|message| message.role.is_user()) {
            prop_assert_eq!(complaints_of_all(&list), Vec::<String>::new());
        }
    }

    #[test]
    fn odd_histories_are_taken_on_every_wire(
        drawn in session(), odds in prop::collection::vec(any::<u16>(), 1..60),
        request in request(), picks in picks(),
    ) {
        let log = Log::new(odd(drawn.messages(), &odds), counter());
        let repaired = repair(log.messages.clone());
        let first = repaired.iter().find(|message| !message.role.is_system());
        if first.is_some_and(|message| message.role.is_user()) {
            prop_assert_eq!(complaints_of_all(&repaired), Vec::<String>::new());
        }
        let given = log.context(log.len(), &request, &summaries(&log, &picks));
        if !given.messages.is_empty() {
            prop_assert_eq!(complaints_of_all(&given.messages), Vec::<String>::new());
        }
        let used = log.tokens(&given.messages);
        prop_assert!(used <= request.budget().unwrap(), "{used} tokens");
    }

    #[test]
    fn no_context_starts_inside_a_turn_after_its_reasoning(
        drawn in thinking_session(), request in request(), picks in picks(),
    ) {
        let log = drawn.log(&counter());
        prop_assert_eq!(late_thinking(&log.messages), Vec::<String>::new(), "drawn as the provider has it");
        for at in 1..=log.len() {
            let given = log.context(at, &request, &summaries(&log, &picks));
            prop_assert_eq!(late_thinking(&given.messages), Vec::<String>::new(), "{}", draw(&given.messages));
        }
    }
}

#[test]
fn an_item_id_is_shown_once() {
    // "Duplicate item found with id": the call's own id is made unique, the second name is left out.
    let list = repair(Drawn("u a(w=iw) u a(w=iw)".to_owned()).messages());
    assert_eq!(draw(&list), "u a(w=iw) r(w):3 u a(w_2)");
    // A result still matches its call by that name.
    let list = repair(Drawn("u a(w=iw) u a(v=iw) r(iw)".to_owned()).messages());
    assert_eq!(draw(&list), "u a(w=iw) r(w):3 u a(v) r(v)");
}

#[test]
fn reasoning_that_leads_to_nothing_leaves() {
    let reply = |parts: &[Part]| Message::new(Role::Assistant, parts.to_vec());
    let (hm, hi, call) = (Part::thinking("hm"), Part::text("Hi"), Part::call("x", "f", "{}"));
    for (said, shown) in [
        (vec![hm.clone(), hi.clone(), hm.clone()], vec![hm.clone(), hi.clone()]),
        (vec![call.clone(), hm.clone(), hm.clone()], vec![call.clone()]),
        // The second call repeats an open one, so no call follows the second reasoning either.
        (vec![hm.clone(), call.clone(), hm.clone(), call.clone()], vec![hm.clone(), call.clone()]),
        (vec![hm.clone(), hm.clone(), hi.clone()], vec![hm.clone(), hm.clone(), hi.clone()]),
    ] {
        let list = repair([Message::user("Hello"), reply(&said)]);
        assert_eq!(list[1].parts, shown);
        assert_eq!(complaints_of_all(&list), Vec::<String>::new());
    }
}
