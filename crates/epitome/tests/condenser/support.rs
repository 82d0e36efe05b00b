//! Helpers of all tests here: messages, strict validators, and ways to wait.

use std::time::Duration;

use epitome::dialect::Dialect;
use epitome::rules::condense::Press;
use epitome::rules::message::{Content, Message, Part};
use epitome::rules::tokens::Counter;
use epitome::{Call, Condenser, CondenserBuilder, ReadyList};
use epitome_testkit::drawing::word_counter;
use serde_json::Value;

use crate::judges;

/// A test that takes this long hangs.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(60);

/// Returns a builder of a condenser that counts words, with these settings of `condense`.
pub(crate) fn words(condense: &str) -> CondenserBuilder {
    Condenser::builder().counter(words_counted()).settings(&format!(r#"{{"condense": {{{condense}}}}}"#))
}

pub(crate) fn words_counted() -> Counter {
    word_counter()
}

/// Returns a number in letters: digits would count as names, which are added to summaries that omit them.
fn letters(mut n: usize) -> String {
    let mut out = String::new();
    while n > 0 {
        out.push(char::from(b'a' + (n % 26) as u8));
        n /= 26;
    }
    out
}

/// Returns `count` messages from position `from`, alternately of the user and the assistant, with `size` words each:
/// the first two identify the position.
pub(crate) fn talk_of(from: usize, count: usize, size: usize) -> Vec<Message> {
    (from..from + count)
        .map(|n| {
            let words: Vec<String> = (2..size).map(|word| format!("w{}", (n * 31 + word * 7) % 97)).collect();
            let text = format!("about {} {}", letters(n), words.join(" "));
            if n % 2 == 1 { Message::user(text.trim()) } else { Message::assistant(text.trim()) }
        })
        .collect()
}

pub(crate) fn talk(from: usize, count: usize) -> Vec<Message> {
    talk_of(from, count, 20)
}

/// Condenses the list with a forced call.
pub(crate) async fn forced<'a>(condenser: &Condenser, list: &'a [Message], press: Press) -> ReadyList<'a> {
    condenser.before(Call { force: Some(press), ..Call::of(list) }).await
}

/// Returns every text in these messages.
pub(crate) fn texts(messages: &[Message]) -> String {
    let mut out = String::new();
    for part in messages.iter().flat_map(|message| &message.parts) {
        match part {
            Part::Text { text } | Part::Thinking { text, .. } => out.push_str(text),
            Part::ToolCall(call) => out.push_str(&call.arguments),
            Part::ToolResult(result) => {
                for content in &result.content {
                    if let Content::Text { text } = content {
                        out.push_str(text);
                    }
                }
            }
            Part::Media(_) => {}
        }
        out.push('\n');
    }
    out
}

/// Returns the complaints of all providers about a list.
pub(crate) fn complaints(messages: &[Message]) -> Vec<String> {
    let mut all = Vec::new();
    for dialect in [Dialect::OPENAI, Dialect::RESPONSES, Dialect::ANTHROPIC] {
        let body = Value::Object(dialect.write(messages));
        let mut told = match dialect.name() {
            "openai" => judges::chat::complaints(&body),
            "responses" => judges::responses::complaints(&body),
            _ => judges::anthropic::complaints(&body),
        };
        // The validator expects reasoning first, but dialects must not reorder a message that came otherwise.
        told.retain(|told| !told.contains("thinking must come first"));
        all.extend(told.into_iter().map(|told| format!("{dialect:?}: {told}")));
    }
    all
}

/// Waits until this holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(TOO_LONG, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

/// Returns the text of the summary in a list.
pub(crate) fn summary(messages: &[Message]) -> Option<String> {
    messages.iter().find_map(epitome::rules::view::recognise).map(|found| found.text)
}

/// Lets background tasks run until they end or wait.
pub(crate) async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}
