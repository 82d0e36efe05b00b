//! The interface to models that write summaries.
//!
//! A [`Model`] receives a [`SummaryRequest`], which contains everything about the summary to be written, and returns a
//! [`Reply`] or one of four errors, sorted by what happens next. A provider's model builds a prompt with
//! [`SummaryRequest::prompt`], as `Remote` does (feature `providers`). [`Local`] reads the messages and needs no
//! prompt.
//!
//! A model does not judge its own text: [`epitome_core::inspect`] decides whether the text is accepted, and the worker
//! decides which model is called next and when. A model has no access to stores and sessions.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use epitome_core::inspect::{Finish, Refusal};
use epitome_core::local::Extracts;
use epitome_core::message::{Author, Message, Seq, Tokens};
use epitome_core::prompt::{self, Prompt, PromptError, PromptInput, Template, TranscriptEntry};
use epitome_core::slot::Limit;
use epitome_core::tokens::Counter;

use crate::brief::brief;

mod local;
#[cfg(feature = "providers")]
mod remote;
// Tests compile both.
#[cfg(any(test, not(feature = "providers")))]
mod without_providers;

/// The shipped table of models: their windows, output limits and prices.
pub mod table {
    pub use crate::table::*;
}

pub use local::Local;
#[cfg(feature = "providers")]
pub(crate) use remote::of_settings;
#[cfg(feature = "providers")]
pub use remote::{CheckError, CheckReport, Credentials, FailureCause, Lender, Remote, check, install_tls};
#[cfg(not(feature = "providers"))]
pub(crate) use without_providers::of_settings;

pub use epitome_wire::{TokenUsage, TooLong, too_long};

/// A model that writes summaries.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// The name that is recorded as the writer.
    fn name(&self) -> &str;

    /// Maximum size of a prompt: the model's window minus its output reserve. `None` if the window is unknown.
    fn room(&self) -> Option<Tokens>;

    /// The provider. Models of one provider fail together, so they share one circuit breaker.
    fn provider(&self) -> &str {
        self.name()
    }

    /// How long one call may take, if it differs from the engine's `Pace::timeout`.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Whether an accepted answer may be reused for exactly the same question instead of calling the model. Worth it if
    /// a call costs time or money.
    fn reusable(&self) -> bool {
        false
    }

    /// Whether it is the built-in extractive summarizer, under any name: it costs nothing and cannot fail for long.
    #[doc(hidden)]
    fn is_built_in(&self) -> bool {
        false
    }

    /// Writes one summary. The caller may stop waiting at any time, which drops the future. It must not block its
    /// thread: a timeout cannot stop a blocked thread.
    async fn write(&self, request: &SummaryRequest) -> Result<Reply, ModelError>;
}

/// A summary to be written: what to summarize, and how.
///
/// Cheap to clone, so that it can be sent to another thread and to the next model in the list.
///
/// ```
/// use epitome::Message;
/// use epitome::rules::slot::Limit;
/// use epitome::rules::tokens::{Counter, Encoding};
/// use epitome::model::{SummaryInput, SummaryRequest};
///
/// let mut message = Message::user("Ship it on 14 March.");
/// message.seq = 7;
/// let inputs = [SummaryInput::Message(message)];
/// let request = SummaryRequest::new(inputs, Limit::Tokens(100), Counter::new(Encoding::O200k));
/// assert_eq!((request.through, request.message_count()), (7, 1));
/// assert!(request.prompt(8_000)?.user.contains("[7] user: Ship it on 14 March."));
/// # Ok::<(), epitome::rules::prompt::PromptError>(())
/// ```
#[derive(Debug, Clone)]
pub struct SummaryRequest {
    /// What the summary should contain.
    pub template: Arc<Template>,
    /// The previous summary, which the new one replaces and must include.
    pub previous: Option<Arc<str>>,
    /// The extracts of the previous summary, if `local` wrote it.
    pub extracts: Option<Arc<Extracts>>,
    /// The new messages, and authors' summaries in place of the messages that they cover, in order.
    pub inputs: Arc<[SummaryInput]>,
    /// The last message that the summary will cover.
    pub through: Seq,
    /// Maximum size of the summary.
    pub limit: Limit,
    /// The operator's instructions, passed on unchanged.
    pub instructions: Arc<str>,
    /// What the summary should pay attention to, set by the caller that requested it.
    pub focus: Arc<str>,
    /// Why the last answer to the same request was refused.
    pub refused: Option<Refusal>,
    /// Tokens of what the summary replaces: the messages, and the previous summary. The summary must be smaller.
    pub replaces: Tokens,
    /// Counts tokens.
    pub counter: Counter,
    /// Whether secrets are redacted.
    pub redact: bool,
}

