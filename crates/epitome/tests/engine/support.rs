//! What all tests here need: a clock that stands still, a place for the store, things to say.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use epitome::model::SummaryRequest;
use epitome::rules::message::{Message, Seq, Timestamp};
use epitome::{Builder, Context, Engine, Pace, Session, SlotExplanation, Summary};
use epitome_testkit::scripted::Scripted;

pub(crate) use crate::home::{Home, cases, everywhere, homes, times};

/// Nothing here takes this long unless it hangs.
const TOO_LONG: Duration = Duration::from_secs(60);

/// A clock that moves only when it is told to.
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

/// An engine that works only when told, whose summaries `main` writes.
pub(crate) fn by_model(model: &Scripted) -> Builder {
    with_settings(model, "")
}

/// The same with one slot only, every 20 messages, and more settings after it.
pub(crate) fn one_slot(model: &Scripted) -> Builder {
    with_settings(model, r#", "slot": [{"name": "short", "trigger": "messages(20)"}]"#)
}

/// The same with these settings beside the model.
pub(crate) fn with_settings(model: &Scripted, more: &str) -> Builder {
    let more = if more.contains("\"summarize\"") {
        more.to_owned()
    } else {
        format!(r#", "summarize": {{"models": ["main"], "stand_in_after": "never"}}{more}"#)
    };
    let document = format!("{{{}}}", more.trim_start_matches([',', ' ']));
    Engine::builder().model("main", model.clone()).settings(&document).workers(0).pace(quick(0))
}

/// A worker that does not dawdle.
pub(crate) fn quick(workers: usize) -> Pace {
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

pub(crate) async fn throughs(session: &Session, slot: &str) -> Vec<Seq> {
    history(session, slot).await.iter().map(|summary| summary.through).collect()
}

/// What stands in a slot of the whole session.
pub(crate) async fn standing(session: &Session, slot: &str) -> Option<Summary> {
    let all = session.summaries().await.unwrap();
    all.into_iter().find(|summary| summary.slot == slot && summary.scope.is_none())
}

pub(crate) async fn slot(session: &Session, name: &str) -> SlotExplanation {
    let all = session.explain().await.unwrap().slots;
    all.into_iter().find(|slot| slot.slot == name && slot.scope.is_none()).unwrap()
}

/// The places of the messages a model was shown.
pub(crate) fn said(ask: &SummaryRequest) -> Vec<Seq> {
    ask.inputs.iter().filter_map(|told| told.message()).map(|message| message.seq).collect()
}

pub(crate) fn span(from: Seq, through: Seq) -> Vec<Seq> {
    (from..=through).collect()
}

/// The messages of the log that a context shows.
pub(crate) fn shown(context: &Context) -> Vec<Seq> {
    context.messages.iter().map(|message| message.seq).filter(|seq| *seq > 0).collect()
}

/// A plain session's context holds everything: told or shown, in order, nothing twice.
#[track_caller]
pub(crate) fn assert_whole(context: &Context, head: Seq) {
    assert_eq!(context.through, head);
    assert!(context.report.exhaustive && context.report.gap.is_none(), "{:?}", context.report);
    assert!(context.report.tokens.total() <= context.report.budget);
    let shown = shown(context);
    assert!(shown.windows(2).all(|pair| pair[0] < pair[1]), "in order and nothing twice: {shown:?}");
    let told = context.summary.as_ref().map_or(0, |summary| summary.through);
    let after: Vec<Seq> = shown.iter().copied().filter(|seq| *seq > told).collect();
    assert_eq!(after, span(told + 1, head), "told through {told}");
    // Beside that, only the newest and the request it answers.
    assert!(shown.iter().all(|seq| *seq > told || *seq + 2 > head), "{shown:?} told through {told}");
}

/// Waits for something to become true, and fails when it does not.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let wait = async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(TOO_LONG, wait).await.is_ok(), "it never came: {what}");
}

/// The same for what ends by itself.
pub(crate) async fn ends<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TOO_LONG, work).await {
        Ok(done) => done,
        Err(_) => panic!("it never ended: {what}"),
    }
}

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
