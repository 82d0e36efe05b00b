//! What a program may do before and after messages leave the window.
//!
//! A [`Hook`] is shown what is about to be summarized, so that a memory can take what it wants, and is
//! told afterwards what was done. It can add to a summary's prompt and nothing else: a hook that fails,
//! panics or takes too long harms nothing, and the summary is written without it.
//!
//! [`Hooks`] runs them, each in a task of its own, all at once. What went wrong is given back as short
//! lines for a log.

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
use crate::event::{Happened, MessagesCondensed};
use crate::hidden::Hidden;

/// So much of what hooks add goes into a prompt, in characters.
pub const MOST_ADDED: usize = 4_000;

/// So long a hook is waited for, unless told otherwise.
pub const TIME_OUT: Duration = Duration::from_secs(5);

/// Something to be done before and after a condensation.
///
/// It should give way while it waits: a hook that blocks its thread cannot be stopped.
///
/// ```
/// use async_trait::async_trait;
/// use epitome::rules::message::{Message, Span};
/// use epitome::hook::{Hook, HookError, Hooks, Leaving};
///
/// struct Names;
///
/// #[async_trait]
/// impl Hook for Names {
///     async fn before(&self, leaving: &Leaving) -> Result<Option<String>, HookError> {
///         Ok(Some(format!("Ann is Ann Lee. These are {} messages.", leaving.messages.len())))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let hooks = Hooks::new().with(Names);
/// let leaving = Leaving {
///     workspace: "home".into(),
///     session: "s1".into(),
///     slot: "short".into(),
///     scope: None,
///     span: Span { from: 1, through: 1 },
///     messages: [Message::user("Ask Ann.")].into(),
/// };
/// let added = hooks.before(&leaving).await;
/// assert_eq!(added.text, "Ann is Ann Lee. These are 1 messages.");
/// assert!(added.problems.is_empty());
/// # }
/// ```
#[async_trait]
pub trait Hook: Send + Sync + 'static {
    /// What it is called where something went wrong.
    fn name(&self) -> &str {
        "hook"
    }

    /// What is about to leave the window. Text it returns is added to the prompt.
    async fn before(&self, leaving: &Leaving) -> Result<Option<String>, HookError> {
        let _ = leaving;
        Ok(None)
    }

    /// What was done.
    async fn after(&self, done: &Condensed) -> Result<(), HookError> {
        let _ = done;
        Ok(())
    }
}

/// What is about to leave the window. Cheap to clone, so that a hook can go on with it elsewhere.
#[derive(Debug, Clone)]
pub struct Leaving {
    /// Whose session.
    pub workspace: Arc<str>,
    /// Which session.
    pub session: Arc<str>,
    /// Which slot is due.
    pub slot: Arc<str>,
    /// Whose messages it covers; everybody's where it is `None`.
    pub scope: Option<Author>,
    /// From where to where they reach.
    pub span: Span,
    /// The messages themselves, as they are in the log, but for the bytes of pictures and the like: those can be
    /// read from the log by their place.
    pub messages: Arc<[Message]>,
}

/// What was done: so many messages became a summary.
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
    /// Whose session.
    pub workspace: Arc<str>,
    /// Which session.
    pub session: Arc<str>,
    /// Which slot.
    pub slot: Arc<str>,
    /// Whose messages it covers; everybody's where it is `None`.
    pub scope: Option<Author>,
    /// What the summary stands for now.
    pub covers: Span,
    /// How many messages it took in this time.
    pub messages: u64,
    /// The size of what it replaces: those messages, and the summary before.
    pub tokens_before: Tokens,
    /// Its own size.
    pub tokens_after: Tokens,
    /// Who wrote it.
    pub model: Arc<str>,
    /// Whether it only stands in until a model can be asked again.
    pub stand_in: bool,
}

impl Condensed {
    /// The same in the fewest words, without sizes.
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

/// Why a hook did not do its work. It is logged: put no word of the conversation into it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct HookError {
    reason: String,
}

impl HookError {
    /// With a reason of one line, of which 200 characters are kept, without secrets.
    pub fn new(reason: &str) -> Self {
        Self { reason: brief(reason) }
    }
}

/// What hooks had to say before a condensation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Added {
    /// What is added to the prompt, of [`MOST_ADDED`] characters at most; empty where nobody said
    /// anything.
    pub text: String,
    /// What went wrong, a short line each, for a log.
    pub problems: Vec<String>,
}

/// A hook and its name, which is asked for once: nothing of a hook runs outside its task.
type Named = (Arc<str>, Hidden<Arc<dyn Hook>>);

/// Runs hooks so that none of them can harm.
#[derive(Debug, Clone)]
pub struct Hooks {
    hooks: Vec<Named>,
    time_out: Duration,
}

impl Hooks {
    /// None yet.
    pub fn new() -> Self {
        Self { hooks: Vec::new(), time_out: TIME_OUT }
    }

    /// With one more.
    pub fn with(mut self, hook: impl Hook) -> Self {
        self.hooks.push((hook.name().into(), Hidden(Arc::new(hook))));
        self
    }

    /// Waits so long for all of them together, in place of [`TIME_OUT`].
    pub fn with_time_out(self, time_out: Duration) -> Self {
        Self { time_out, ..self }
    }

    /// Whether there are none. Then nothing needs to be made ready for them.
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    /// Shows them what is about to leave, and gathers what they add, in their order.
    pub async fn before(&self, leaving: &Leaving) -> Added {
        let (said, problems) = self
            .run("before", |hook| {
                let leaving = leaving.clone();
                async move { hook.before(&leaving).await }
            })
            .await;
        let said: Vec<String> = said.into_iter().flatten().collect();
        let texts: Vec<&str> = said.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
        let text: String = texts.join("\n\n").chars().take(MOST_ADDED).collect();
        Added { text, problems }
    }

    /// Tells them what was done. What went wrong is given back, a short line each.
    pub async fn after(&self, done: &Condensed) -> Vec<String> {
        let run = self.run("after", |hook| {
            let done = done.clone();
            async move { hook.after(&done).await }
        });
        run.await.1
    }

    /// Starts all, then waits for each until the time is up.
    async fn run<T, F>(&self, when: &str, start: impl Fn(Arc<dyn Hook>) -> F) -> (Vec<T>, Vec<String>)
    where
        T: Send + 'static,
        F: Future<Output = Result<T, HookError>> + Send + 'static,
    {
        let until = Instant::now().checked_add(self.time_out);
        let running: Vec<(&str, Running<Result<T, HookError>>)> = self
            .hooks
            .iter()
            .map(|(name, hook)| (&**name, Running(tokio::spawn(start(Arc::clone(hook))))))
            .collect();
        let (mut done, mut problems) = (Vec::new(), Vec::new());
        for (name, mut running) in running {
            let ended = match until {
                Some(until) => timeout_at(until, &mut running.0).await,
                // So late that it never comes.
                None => Ok((&mut running.0).await),
            };
            let problem = match ended {
                Ok(Ok(Ok(value))) => {
                    done.push(value);
                    continue;
                }
                Ok(Ok(Err(error))) => error.to_string(),
                // What it panicked with may hold anything, so it is not repeated.
                Ok(Err(stopped)) if stopped.is_panic() => "panicked".to_owned(),
                Ok(Err(_)) => "was stopped".to_owned(),
                Err(_) => format!("took longer than {:?}", self.time_out),
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

/// A task that ends when nobody waits for it any more.
pub(crate) struct Running<T>(pub(crate) JoinHandle<T>);

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl From<&Condensed> for Happened {
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
