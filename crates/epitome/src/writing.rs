//! What worker and condenser both need to have a summary written: a model asked so that it can do no harm, and its
//! answer judged.

use std::sync::Arc;
use std::time::Duration;

use epitome_core::inspect::{Refusal, Standard, inspect, names_due};
use epitome_core::ledger::Ledger;
use epitome_core::local::Extracts;
use epitome_core::message::{Content, Media, MediaSource, Message, Part, Tokens};
use epitome_core::prompt::lines_of;
use epitome_core::slot::Limit;
use epitome_core::tokens::Counter;

use crate::engine::Writer;
use crate::hook::Running;
use crate::model::{Ask, Model, ModelError, Reply, Tally, Told};

/// What a model whose window nobody knows is given to read at once.
pub(crate) const UNKNOWN_INPUT: Tokens = 100_000;

/// What `local` is given to read at once: no window binds it, but memory does.
pub(crate) const LOCAL_INPUT: Tokens = 400_000;

/// What rules, template and frame of a prompt take, at most.
pub(crate) const PROMPT_OVERHEAD: Tokens = 2_000;

/// Below this a prompt is not made smaller any more.
pub(crate) const LEAST_INPUT: Tokens = 500;

/// What is recorded as the writer of lines that needed none.
pub(crate) const VERBATIM: &str = "verbatim";

/// What is recorded of a call that nobody waited for any more.
pub(crate) const DROPPED: &str = "dropped";

/// An answer that passed inspection.
pub(crate) struct Judged {
    pub(crate) text: String,
    pub(crate) tokens: Tokens,
    /// What `local` made it of.
    pub(crate) extracts: Option<Extracts>,
    /// The names known by then, where a model wrote it.
    pub(crate) ledger: Option<Ledger>,
    /// Names that were missing, and were added.
    pub(crate) added: Vec<String>,
}

/// What is taken of an answer. What `local` picked is the conversation's own words, so it is measured only; its signs would
/// be the conversation's. `ledger` holds the names of what was summarized before.
pub(crate) fn judge(ask: &Ask, reply: Reply, ledger: impl FnOnce() -> Ledger) -> Result<Judged, Refusal> {
    if let Some(extracts) = reply.extracts {
        let tokens = ask.counter.text(&reply.text);
        if reply.text.trim().is_empty() {
            return Err(Refusal::Empty);
        }
        if tokens >= ask.replaces {
            return Err(Refusal::NotSmaller { tokens, replaces: ask.replaces });
        }
        let (extracts, ledger, added) = (Some(extracts), None, Vec::new());
        return Ok(Judged { text: reply.text, tokens, extracts, ledger, added });
    }
    let mut ledger = ledger();
    ask.said.iter().for_each(|told| match told {
        Told::Message(message) => ledger.read(message),
        Told::Summary { text, .. } => ledger.join(Extracts::of_text(text, ask.through).ledger()),
    });
    let names = names_due(&ledger, ask.limit, ask.replaces, &ask.counter);
    let standard = Standard {
        limit: ask.limit,
        replaces: ask.replaces,
        prior: ask.previous.as_deref(),
        names: &names,
        counter: &ask.counter,
        redact: ask.redact,
    };
    let kept = inspect(&reply.text, reply.finish, &standard)?;
    Ok(Judged {
        text: kept.text,
        tokens: kept.tokens,
        extracts: None,
        ledger: Some(ledger),
        added: kept.added,
    })
}

/// The attributed lines themselves, after the summary before them, where they fit: no model could say it in less.
pub(crate) fn verbatim(
    before: Option<&str>,
    told: &[Told],
    limit: Limit,
    counter: &Counter,
) -> Option<(String, Tokens)> {
    let lines = lines_of(told.iter().map(Told::said));
    let text = match before {
        Some(before) if !lines.is_empty() => format!("{before}\n{lines}"),
        Some(before) => before.to_owned(),
        None => lines,
    };
    let tokens = counter.text(&text);
    let fits = match limit {
        Limit::Tokens(limit) => tokens <= limit,
        Limit::Chars(limit) => text.chars().count() as u64 <= limit,
    };
    (fits && !text.trim().is_empty()).then_some((text, tokens))
}

/// One call of a model, in a task of its own: neither its panic nor its silence is ours.
pub(crate) async fn answer(
    model: &Arc<dyn Model>,
    ask: &Ask,
    time_out: Duration,
) -> Result<Reply, ModelError> {
    let time_out = model.time_out().unwrap_or(time_out);
    let (model, ask) = (Arc::clone(model), ask.clone());
    let mut call = Running(tokio::spawn(async move { model.write(&ask).await }));
    match tokio::time::timeout(time_out, &mut call.0).await {
        Ok(Ok(answer)) => answer,
        // What it panicked with may hold anything, so it is not repeated.
        Ok(Err(_)) => Err(ModelError::no_answer("the model panicked")),
        Err(_) => Err(ModelError::no_answer(&format!("no answer within {time_out:?}"))),
    }
}

/// What the provider counted, or what we do where it does not tell.
pub(crate) fn tally(ask: &Ask, reply: &Reply) -> Tally {
    reply.tally.unwrap_or_else(|| Tally {
        input: ask.replaces,
        cached: 0,
        output: ask.counter.text(&reply.text),
    })
}

/// What a call may come to at most.
pub(crate) fn most(ask: &Ask) -> Tally {
    Tally {
        input: ask.replaces.saturating_add(PROMPT_OVERHEAD),
        cached: 0,
        output: match ask.limit {
            // A character is a token at most.
            Limit::Tokens(most) | Limit::Chars(most) => most,
        },
    }
}

/// What a model is asked, hashed: the same prior, messages, prompt and model give the same. Nothing where asking again
/// costs nothing, or where no prompt can be made of it.
pub(crate) fn fingerprint(writer: &Writer, ask: &Ask) -> Option<String> {
    if !writer.model.reusable() {
        return None;
    }
    let prompt = ask.prompt(writer.model.room().unwrap_or(UNKNOWN_INPUT)).ok()?;
    let mut hasher = blake3::Hasher::new();
    for part in [writer.model.provider(), writer.model.name(), &prompt.system, &prompt.user] {
        // With their lengths, so that no two lists of parts read the same.
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    Some(hasher.finalize().to_hex().to_string())
}

/// A refusal in a word, for records.
pub(crate) fn word(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Empty => "empty",
        Refusal::CutOff => "cut_off",
        Refusal::TooLong { .. } | Refusal::TooManyChars { .. } => "too_long_answer",
        Refusal::NotSmaller { .. } => "not_smaller",
        Refusal::Loops => "loops",
        Refusal::ErrorPage => "error_page",
        Refusal::Refused => "declined",
        Refusal::GoesOn => "goes_on",
        Refusal::SameAsBefore => "same_as_before",
        _ => "refused_answer",
    }
}

/// A message without the bytes of its pictures and sounds. Nobody reads them here, and a window of them would
/// fill the memory.
pub(crate) fn without_bytes(mut message: Message) -> Message {
    let forget = |media: &mut Media| {
        if let MediaSource::Base64(bytes) = &mut media.source {
            *bytes = String::new();
        }
    };
    for part in &mut message.parts {
        match part {
            Part::Media(media) => forget(media),
            Part::ToolResult(result) => result.content.iter_mut().for_each(|content| {
                if let Content::Media(media) = content {
                    forget(media);
                }
            }),
            Part::Text { .. } | Part::Thinking { .. } | Part::ToolCall(_) => {}
        }
    }
    message
}

pub(crate) fn says_something(told: &Told) -> bool {
    !lines_of([told.said()]).trim().is_empty()
}
