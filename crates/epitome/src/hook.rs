//! Hooks: code that a program adds, to run before and after messages are summarized.
//!
//! Before messages are summarized, a [`Hook`] receives them. For example, a memory system can extract facts from them.
//! After the summary is finished, the hook is notified. A hook can add text to the prompt of the summary, and can
//! change nothing else. If a hook fails, panics or takes too long, the summary is written without the hook's text.
//!
//! [`Hooks`] runs all hooks at the same time, each in its own task. For each problem, it returns one short line for a
//! log.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use epitome_core::message::{Author, Message, Span, Tokens};
pub(crate) use epitome_core::trigger::grouped;
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use crate::brief::brief;
use crate::event::{EventBody, MessagesCondensed};
use crate::hidden::Hidden;

/// Maximum length of the text that hooks add to a prompt, in characters.
pub const MAX_ADDED_CHARS: usize = 4_000;

/// Default time limit for all hooks together.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Code to run before and after messages are summarized.
///
/// A hook must not block its thread, because a blocked thread cannot be stopped.
///
/// ```
/// use async_trait::async_trait;
/// use epitome::rules::message::{Message, Span};
/// use epitome::hook::{Hook, HookError, Hooks, DueMessages};
///
/// struct Names;
///
/// #[async_trait]
/// impl Hook for Names {
///     async fn before(&self, due: &DueMessages) -> Result<Option<String>, HookError> {
///         Ok(Some(format!("Ann is Ann Lee. These are {} messages.", due.messages.len())))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let hooks = Hooks::new().with(Names);
/// let due = DueMessages {
///     workspace: "home".into(),
///     session: "s1".into(),
///     slot: "short".into(),
///     scope: None,
///     span: Span { from: 1, through: 1 },
///     messages: [Message::user("Ask Ann.")].into(),
/// };
/// let added = hooks.before(&due).await;
/// assert_eq!(added.text, "Ann is Ann Lee. These are 1 messages.");
/// assert!(added.problems.is_empty());
/// # }
/// ```
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// Name of the hook, used in problem reports.
    fn name(&self) -> &str {
        "hook"
    }

    /// Called before messages are summarized. The returned text is added to the prompt. `None` adds nothing.
    async fn before(&self, due: &DueMessages) -> Result<Option<String>, HookError> {
        let _ = due;
        Ok(None)
    }

    /// Called after the summary was stored, or inserted into a message list.
    async fn after(&self, done: &Condensed) -> Result<(), HookError> {
        let _ = done;
        Ok(())
    }
}

/// Messages that are about to be summarized. This value is cheap to clone, so a hook can send it to another task.
#[derive(Debug, Clone)]
pub struct DueMessages {
    /// The workspace.
    pub workspace: Arc<str>,
    /// The session.
    pub session: Arc<str>,
    /// The slot that is due.
    pub slot: Arc<str>,
    /// The author whose messages the slot covers; `None` for all messages.
    pub scope: Option<Author>,
    /// Positions of the first and the last of the messages.
    pub span: Span,
    /// The messages as stored, but without the bytes of images and other media. To get these bytes, read the messages
    /// from the session by their sequence numbers.
    pub messages: Arc<[Message]>,
}

/// The facts that hooks receive about a finished summary: the messages that it covers, and the sizes.
///
/// ```
/// use epitome::rules::message::Span;
/// use epitome::hook::Condensed;
///
/// let done = Condensed {
///     workspace: "home".into(),
///     session: "s1".into(),
///     slot: "short".into(),
///     scope: None,
///     covers: Span { from: 1, through: 160 },
///     messages: 45,
///     tokens_before: 31_200,
///     tokens_after: 2_400,
///     model: "local".into(),
///     stand_in: false,
/// };
/// assert_eq!(done.notice(), "Condensed 45 messages into a summary");
/// assert_eq!(done.to_string(), "Condensed 45 messages into a summary, 31,200 → 2,400 tokens");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condensed {
    /// The workspace.
    pub workspace: Arc<str>,
    /// The session.
    pub session: Arc<str>,
    /// The slot.
    pub slot: Arc<str>,
    /// The author whose messages the slot covers; `None` for all messages.
    pub scope: Option<Author>,
    /// The first and the last message that the summary covers.
    pub covers: Span,
    /// Number of messages that this summary covers and the previous summary did not.
    pub messages: u64,
    /// Number of tokens that the summary replaces: the tokens of these messages and of the previous summary. If a
    /// message list was condensed, this is the number of tokens of the whole request before the condensation.
    pub tokens_before: Tokens,
    /// Number of tokens of the summary. If a message list was condensed, this is the number of tokens of the whole
    /// request after the condensation.
    pub tokens_after: Tokens,
    /// The model that wrote the summary. Empty if a message list was condensed without a new summary.
    pub model: Arc<str>,
    /// Whether the summary is a fallback summary, which is in use until a model answers again.
    pub stand_in: bool,
}

