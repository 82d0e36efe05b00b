//! Replaces an old tool output with one line.
//!
//! In most lists, old tool outputs use the most tokens, and the agent seldom needs them again. The placeholder line
//! names the tool and the size of the removed output. If the output is an error, the placeholder also contains the
//! first line of the error, because the agent must not forget the error. Calls and results stay at their positions, so
//! masking never makes a list invalid.

use std::collections::HashMap;

use super::count;
use crate::message::{CallId, Content, Message, Part, Role, ToolResult};
use crate::tokens::Counter;
use crate::track::is_blank;
use crate::trigger::grouped;

const OPENS: &str = "[output of ";
const LEFT_OUT: &str = " left out: ";

/// Maximum length, in characters, of an error's first line in the placeholder.
const FIRST_LINE: usize = 160;

/// The names of the called tools. Each name is stored under the call id and under the item id, because a result may
/// refer to either id.
#[derive(Debug, Default)]
pub(super) struct ToolNames(HashMap<CallId, String>);

impl ToolNames {
    /// Records the names of the tools that this message calls.
    pub(super) fn learn(&mut self, message: &Message) {
        if message.role != Role::Assistant {
            return;
        }
        for call in message.calls() {
            let ids = [Some(&call.id), call.item_id.as_ref()];
            self.0.extend(ids.into_iter().flatten().map(|id| (id.clone(), call.name.clone())));
        }
    }

    /// Replaces each tool output that is larger than its placeholder line. Returns the new message and the number of
    /// replaced outputs, or `None` if no output was replaced.
    pub(super) fn masked(&self, message: &Message, counter: &Counter) -> Option<(Message, u64)> {
        let mut masked = message.clone();
        let mut outputs = 0;
        for part in &mut masked.parts {
            let Part::ToolResult(result) = part else { continue };
            if is_masked(result) {
                continue;
            }
            let name = self.0.get(&result.call).map_or("a tool", String::as_str);
            let short = ToolResult {
                call: result.call.clone(),
                content: vec![Content::Text { text: stand_in(result, name) }],
                error: result.error,
            };
            let size = |result: &ToolResult| {
                counter.message(&Message::new(Role::Tool, [Part::ToolResult(result.clone())]))
            };
            if size(&short) < size(result) {
                *result = short;
                outputs += 1;
            }
        }
        (outputs > 0).then_some((masked, outputs))
    }
}

fn stand_in(result: &ToolResult, name: &str) -> String {
    let (mut chars, mut media, mut first) = (0u64, 0u64, None);
    for content in &result.content {
        match content {
            Content::Text { text } => {
                chars = chars.saturating_add(text.chars().count() as u64);
                first = first.or_else(|| text.lines().find(|line| !is_blank(line)));
            }
            Content::Media(_) => media += 1,
        }
    }
    let attached = if media > 0 { format!(", {}", count(media, "attachment")) } else { String::new() };
    let first = first.filter(|_| result.error).map(|line| line.trim().chars().take(FIRST_LINE));
    let error = first.map_or_else(String::new, |line| format!("; error: {}", line.collect::<String>()));
    format!("{OPENS}{name}{LEFT_OUT}{} characters{attached}{error}]", grouped(chars))
}

fn is_masked(result: &ToolResult) -> bool {
    match result.content.as_slice() {
        [Content::Text { text }] => text.starts_with(OPENS) && text.contains(LEFT_OUT) && text.ends_with(']'),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Media, MediaSource};
    use crate::tokens::Encoding;

    fn mask(result: ToolResult) -> Option<String> {
        let mut names = ToolNames::default();
        names.learn(&Message::new(Role::Assistant, [Part::call("x", "read_file", "{}")]));
        let message = Message::new(Role::Tool, [Part::ToolResult(result)]);
        let (masked, outputs) = names.masked(&message, &Counter::new(Encoding::O200k))?;
        assert_eq!(outputs, 1);
        // A masked output is not masked again.
        assert_eq!(names.masked(&masked, &Counter::new(Encoding::O200k)), None);
        let Part::ToolResult(ToolResult { content, .. }) = &masked.parts[0] else { panic!() };
        let [Content::Text { text }] = content.as_slice() else { panic!("media leave") };
        Some(text.clone())
    }

    fn result(text: &str, error: bool) -> ToolResult {
        ToolResult { call: "x".into(), content: vec![Content::Text { text: text.to_owned() }], error }
    }

    #[test]
    fn the_line_names_the_tool_and_the_size() {
        let text = "fn main() {}\n".repeat(700);
        assert_eq!(mask(result(&text, false)).unwrap(), "[output of read_file left out: 9,100 characters]");
    }

    #[test]
    fn an_error_keeps_its_first_line() {
        let text = format!("\nerror[E0432]: unresolved import\n{}", "  at x\n".repeat(100));
        assert_eq!(
            mask(result(&text, true)).unwrap(),
            "[output of read_file left out: 733 characters; error: error[E0432]: unresolved import]"
        );
    }

    #[test]
    fn an_output_shorter_than_the_line_stays() {
        assert_eq!(mask(result("ok", false)), None);
    }

    #[test]
    fn media_leave() {
        let mut shot = result("a screen", false);
        let source = MediaSource::Base64("AAAA".repeat(1_000));
        shot.content.push(Content::Media(Media { mime: "image/png".into(), source, size: Some((800, 600)) }));
        assert_eq!(mask(shot).unwrap(), "[output of read_file left out: 8 characters, 1 attachment]");
    }
}
