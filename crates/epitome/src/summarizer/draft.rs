//! Defines the base of a new summary, and the draft: a summary that passed inspection.

use std::sync::Arc;

use epitome_core::inspect::{Refusal, Standard, inspect, names_due};
use epitome_core::ledger::Ledger;
use epitome_core::local::Extracts;
use epitome_core::message::{Content, Media, MediaSource, Message, Part, Seq, Tokens};
use epitome_core::prompt::lines_of;
use epitome_core::slot::Limit;

use crate::model::{Reply, SummaryInput, SummaryRequest};
use crate::store::{Sources, SummaryId, SummaryRow};

/// Recorded in place of a model's name if the summary consists of the verbatim messages.
const VERBATIM: &str = "verbatim";

/// The previous summary, on which a new summary is based. Every field is empty if there is no previous summary.
#[derive(Clone, Default)]
pub(crate) struct Base {
    /// Position of the last message that the previous summary covers; 0 if there is no previous summary.
    pub(crate) through: Seq,
    /// Id of the previous summary, if that summary is stored.
    pub(crate) id: Option<SummaryId>,
    pub(crate) text: Option<Arc<str>>,
    pub(crate) tokens: Tokens,
    /// The extracts of the previous summary, if they are stored: the material from which `local` can extend it.
    pub(crate) extracts: Option<Arc<Extracts>>,
    pub(crate) ledger: Option<Ledger>,
}

impl Base {
    /// Returns the names that were found in the conversation so far.
    fn ledger(&self) -> Ledger {
        match (&self.ledger, &self.extracts, &self.text) {
            (Some(ledger), _, _) => ledger.clone(),
            (None, Some(extracts), _) => extracts.ledger().clone(),
            (None, None, Some(text)) => Extracts::of_text(text, self.through).ledger().clone(),
            (None, None, None) => Ledger::default(),
        }
    }
}

impl From<SummaryRow> for Base {
    fn from(row: SummaryRow) -> Self {
        let Sources { extracts, ledger } = row.sources();
        Self {
            through: row.through,
            id: Some(row.id),
            text: Some(row.text.into()),
            tokens: row.facts.tokens,
            extracts: extracts.map(Arc::new),
            ledger,
        }
    }
}

/// A summary that passed inspection.
pub(crate) struct Draft {
    pub(crate) text: String,
    pub(crate) tokens: Tokens,
    /// The model that wrote the text, or `verbatim`.
    pub(crate) model: String,
    /// The extracts if `local` wrote the text. Otherwise the names that were found in the conversation so far.
    pub(crate) sources: Sources,
    /// Names that were missing in the model's answer and were added to the text.
    pub(crate) added: Vec<String>,
    /// The hash of the request. `None` if the answer is not reused for an identical request.
    pub(crate) request_hash: Option<String>,
}

impl Draft {
    /// Returns a draft if the reply passes inspection. For a reply of `local`, only the size is checked. `local`
    /// selects sentences of the conversation, so text that looks like a bad answer comes from the conversation itself.
    pub(super) fn from_reply(
        request: &SummaryRequest,
        reply: Reply,
        base: &Base,
        model: &str,
    ) -> Result<Self, Refusal> {
        let (model, request_hash) = (model.to_owned(), None);
        if let Some(extracts) = reply.extracts {
            let tokens = request.counter.text(&reply.text);
            if reply.text.trim().is_empty() {
                return Err(Refusal::Empty);
            }
            if tokens >= request.replaces {
                return Err(Refusal::NotSmaller { tokens, replaces: request.replaces });
            }
            let sources = Sources { extracts: Some(extracts), ledger: None };
            return Ok(Self { text: reply.text, tokens, model, sources, added: Vec::new(), request_hash });
        }
        let mut ledger = base.ledger();
        request.inputs.iter().for_each(|input| match input {
            SummaryInput::Message(message) => ledger.read(message),
            SummaryInput::Summary { text, .. } => {
                ledger.join(Extracts::of_text(text, request.through).ledger());
            }
        });
        let names = names_due(&ledger, request.limit, request.replaces, &request.counter);
        let standard = Standard {
            limit: request.limit,
            replaces: request.replaces,
            prior: request.previous.as_deref(),
            names: &names,
            counter: &request.counter,
            redact: request.redact,
        };
        let accepted = inspect(&reply.text, reply.finish, &standard)?;
        let sources = Sources { extracts: None, ledger: Some(ledger) };
        let (text, tokens, added) = (accepted.text, accepted.tokens, accepted.added);
        Ok(Self { text, tokens, model, sources, added, request_hash })
    }

    /// Returns a draft that contains the previous summary, and then the messages verbatim, each with its author.
    /// Returns `None` if this text is empty or longer than the limit.
    pub(super) fn verbatim(base: &Base, request: &SummaryRequest) -> Option<Self> {
        let lines = lines_of(request.inputs.iter().map(SummaryInput::as_entry));
        let text = match base.text.as_deref() {
            Some(before) if !lines.is_empty() => format!("{before}\n{lines}"),
            Some(before) => before.to_owned(),
            None => lines,
        };
        let tokens = request.counter.text(&text);
        let fits = match request.limit {
            Limit::Tokens(limit) => tokens <= limit,
            Limit::Chars(limit) => text.chars().count() as u64 <= limit,
        };
        if !fits || text.trim().is_empty() {
            return None;
        }
        let mut ledger = base.ledger();
        request.inputs.iter().filter_map(SummaryInput::message).for_each(|message| ledger.read(message));
        let sources = Sources { extracts: None, ledger: Some(ledger) };
        Some(Self {
            text,
            tokens,
            model: VERBATIM.to_owned(),
            sources,
            added: Vec::new(),
            request_hash: None,
        })
    }

    /// Converts the draft into the base of the next summary. Used for a draft that is only an intermediate step and is
    /// not stored.
    pub(crate) fn base(self, through: Seq) -> Base {
        Base {
            through,
            id: None,
            tokens: self.tokens,
            text: Some(self.text.into()),
            extracts: self.sources.extracts.map(Arc::new),
            ledger: self.sources.ledger,
        }
    }
}

/// Returns the word for a refusal in usage records.
pub(super) fn refusal_code(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::Empty => "empty",
        Refusal::CutOff => "cut_off",
        Refusal::TooLong { .. } | Refusal::TooManyChars { .. } => "too_long_answer",
        Refusal::NotSmaller { .. } => "not_smaller",
        Refusal::Loops => "loops",
        Refusal::ErrorPage => "error_page",
        Refusal::Refused => "declined",
        Refusal::Continues => "goes_on",
        Refusal::SameAsBefore => "same_as_before",
        _ => "refused_answer",
    }
}

/// Returns a message without the bytes of its images and other media. The summarizer does not read these bytes, and the
/// bytes of many messages would need too much memory.
pub(crate) fn without_media_bytes(mut message: Message) -> Message {
    let clear = |media: &mut Media| {
        if let MediaSource::Base64(bytes) = &mut media.source {
            *bytes = String::new();
        }
    };
    for part in &mut message.parts {
        match part {
            Part::Media(media) => clear(media),
            Part::ToolResult(result) => result.content.iter_mut().for_each(|content| {
                if let Content::Media(media) = content {
                    clear(media);
                }
            }),
            Part::Text { .. } | Part::Thinking { .. } | Part::ToolCall(_) => {}
        }
    }
    message
}

pub(super) fn has_text(input: &SummaryInput) -> bool {
    !lines_of([input.as_entry()]).trim().is_empty()
}
