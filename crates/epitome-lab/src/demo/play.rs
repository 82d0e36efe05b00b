//! Appends the demo's conversation to a session, like an agent. Counts the tokens that the agent's model would receive.

use epitome::rules::context::Oversize;
use epitome::rules::message::{Message, Role, Tokens};
use epitome::rules::tokens::{Counter, Encoding};
use epitome::{ContextRequest, Session};
use epitome_terminal::failure::Failure;

use super::numbers::{Played, Savings, WrittenSummary};
use super::screen::Screen;

/// Appends the messages one by one. Requests a context before each assistant message, as an agent does before each
/// model call. Writes the due summaries after each message.
pub(super) async fn play(
    session: &Session,
    messages: Vec<Message>,
    budget: Tokens,
    screen: &mut Screen<'_>,
) -> Result<Played, Failure> {
    let counter = Counter::new(Encoding::O200k);
    let all = messages.len() as u64;
    let mut played =
        Played { messages: 0, tokens: 0, tool_calls: 0, summaries: Vec::new(), savings: Savings::default() };
    let savings = &mut played.savings;
    savings.budget = budget;
    let (mut before, mut sent_before): (Vec<Message>, Tokens) = (Vec::new(), 0);
    for message in messages {
        if message.role == Role::Assistant {
            let request = ContextRequest { oversize: Oversize::Clip, ..budget.into() };
            let context = session.context(request).await?;
            savings.calls += 1;
            savings.exhaustive += u64::from(context.report.exhaustive);
            savings.whole.add(played.tokens, sent_before);
            savings
                .contexts
                .add(context.report.tokens.total(), common_tokens(&before, &context.messages, &counter));
            (before, sent_before) = (context.messages, played.tokens);
        }
        played.tool_calls += message.calls().count() as u64;
        played.tokens += counter.message(&message);
        played.messages += 1;
        screen.progress(&message, played.messages, all, played.tokens).await?;
        session.append(message).await?;
        session.work().await?;
        let last_id = played.summaries.last().map_or(0, |written| written.id);
        let mut new = session.history(None, 4).await?;
        new.retain(|summary| summary.id > last_id);
        for summary in new.into_iter().rev() {
            let written = WrittenSummary {
                id: summary.id,
                slot: summary.slot,
                through: summary.through,
                replaced: summary.replaced_tokens,
                tokens: summary.tokens,
                millis: summary.millis,
            };
            screen.written(&written)?;
            played.summaries.push(written);
        }
    }
    let savings = &mut played.savings;
    savings.times = times(savings.whole.tokens, savings.contexts.tokens);
    Ok(played)
}

/// Returns the tokens of the messages at the beginning that are the same in both lists.
fn common_tokens(before: &[Message], now: &[Message], counter: &Counter) -> Tokens {
    let alike = before.iter().zip(now).take_while(|(one, other)| one == other);
    alike.map(|(message, _)| counter.message(message)).sum()
}

/// Returns `more` divided by `less`, rounded to a tenth; 0 if `less` is 0.
#[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52 tokens")]
fn times(more: Tokens, less: Tokens) -> f64 {
    if less == 0 { 0.0 } else { (more as f64 / less as f64 * 10.0).round() / 10.0 }
}