impl Condensed {
    /// Returns a short notice for people, without sizes.
    pub fn notice(&self) -> String {
        let messages = if self.messages == 1 { "message" } else { "messages" };
        format!("Condensed {} {messages} into a summary", grouped(self.messages))
    }
}

impl fmt::Display for Condensed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, {} → {} tokens",
            self.notice(),
            grouped(self.tokens_before),
            grouped(self.tokens_after),
        )
    }
}

/// Why a hook failed. The reason is logged, so do not put text of messages into it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct HookError {
    reason: String,
}

impl HookError {
    /// Creates an error. The reason is converted to one line and cut to 200 characters, and secrets in it are redacted.
    pub fn new(reason: &str) -> Self {
        Self { reason: brief(reason) }
    }
}

/// What the hooks returned before a summary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HookOutput {
    /// Text for the prompt, at most [`MAX_ADDED_CHARS`] characters. Empty if no hook returned text.
    pub text: String,
    /// For each problem, one short line for a log.
    pub problems: Vec<String>,
}

/// A hook with its name. The name is read once, when the hook is added. After that, all code of the hook runs in the
/// hook's own task.
type NamedHook = (Arc<str>, Hidden<Arc<dyn Hook>>);

/// Runs hooks so that a faulty hook cannot stop the summary or other hooks.
#[derive(Debug, Clone)]
pub struct Hooks {
    hooks: Vec<NamedHook>,
    timeout: Duration,
}

impl Hooks {
    /// Returns an empty set of hooks.
    pub fn new() -> Self {
        Self { hooks: Vec::new(), timeout: DEFAULT_TIMEOUT }
    }

    /// Adds a hook.
    pub fn with(mut self, hook: impl Hook) -> Self {
        self.hooks.push((hook.name().into(), Hidden(Arc::new(hook))));
        self
    }

    /// Sets how long all hooks together may take, instead of [`DEFAULT_TIMEOUT`].
    pub fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Returns whether there are no hooks. If so, callers need not prepare messages for them.
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Passes the messages to the hooks, and joins the texts that they return, in the order of the hooks.
    pub async fn before(&self, due: &DueMessages) -> HookOutput {
        let (added, problems) = self
            .run("before", |hook| {
                let due = due.clone();
                async move { hook.before(&due).await }
            })
            .await;
        let added: Vec<String> = added.into_iter().flatten().collect();
        let texts: Vec<&str> = added.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
        let text: String = texts.join("\n\n").chars().take(MAX_ADDED_CHARS).collect();
        HookOutput { text, problems }
    }

    /// Notifies the hooks of a finished summary. Returns one short line for each problem.
    pub async fn after(&self, done: &Condensed) -> Vec<String> {
        let run = self.run("after", |hook| {
            let done = done.clone();
            async move { hook.after(&done).await }
        });
        run.await.1
    }

    /// Starts all hooks, then waits for each one until the timeout.
    async fn run<T, F>(&self, when: &str, start: impl Fn(Arc<dyn Hook>) -> F) -> (Vec<T>, Vec<String>)
    where
        T: Send + 'static,
        F: Future<Output = Result<T, HookError>> + Send + 'static,
    {
        let until = Instant::now().checked_add(self.timeout);
        let running: Vec<(&str, AbortOnDrop<Result<T, HookError>>)> = self
            .hooks
            .iter()
            .map(|(name, hook)| (&**name, AbortOnDrop(tokio::spawn(start(Arc::clone(hook))))))
            .collect();
        let (mut done, mut problems) = (Vec::new(), Vec::new());
        for (name, mut running) in running {
            let ended = match until {
                Some(until) => timeout_at(until, &mut running.0).await,
                // The timeout is too far in the future to be computed.
                None => Ok((&mut running.0).await),
            };
            let problem = match ended {
                Ok(Ok(Ok(value))) => {
                    done.push(value);
                    continue;
                }
                Ok(Ok(Err(error))) => error.to_string(),
                // The panic message may contain any text, so it is not included.
                Ok(Err(stopped)) if stopped.is_panic() => "panicked".to_owned(),
                Ok(Err(_)) => "was stopped".to_owned(),
                Err(_) => format!("took longer than {:?}", self.timeout),
            };
            problems.push(format!("{} ({when}): {problem}", brief(name)));
        }
        (done, problems)
    }
}

impl Default for Hooks {
    fn default() -> Self {
        Self::new()
    }
}

/// A task that is aborted when this handle is dropped, that is, when no caller waits for it any more.
pub(crate) struct AbortOnDrop<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl From<&Condensed> for EventBody {
    fn from(done: &Condensed) -> Self {
        Self::Condensed(MessagesCondensed {
            slot: Arc::clone(&done.slot),
            scope: done.scope.clone(),
            covers: [done.covers.from, done.covers.through],
            messages: done.messages,
            tokens_before: done.tokens_before,
            tokens_after: done.tokens_after,
            model: Arc::clone(&done.model),
            stand_in: done.stand_in,
            notice: done.notice(),
        })
    }
}

#[cfg(test)]
mod tests;
