//! What goes out, over drawn histories with every kind of oddity, held against the three wires.

use std::collections::HashSet;

use epitome::dialect::Dialect;
use epitome_core::context::{Oversize, Request};
use epitome_core::message::{Content, Media, Message, Part, Role};
use epitome_core::tokens::{Counter, Overhead};
use epitome_core::view::repair;
use epitome_testkit::drawing::word_counter;
use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::drawn::{Log, session, summaries};
use crate::odd::odd;
use crate::{complaints, config, conversations};

const FOREIGN: [Dialect; 3] = [Dialect::OPENAI, Dialect::RESPONSES, Dialect::ANTHROPIC];

pub(crate) fn counter() -> Counter {
    word_counter().with_overhead(Overhead { message: 3, author: 1, call: 2, tool: 5 })
}

fn request() -> impl Strategy<Value = Request> {
    let tokens = prop_oneof![6 => (1..400u64).prop_map(Some), 1 => Just(None)];
    let flags = (prop::bool::weighted(0.8), any::<bool>(), 0..3u8, any::<bool>(), any::<bool>());
    (tokens, flags).prop_map(|(tokens, (summary, fit, mode, clip, assistant))| Request {
        assistant: assistant.then(|| "ann".into()),
        tokens,
        summary,
        fit,
        fill: mode == 1,
        steady: mode == 2,
        oversize: if clip { Oversize::Clip } else { Oversize::Empty },
        ..Request::default()
    })
}

fn picks() -> impl Strategy<Value = Vec<(u16, u8)>> {
    prop::collection::vec(any::<(u16, u8)>(), 0..3)
}

pub(crate) fn odds() -> impl Strategy<Value = Vec<u16>> {
    prop_oneof![1 => Just(vec![]), 3 => prop::collection::vec(any::<u16>(), 1..60)]
}

/// Odd histories, with what dialects have to do besides: reasoning of every provider's, names in any letters, replies
/// that end in white space, residues of any kind.
pub(crate) fn odder(messages: Vec<Message>, odds: &[u16]) -> Vec<Message> {
    if odds.is_empty() {
        return messages;
    }
    let mut messages = odd(messages, odds);
    for (message, odd) in messages.iter_mut().zip(odds.iter().map(|odd| usize::from(*odd) / 7).cycle()) {
        message.metadata.insert("note".to_owned(), odd.into());
        message.wire = Some(Box::new(serde_json::json!({
            "openai": { "items": { "0": { "edits": { "x": { "=": odd } } } } },
            "anthropic": odd,
        })));
        message.author = (odd % 13 == 0).then(|| "Ann Lee ü".into()).or(message.author.take());
        for part in &mut message.parts {
            match part {
                Part::Thinking { signature, id, redacted, .. } => {
                    *signature = (odd % 3 != 0).then(|| "c2lnbmVk".to_owned());
                    *redacted = odd % 7 == 1;
                    *id = match odd % 5 {
                        0 => Some(format!("rs_{}", odd % 11)),
                        1 => Some(String::new()),
                        2 => Some("no id | of theirs".to_owned()),
                        _ => None,
                    };
                }
                Part::ToolCall(call) if odd % 4 == 0 => call.name = "files.read ü".to_owned(),
                Part::ToolCall(call) if odd % 4 == 1 => {
                    call.item_id = Some(format!("fc_{}", odd % 11).into());
                }
                Part::Text { text } if odd % 3 == 0 && message.role == Role::Assistant => {
                    text.push_str(" \n");
                }
                Part::Media(media) => odd_media(media, odd),
                _ => {}
            }
        }
    }
    messages
}

fn odd_media(media: &mut Media, odd: usize) {
    match odd % 6 {
        0 => media.mime = String::new(),
        1 => media.mime = "audio/wav".to_owned(),
        2 => media.mime = "audio/flac".to_owned(),
        3 => media.mime = "image/*".to_owned(),
        _ => {}
    }
}

