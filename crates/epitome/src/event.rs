//! Events: what happened in a workspace, in order.
//!
//! A program that shows sessions, or reacts to them, must know when messages are added and when summaries replace them.
//! Each such change is an [`Event`]. The transaction that makes the change also writes the event, so the two never
//! differ. An event contains no message text. A client that may read the session gets the text from there.
//!
//! The engine and the worker pass each [`EventBody`] to the store together with the change.
//! [`crate::Workspace::events`] reads events, and [`crate::Workspace::listen`] waits for new ones.

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
    /// The event's number. Numbers increase within a workspace and are never used twice.
    pub id: u64,
    /// Name of the session.
    pub session: Arc<str>,
    /// When the event happened, by the store's clock.
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub body: EventBody,
}

/// A page of events, and the range of the event numbers that are still stored in the workspace.
///
/// Only the newest events of a workspace are stored, about 10,000. If the last event that a caller has read has a
/// number smaller than `oldest - 1`, the caller has missed events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Events {
    /// The requested events, oldest first.
    pub events: Vec<Event>,
    /// Number of the oldest stored event of any session; `newest + 1` if no event is stored.
    pub oldest: u64,
    /// Number of the newest event of any session; 0 if there was no event yet.
    pub newest: u64,
}

/// The kinds of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "data", rename_all = "snake_case")]
pub enum EventBody {
    /// These messages were added, or a fork copied them into a new session.
    Message(Span),
    /// A slot's current summary has changed: a summary was stored, or the current one was undone. Summaries that a fork
    /// copies are not reported again.
    Summary(SummaryChanged),
    /// Messages were condensed into a summary. Follows directly after that summary's own event.
    Condensed(MessagesCondensed),
    /// A summary could not be written, and will be retried.
    Failed(SummaryFailed),
}

/// A slot's current summary has changed: a summary was stored, or the current one was undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryChanged {
    /// Id of the summary that was stored or undone. It is 0 as long as the store has not assigned an id to the summary
    /// that it stores together with the event.
    pub summary: SummaryId,
    /// The slot.
    pub slot: Arc<str>,
    /// The author whose messages the summary covers; `None` for all messages.
    pub scope: Option<Author>,
    /// The last message that the summary covers.
    pub through: Seq,
    /// The model that wrote it.
    pub model: Arc<str>,
    /// Whether it is a fallback summary, in use until a model answers again.
    pub stand_in: bool,
    /// Whether the summary is now current, or was undone.
    pub state: SummaryState,
    /// Id of the slot's current summary; `None` if the slot has none. 0 means the same as in `summary`.
    #[serde(rename = "stands")]
    pub current: Option<SummaryId>,
}

/// Messages were condensed into a summary.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessagesCondensed {
    /// The slot.
    pub slot: Arc<str>,
    /// The author whose messages were condensed; `None` for all messages.
    pub scope: Option<Author>,
    /// The first and the last message that the summary covers.
    pub covers: [Seq; 2],
    /// Number of messages that this summary covers and the previous summary did not.
    pub messages: u64,
    /// Tokens of what the summary replaces: these messages and the previous summary.
    pub tokens_before: Tokens,
    /// Tokens of the summary.
    pub tokens_after: Tokens,
    /// The model that wrote it.
    pub model: Arc<str>,
    /// Whether it is a fallback summary, in use until a model answers again.
    pub stand_in: bool,
    /// The same facts as one line of text for people.
    pub notice: String,
}

/// A summary could not be written, and will be retried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryFailed {
    /// The slot.
    pub slot: Arc<str>,
    /// The author whose messages the summary would cover; `None` for all messages.
    pub scope: Option<Author>,
    /// How many times in a row the summary failed.
    pub attempts: u32,
    /// The error, in one line.
    pub reason: String,
    /// Earliest time of the next attempt.
    pub not_before: Option<Timestamp>,
}

impl EventBody {
    /// Returns the kind of event: `message`, `summary`, `condensed` or `failed`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Message(_) => "message",
            Self::Summary(_) => "summary",
            Self::Condensed(_) => "condensed",
            Self::Failed(_) => "failed",
        }
    }

    /// Returns the event's data as JSON.
    ///
    /// ```
    /// use epitome::rules::message::Span;
    /// use epitome::event::EventBody;
    ///
    /// let added = EventBody::Message(Span { from: 3, through: 4 });
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

    /// Reads an event from its stored kind and data. Returns `None` if the kind is unknown or the data is invalid.
    pub fn read(kind: &str, data: &str) -> Option<Self> {
        let data: serde_json::Value = serde_json::from_str(data).ok()?;
        serde_json::from_value(serde_json::json!({"kind": kind, "data": data})).ok()
    }

    /// Returns the event with the id of the summary that is stored together with the event, in place of 0. `stored` is
    /// `None` if no summary is stored. The store assigns the ids, so only the store calls this.
    pub fn with_summary_id(&self, stored: Option<SummaryId>) -> Cow<'_, Self> {
        match (self, stored) {
            (Self::Summary(changed), Some(summary)) if changed.summary == 0 => {
                let current = Some(summary);
                Cow::Owned(Self::Summary(SummaryChanged { summary, current, ..changed.clone() }))
            }
            _ => Cow::Borrowed(self),
        }
    }
}
