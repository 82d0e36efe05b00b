//! The interface to models that write summaries.
//!
//! A [`Model`] receives a [`SummaryRequest`], which describes the summary to be written. The model returns a [`Reply`]
//! or a [`ModelError`]. There are four kinds of errors. The kind decides what happens next. A model of a provider
//! builds a prompt with [`SummaryRequest::prompt`]. `Remote` is such a model; it needs the cargo feature `providers`.
//! [`Local`] reads the messages and needs no prompt.
//!
//! A model does not check its own text: [`epitome_core::inspect`] decides whether the text is accepted. The worker
//! decides which model is called next, and when. A model has no access to stores and sessions.

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
// Tests compile this module even if the feature is enabled.
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
    /// The name that is recorded as the writer of the summary.
    fn name(&self) -> &str;

    /// Maximum size of a prompt in tokens: the model's window minus its output reserve. `None` if the window is
    /// unknown.
    fn room(&self) -> Option<Tokens>;

    /// The provider. All models of one provider share one circuit breaker, because they usually fail at the same time.
    fn provider(&self) -> &str {
        self.name()
    }

    /// Timeout of one call. `None` means that the engine's `Pace::timeout` applies.
    fn timeout(&self) -> Option<Duration> {
        None
    }

    /// Whether an accepted answer is reused for an identical request, instead of calling the model again. This is
    /// useful if a call costs time or money.
    fn reusable(&self) -> bool {
        false
    }

    /// Whether the model is the built-in extractive summarizer, under any name. That summarizer costs nothing, and
    /// never fails for a long time.
    #[doc(hidden)]
    fn is_built_in(&self) -> bool {
        false
    }

    /// Writes one summary. The caller may stop waiting at any time, which drops the future. The future must not block
    /// its thread, because a timeout cannot stop a blocked thread.
    async fn write(&self, request: &SummaryRequest) -> Result<Reply, ModelError>;
}

/// Describes a summary to be written: the messages to summarize, and how.
///
/// A request is cheap to clone, so it can be sent to another thread and then to the next model.
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
    /// Template that defines what the summary should contain.
    pub template: Arc<Template>,
    /// The previous summary. The new summary replaces it, and must include its content. `None` if there is no previous
    /// summary.
    pub previous: Option<Arc<str>>,
    /// The extracts of the previous summary, from which `local` can extend that summary. `None` if there are none.
    pub extracts: Option<Arc<Extracts>>,
    /// The new messages, in order. A summary of one author's messages can replace this author's messages.
    pub inputs: Arc<[SummaryInput]>,
    /// Position of the last message that the summary will cover.
    pub through: Seq,
    /// Maximum size of the summary.
    pub limit: Limit,
    /// The operator's instructions. The prompt contains them unchanged. Empty if there are none.
    pub instructions: Arc<str>,
    /// Topic to which the summary should pay special attention. The caller that requests the summary sets it. Empty if
    /// there is none.
    pub focus: Arc<str>,
    /// Why the last answer to the same request was refused. `None` if no answer was refused.
    pub refused: Option<Refusal>,
    /// Number of tokens that the summary replaces: the tokens of the messages and of the previous summary. The summary
    /// must have fewer tokens.
    pub replaces: Tokens,
    /// The token counter.
    pub counter: Counter,
    /// Whether secrets in the messages and in the summary are redacted.
    pub redact: bool,
}

impl SummaryRequest {
    /// Creates a request for these messages, with the general template, without a previous summary, and with redaction.
    /// `replaces` is the number of tokens of the messages. A caller that sets `previous` must add the tokens of the
    /// previous summary to `replaces`.
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

    /// Returns the number of messages to summarize. Skipped messages and authors' summaries do not count.
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

/// One input of a new summary: a message, or a summary of one author's messages. This is the owned form of a
/// [`TranscriptEntry`].
#[derive(Debug, Clone, PartialEq)]
pub enum SummaryInput {
    /// A message.
    Message(Message),
    /// A summary of one author's messages, which replaces these messages.
    Summary {
        /// The author whose messages the summary covers.
        author: Author,
        /// Text of the summary.
        text: String,
    },
}

impl SummaryInput {
    /// Borrows the input as a [`TranscriptEntry`], from which prompts are built.
    pub fn as_entry(&self) -> TranscriptEntry<'_> {
        match self {
            Self::Message(message) => TranscriptEntry::Message(message),
            Self::Summary { author, text } => TranscriptEntry::Summary { author, text },
        }
    }

    /// Returns the message. `None` if the input is a summary.
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

/// The answer of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Text of the answer. It is not inspected yet.
    pub text: String,
    /// How the answer ended.
    pub finish: Finish,
    /// Token counts that the provider reported. `None` for models that cost nothing.
    pub usage: Option<TokenUsage>,
    /// The extracts from which `local` can build the next summary. `None` for every model except `local`.
    pub extracts: Option<Extracts>,
}

impl Reply {
    /// Creates a reply with a complete text. The other fields are empty.
    pub fn complete(text: impl Into<String>) -> Self {
        Self { text: text.into(), finish: Finish::Complete, usage: None, extracts: None }
    }
}

/// Why there is no reply. Each kind of error requires a different next step: wait, shorten the input, call another
/// model, or call the model again later.
///
/// Every model maps its failures to these four kinds. The code matches on the kinds without a wildcard. If a fifth kind
/// is added, the compiler therefore reports each place that must handle it.
///
/// Errors are recorded and logged. Never put text of the conversation into a reason. [`ModelError::refused`] and
/// [`ModelError::no_answer`] shorten the reason and redact secrets in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Wait. The same request may be sent again, but not before `retry_after` has passed.
    #[error("the model is busy{}", after(*retry_after))]
    Busy {
        /// How long the provider requests callers to wait. `None` if the provider did not report it.
        retry_after: Option<Duration>,
    },
    /// Shorten the input. The same request would fail again, but a request with fewer messages may succeed.
    #[error("the prompt of {sent} tokens is too long for the model{}", over(*limit))]
    TooLong {
        /// Tokens that were sent.
        sent: Tokens,
        /// Maximum number of tokens. `None` if the provider did not report it.
        limit: Option<Tokens>,
    },
    /// Call another model. Examples are a wrong key, missing credit, or content that this model rejects. Calling this
    /// model again does not help.
    #[error("the model refused: {reason}")]
    Refused {
        /// Why the model refused, in a few words.
        reason: String,
    },
    /// Call the model again later. Examples are a timeout, a broken connection, or an unreadable answer.
    #[error("no answer from the model: {reason}")]
    NoAnswer {
        /// What happened, in a few words.
        reason: String,
    },
}

impl ModelError {
    /// Creates [`ModelError::Refused`]. The reason is converted to one line and cut to 200 characters, and secrets in
    /// it are redacted.
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

    /// Creates [`ModelError::NoAnswer`]. The reason is shortened and redacted as in [`ModelError::refused`].
    pub fn no_answer(reason: &str) -> Self {
        Self::NoAnswer { reason: brief(reason) }
    }

    /// Returns a short word for records and metrics. New versions do not change these words.
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
