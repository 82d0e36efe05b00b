//! Keeps long agent conversations inside a model's window without losing the thread.
//!
//! An [`Engine`] stores every message for good, has summaries of the older ones written in the background, and
//! answers "this conversation in N tokens" at once. This crate does what [`epitome_core`], passed on as [`rules`],
//! decides.
//!
//! ```
//! # async fn try_it() -> Result<(), epitome::Error> {
//! use epitome::Engine;
//! use epitome::rules::message::Message;
//!
//! let engine = Engine::memory().await?;                // or `Engine::open("agent.db")`
//! let session = engine.session("ann");
//! session.append(Message::user("Please move the release to 14 March.")).await?;
//! session.append(Message::assistant("Done: it is on 14 March now.")).await?;
//! let context = session.context(1_000).await?;
//! assert_eq!(context.messages.len(), 2);
//! assert!(context.report.exhaustive);
//! # engine.close().await; Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
//! ```
//!
//! # Reading order
//!
//! 1. [`Engine`], [`Session`], [`Workspace`]: what a program holds. [`Error`] is sorted by what to do next.
//!    [`Condenser`]: the same without a store, for an agent that holds its own list.
//! 2. [`settings`]: every knob; slots, who writes summaries, prices, limits.
//! 3. [`model`]: whoever writes summaries; [`hook`]: what a program may do before and after; [`retry`]: how long
//!    to wait after a failure.
//! 4. [`store`]: where it is all kept, behind one door; [`search`]: how it is found again.
//! 5. [`event`]: what happened, for whoever follows along; [`key`]: who may come in; [`measure`]: what is counted.
//!
//! Nothing of HTTP servers or flags stands here: a program that embeds Epitome gets neither.

mod breaker;
mod brief;
pub mod condenser;
mod context;
mod engine;
mod error;
pub mod event;
mod fingerprint;
pub mod hook;
mod ids;
pub mod inline;
pub mod key;
mod lock;
pub mod measure;
pub mod model;
mod names;
mod pace;
mod price;
mod purse;
mod request;
pub mod retry;
pub mod search;
mod seats;
pub mod settings;
mod shared;
pub mod store;
mod summarizer;
mod summary;
mod table;
mod time;
mod worker;
mod writer;

pub use condenser::{Call, Condenser, CondenserBuilder, Kept, Ready, Report, Spent, Thread, Totals, Turn};
pub use engine::{
    Appended, Backlog, Batch, Builder, Configure, Context, ContextRequest, Engine, Explanation, Flags, Fork,
    ForkKind, Found, HitCursor, Keys, Listener, Notes, Page, Queue, QueueEntry, SEARCH_BYTES, Session,
    SessionInfo, ShownSummary, SlotExplanation, SlotStatus, Summarize, Summarized, Unready, Workspace,
    WorkspaceInfo, Written,
};
pub use error::{Error, Next};
pub use names::is_name;
pub use pace::Pace;
pub use store::{AuthorRow, Keep, Listed, Listing, MemberRow, Membership, Portion, Stamp, WorkspaceRow};
pub use summary::Summary;

pub use epitome_core as rules;
/// The old name of [`rules`].
#[doc(hidden)]
pub use epitome_core as core;
pub use epitome_wire as dialect;

/// Keeps the README's programs true.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The same for the pages on the library and on condensing.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Library;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/condense.md")]
struct Condensing;
