//! Conversations written for this project, with planted names and facts.
//!
//! Each file in `conversations/` starts with a header (name, language, facts, secrets), followed by one message per
//! line in OpenAI's chat format. A fact contains the position of the first message with the text of the fact, counted
//! from 0. Other tests measure whether the list still contains the fact after condensing.

use epitome_core::message::{Message, Part, Role};
use serde::Deserialize;

/// A conversation, and the facts that condensing should preserve.
#[derive(Debug, Clone)]
pub struct Conversation {
    pub name: String,
    /// Language code such as `en`.
    pub language: String,
    pub messages: Vec<Message>,
    pub facts: Vec<Fact>,
    /// Texts that must not be in any summary.
    pub secrets: Vec<String>,
}

/// A fact in the conversation that the agent will need later.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// The exact text of the fact.
    pub text: String,
    /// The position of the first message that contains the text, counted from 0. The message's `seq` is this position
    /// plus 1.
    pub said_in: usize,
    pub kind: String,
}

/// The files, each with the name that the file's header must contain.
const FILES: &[(&str, &str)] = &[
    ("coding.en", include_str!("../conversations/coding.en.jsonl")),
    ("coding.zh", include_str!("../conversations/coding.zh.jsonl")),
    ("dialogue.ar", include_str!("../conversations/dialogue.ar.jsonl")),
    ("dialogue.en", include_str!("../conversations/dialogue.en.jsonl")),
    ("dialogue.ru", include_str!("../conversations/dialogue.ru.jsonl")),
    ("support.en", include_str!("../conversations/support.en.jsonl")),
    ("support.ja", include_str!("../conversations/support.ja.jsonl")),
];

/// Returns every conversation, ordered by name.
pub fn all() -> Vec<Conversation> {
    FILES.iter().map(|(name, _)| read(name)).collect()
}

/// Reads the conversation with this name, such as `coding.en`.
pub fn read(name: &str) -> Conversation {
    let (_, lines) =
        FILES.iter().find(|(file, _)| *file == name).unwrap_or_else(|| panic!("no conversation {name}"));
    let mut lines = lines.lines();
    let header: Header = serde_json::from_str(lines.next().unwrap()).unwrap();
    let messages = lines.zip(1..).map(|(line, seq)| {
        let line: Line =
            serde_json::from_str(line).unwrap_or_else(|e| panic!("{name}, message {}: {e}", seq - 1));
        Message { seq, ..line.message() }
    });
    Conversation {
        name: header.name,
        language: header.language,
        messages: messages.collect(),
        facts: header.facts,
        secrets: header.secrets,
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    name: String,
    language: String,
    facts: Vec<Fact>,
    #[serde(default)]
    secrets: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    role: Role,
    name: Option<String>,
    content: String,
    #[serde(default)]
    tool_calls: Vec<Call>,
    tool_call_id: Option<String>,
}

#[derive(Deserialize)]
struct Call {
    id: String,
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    name: String,
    arguments: String,
}

impl Line {
    fn message(self) -> Message {
        let said = match self.tool_call_id {
            Some(id) => Message::tool(id, self.content),
            None => {
                let text = (!self.content.is_empty()).then(|| Part::text(self.content));
                let calls = self
                    .tool_calls
                    .into_iter()
                    .map(|c| Part::call(c.id, c.function.name, c.function.arguments));
                Message::new(self.role, text.into_iter().chain(calls))
            }
        };
        assert_eq!(said.role, self.role, "only tool messages have a tool_call_id");
        Message { author: self.name.map(Into::into), ..said }
    }
}

#[cfg(test)]
mod tests {
    use epitome_core::message::Content;
    use std::collections::HashSet;

    use serde_json::Value;

    use super::*;

    /// The allowed kinds of facts.
    const KINDS: [&str; 10] =
        ["path", "id", "number", "person", "place", "date", "error", "command", "decision", "url"];

    /// Returns all text of a message, including tool call arguments and results.
    fn words(message: &Message) -> Vec<&str> {
        message
            .parts
            .iter()
            .flat_map(|part| match part {
                Part::Text { text } => vec![text.as_str()],
                Part::ToolCall(call) => vec![call.arguments.as_str()],
                Part::ToolResult(result) => result
                    .content
                    .iter()
                    .filter_map(|content| match content {
                        Content::Text { text } => Some(text.as_str()),
                        Content::Media(_) => None,
                    })
                    .collect(),
                Part::Thinking { .. } | Part::Media(_) => vec![],
            })
            .collect()
    }

    fn says(message: &Message, text: &str) -> bool {
        words(message).iter().any(|said| said.contains(text))
    }

    #[test]
    fn each_conversation_is_what_its_header_says() {
        for (file, _) in FILES {
            let Conversation { name, language, messages, facts, secrets } = read(file);
            assert_eq!(name, *file);
            assert_eq!(name.rsplit('.').next(), Some(language.as_str()), "{name}: language");

            assert!((25..=40).contains(&facts.len()), "{name}: {} facts", facts.len());
            let late = messages.len() * 8 / 10;
            let mut texts = HashSet::new();
            for Fact { text, said_in, kind } in &facts {
                assert!(KINDS.contains(&kind.as_str()), "{name}: {text:?} is a {kind:?}");
                assert!(texts.insert(text), "{name}: {text:?} twice");
                assert!(*said_in <= late, "{name}: {text:?} comes in the last fifth");
                let first = messages.iter().position(|message| says(message, text));
                assert_eq!(first, Some(*said_in), "{name}: where {text:?} is said first");
                let ordered = messages.iter().any(|m| m.role.is_system() && says(m, text));
                assert!(!ordered, "{name}: {text:?} is in the system prompt");
            }
            for secret in &secrets {
                assert!(messages.iter().any(|message| says(message, secret)), "{name}: no {secret:?}");
            }
        }
    }

    #[test]
    fn each_conversation_is_well_formed() {
        for Conversation { name, messages, .. } in all() {
            let first = messages.iter().find(|message| !message.role.is_system()).unwrap();
            assert_eq!(first.role, Role::User, "{name}: who speaks first");

            let (mut open, mut ids, mut seen) = (Vec::new(), HashSet::new(), HashSet::new());
            for (message, seq) in messages.iter().zip(1..) {
                let at = format!("{name}, message {}", seq - 1);
                assert_eq!(message.seq, seq, "{at}");
                message.check(&Default::default()).unwrap_or_else(|e| panic!("{at}: {e}"));
                assert!(seen.insert((message.role, words(message))), "{at}: said before, word for word");
                for result in message.results() {
                    let call = open.iter().position(|id| *id == result.call);
                    open.remove(call.unwrap_or_else(|| panic!("{at}: answers no call")));
                }
                if message.role != Role::Tool {
                    assert!(open.is_empty(), "{at}: calls without an answer before it");
                }
                for call in message.calls() {
                    let arguments: Value = serde_json::from_str(&call.arguments).unwrap();
                    assert!(arguments.is_object(), "{at}: arguments");
                    assert!(ids.insert(call.id.clone()), "{at}: a call's id used twice");
                    open.push(call.id.clone());
                }
            }
            assert!(open.is_empty(), "{name}: calls without an answer at its end");
        }
    }
}
