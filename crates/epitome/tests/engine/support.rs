//! What the tests share: a clock that moves on request, a store, messages, and helpers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use epitome::model::SummaryRequest;
use epitome::rules::message::{Message, Seq, Timestamp};
use epitome::{Builder, Context, Engine, Pace, Session, SlotExplanation, Summary};
use epitome_testkit::scripted::Scripted;

pub(crate) use crate::test_store::{Home, cases, homes, on_every_store, times};

/// Longest time that a test waits.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A clock that moves only on request.
#[derive(Clone)]
pub(crate) struct Clock(Arc<AtomicI64>);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(1_800_000_000_000)))
    }

    pub(crate) fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.0.fetch_add(i64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }

    pub(crate) fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }
}

/// An engine without background workers, whose summaries the model `main` writes.
pub(crate) fn engine_of_model(model: &Scripted) -> Builder {
    with_settings(model, "")
}

/// The same with one slot only, every 20 messages, and more settings after it.
pub(crate) fn one_slot(model: &Scripted) -> Builder {
    with_settings(model, r#", "slot": [{"name": "short", "trigger": "messages(20)"}]"#)
}

/// The same with more settings.
pub(crate) fn with_settings(model: &Scripted, more: &str) -> Builder {
    let more = if more.contains("\"summarize\"") {
        more.to_owned()
    } else {
        format!(r#", "summarize": {{"models": ["main"], "stand_in_after": "never"}}{more}"#)
    };
    let document = format!("{{{}}}", more.trim_start_matches([',', ' ']));
    Engine::builder().model("main", model.clone()).settings(&document).workers(0).pace(fast_pace(0))
}

/// A pace with short polling intervals.
pub(crate) fn fast_pace(workers: usize) -> Pace {
    Pace { workers, poll: Duration::from_millis(10), ..Pace::default() }
}

/// Messages `from..=through` of a conversation about orders, long enough to be worth a summary.
pub(crate) fn talk(from: usize, through: usize) -> Vec<Message> {
    (from..=through).map(line).collect()
}

fn line(n: usize) -> Message {
    match n % 2 {
        1 => Message::user(format!(
            "Please look at order {n}0071: the parcel has not arrived, and the customer in Oslo wrote twice."
        )),
        _ => Message::assistant(format!(
            "Order {n}0071 was sent yesterday with carrier {n}; it arrives on Monday and she was told so."
        )),
    }
}

/// The summaries of a slot, undone ones too, oldest first.
pub(crate) async fn history(session: &Session, slot: &str) -> Vec<Summary> {
    let mut all = session.history(None, 1_000).await.unwrap();
    all.retain(|summary| summary.slot == slot);
    all.reverse();
    all
}

pub(crate) async fn coverage(session: &Session, slot: &str) -> Vec<Seq> {
    history(session, slot).await.iter().map(|summary| summary.through).collect()
}

/// The current summary of a slot of the whole session.
pub(crate) async fn current_summary(session: &Session, slot: &str) -> Option<Summary> {
    let all = session.summaries().await.unwrap();
    all.into_iter().find(|summary| summary.slot == slot && summary.scope.is_none())
}

pub(crate) async fn slot(session: &Session, name: &str) -> SlotExplanation {
    let all = session.explain().await.unwrap().slots;
    all.into_iter().find(|slot| slot.slot == name && slot.scope.is_none()).unwrap()
}

/// The sequence numbers of the messages in a prompt.
pub(crate) fn prompt_messages(ask: &SummaryRequest) -> Vec<Seq> {
    ask.inputs.iter().filter_map(|told| told.message()).map(|message| message.seq).collect()
}

pub(crate) fn span(from: Seq, through: Seq) -> Vec<Seq> {
    (from..=through).collect()
}

/// The messages of the log that a context shows.
pub(crate) fn shown(context: &Context) -> Vec<Seq> {
    context.messages.iter().map(|message| message.seq).filter(|seq| *seq > 0).collect()
}

/// Checks that a context is exhaustive: each message is covered or shown, in order, and none twice.
#[track_caller]
pub(crate) fn assert_complete(context: &Context, head: Seq) {
    assert_eq!(context.through, head);
    assert!(context.report.exhaustive && context.report.gap.is_none(), "{:?}", context.report);
    assert!(context.report.tokens.total() <= context.report.budget);
    let shown = shown(context);
    assert!(shown.windows(2).all(|pair| pair[0] < pair[1]), "in order and nothing twice: {shown:?}");
    let covered = context.summary.as_ref().map_or(0, |summary| summary.through);
    let after: Vec<Seq> = shown.iter().copied().filter(|seq| *seq > covered).collect();
    assert_eq!(after, span(covered + 1, head), "covered through {covered}");
    // In addition, only the newest message and the request that it answers.
    assert!(shown.iter().all(|seq| *seq > covered || *seq + 2 > head), "{shown:?} covered through {covered}");
}

/// Waits until a condition is true. Fails after [`TIMEOUT`].
pub(crate) async fn wait_until<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let wait = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(TIMEOUT, wait).await.is_ok(), "did not happen: {what}");
}

/// Returns the result of a future. Fails after [`TIMEOUT`].
pub(crate) async fn within_timeout<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TIMEOUT, work).await {
        Ok(done) => done,
        Err(_) => panic!("did not end: {what}"),
    }
}

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