impl SummaryRequest {
    /// Creates a request for these messages with the general template, no previous summary, and redaction on.
    /// `replaces` counts the messages; a caller that sets `previous` adds its tokens.
    pub fn new(inputs: impl Into<Arc<[SummaryInput]>>, limit: Limit, counter: Counter) -> Self {
        let inputs = inputs.into();
        let seqs = inputs.iter().filter_map(|input| input.message().map(|message| message.seq));
        let replaces = inputs.iter().fold(0, |sum: Tokens, input| {
            sum.saturating_add(match input {
                SummaryInput::Message(message) => counter.message(message),
                SummaryInput::Summary { text, .. } => counter.text(text),
            })
        });
        Self {
            template: Arc::new(Template::default()),
            previous: None,
            extracts: None,
            through: seqs.max().unwrap_or(0),
            inputs,
            limit,
            instructions: "".into(),
            focus: "".into(),
            refused: None,
            replaces,
            counter,
            redact: true,
        }
    }

    /// Returns the number of messages to summarize, without skipped ones and authors' summaries.
    pub fn message_count(&self) -> usize {
        self.inputs.iter().filter(|input| input.message().is_some_and(|message| !message.skip)).count()
    }

    /// Builds the prompt for a language model, in at most `room` tokens.
    pub fn prompt(&self, room: Tokens) -> Result<Prompt, PromptError> {
        let conversation: Vec<TranscriptEntry<'_>> = self.inputs.iter().map(SummaryInput::as_entry).collect();
        prompt::prompt(&PromptInput {
            template: &self.template,
            previous: self.previous.as_deref(),
            conversation: &conversation,
            limit: self.limit,
            instructions: &self.instructions,
            focus: &self.focus,
            refused: self.refused.as_ref(),
            room,
            counter: &self.counter,
            redact: self.redact,
        })
    }
}

/// A message or an author's summary that the new summary will cover: an owned [`TranscriptEntry`].
#[derive(Debug, Clone, PartialEq)]
pub enum SummaryInput {
    /// A message.
    Message(Message),
    /// An author's own summary, in place of the messages that it covers.
    Summary {
        /// The author whose messages it covers.
        author: Author,
        /// Its text.
        text: String,
    },
}

impl SummaryInput {
    /// Borrows it as a [`TranscriptEntry`], from which prompts are built.
    pub fn as_entry(&self) -> TranscriptEntry<'_> {
        match self {
            Self::Message(message) => TranscriptEntry::Message(message),
            Self::Summary { author, text } => TranscriptEntry::Summary { author, text },
        }
    }

    /// Returns the message, if it is one.
    pub fn message(&self) -> Option<&Message> {
        match self {
            Self::Message(message) => Some(message),
            Self::Summary { .. } => None,
        }
    }
}

impl From<Message> for SummaryInput {
    fn from(message: Message) -> Self {
        Self::Message(message)
    }
}

/// What a model wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Its text, not yet inspected.
    pub text: String,
    /// How it ended.
    pub finish: Finish,
    /// Tokens as reported by the provider. `None` for models that cost nothing.
    pub usage: Option<TokenUsage>,
    /// The extracts on which the next local summary can be built. Only `local` returns them.
    pub extracts: Option<Extracts>,
}

impl Reply {
    /// Returns a reply with a complete text, and nothing else.
    pub fn complete(text: impl Into<String>) -> Self {
        Self { text: text.into(), finish: Finish::Complete, usage: None, extracts: None }
    }
}

