//! What all tests here need: things to say, strict readers, and ways to wait.

use std::time::Duration;

use epitome::dialect::Dialect;
use epitome::rules::condense::Press;
use epitome::rules::message::{Content, Message, Part};
use epitome::rules::tokens::Counter;
use epitome::{Call, Condenser, CondenserBuilder, Ready};
use epitome_testkit::drawing::word_counter;
use serde_json::Value;

use crate::judges;

/// Nothing here takes this long unless it hangs.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(60);

/// A condenser that counts words, with these settings of `condense`.
pub(crate) fn words(condense: &str) -> CondenserBuilder {
    Condenser::builder().counter(words_counted()).settings(&format!(r#"{{"condense": {{{condense}}}}}"#))
}

pub(crate) fn words_counted() -> Counter {
    word_counter()
}

/// A number in letters: figures are names, which are added to summaries that leave them out.
fn letters(mut n: usize) -> String {
    let mut out = String::new();
    while n > 0 {
        out.push(char::from(b'a' + (n % 26) as u8));
        n /= 26;
    }
    out
}

/// `count` messages from place `from` on, the user's and the assistant's in turn, each of `size` words: the first two
/// tell its place, the others are many.
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

/// The same list, forced.
pub(crate) async fn forced<'a>(condenser: &Condenser, list: &'a [Message], press: Press) -> Ready<'a> {
    condenser.before(Call { force: Some(press), ..Call::of(list) }).await
}

/// Every text in these messages.
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

/// What the providers say about a list, all of them.
pub(crate) fn complaints(messages: &[Message]) -> Vec<String> {
    let mut all = Vec::new();
    for dialect in [Dialect::OPENAI, Dialect::RESPONSES, Dialect::ANTHROPIC] {
        let body = Value::Object(dialect.write(messages));
        let mut told = match dialect.name() {
            "openai" => judges::chat::complaints(&body),
            "responses" => judges::responses::complaints(&body),
            _ => judges::anthropic::complaints(&body),
        };
        // The judge knows only reasoning that comes first; dialects must not reorder what came otherwise.
        told.retain(|told| !told.contains("thinking must come first"));
        all.extend(told.into_iter().map(|told| format!("{dialect:?}: {told}")));
    }
    all
}

/// Gives way until this holds.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waited = tokio::time::timeout(TOO_LONG, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

/// The text of the summary in a list.
pub(crate) fn summary(messages: &[Message]) -> Option<String> {
    messages.iter().find_map(epitome::rules::view::recognise).map(|found| found.text)
}

/// Lets whatever was begun in the background come to its end, or to where it waits.
pub(crate) async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}
