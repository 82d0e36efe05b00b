//! What happened in a workspace, told in order.
//!
//! Whoever shows sessions, or acts on them, wants to know when messages came and summaries took their place. Each such
//! thing is an [`Event`]. It is written in the transaction that did it, so nothing happens untold and nothing is told that
//! did not happen. It holds no word of what was said: whoever may read the session reads it there.
//!
//! Engine and worker hand [`Happened`] to the store with what they change; [`crate::Workspace::events`] reads them, and
//! [`crate::Workspace::listen`] says when there are new ones.

use std::borrow::Cow;
use std::sync::Arc;

use epitome_core::message::{Author, Seq, Span, Timestamp, Tokens};
use serde::{Deserialize, Serialize};

use crate::ids::{SummaryId, SummaryState};

/// Something that happened in a workspace.
///
/// It serializes to `{"id", "session", "at", "kind", "data"}`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Its number, counting up inside its workspace; never given twice.
    pub id: u64,
    /// In which session, by its name.
    pub session: Arc<str>,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub what: Happened,
}

/// Events in order, and which of the workspace's are still kept.
///
/// Only the newest are kept: some 10,000. Whoever asks for those after a number smaller than `oldest - 1` has missed some.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Events {
    /// Those that were asked for, oldest first.
    pub events: Vec<Event>,
    /// The oldest number that is kept, of any session; one more than `newest` where none is.
    pub oldest: u64,
    /// The newest number that was given, of any session; 0 where none was.
    pub newest: u64,
}

/// What can happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "data", rename_all = "snake_case")]
pub enum Happened {
    /// These messages were added, or taken over by a new session from the one it was forked from.
    Message(Span),
    /// Another summary stands in a slot, or none any more. What a fork took over is not told again.
    Summary(SummaryMoved),
    /// Messages became a summary. Comes right after that summary's own event.
    Condensed(MessagesCondensed),
    /// A summary could not be written, and will be tried again.
    Failed(SummaryFailed),
}

/// Another summary stands in a slot, or none any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryMoved {
    /// The summary that was kept or undone. While it is being written: 0, for the one that is kept with it.
    pub summary: SummaryId,
    /// Its slot.
    pub slot: Arc<str>,
    /// Whose messages it stands for; everybody's where nobody is named.
    pub scope: Option<Author>,
    /// Up to which message.
    pub through: Seq,
    /// Who wrote it.
    pub model: Arc<str>,
    /// Whether it only stands in until a model can be asked again.
    pub stand_in: bool,
    /// Whether it stands now, or was undone.
    pub state: SummaryState,
    /// The summary that stands in the slot now, where one does. 0 as for `summary`.
    pub stands: Option<SummaryId>,
}

/// Messages became a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagesCondensed {
    /// Which slot's.
    pub slot: Arc<str>,
    /// Whose messages; everybody's where nobody is named.
    pub scope: Option<Author>,
    /// The first and the last message it stands for.
    pub covers: [Seq; 2],
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
    /// The same in a line for people.
    pub notice: String,
}

/// A summary could not be written, and will be tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryFailed {
    /// Which slot's.
    pub slot: Arc<str>,
    /// Whose messages it would stand for; everybody's where nobody is named.
    pub scope: Option<Author>,
    /// How often in a row it failed.
    pub attempts: u32,
    /// What failed, in a line.
    pub reason: String,
    /// When it may be tried again.
    pub not_before: Option<Timestamp>,
}

impl Happened {
    /// What kind it is, in a word: `message`, `summary`, `condensed` or `failed`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Message(_) => "message",
            Self::Summary(_) => "summary",
            Self::Condensed(_) => "condensed",
            Self::Failed(_) => "failed",
        }
    }

    /// What there is to say of it, as JSON.
    ///
    /// ```
    /// use epitome::rules::message::Span;
    /// use epitome::event::Happened;
    ///
    /// let added = Happened::Message(Span { from: 3, through: 4 });
    /// assert_eq!((added.kind(), added.data()?), ("message", r#"{"from":3,"through":4}"#.to_owned()));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn data(&self) -> Result<String, serde_json::Error> {
        match self {
            Self::Message(data) => serde_json::to_string(data),
            Self::Summary(data) => serde_json::to_string(data),
            Self::Condensed(data) => serde_json::to_string(data),
            Self::Failed(data) => serde_json::to_string(data),
        }
    }

    /// What a store kept of it. `None` where that is of no kind, or not as its kind is written.
    pub fn read(kind: &str, data: &str) -> Option<Self> {
        let data: serde_json::Value = serde_json::from_str(data).ok()?;
        serde_json::from_value(serde_json::json!({"kind": kind, "data": data})).ok()
    }

    /// The same with the number of the summary that was kept with it. Only the store gives numbers, and it calls this.
    pub fn numbered(&self, kept: Option<SummaryId>) -> Cow<'_, Self> {
        match (self, kept) {
            (Self::Summary(moved), Some(summary)) if moved.summary == 0 => {
                let stands = Some(summary);
                Cow::Owned(Self::Summary(SummaryMoved { summary, stands, ..moved.clone() }))
            }
            _ => Cow::Borrowed(self),
        }
    }
}
