//! A model that follows a script, and a gate at which the model waits until the test opens the gate.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use epitome_core::inspect::Finish;
use epitome_core::message::{Message, Part, Tokens};
use epitome_core::redact::redact;
use epitome_core::slot::Limit;

use epitome::model::{Model, ModelError, Reply, SummaryRequest};
use tokio::sync::watch;

type ReplyFn = dyn Fn(&SummaryRequest) -> Result<Reply, ModelError> + Send + Sync;

/// A model for tests, demonstrations and users without an API key.
///
/// The model follows a script step by step and stores the requests. After the end of the script, each call returns a
/// short summary, which [`Scripted::plain`] writes. This summary is always the same for the same [`SummaryRequest`],
/// and it passes inspection if it saves tokens. [`Scripted::otherwise`] sets another answer for the time after the
/// script.
///
/// Clones share the script and the stored requests. So a test can pass one clone to the engine and query another
/// clone.
///
/// ```
/// use epitome::Message;
/// use epitome::rules::slot::Limit;
/// use epitome::rules::tokens::{Counter, Encoding};
/// use epitome::model::{SummaryRequest, Model, ModelError};
/// use epitome_testkit::scripted::Scripted;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), ModelError> {
/// let model = Scripted::new()
///     .fails(ModelError::Busy { retry_after: None })
///     .replies("Ann ordered tea.");
/// let mut said = Message::user("One pot of green tea for Ann, please, and one of black tea for Bob.");
/// said.seq = 40;
/// let ask = SummaryRequest::new([said.into()], Limit::Tokens(100), Counter::new(Encoding::O200k));
///
/// assert_eq!(model.write(&ask).await.unwrap_err().kind(), "busy");
/// assert_eq!(model.write(&ask).await?.text, "Ann ordered tea.");
/// assert_eq!(model.write(&ask).await?.text, "Summary of 1 message through 40.");
/// assert_eq!(model.calls(), 3);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Scripted {
    name: Arc<str>,
    room: Option<Tokens>,
    script: Arc<Mutex<ScriptState>>,
}

#[derive(Default)]
struct ScriptState {
    steps: VecDeque<ScriptStep>,
    otherwise: Option<Arc<ReplyFn>>,
    requests: Vec<SummaryRequest>,
}

enum ScriptStep {
    Sleep(Duration),
    Wait(Gate),
    Answer(Arc<ReplyFn>),
}

impl Scripted {
    /// Creates a model with an empty script, the name `scripted` and no window.
    pub fn new() -> Self {
        Self { name: "scripted".into(), room: None, script: Arc::default() }
    }

