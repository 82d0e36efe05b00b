//! What goes over the wire, field by field: one file a noun.
//!
//! Where the engine's own type is what a client may see (summaries, the queue, keys), it goes out as it is, described in
//! `openapi/shapes.json`. The others are mapped by hand, so that nothing goes out by accident: numbers of the store's own,
//! say, which would tell of other workspaces.

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
pub(crate) use summary::{Rebuilding, SummarizeIn, SummarizedOut, Undone};
pub(crate) use workspace::{UsageOut, WorkspaceIn, WorkspaceOut};