/// Why there is no reply, sorted by what happens next: wait, shorten, try another model, try again later.
///
/// Every provider maps its failures to these four. The worker matches on them without a wildcard, so a fifth one cannot
/// be added without deciding what the worker does then.
///
/// Errors are recorded and logged. Create them with [`ModelError::refused`] and [`ModelError::no_answer`], which
/// shorten the reason and redact secrets. Never put text of the conversation into a reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Wait: the same request may be sent again, but not sooner than `retry_after`.
    #[error("the model is busy{}", after(*retry_after))]
    Busy {
        /// How long the provider wants callers to wait, if it says so.
        retry_after: Option<Duration>,
    },
    /// Shorten: the same request will fail again, one with fewer messages may succeed.
    #[error("the prompt of {sent} tokens is too long for the model{}", over(*limit))]
    TooLong {
        /// Tokens that were sent.
        sent: Tokens,
        /// Maximum number of tokens, if the provider reports it.
        limit: Option<Tokens>,
    },
    /// Try another model: a wrong key, no credit, content that this model rejects. Calling it again does not help.
    #[error("the model refused: {reason}")]
    Refused {
        /// Why, in a few words.
        reason: String,
    },
    /// Give up for now: a timeout, a broken connection, an unreadable answer. A later call may succeed.
    #[error("no answer from the model: {reason}")]
    NoAnswer {
        /// What happened, in a few words.
        reason: String,
    },
}

impl ModelError {
    /// Creates [`ModelError::Refused`] with a reason that may be recorded: one line of at most 200 characters, no
    /// secrets.
    ///
    /// ```
    /// use epitome::model::ModelError;
    ///
    /// let error = ModelError::refused("401: your api_key=sk-live-0123456789abcdef0123 is\n wrong");
    /// assert_eq!(error.kind(), "refused");
    /// assert!(!error.to_string().contains("0123456789"));
    /// ```
    pub fn refused(reason: &str) -> Self {
        Self::Refused { reason: brief(reason) }
    }

    /// Creates [`ModelError::NoAnswer`] with a reason that may be recorded, as [`ModelError::refused`] does.
    pub fn no_answer(reason: &str) -> Self {
        Self::NoAnswer { reason: brief(reason) }
    }

    /// Returns a short word for records and metrics. It never changes.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "busy",
            Self::TooLong { .. } => "too_long",
            Self::Refused { .. } => "refused",
            Self::NoAnswer { .. } => "no_answer",
        }
    }
}

fn after(retry_after: Option<Duration>) -> String {
    retry_after.map_or_else(String::new, |wait| format!("; retry after {wait:?}"))
}

fn over(limit: Option<Tokens>) -> String {
    limit.map_or_else(String::new, |limit| format!("; {limit} are allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use epitome_core::tokens::Encoding;

    #[test]
    fn errors_say_what_happened_and_what_to_do() {
        let shown = |error: ModelError| (error.kind(), error.to_string());
        assert_eq!(shown(ModelError::Busy { retry_after: None }), ("busy", "the model is busy".to_owned()));
        assert_eq!(
            shown(ModelError::Busy { retry_after: Some(Duration::from_secs(20)) }).1,
            "the model is busy; retry after 20s"
        );
        assert_eq!(
            shown(ModelError::TooLong { sent: 9_000, limit: Some(8_192) }),
            ("too_long", "the prompt of 9000 tokens is too long for the model; 8192 are allowed".to_owned())
        );
        assert_eq!(
            shown(ModelError::no_answer("timed out")),
            ("no_answer", "no answer from the model: timed out".to_owned())
        );
    }

    #[test]
    fn a_prompt_contains_everything_in_the_request() {
        let mut message = Message::user("Move it to Friday.");
        message.seq = 12;
        let planner =
            SummaryInput::Summary { author: "planner".into(), text: "Looked at three dates.".to_owned() };
        let counter = Counter::new(Encoding::O200k);
        let request = SummaryRequest {
            previous: Some("Ann wants a release.".into()),
            instructions: "Name every date.".into(),
            focus: "the release".into(),
            refused: Some(Refusal::CutOff),
            ..SummaryRequest::new([planner, message.into()], Limit::Tokens(200), counter)
        };
        let prompt = request.prompt(8_000).unwrap();
        for words in [
            "Ann wants a release.",
            "planner",
            "three dates",
            "[12] user: Move it to Friday.",
            "Name every date.",
            "Pay special attention to: the release",
            "The last answer was refused: it was cut off",
        ] {
            assert!(prompt.user.contains(words), "{words} is missing in {}", prompt.user);
        }
        assert!(request.prompt(50).is_err());
    }

    #[test]
    fn a_request_without_messages_is_valid() {
        let request = SummaryRequest::new([], Limit::Tokens(200), Counter::new(Encoding::O200k));
        assert_eq!((request.through, request.replaces, request.message_count()), (0, 0, 0));
    }
}
