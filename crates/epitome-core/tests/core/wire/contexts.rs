//! What the core hands out, held against the three wires.

use epitome_core::drawing::draw;
use epitome_core::message::{CallId, Content, Media, MediaSource, Message, Part, Role};
use epitome_core::view::mend;
use proptest::prelude::*;

use super::{complaints_of_all, late_thinking};
use crate::drawn::{Drawn, Log, session, summaries};
use crate::promises::{config, counter, picks, request};

/// Turns of an agent that thinks as the provider has it: a turn thinks from its first reply on, or
/// not at all, and ends with its last reply.
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

/// Makes a drawn history odd, in ways that occur in the wild: ids of any letters and lengths, media,
/// arguments that are no objects, blank pieces, replies whose parts come in any order.
fn odd(mut messages: Vec<Message>, odds: &[u16]) -> Vec<Message> {
    let kind = odds.first().map_or(0, |odd| usize::from(*odd));
    let rename = |id: &mut CallId| *id = odd_id(id, kind).into();
    for (message, odd) in messages.iter_mut().zip(odds.iter().map(|odd| usize::from(*odd)).cycle()) {
        for part in &mut message.parts {
            match part {
                Part::ToolCall(call) => {
                    rename(&mut call.id);
                    call.item_id.iter_mut().for_each(rename);
                    if let Some(arguments) = odd_arguments(odd) {
                        call.arguments = arguments;
                    }
                }
                Part::ToolResult(result) => {
                    rename(&mut result.call);
                    result.error = odd % 5 == 0;
                    match odd % 7 {
                        0 => result.content.clear(),
                        1 => result.content.push(Content::Media(media(odd))),
                        2 => result.content.push(Content::Text { text: " \n".to_owned() }),
                        _ => {}
                    }
                }
                // A reply that ends so may not stand last at Anthropic; trimming it is a dialect's matter.
                Part::Text { text } if message.role == Role::User && odd % 3 == 0 => text.push('\n'),
                _ => {}
            }
        }
        match (message.role, odd % 11) {
            (Role::User, 0 | 1) => message.parts.push(Part::Media(media(odd))),
            (Role::User, 2) => message.parts = vec![Part::Media(media(odd))],
            (Role::Tool, 3) => message.parts.push(Part::text("stray words")),
            (Role::Tool, 4) => message.parts.clear(),
            (_, 5) => message.parts.push(Part::text("\t")),
            // Only a reply calls and thinks; only tool and user answer.
            (_, 6) => message.parts.push(Part::thinking("hm")),
            (_, 7) => message.parts.push(Part::result("x", "misplaced")),
            (_, 8) => message.parts.insert(0, Part::call("y", "f", "{}")),
            _ => {}
        }
        if message.role == Role::Assistant && !message.parts.is_empty() {
            let by = odd / 11 % message.parts.len();
            message.parts.rotate_left(by);
        }
    }
    messages
}

fn odd_id(id: &str, kind: usize) -> String {
    match kind % 6 {
        0 => id.to_owned(),
        1 => format!("call|{id}"),
        2 => format!("call {id} ü"),
        3 => format!("{}{id}", "long".repeat(20)),
        // Forty letters, so that a second use of one is longer than the wire allows.
        4 => format!("{id:x>40}"),
        // Names that the mending itself would give to a second use.
        _ => match id {
            "w" => "x_2".to_owned(),
            "y" => "x_3".to_owned(),
            "z" => "x_2_2".to_owned(),
            id => id.to_owned(),
        },
    }
}

fn odd_arguments(odd: usize) -> Option<String> {
    let odd = match odd % 17 {
        0 => "",
        1 => "  ",
        2 => "[1, 2]",
        3 => "null",
        4 => "\"words\"",
        5 => "{\"path\": \"a",
        6 => "{\"half\": \"\\ud800\"}",
        7 => "{\"large\": 1e999}",
        8 => " {\"a\": 1} ",
        9 => "{\"a\": 1} {\"b\": 2}",
        _ => return None,
    };
    Some(odd.to_owned())
}

fn media(odd: usize) -> Media {
    let (mime, source) = match odd % 4 {
        0 => ("image/png", MediaSource::Base64("aGVsbG8=".to_owned())),
        1 => ("image/jpeg", MediaSource::Url("https://example.org/a.jpg".to_owned())),
        2 => ("application/pdf", MediaSource::Base64("aGVsbG8=".to_owned())),
        _ => ("application/pdf", MediaSource::File("file-1".to_owned())),
    };
    Media { mime: mime.to_owned(), source, size: None }
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
        let list = mend(drawn.messages());
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
        let mended = mend(log.messages.clone());
        let first = mended.iter().find(|message| !message.role.is_system());
        if first.is_some_and(|message| message.role.is_user()) {
            prop_assert_eq!(complaints_of_all(&mended), Vec::<String>::new());
        }
        let given = log.context(log.len(), &request, &summaries(&log, &picks));
        if !given.messages.is_empty() {
            prop_assert_eq!(complaints_of_all(&given.messages), Vec::<String>::new());
        }
        let used = log.tokens(&given.messages);
        prop_assert!(used <= request.budget().unwrap(), "{used} tokens");
    }

    #[test]
    fn no_turn_is_entered_past_its_thinking(
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
    let list = mend(Drawn("u a(w=iw) u a(w=iw)".to_owned()).messages());
    assert_eq!(draw(&list), "u a(w=iw) r(w):3 u a(w_2)");
    // A result still finds its call by it.
    let list = mend(Drawn("u a(w=iw) u a(v=iw) r(iw)".to_owned()).messages());
    assert_eq!(draw(&list), "u a(w=iw) r(w):3 u a(v) r(v)");
}

#[test]
fn reasoning_that_leads_to_nothing_leaves() {
    let reply = |parts: &[Part]| Message::new(Role::Assistant, parts.to_vec());
    let (hm, hi, call) = (Part::thinking("hm"), Part::text("Hi"), Part::call("x", "f", "{}"));
    for (said, shown) in [
        (vec![hm.clone(), hi.clone(), hm.clone()], vec![hm.clone(), hi.clone()]),
        (vec![call.clone(), hm.clone(), hm.clone()], vec![call.clone()]),
        // The second call repeats an open one, so nothing follows the second thought either.
        (vec![hm.clone(), call.clone(), hm.clone(), call.clone()], vec![hm.clone(), call.clone()]),
        (vec![hm.clone(), hm.clone(), hi.clone()], vec![hm.clone(), hm.clone(), hi.clone()]),
    ] {
        let list = mend([Message::user("Hello"), reply(&said)]);
        assert_eq!(list[1].parts, shown);
        assert_eq!(complaints_of_all(&list), Vec::<String>::new());
    }
}
