//! What goes over the wire, field by field: one file a noun.
//!
//! Each of these is mapped by hand from what the engine has, so that the one can change without the other, and so
//! that nothing goes out by accident: numbers of the store's own, say, which would tell of other workspaces.

mod context;
mod message;
mod page;
mod proxied;
mod session;
mod summary;
mod workspace;

pub(crate) use context::{ContextOut, ReportOut, ShownOut};
pub(crate) use message::{AppendedOut, FlagsIn, FoundOut, MessageOut};
pub(crate) use page::{Page, SpanOut};
pub(crate) use proxied::ProxiedOut;
pub(crate) use session::{ForkIn, ForkKindIn, SessionIn, SessionOut, SessionWhole};
pub(crate) use summary::{Rebuilding, SummarizeIn, SummarizedOut, SummaryOut, Undone};
pub(crate) use workspace::{QueueOut, UsageOut, WorkspaceIn, WorkspaceOut};