/// What everybody must be told: words but for white space at their ends, calls, answers.
fn told(messages: &[Message]) -> (Vec<String>, Vec<(String, Value)>, Vec<String>) {
    let (mut words, mut calls, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for part in messages.iter().flat_map(|message| &message.parts) {
        match part {
            Part::Text { text } => words.push(text.trim().to_owned()),
            Part::ToolCall(call) => {
                let arguments = serde_json::from_str(&call.arguments_as_object()).unwrap();
                calls.push((call.name.clone(), arguments));
            }
            Part::ToolResult(result) => {
                let said = result.content.iter().filter_map(|content| match content {
                    Content::Text { text } if !text.trim().is_empty() => Some(text.as_str()),
                    _ => None,
                });
                answers.push(said.collect::<Vec<_>>().join("\n"));
            }
            Part::Thinking { .. } | Part::Media(_) => {}
        }
    }
    (words, calls, answers)
}

fn has_user_first(list: &[Message]) -> bool {
    list.iter().find(|message| !message.role.is_system()).is_some_and(|message| message.role.is_user())
}

fn wire_list(fields: &Map<String, Value>) -> &[Value] {
    let list = fields.get("messages").or_else(|| fields.get("input")).and_then(Value::as_array);
    list.expect("a list")
}

proptest! {
    #![proptest_config(config(4_000))]

    #[test]
    fn every_context_is_taken(
        drawn in session(), odds in odds(), request in request(), picks in picks(),
    ) {
        let log = Log::new(odder(drawn.messages(), &odds), counter());
        let given = log.context(log.len(), &request, &summaries(&log, &picks));
        if !given.messages.is_empty() {
            for dialect in FOREIGN {
                let fields = dialect.write(&given.messages);
                prop_assert_eq!(complaints(dialect, &fields), Vec::<String>::new(), "{}: {:?}", dialect, fields);
            }
        }
    }

    #[test]
    fn every_mended_list_is_taken(drawn in session(), odds in odds()) {
        let list = repair(odder(drawn.messages(), &odds));
        if has_user_first(&list) {
            for dialect in FOREIGN {
                let fields = dialect.write(&list);
                prop_assert_eq!(complaints(dialect, &fields), Vec::<String>::new(), "{}: {:?}", dialect, fields);
            }
        }
    }

    #[test]
    fn a_list_that_grows_keeps_its_beginning(drawn in session(), odds in odds()) {
        let list = repair(odder(drawn.messages(), &odds));
        let head = list.iter().take_while(|message| message.role.is_system()).count();
        for dialect in FOREIGN {
            let whole = dialect.write(&list);
            prop_assert_eq!(
                serde_json::to_string(&whole).unwrap(),
                serde_json::to_string(&dialect.write(&list)).unwrap()
            );
            for at in head + 1..list.len() {
                let before = dialect.write(&list[..at]);
                let (before_list, whole_list) = (wire_list(&before), wire_list(&whole));
                // The last one may be merged with what comes next.
                let same = before_list.len() - usize::from(dialect == Dialect::ANTHROPIC && !before_list.is_empty());
                prop_assert!(before_list.len() <= whole_list.len(), "{}: shorter at {}", dialect, at);
                prop_assert_eq!(
                    serde_json::to_string(&before_list[..same]).unwrap(),
                    serde_json::to_string(&whole_list[..same]).unwrap(),
                    "{} at {}", dialect, at
                );
                prop_assert_eq!(before.get("system"), whole.get("system"));
            }
        }
    }

    #[test]
    fn what_was_written_says_the_same(drawn in session(), odds in odds()) {
        let list = repair(odder(drawn.messages(), &odds));
        if !has_user_first(&list) {
            return Ok(());
        }
        let (words, calls, answers) = told(&list);
        for dialect in FOREIGN {
            let read = dialect.read(&Value::Object(dialect.write(&list))).unwrap();
            for message in &read {
                prop_assert!(message.check(&Default::default()).is_ok());
            }
            let (said, asked, told) = told(&read);
            // Marks for media come in between, and notes before what the system says later.
            let mut left = said.iter();
            for word in &words {
                prop_assert!(left.any(|said| said.ends_with(word.as_str())), "{}: {} in {:?}", dialect, word, said);
            }
            let plain: Vec<&Value> = calls.iter().map(|(_, arguments)| arguments).collect();
            let asked: Vec<&Value> = asked.iter().map(|(_, arguments)| arguments).collect();
            prop_assert_eq!(asked, plain, "{}", dialect);
            prop_assert_eq!(told.len(), answers.len());
            for (told, answer) in told.iter().zip(&answers) {
                prop_assert!(told.starts_with(answer.as_str()), "{}: {} is not {}", dialect, told, answer);
            }
            // Whoever asked is answered, by whatever name.
            let ids: HashSet<&str> = read.iter().flat_map(Message::calls).map(|call| &*call.id).collect();
            prop_assert_eq!(ids.len(), calls.len(), "{}: two calls became one", dialect);
            prop_assert!(read.iter().flat_map(Message::results).all(|result| ids.contains(&*result.call)));
        }
    }

    #[test]
    fn ours_is_written_without_what_came_on_a_wire(drawn in session(), odds in odds()) {
        let list = odder(drawn.messages(), &odds);
        let fields = Dialect::EPITOME.write(&list);
        prop_assert!(!serde_json::to_string(&fields).unwrap().contains("\"wire\""));
        let bare = |message: &Message| Message { wire: None, ..message.clone() };
        let read = Dialect::EPITOME.read(&Value::Object(fields)).unwrap();
        prop_assert_eq!(read.iter().map(bare).collect::<Vec<_>>(), list.iter().map(bare).collect::<Vec<_>>());
    }
}

#[test]
fn whole_conversations_are_taken_and_come_back() {
    for conversation in conversations::all() {
        for dialect in FOREIGN {
            let fields = dialect.write(&conversation.messages);
            assert_eq!(
                complaints(dialect, &fields),
                Vec::<String>::new(),
                "{}: {dialect}",
                conversation.name
            );
            let read = dialect.read(&Value::Object(fields)).unwrap();
            assert_eq!(told(&read), told(&conversation.messages), "{}: {dialect}", conversation.name);
        }
    }
}
