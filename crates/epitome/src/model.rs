//! Whoever writes summaries, behind one door.
//!
//! A [`Model`] is given an [`Ask`], which holds all there is to know about the summary to be written,
//! and gives a [`Reply`] or one of four errors, sorted by what happens next. A provider makes a prompt
//! of the ask with [`Ask::prompt`], as `Remote` does over a network (feature `providers`); [`Local`] reads the messages
//! themselves and needs no prompt.
//!
//! A model judges nothing. Whether its text may be kept is [`epitome_core::inspect`]'s matter, which
//! model is asked next and when is the worker's. It knows neither stores nor sessions.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use epitome_core::inspect::{Finish, Refusal};
use epitome_core::local::Extracts;
use epitome_core::message::{Author, Message, Seq, Tokens};
use epitome_core::prompt::{self, Input, Prompt, PromptError, Said, Template};
use epitome_core::slot::Limit;
use epitome_core::tokens::Counter;

use crate::brief::brief;

mod local;
#[cfg(feature = "providers")]
mod remote;
// Tests have both.
#[cfg(any(test, not(feature = "providers")))]
mod without_providers;

/// The shipped table of models: how much they read and write, and what they cost.
pub mod table {
    pub use crate::table::*;
}

pub use local::Local;
#[cfg(feature = "providers")]
pub(crate) use remote::of_settings;
#[cfg(feature = "providers")]
pub use remote::{CheckError, Checked, Credentials, Lender, Remote, Wrong, check, speak_tls};
#[cfg(not(feature = "providers"))]
pub(crate) use without_providers::of_settings;

pub use epitome_wire::{Tally, TooLong, too_long};

/// Somebody who writes summaries.
#[async_trait]
pub trait Model: Send + Sync + 'static {
    /// What is recorded as the writer.
    fn name(&self) -> &str;

    /// Its window less its output reserve, where known: how large a prompt may be.
    fn room(&self) -> Option<Tokens>;

    /// Whom it is asked of. Models of one provider fail together, and are left alone together.
    fn provider(&self) -> &str {
        self.name()
    }

    /// How long one call of it may take, where that is not the engine's `Pace::time_out`.
    fn time_out(&self) -> Option<Duration> {
        None
    }

    /// Whether an answer that was kept may be given again to the very same question, without asking: worth it where
    /// asking costs time or money.
    fn reusable(&self) -> bool {
        false
    }

    /// Whether it is the one that is built in, whatever it is called: it costs nothing and cannot fail for long.
    #[doc(hidden)]
    fn is_built_in(&self) -> bool {
        false
    }

    /// Writes one summary. Whoever calls may stop waiting at any time; what was begun is then dropped. It must
    /// not block its thread: no time-out reaches a model that does.
    async fn write(&self, ask: &Ask) -> Result<Reply, ModelError>;
}

/// What is to be summarized, and how.
///
/// Cheap to clone, so that it can go to another thread and to the next model in the list.
///
/// ```
/// use epitome::Message;
/// use epitome::rules::slot::Limit;
/// use epitome::rules::tokens::{Counter, Encoding};
/// use epitome::model::{Ask, Told};
///
/// let mut asked = Message::user("Ship it on 14 March.");
/// asked.seq = 7;
/// let ask = Ask::new([Told::Message(asked)], Limit::Tokens(100), Counter::new(Encoding::O200k));
/// assert_eq!((ask.through, ask.messages()), (7, 1));
/// assert!(ask.prompt(8_000)?.user.contains("[7] user: Ship it on 14 March."));
/// # Ok::<(), epitome::rules::prompt::PromptError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Ask {
    /// What the summary should hold.
    pub template: Arc<Template>,
    /// The summary that stood before; the new one is to take it in.
    pub previous: Option<Arc<str>>,
    /// What `local` made the previous summary of, where it did.
    pub extracts: Option<Arc<Extracts>>,
    /// What was said since, in order.
    pub said: Arc<[Told]>,
    /// The last message the summary will stand for.
    pub through: Seq,
    /// How large the summary may be.
    pub limit: Limit,
    /// The operator's own instructions, passed on as they are.
    pub instructions: Arc<str>,
    /// What whoever asked for this summary cares about most.
    pub focus: Arc<str>,
    /// What was wrong with the last answer to the same ask.
    pub refused: Option<Refusal>,
    /// The tokens of what the summary stands for: the messages, and the summary before. It must be
    /// smaller.
    pub replaces: Tokens,
    /// How tokens are counted.
    pub counter: Counter,
    /// Whether secrets are taken out.
    pub redact: bool,
}

impl Ask {
    /// For what was said, with the general template, nothing before it and secrets taken out. What it
    /// replaces is counted; whoever adds a previous summary adds its tokens too.
    pub fn new(said: impl Into<Arc<[Told]>>, limit: Limit, counter: Counter) -> Self {
        let said = said.into();
        let seqs = said.iter().filter_map(|told| told.message().map(|message| message.seq));
        let replaces = said.iter().fold(0, |sum: Tokens, told| {
            sum.saturating_add(match told {
                Told::Message(message) => counter.message(message),
                Told::Summary { text, .. } => counter.text(text),
            })
        });
        Self {
            template: Arc::new(Template::default()),
            previous: None,
            extracts: None,
            through: seqs.max().unwrap_or(0),
            said,
            limit,
            instructions: "".into(),
            focus: "".into(),
            refused: None,
            replaces,
            counter,
            redact: true,
        }
    }

