//! Prints messages and summaries for people, and reports why summaries are overdue.

use std::collections::HashSet;

use epitome::Workspace;
use epitome::rules::message::{Content, Message, Part};
use epitome::settings::Money;

use super::prelude::*;
use crate::show::Style;

/// Prints a message: a line such as `12 user ann`, the content, and an empty line.
pub(super) fn show_message(show: &mut Show, message: &Message) -> Result<(), Failure> {
    let style = show.style;
    let mut head = String::new();
    if message.seq > 0 {
        head.push_str(&style.dim(&format!("{} ", message.seq)));
    }
    head.push_str(&style.cyan(&message.role.to_string()));
    if let Some(author) = &message.author {
        head.push_str(&format!(" {}", style.bold(&printable(author))));
    }
    for (flag, word) in [(message.pinned, "pinned"), (message.skip, "skipped")] {
        if flag {
            head.push_str(&style.yellow(&format!(" [{word}]")));
        }
    }
    show.line(head)?;
    for part in &message.parts {
        show.line(part_text(part, style))?;
    }
    show.line("")
}

fn part_text(part: &Part, style: Style) -> String {
    match part {
        Part::Text { text } => printable(text),
        Part::Thinking { text, .. } if text.is_empty() => style.dim("[thinking, hidden]"),
        Part::Thinking { text, .. } => style.dim(&format!("[thinking] {}", printable(text))),
        Part::ToolCall(call) => {
            format!(
                "{} {}",
                style.yellow(&format!("→ {}", printable(&call.name))),
                printable(&call.arguments)
            )
        }
        Part::ToolResult(result) => {
            let pieces: Vec<String> = result
                .content
                .iter()
                .map(|content| match content {
                    Content::Text { text } => printable(text),
                    Content::Media(media) => format!("[{}]", printable(&media.mime)),
                })
                .collect();
            let arrow = if result.error { style.red("← failed:") } else { style.yellow("←") };
            format!("{arrow} {}", pieces.join("\n"))
        }
        Part::Media(media) => format!("[{}]", printable(&media.mime)),
    }
}

/// Describes the messages that a summary covers, as in `messages 1-440`. `through` is the last covered message; 0 means
/// that no message is covered.
pub(super) fn covered(through: u64) -> String {
    if through == 0 { "no messages".to_owned() } else { format!("messages 1-{through}") }
}

/// Describes a summary in one line.
pub(super) fn summary_line(summary: &epitome::Summary) -> String {
    let scope = summary.scope.as_ref().map_or(String::new(), |author| format!(" of {author}"));
    let stand_in = if summary.stand_in { ", a fallback because the model failed" } else { "" };
    let cost = summary
        .cost
        .filter(|cost| *cost > 0.0)
        .map_or(String::new(), |cost| format!(", cost {}", Money::from(cost)));
    printable(&format!(
        "summary {} ({}{scope}): {}, {}, written by {}{stand_in}{cost}",
        summary.id,
        summary.slot,
        covered(summary.through),
        count(summary.tokens, "token"),
        summary.model
    ))
}

/// Maximum number of causes that [`report_overdue`] prints.
const MAX_CAUSES: usize = 3;

/// Prints why summaries of these sessions are overdue. Each cause is printed once, with one of the sessions that it
/// affects. If the queue cannot be read, prints nothing, because the command itself succeeded.
pub(super) async fn report_overdue(
    workspace: &Workspace,
    sessions: &HashSet<&str>,
    show: &mut Show,
) -> Result<(), Failure> {
    let queue = workspace.queue().await.unwrap_or_default();
    let mut causes: Vec<&str> = Vec::new();
    for slot in queue.slots.iter().filter(|slot| slot.due.is_some() && sessions.contains(&*slot.session)) {
        let Some(cause) = slot.last_error.as_deref().filter(|cause| !causes.contains(cause)) else {
            continue;
        };
        causes.push(cause);
        let (cause, session) = (printable(cause), printable(&slot.session));
        show.error(format!("summaries are overdue: {cause}; `epitome explain {session}` shows details"))?;
        if causes.len() == MAX_CAUSES {
            break;
        }
    }
    Ok(())
}
