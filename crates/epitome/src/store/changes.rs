//! What a change of a session is decided from, and what it writes.

use epitome_core::message::{Seq, Span, Timestamp};
use epitome_core::outline::Outline;
use epitome_core::slot::Scope;
use serde_json::{Map, Value};

use super::directory::Membership;
use super::rows::{NewMessage, SessionRow, SlotRow, SummaryId, SummaryRow, SummaryState, UsageRow};
use crate::event::Happened;

/// An append that was done before under the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repeat {
    /// The hash of what was appended.
    pub body: Vec<u8>,
    /// The messages it became.
    pub span: Span,
}

/// What else is to be read before it is decided.
#[derive(Debug, Clone, Default)]
pub struct Load {
    /// The append done before under this key.
    pub idempotency: Option<String>,
    /// Shapes of messages.
    pub log: Log,
    /// These summaries.
    pub summaries: Vec<SummaryId>,
    /// About how many bytes the change writes. A store that writes several changes together bounds their sum.
    pub bytes: usize,
}

/// Which shapes are to be read.
#[derive(Debug, Clone, Default)]
pub enum Log {
    /// None.
    #[default]
    None,
    /// Of a slot with something due: its scope's messages after the first pending firing, up to and
    /// including the newest firing. At most 100,000.
    Pending(Scope, String),
    /// The call batch a message stands in, by the whole log's cuts: all messages that stay with it.
    Batch(Seq),
}

/// Where a session stands: what a decision is made from.
#[derive(Debug, Clone, Default)]
pub struct Standing {
    /// The moment, by the store's clock.
    pub now: Timestamp,
    /// The workspace's settings, a partial document; empty when nothing was set.
    pub workspace_settings: String,
    /// The session, where it exists.
    pub session: Option<SessionRow>,
    /// Its slots.
    pub slots: Vec<SlotRow>,
    /// What [`Load::idempotency`] found.
    pub repeat: Option<Repeat>,
    /// What [`Load::log`] asked for.
    pub log: Vec<Outline>,
    /// What [`Load::summaries`] asked for, as far as they are this session's.
    pub summaries: Vec<SummaryRow>,
}

/// How long an append is remembered by its key.
pub(super) const REMEMBERED_MILLIS: i64 = 7 * 24 * 60 * 60 * 1_000;

/// More shapes than this are never read for a decision.
pub(super) const MOST_PENDING: usize = 100_000;

impl Standing {
    /// The session and its workspace's settings, and nothing else.
    pub(super) fn bare(now: Timestamp, workspace_settings: String, session: Option<SessionRow>) -> Self {
        Self { now, workspace_settings, session, ..Self::default() }
    }

    /// What [`Log::Pending`] asks for.
    pub(super) fn pending(&self, scope: &Scope, name: &str) -> Option<Span> {
        let state = &self.slot(scope, name)?.state;
        Span::new(state.due?.seq.saturating_add(1), state.newest?.seq)
    }

    /// The slot of that scope and name.
    pub fn slot(&self, scope: &Scope, name: &str) -> Option<&SlotRow> {
        self.slots.iter().find(|row| row.scope == *scope && row.name == name)
    }
}

/// What is to be written, all of it or nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Changes {
    /// The session's row as it shall be. Needed to create one; `id` is given by the store.
    pub session: Option<SessionRow>,
    /// Messages to be added, in order.
    pub messages: Vec<NewMessage>,
    /// Slots as they shall be.
    pub slots: Vec<SlotRow>,
    /// A summary to be kept. Its slot, which must be among `slots`, is made to point to it.
    pub summary: Option<SummaryRow>,
    /// Summaries whose state changes.
    pub states: Vec<(SummaryId, SummaryState)>,
    /// Messages whose flags change: seq, pinned, skip.
    pub flags: Vec<(Seq, bool, bool)>,
    /// Messages whose notes are replaced.
    pub metadata: Vec<(Seq, Map<String, Value>)>,
    /// Who joins or leaves, in order.
    pub members: Vec<Membership>,
    /// An append to be remembered by its key.
    pub idempotency: Option<(String, Repeat)>,
    /// Calls of models to be recorded.
    pub usage: Vec<UsageRow>,
    /// What is told of it, in order. A summary's number is put in by the store: [`Happened::numbered`].
    pub events: Vec<Happened>,
}

impl Changes {
    /// Whether contexts of a session that is there may say something else afterwards, beside new messages.
    pub(super) fn alter(&self, before: Option<&SessionRow>) -> bool {
        let row = before.zip(self.session.as_ref()).is_some_and(|(before, row)| !row.only_grew_from(before));
        let messages = !self.flags.is_empty() || !self.metadata.is_empty();
        row || messages || self.summary.is_some() || !self.states.is_empty()
    }

    /// Whether no session is needed to write them: at most calls of models are recorded.
    pub(super) fn need_no_session(&self) -> bool {
        *self == Self { usage: self.usage.clone(), ..Self::default() }
    }
}

/// Decides, from where a session stands, what is to be written; `None` to write nothing. It must depend
/// on nothing else: a store may ask again when another writer came between.
pub type Decide = Box<dyn Fn(&Standing) -> Option<Changes> + Send + Sync>;