    /// How many messages there are to summarize, skipped ones and authors' summaries not counted.
    pub fn messages(&self) -> usize {
        self.said.iter().filter(|told| told.message().is_some_and(|message| !message.skip)).count()
    }

    /// What a language model is asked, in at most `room` tokens.
    pub fn prompt(&self, room: Tokens) -> Result<Prompt, PromptError> {
        let said: Vec<Said<'_>> = self.said.iter().map(Told::said).collect();
        prompt::prompt(&Input {
            template: &self.template,
            previous: self.previous.as_deref(),
            said: &said,
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

/// Something the summarizer is shown, in the conversation's order: [`Said`], holding its own words.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    /// A message.
    Message(Message),
    /// An author's own summary, in place of the messages it covers.
    Summary {
        /// Whose messages it stands for.
        author: Author,
        /// Its text.
        text: String,
    },
}

impl Told {
    /// The same, borrowed.
    pub fn said(&self) -> Said<'_> {
        match self {
            Self::Message(message) => Said::Message(message),
            Self::Summary { author, text } => Said::Summary { author, text },
        }
    }

    /// The message, where it is one.
    pub fn message(&self) -> Option<&Message> {
        match self {
            Self::Message(message) => Some(message),
            Self::Summary { .. } => None,
        }
    }
}

impl From<Message> for Told {
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
    /// What the provider says it counted. Nobody counts what costs nothing.
    pub tally: Option<Tally>,
    /// What the next local summary can be built on. Only `local` gives them.
    pub extracts: Option<Extracts>,
}

impl Reply {
    /// A text that came to its end, with nothing more known of it.
    pub fn complete(text: impl Into<String>) -> Self {
        Self { text: text.into(), finish: Finish::Complete, tally: None, extracts: None }
    }
}

/// Why there is no reply, sorted by what happens next: wait, shorten, try another, try again later.
///
/// Every provider maps its failures onto these four, and the worker matches on them without a
/// wildcard, so a fifth cannot be added without deciding what becomes of the work.
///
/// Errors are recorded and logged. Make them with [`ModelError::refused`] and
/// [`ModelError::no_answer`], which keep them short and take out keys, and never put what was said in
/// the conversation into a reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// Wait: the same ask may be made again, not sooner than `retry_after`.
    #[error("the model is busy{}", after(*retry_after))]
    Busy {
        /// How long the provider wants to be left alone, where it says.
        retry_after: Option<Duration>,
    },
    /// Shorten: the same ask will fail again, one of fewer messages may not.
    #[error("the prompt of {sent} tokens is too long for the model{}", over(*limit))]
    TooLong {
        /// How much was sent.
        sent: Tokens,
        /// How much is allowed, where the provider says.
        limit: Option<Tokens>,
    },
    /// Try another model: a wrong key, no credit, content this one will not read. It will not change
    /// its mind.
    #[error("the model refused: {reason}")]
    Refused {
        /// Why, in a few words.
        reason: String,
    },
    /// Give up for now: time ran out, the connection broke, the answer could not be read. Later it may
    /// work.
    #[error("no answer from the model: {reason}")]
    NoAnswer {
        /// What happened, in a few words.
        reason: String,
    },
}

impl ModelError {
    /// [`ModelError::Refused`], with a reason fit to be recorded: one line, at most 200 characters,
    /// without secrets.
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

    /// [`ModelError::NoAnswer`], with a reason fit to be recorded in the same way.
    pub fn no_answer(reason: &str) -> Self {
        Self::NoAnswer { reason: brief(reason) }
    }

    /// A short word for records and metrics. It never changes.
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
    retry_after.map_or_else(String::new, |wait| format!("; it asks to wait {wait:?}"))
}

fn over(limit: Option<Tokens>) -> String {
    limit.map_or_else(String::new, |limit| format!("; {limit} are allowed"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use epitome_core::tokens::Encoding;

    #[test]
    fn errors_say_what_happened_and_what_may_be_done() {
        let shown = |error: ModelError| (error.kind(), error.to_string());
        assert_eq!(shown(ModelError::Busy { retry_after: None }), ("busy", "the model is busy".to_owned()));
        assert_eq!(
            shown(ModelError::Busy { retry_after: Some(Duration::from_secs(20)) }).1,
            "the model is busy; it asks to wait 20s"
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
    fn a_prompt_holds_everything_the_ask_does() {
        let mut message = Message::user("Move it to Friday.");
        message.seq = 12;
        let told = Told::Summary { author: "planner".into(), text: "Looked at three dates.".to_owned() };
        let counter = Counter::new(Encoding::O200k);
        let ask = Ask {
            previous: Some("Ann wants a release.".into()),
            instructions: "Name every date.".into(),
            focus: "the release".into(),
            refused: Some(Refusal::CutOff),
            ..Ask::new([told, message.into()], Limit::Tokens(200), counter)
        };
        let prompt = ask.prompt(8_000).unwrap();
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
        assert!(ask.prompt(50).is_err());
    }

    #[test]
    fn an_ask_of_nothing_is_an_ask() {
        let ask = Ask::new([], Limit::Tokens(200), Counter::new(Encoding::O200k));
        assert_eq!((ask.through, ask.replaces, ask.messages()), (0, 0, 0));
    }
}
