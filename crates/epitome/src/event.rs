//! Events: what happened in a workspace, in order.
//!
//! A program that shows sessions must know when messages are added and when summaries replace messages. Each such
//! change is an [`Event`]. The transaction that makes the change also writes the event, so no change lacks its event.
//! An event contains no message text. A client with access to the session can read the text from the session.
//!
//! The engine and the worker pass each [`EventBody`] to the store together with the change.
//! [`crate::Workspace::events`] reads events, and [`crate::Workspace::listen`] waits for new events.

use std::borrow::Cow;
use std::sync::Arc;

use epitome_core::message::{Author, Seq, Span, Timestamp, Tokens};
use serde::{Deserialize, Serialize};

use crate::ids::{SummaryId, SummaryState};

/// A change in a workspace: messages were added, or a summary was stored, undone or failed.
///
/// An event serializes to `{"id", "session", "at", "kind", "data"}`.
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
    /// Number of the oldest stored event in the workspace, whatever its session; `newest + 1` if no event is stored.
    pub oldest: u64,
    /// Number of the newest event in the workspace, whatever its session; 0 if there was no event yet.
    pub newest: u64,
}

/// The kinds of events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "data", rename_all = "snake_case")]
pub enum EventBody {
    /// These messages were appended to the session, or a fork copied them into a new session.
    Message(Span),
    /// A slot's current summary has changed: a summary was stored, or the current one was undone. There are no such
    /// events for summaries that a fork copies.
    Summary(SummaryChanged),
    /// Messages were condensed into a summary. This event directly follows the event that reports the new summary.
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
    /// The model that wrote the summary.
    pub model: Arc<str>,
    /// Whether the summary is a fallback summary, which is in use until a model answers again.
    pub stand_in: bool,
    /// Whether the summary is now current, or was undone.
    pub state: SummaryState,
    /// Id of the slot's current summary; `None` if the slot has no summary. 0 means that the store has not assigned the
    /// id yet.
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
    /// Number of tokens that the summary replaces: the tokens of these messages and of the previous summary.
    pub tokens_before: Tokens,
    /// Number of tokens of the summary.
    pub tokens_after: Tokens,
    /// The model that wrote the summary.
    pub model: Arc<str>,
    /// Whether the summary is a fallback summary, which is in use until a model answers again.
    pub stand_in: bool,
    /// The other fields as one line of text for people.
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

    /// Replaces a summary id of 0 in the event with `stored`, the id of the summary that is stored together with the
    /// event. `stored` is `None` if no summary is stored together with the event. Only the store calls this function,
    /// because the store assigns the ids.
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
