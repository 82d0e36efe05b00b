//! Types for changes to a session: the state a change is decided from, and the writes it consists of.

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
    /// The messages that it created.
    pub span: Span,
}

/// What else to read before the decision.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// The earlier append with this idempotency key.
    pub idempotency: Option<String>,
    /// Outlines of messages.
    pub log: LoadLog,
    /// The summaries with these ids.
    pub summaries: Vec<SummaryId>,
    /// Approximate number of bytes that the change writes. A store that commits several changes together limits their
    /// sum.
    pub bytes: usize,
}

/// Which message outlines to read.
#[derive(Debug, Clone, Default)]
pub enum LoadLog {
    /// None.
    #[default]
    None,
    /// For a slot that is due: its scope's messages after the first pending trigger event, up to and including the
    /// newest one. At most 100,000.
    Pending(Scope, String),
    /// The call batch that contains this message, by the cuts of the whole log: all messages that must stay together
    /// with it.
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
    /// Its slots.
    pub slots: Vec<SlotRow>,
    /// The append that [`Load::idempotency`] found.
    pub earlier_append: Option<EarlierAppend>,
    /// The outlines that [`Load::log`] requested.
    pub log: Vec<Outline>,
    /// The summaries that [`Load::summaries`] requested, limited to those of this session.
    pub summaries: Vec<SummaryRow>,
}

/// How long an idempotency key is stored: 7 days, in milliseconds.
pub(super) const IDEMPOTENCY_TTL_MILLIS: i64 = 7 * 24 * 60 * 60 * 1_000;

/// Maximum number of outlines read for a decision.
pub(super) const MAX_PENDING: usize = 100_000;

impl SessionState {
    /// Creates a state with only the session and its workspace's settings.
    pub(super) fn bare(now: Timestamp, workspace_settings: String, session: Option<SessionRow>) -> Self {
        Self { now, workspace_settings, session, ..Self::default() }
    }

    /// Returns the range of messages that [`LoadLog::Pending`] requests.
    pub(super) fn pending(&self, scope: &Scope, name: &str) -> Option<Span> {
        let state = &self.slot(scope, name)?.state;
        Span::new(state.due?.seq.saturating_add(1), state.newest?.seq)
    }

    /// Returns the slot with this scope and name.
    pub fn slot(&self, scope: &Scope, name: &str) -> Option<&SlotRow> {
        self.slots.iter().find(|row| row.scope == *scope && row.name == name)
    }
}

/// The writes of one change; all of them are applied, or none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// The session's new row. Required to create a session; the store sets `id`.
    pub session: Option<SessionRow>,
    /// Messages to append, in order.
    pub messages: Vec<NewMessage>,
    /// New rows of slots.
    pub slots: Vec<SlotRow>,
    /// A new summary. Its slot must be in `slots`; the store makes the slot point to the summary.
    pub summary: Option<SummaryRow>,
    /// Summaries whose state changes.
    pub states: Vec<(SummaryId, SummaryState)>,
    /// Messages whose flags change: seq, pinned, skip.
    pub flags: Vec<(Seq, bool, bool)>,
    /// Messages whose metadata is replaced.
    pub metadata: Vec<(Seq, Map<String, Value>)>,
    /// Members that join or leave, in order.
    pub members: Vec<Membership>,
    /// An append to store under its idempotency key.
    pub idempotency: Option<(String, EarlierAppend)>,
    /// Model calls to record.
    pub usage: Vec<UsageRow>,
    /// Events that report the change, in order. The store fills in a new summary's id: [`EventBody::with_summary_id`].
    pub events: Vec<EventBody>,
}

impl Changes {
    /// Whether the change affects contexts of an existing session in any other way than by adding messages.
    pub(super) fn alters_contexts(&self, before: Option<&SessionRow>) -> bool {
        let row = before.zip(self.session.as_ref()).is_some_and(|(before, row)| !row.only_grew_from(before));
        let messages = !self.flags.is_empty() || !self.metadata.is_empty();
        row || messages || self.summary.is_some() || !self.states.is_empty()
    }

    /// Whether the change needs no session: it records model calls at most.
    pub(super) fn needs_no_session(&self) -> bool {
        *self == Self { usage: self.usage.clone(), ..Self::default() }
    }
}

/// Decides from a session's state what to write; `None` to write nothing. It must depend on nothing else, because a
/// store calls it again if another writer changed the session in between.
pub type Decide = Box<dyn Fn(&SessionState) -> Option<Changes> + Send + Sync>;