    /// Sets the name.
    pub fn named(self, name: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Sets the window for prompts, in tokens. The model only reports this window and does not reject larger prompts.
    pub fn with_room(self, room: Tokens) -> Self {
        Self { room: Some(room), ..self }
    }

    /// Adds a step that returns this text as a complete reply.
    pub fn replies(self, text: impl Into<String>) -> Self {
        let reply = Reply::complete(text);
        self.answers(move |_| Ok(reply.clone()))
    }

    /// Adds a step that returns this text as a reply that was cut off at the output limit.
    pub fn cut_off(self, text: impl Into<String>) -> Self {
        let reply = Reply { finish: Finish::Length, ..Reply::complete(text) };
        self.answers(move |_| Ok(reply.clone()))
    }

    /// Adds a step that fails with this error.
    pub fn fails(self, error: ModelError) -> Self {
        self.answers(move |_| Err(error.clone()))
    }

    /// Adds a step that returns the result of this function.
    pub fn answers(
        self,
        answer: impl Fn(&SummaryRequest) -> Result<Reply, ModelError> + Send + Sync + 'static,
    ) -> Self {
        self.then(ScriptStep::Answer(Arc::new(answer)))
    }

    /// Adds a step that waits for this duration. The same call then continues with the next step.
    pub fn waits(self, time: Duration) -> Self {
        self.then(ScriptStep::Sleep(time))
    }

    /// Adds a step that waits until the gate is open. The same call then continues with the next step.
    pub fn waits_for(self, gate: &Gate) -> Self {
        self.then(ScriptStep::Wait(gate.clone()))
    }

    /// Sets the function that answers all calls after the end of the script.
    pub fn otherwise(
        self,
        answer: impl Fn(&SummaryRequest) -> Result<Reply, ModelError> + Send + Sync + 'static,
    ) -> Self {
        self.script().otherwise = Some(Arc::new(answer));
        self
    }

    /// Lets all calls after the end of the script fail with this error, like calls to a provider that is down.
    pub fn otherwise_fails(self, error: ModelError) -> Self {
        self.otherwise(move |_| Err(error.clone()))
    }

    /// Returns all requests so far, oldest first.
    pub fn requests(&self) -> Vec<SummaryRequest> {
        self.script().requests.clone()
    }

    /// Returns the number of calls.
    pub fn calls(&self) -> usize {
        self.script().requests.len()
    }

    /// Returns the default summary. The summary contains the number of messages and the number of the last message.
    /// If there is enough space, it also contains the first words of the first message and of the last message.
    pub fn plain(ask: &SummaryRequest) -> Reply {
        let count = ask.message_count();
        let messages = if count == 1 { "message" } else { "messages" };
        let on = if ask.previous.is_some() { ", built on the summary before" } else { "" };
        let short = format!("Summary of {count} {messages} through {}{on}.", ask.through);
        let mut words = ask.inputs.iter().filter_map(|input| input.message()).filter_map(first_words);
        let long = words.next().map(|first| match words.next_back() {
            Some(last) => format!("{short} It began with “{first}” and ended with “{last}”."),
            None => format!("{short} It was “{first}”."),
        });
        let long = long.map(|long| if ask.redact { redact(&long).into_owned() } else { long });
        let fits = |text: &String| {
            let tokens = ask.counter.text(text);
            // The summary must be less than half as large as the text that it replaces. A summary that saves no
            // tokens is useless in a test.
            tokens < ask.replaces.div_ceil(2)
                && match ask.limit {
                    Limit::Tokens(limit) => tokens <= limit,
                    Limit::Chars(limit) => text.chars().count() as u64 <= limit,
                }
        };
        Reply::complete(long.filter(fits).unwrap_or(short))
    }

    fn then(self, step: ScriptStep) -> Self {
        self.script().steps.push_back(step);
        self
    }

    /// Locks the script. The lock is used even after a panic, because a panic cannot leave the script inconsistent.
    fn script(&self) -> MutexGuard<'_, ScriptState> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the steps of one call under one lock, so that two concurrent calls never share a step.
    fn next(&self, ask: &SummaryRequest) -> (Vec<ScriptStep>, Arc<ReplyFn>) {
        let mut script = self.script();
        script.requests.push(ask.clone());
        let mut waits = Vec::new();
        while let Some(step) = script.steps.pop_front() {
            match step {
                ScriptStep::Answer(answer) => return (waits, answer),
                ScriptStep::Sleep(_) | ScriptStep::Wait(_) => waits.push(step),
            }
        }
        let plain: Arc<ReplyFn> = Arc::new(|ask| Ok(Self::plain(ask)));
        (waits, script.otherwise.clone().unwrap_or(plain))
    }
}

impl Default for Scripted {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let script = self.script();
        f.debug_struct("Scripted")
            .field("name", &self.name)
            .field("steps", &script.steps.len())
            .field("calls", &script.requests.len())
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Model for Scripted {
    fn name(&self) -> &str {
        &self.name
    }

    fn room(&self) -> Option<Tokens> {
        self.room
    }

    async fn write(&self, ask: &SummaryRequest) -> Result<Reply, ModelError> {
        let (waits, answer) = self.next(ask);
        for wait in waits {
            match wait {
                ScriptStep::Sleep(time) => tokio::time::sleep(time).await,
                ScriptStep::Wait(gate) => gate.pass().await,
                ScriptStep::Answer(_) => {}
            }
        }
        answer(ask)
    }
}

/// Returns the first words of a message's text.
fn first_words(message: &Message) -> Option<String> {
    if message.skip {
        return None;
    }
    let text = message.parts.iter().find_map(|part| match part {
        Part::Text { text } if !text.trim().is_empty() => Some(text.as_str()),
        _ => None,
    })?;
    Some(text.split_whitespace().take(6).collect::<Vec<_>>().join(" ").chars().take(60).collect())
}

/// A gate at which a scripted model waits. All clones represent the same gate.
///
/// ```
/// use epitome::rules::slot::Limit;
/// use epitome::rules::tokens::{Counter, Encoding};
/// use epitome::model::{SummaryRequest, Model};
/// use epitome_testkit::scripted::{Gate, Scripted};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let gate = Gate::new();
/// let model = Scripted::new().waits_for(&gate).replies("At last.");
/// let ask = SummaryRequest::new([], Limit::Tokens(100), Counter::new(Encoding::O200k));
/// let writing = tokio::spawn(async move { model.write(&ask).await });
/// gate.reached().await; // the model was called, and waits at the gate
/// gate.open();
/// assert_eq!(writing.await??.text, "At last.");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Gate {
    open: Arc<watch::Sender<bool>>,
    reached: Arc<watch::Sender<bool>>,
}

impl Gate {
    /// Creates a closed gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Opens the gate for all waiting calls and for all later calls.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until a call has reached the gate.
    pub async fn reached(&self) {
        wait_for(&self.reached).await;
    }

