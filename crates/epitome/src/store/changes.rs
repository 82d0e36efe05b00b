//! Types for changes to a session: the state from which a change is decided, and the writes of a change.

use epitome_core::message::{Seq, Span, Timestamp};
use epitome_core::outline::Outline;
use epitome_core::slot::Scope;
use serde_json::{Map, Value};

use super::directory::Membership;
use super::rows::{NewMessage, SessionRow, SlotRow, SummaryId, SummaryRow, SummaryState, UsageRow};
use crate::event::EventBody;

/// An earlier append with the same idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierAppend {
    /// The hash of the appended content.
    pub body: Vec<u8>,
    /// The messages that the append created.
    pub span: Span,
}

/// Selects the data that is read for a decision, in addition to the session's row, settings and slots.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// If set, the append that was stored under this idempotency key is read.
    pub idempotency: Option<String>,
    /// Which message outlines are read.
    pub log: LoadLog,
    /// The ids of the summaries to read.
    pub summaries: Vec<SummaryId>,
    /// Approximate number of bytes that the change writes. A store that commits several changes together limits the sum
    /// of these numbers.
    pub bytes: usize,
}

/// Which message outlines to read.
#[derive(Debug, Clone, Default)]
pub enum LoadLog {
    /// No outlines.
    #[default]
    None,
    /// The outlines that are needed to summarize the slot with this scope and name. They begin after the message of the
    /// first pending trigger event, and end with the message of the newest trigger event. Only messages of the scope
    /// are read, at most 100,000. If the slot is not due, no outlines are read.
    Pending(Scope, String),
    /// The call batch that contains this message: all messages of the session that must not be separated from the
    /// message.
    CallBatch(Seq),
}

/// The current state of a session, from which changes are decided.
#[derive(Debug, Clone, Default)]
pub struct SessionState {
    /// The current time of the store's clock.
    pub now: Timestamp,
    /// The workspace's settings, a partial JSON document; empty if nothing is set.
    pub workspace_settings: String,
    /// The session, if it exists.
    pub session: Option<SessionRow>,
    /// The session's slots.
    pub slots: Vec<SlotRow>,
    /// The append that was stored under the key in [`Load::idempotency`]. `None` if there is no such append or the key
    /// has expired.
    pub earlier_append: Option<EarlierAppend>,
    /// The outlines that [`Load::log`] requested.
    pub log: Vec<Outline>,
    /// The summaries that [`Load::summaries`] requested. Ids of other sessions' summaries are ignored.
    pub summaries: Vec<SummaryRow>,
}

/// How long an idempotency key is stored: 7 days, in milliseconds.
pub(super) const IDEMPOTENCY_TTL_MILLIS: i64 = 7 * 24 * 60 * 60 * 1_000;

/// Maximum number of outlines read for a decision.
pub(super) const MAX_PENDING: usize = 100_000;

impl SessionState {
    /// Creates a state that contains only the session and its workspace's settings.
    pub(super) fn bare(now: Timestamp, workspace_settings: String, session: Option<SessionRow>) -> Self {
        Self { now, workspace_settings, session, ..Self::default() }
    }

    /// Returns the range of messages that [`LoadLog::Pending`] requests; `None` if the slot has no such messages.
    pub(super) fn pending(&self, scope: &Scope, name: &str) -> Option<Span> {
        let state = &self.slot(scope, name)?.state;
        Span::new(state.due?.seq.saturating_add(1), state.newest?.seq)
    }

    /// Returns the slot with this scope and name.
    pub fn slot(&self, scope: &Scope, name: &str) -> Option<&SlotRow> {
        self.slots.iter().find(|row| row.scope == *scope && row.name == name)
    }
}

/// The writes of one change. They are applied in one transaction.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// The session's new row. A change that creates a session must contain this row. The store sets `id`.
    pub session: Option<SessionRow>,
    /// Messages to append, in order.
    pub messages: Vec<NewMessage>,
    /// New rows of slots.
    pub slots: Vec<SlotRow>,
    /// A new summary. `slots` must contain the summary's slot. The store makes the slot point to the summary.
    pub summary: Option<SummaryRow>,
    /// The ids of summaries whose state changes, each with the new state.
    pub states: Vec<(SummaryId, SummaryState)>,
    /// Messages whose flags change: the message's number, its new `pinned` flag and its new `skip` flag.
    pub flags: Vec<(Seq, bool, bool)>,
    /// The numbers of messages whose metadata is replaced, each with the new metadata.
    pub metadata: Vec<(Seq, Map<String, Value>)>,
    /// Members that join or leave, in order.
    pub members: Vec<Membership>,
    /// An idempotency key, and the append to store under this key.
    pub idempotency: Option<(String, EarlierAppend)>,
    /// Model calls to record.
    pub usage: Vec<UsageRow>,
    /// Events that report the change, in order. The store adds the id of the new summary with
    /// [`EventBody::with_summary_id`].
    pub events: Vec<EventBody>,
}

impl Changes {
    /// Whether the change may alter the contexts of an existing session. Appended messages alone do not count.
    pub(super) fn alters_contexts(&self, before: Option<&SessionRow>) -> bool {
        let row = before.zip(self.session.as_ref()).is_some_and(|(before, row)| !row.only_grew_from(before));
        let messages = !self.flags.is_empty() || !self.metadata.is_empty();
        row || messages || self.summary.is_some() || !self.states.is_empty()
    }

    /// Whether the change can be written even if the session does not exist, because the change only records model
    /// calls.
    pub(super) fn needs_no_session(&self) -> bool {
        *self == Self { usage: self.usage.clone(), ..Self::default() }
    }
}

/// Decides from a session's state what to write. Returns `None` to write nothing. The result must depend only on the
/// state: a store calls the function again if another writer has changed the session.
pub type Decide = Box<dyn Fn(&SessionState) -> Option<Changes> + Send + Sync>;
