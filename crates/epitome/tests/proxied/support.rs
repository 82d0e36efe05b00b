//! Helpers of all tests here: engines on one store, callers, messages with unique words, and strict validators.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use epitome::dialect::Dialect;
use epitome::inline::{Caller, ProxiedList};
use epitome::model::{Model, ModelError, Reply, SummaryRequest};
use epitome::rules::message::{Content, Message, Part, Tokens};
use epitome::rules::view::recognise;
use epitome::{Call, Condenser, CondenserBuilder, Engine, Workspace};
use epitome_testkit::drawing::word_counter;
use serde_json::Value;

use crate::judges;

pub(crate) use crate::home::{Home, alone, store, world_count, zeros};

/// A test that takes this long hangs.
pub(crate) const TOO_LONG: Duration = Duration::from_secs(60);

pub(crate) const ANN: Caller<'static> = Caller { id: b"ann", session: None, wire: "openai" };
pub(crate) const BOB: Caller<'static> = Caller { id: b"bob", ..ANN };

/// Condenses at 12 messages, and keeps 4.
pub(crate) const TWELVE: &str = r#""trigger": "messages(12)", "keep": "messages(4)""#;

/// Opens an engine on a database that other engines may open too.
pub(crate) async fn open(home: &Home) -> Engine {
    home.open(Engine::builder().workers(0)).await
}

/// Opens an engine with default settings on a database that is not opened again.
pub(crate) async fn plain() -> Engine {
    alone(Engine::builder()).await
}

/// Returns a builder of a workspace's condenser that counts words, with these settings of `condense`.
pub(crate) async fn builder(workspace: &Workspace, condense: &str) -> CondenserBuilder {
    let settings = format!(r#"{{"condense": {{{condense}}}}}"#);
    workspace.condenser().await.unwrap().counter(word_counter()).settings(&settings)
}

pub(crate) async fn condenser(workspace: &Workspace, condense: &str) -> Condenser {
    builder(workspace, condense).await.build().unwrap()
}

/// A workspace with one condenser.
pub(crate) struct Proxy {
    pub(crate) workspace: Workspace,
    pub(crate) condenser: Condenser,
}

impl Proxy {
    pub(crate) async fn new(engine: &Engine, workspace: &str, condense: &str) -> Self {
        let workspace = engine.workspace(workspace);
        let condenser = condenser(&workspace, condense).await;
        Self { workspace, condenser }
    }

    pub(crate) async fn before<'a>(&self, caller: &Caller<'_>, list: &'a [Message]) -> ProxiedList<'a> {
        self.call(caller, Call::of(list)).await
    }

    pub(crate) async fn call<'a>(&self, caller: &Caller<'_>, call: Call<'a>) -> ProxiedList<'a> {
        self.workspace.inline().before(&self.condenser, caller, call).await
    }
}

/// Returns the message at position `n` of the conversation `of`: no other message has the same text.
pub(crate) fn said(of: &str, n: usize) -> Message {
    let text =
        format!("mk{of}{n}x is what was said at this place, among other things that nobody needs to know");
    if n % 2 == 1 { Message::user(text) } else { Message::assistant(text) }
}

/// Returns the first `len` messages of a conversation.
pub(crate) fn talk(of: &str, len: usize) -> Vec<Message> {
    (1..=len).map(|n| said(of, n)).collect()
}

/// Returns the messages of a conversation that begins with the first `shared` messages of another.
pub(crate) fn fork(from: &str, shared: usize, of: &str, len: usize) -> Vec<Message> {
    (1..=len).map(|n| said(if n <= shared { from } else { of }, n)).collect()
}

/// Returns every text in these messages.
pub(crate) fn texts(messages: &[Message]) -> String {
    let mut out = String::new();
    for part in messages.iter().flat_map(|message| &message.parts) {
        match part {
            Part::Text { text } | Part::Thinking { text, .. } => out.push_str(text),
            Part::ToolCall(call) => out.push_str(&call.arguments),
            Part::ToolResult(result) => {
                for content in &result.content {
                    if let Content::Text { text } = content {
                        out.push_str(text);
                    }
                }
            }
            Part::Media(_) => {}
        }
        out.push('\n');
    }
    out
}

/// Returns the words that identify messages, `mk…x`, or summaries, `sum…x`.
pub(crate) fn marks(text: &str, kind: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter(|word| word.starts_with(kind) && word.ends_with('x')).map(str::to_owned).collect()
}

pub(crate) fn summary(messages: &[Message]) -> Option<String> {
    messages.iter().find_map(recognise).map(|found| found.text)
}

pub(crate) fn tokens(messages: &[Message]) -> Tokens {
    let counter = word_counter();
    messages.iter().map(|message| counter.message(message)).sum()
}

/// Returns the complaints of all providers about a list.
pub(crate) fn complaints(messages: &[Message]) -> Vec<String> {
    let mut all = Vec::new();
    for dialect in [Dialect::OPENAI, Dialect::RESPONSES, Dialect::ANTHROPIC] {
        let body = Value::Object(dialect.write(messages));
        let told = match dialect.name() {
            "openai" => judges::chat::complaints(&body),
            "responses" => judges::responses::complaints(&body),
            _ => judges::anthropic::complaints(&body),
        };
        all.extend(told.into_iter().map(|told| format!("{dialect:?}: {told}")));
    }
    all
}

/// Checks that the list returned for a list contains only its own messages and is valid.
pub(crate) fn assert_own(shown: &[Message], list: &[Message]) {
    let (there, came) = (marks(&texts(shown), "mk"), marks(&texts(list), "mk"));
    assert!(there.is_subset(&came), "{:?}", there.difference(&came).collect::<Vec<_>>());
    assert_eq!(shown.last(), list.last());
    assert_eq!(complaints(shown), Vec::<String>::new());
}

/// A model whose summaries are numbered and contain the marks of their messages. Its answers may be cached, as with
/// real models.
pub(crate) struct Numbered;

static SUMMARIES: AtomicU64 = AtomicU64::new(0);

#[async_trait]
impl Model for Numbered {
    fn name(&self) -> &str {
        "numbered"
    }

    fn room(&self) -> Option<Tokens> {
        Some(100_000)
    }

    fn reusable(&self) -> bool {
        true
    }

    async fn write(&self, ask: &SummaryRequest) -> Result<Reply, ModelError> {
        let said: Vec<Message> = ask.inputs.iter().filter_map(|told| told.message().cloned()).collect();
        let mut told = marks(&texts(&said), "mk");
        told.extend(marks(ask.previous.as_deref().unwrap_or_default(), "mk"));
        let few: Vec<String> = told.into_iter().rev().take(3).collect();
        let number = SUMMARIES.fetch_add(1, Ordering::Relaxed);
        Ok(Reply::complete(format!("sum{number}x of {}", few.join(" "))))
    }
}

/// A model that never answers.
pub(crate) struct Silent;

#[async_trait]
impl Model for Silent {
    fn name(&self) -> &str {
        "silent"
    }

    fn room(&self) -> Option<Tokens> {
        None
    }

    async fn write(&self, _ask: &SummaryRequest) -> Result<Reply, ModelError> {
        std::future::pending().await
    }
}

/// Waits until this holds.
pub(crate) async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(TOO_LONG, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    });
    assert!(waited.await.is_ok(), "never: {what}");
}

/// Lets background tasks run until they end or wait.
pub(crate) async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}
