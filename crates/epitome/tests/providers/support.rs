//! Helpers: both formats, streamed and not, and an engine with a manual clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use epitome::model::{Remote, SummaryRequest};
use epitome::rules::message::{Message, Seq, Timestamp};
use epitome::rules::slot::Limit;
use epitome::rules::tokens::{Counter, Encoding};
use epitome::settings::{ModelSettings, Provider as Wire};
use epitome::store::SqliteOptions;
use epitome::{Context, Engine, Pace, Session, SlotExplanation, Summary};

use crate::provider::Provider;

/// A key that must never be shown.
pub(crate) const KEY: &str = "sk-stand-in-0123456789abcdefghij";

/// Words of the conversation that must never be shown.
pub(crate) const WORDS: &str = "hasnotarrived";

/// One way to call a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) wire: Wire,
    pub(crate) stream: bool,
}

pub(crate) const WAYS: [Way; 4] = [
    Way { wire: Wire::OPENAI, stream: false },
    Way { wire: Wire::OPENAI, stream: true },
    Way { wire: Wire::ANTHROPIC, stream: false },
    Way { wire: Wire::ANTHROPIC, stream: true },
];

impl Way {
    /// Whether the token counts come before the text: then the cost of a truncated answer is known.
    pub(crate) fn reports_usage_first(self) -> bool {
        self.stream && self.wire == Wire::ANTHROPIC
    }

    pub(crate) fn settings(self, provider: &Provider) -> ModelSettings {
        ModelSettings {
            base_url: Some(provider.url()),
            key_env: Some("STAND_IN_KEY".to_owned()),
            timeout: Duration::from_secs(5),
            stream: self.stream,
            ..ModelSettings::new(self.wire, "stand-in-1")
        }
    }

    pub(crate) fn remote(self, provider: &Provider) -> Remote {
        self.within(provider, Duration::from_secs(5))
    }

    /// Returns the same settings with another timeout.
    pub(crate) fn within(self, provider: &Provider, timeout: Duration) -> Remote {
        let settings = ModelSettings { timeout, ..self.settings(provider) };
        Remote::new("main", &settings, Some(KEY.to_owned().into())).unwrap()
    }
}

pub(crate) fn request() -> SummaryRequest {
    let mut said = talk(1, 20);
    said.iter_mut().zip(1..).for_each(|(message, seq)| message.seq = seq);
    let said: Vec<_> = said.into_iter().map(Into::into).collect();
    SummaryRequest::new(said, Limit::Tokens(400), Counter::new(Encoding::O200k))
}

/// A manual clock.
#[derive(Clone)]
pub(crate) struct Clock(Arc<AtomicI64>);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_800_000_000_000)))
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn options(&self) -> SqliteOptions {
        let clock = self.clone();
        SqliteOptions { clock: Arc::new(move || clock.now()), ..SqliteOptions::default() }
    }

    /// Advances the clock to the time of the slot's next attempt.
    pub(crate) async fn wait_for(&self, session: &Session) {
        if let Some(then) = slot(session).await.not_before {
            self.0.fetch_max(then.0, Ordering::SeqCst);
        }
    }
}

/// Returns an engine in memory that works only on demand, every 20 messages, with the model `main`.
pub(crate) async fn engine(main: Remote, clock: &Clock, stand_in_after: &str) -> Engine {
    let settings = format!(
        r#"{{
            "slot": [{{"name": "short", "trigger": "messages(20)"}}],
            "summarize": {{"models": ["main"], "stand_in_after": "{stand_in_after}"}},
            "prices": {{"stand-in-1": {{"input": 10, "output": 100, "cache_read": 1}}}}
        }}"#
    );
    Engine::builder()
        .model("main", main)
        .settings(&settings)
        .pace(Pace { workers: 0, ..Pace::default() })
        .sqlite(clock.options())
        .memory()
        .await
        .unwrap()
}

/// Returns the messages `from..=through`, long enough to be worth a summary.
pub(crate) fn talk(from: usize, through: usize) -> Vec<Message> {
    let line = |n: usize| match n % 2 {
        1 => Message::user(format!(
            "Please look at order {n}0071: the parcel {WORDS}, and the customer in Oslo wrote twice about it."
        )),
        _ => Message::assistant(format!(
            "Order {n}0071 was sent yesterday with carrier {n}; it arrives on Monday and she was told so."
        )),
    };
    (from..=through).map(line).collect()
}

pub(crate) async fn history(session: &Session) -> Vec<Summary> {
    let mut all = session.history(None, 1_000).await.unwrap();
    all.reverse();
    all
}

pub(crate) async fn slot(session: &Session) -> SlotExplanation {
    session.explain().await.unwrap().slots.into_iter().find(|slot| slot.slot == "short").unwrap()
}

/// Checks that every message is summarized or sent, in order, and none twice.
#[track_caller]
pub(crate) fn assert_whole(context: &Context, head: Seq) {
    assert!(context.report.exhaustive && context.report.gap.is_none(), "{:?}", context.report);
    let told = context.summary.as_ref().map_or(0, |summary| summary.through);
    let shown: Vec<Seq> =
        context.messages.iter().map(|message| message.seq).filter(|seq| *seq > told).collect();
    assert_eq!(shown, (told + 1..=head).collect::<Vec<_>>(), "told through {told}");
}

/// Checks that the text contains neither the key nor words of the conversation.
#[track_caller]
pub(crate) fn assert_no_secrets(shown: &str) {
    assert!(!shown.contains("0123456789abc") && !shown.contains(WORDS), "{shown}");
}

/// Waits until this holds, and fails after a time limit.
pub(crate) async fn until(what: &str, check: impl Fn() -> bool) {
    let wait = async {
        while !check() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(Duration::from_secs(20), wait).await.is_ok(), "it never came: {what}");
}