    async fn pass(&self) {
        self.reached.send_replace(true);
        wait_for(&self.open).await;
    }
}

async fn wait_for(sign: &watch::Sender<bool>) {
    // Waiting fails only if the sender was dropped, and `sign` is the sender.
    let _ = sign.subscribe().wait_for(|value| *value).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use epitome::model::SummaryInput;
    use epitome_core::inspect::{Standard, inspect};
    use epitome_core::tokens::{Counter, Encoding};

    fn ask(count: u64) -> SummaryRequest {
        let said: Vec<SummaryInput> = (1..=count)
            .map(|seq| {
                let mut message = Message::user(format!("What about order {seq}, when will it be in Oslo?"));
                message.seq = seq;
                message.into()
            })
            .collect();
        SummaryRequest::new(said, Limit::Tokens(200), Counter::new(Encoding::O200k))
    }

    #[tokio::test]
    async fn its_own_summary_passes_inspection_and_differs_from_the_one_before() {
        let model = Scripted::new();
        let mut prior: Option<String> = None;
        for through in [20, 40, 60] {
            let ask = SummaryRequest { through, previous: prior.as_deref().map(Into::into), ..ask(20) };
            let reply = model.write(&ask).await.unwrap();
            let standard = Standard {
                limit: ask.limit,
                replaces: ask.replaces,
                prior: prior.as_deref(),
                names: &[],
                counter: &ask.counter,
                redact: true,
            };
            let kept = inspect(&reply.text, reply.finish, &standard).unwrap();
            assert_eq!(kept.text, reply.text);
            prior = Some(kept.text);
        }
        assert_eq!(
            prior.unwrap(),
            "Summary of 20 messages through 60, built on the summary before. \
             It began with “What about order 1, when will” and ended with “What about order 20, when will”."
        );
    }

    #[tokio::test]
    async fn secrets_do_not_get_into_its_own_summary() {
        let mut said: Vec<SummaryInput> = ask(20).inputs.to_vec();
        said.push(Message::user("My password is hunter22.").into());
        let ask = SummaryRequest::new(said, Limit::Tokens(200), Counter::new(Encoding::O200k));
        assert!(!Scripted::plain(&ask).text.contains("hunter22"));
    }

    #[tokio::test]
    async fn steps_are_worked_off_in_order_and_then_it_does_otherwise() {
        let down = ModelError::no_answer("down");
        let model = Scripted::new()
            .named("cheap")
            .with_room(8_000)
            .cut_off("Ann ordered")
            .answers(|ask| Ok(Reply::complete(format!("{} messages", ask.message_count()))))
            .otherwise_fails(down.clone());
        assert_eq!((model.name(), model.room()), ("cheap", Some(8_000)));
        let ask = ask(3);
        assert_eq!(model.write(&ask).await.unwrap().finish, Finish::Length);
        assert_eq!(model.write(&ask).await.unwrap().text, "3 messages");
        for _ in 0..3 {
            assert_eq!(model.write(&ask).await.unwrap_err(), down);
        }
        // A step can be added at any time, through any clone.
        let _ = model.clone().replies("Up again.");
        assert_eq!(model.write(&ask).await.unwrap().text, "Up again.");
        assert_eq!((model.calls(), model.requests().len(), model.requests()[0].message_count()), (6, 6, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn it_waits_and_goes_on() {
        let start = tokio::time::Instant::now();
        let model = Scripted::new().waits(Duration::from_secs(90)).replies("Late.");
        assert_eq!(model.write(&ask(1)).await.unwrap().text, "Late.");
        assert_eq!(start.elapsed(), Duration::from_secs(90));
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_gate_holds_one_call_and_not_the_next() {
        let gate = Gate::new();
        let model = Scripted::new().waits_for(&gate).replies("First.").replies("Second.");
        let held = tokio::spawn({
            let model = model.clone();
            async move { model.write(&ask(1)).await }
        });
        gate.reached().await;
        assert_eq!(model.write(&ask(1)).await.unwrap().text, "Second.");
        assert!(!held.is_finished());
        gate.open();
        assert_eq!(held.await.unwrap().unwrap().text, "First.");
    }
}
