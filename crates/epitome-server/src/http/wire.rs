//! What goes over the wire, field by field: one file a noun.
//!
//! Where the engine's own type is what a client may see (sessions, slots, summaries, the queue, keys), or is what a client sends (a fork, a key to be made), it goes out and comes in as it is, described in
//! `openapi/shapes.json`. The others are mapped by hand, so that nothing goes out by accident: numbers of the store's own,
//! say, which would tell of other workspaces.

mod context;
mod message;
mod page;
mod session;
mod usage;
mod workspace;

pub(crate) use context::{ContextOut, report};
pub(crate) use message::{FoundOut, MessageOut};
pub(crate) use page::Page;
pub(crate) use session::{SessionIn, SessionWhole};
pub(crate) use usage::{ProxiedOut, UsageOut};
pub(crate) use workspace::WorkspaceIn;
