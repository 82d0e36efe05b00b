//! Keeps long agent conversations inside a model's window without losing the thread.
//!
//! This crate does what [`epitome_core`] decides. The engine that stores messages and gives
//! contexts, the worker that has summaries written, the stores (SQLite and Postgres), the models,
//! the dialects of the providers and the inline condenser will stand here. Nothing of HTTP servers
//! or flags will: a program that embeds Epitome gets neither.
//!
//! Today it has whoever writes summaries ([`model`]), how long to wait when they fail ([`retry`]), what
//! can be set ([`settings`]) and what a program may do before and after ([`hook`]). The rules are passed
//! on as [`core`].
//!
//! ```
//! use epitome::core::drawing::{draw_cuts, outlines};
//! use epitome::core::message::Timestamp;
//! use epitome::core::outline::Totals;
//! use epitome::core::trigger::{Facts, Trigger};
//!
//! // A user asks, the assistant calls two tools and answers. Bars are the places to cut.
//! let session = "u a(x,y) r(y) r(x) a u";
//! assert_eq!(draw_cuts(session)?, "u | a(x,y) r(y) r(x) | a | u");
//!
//! // Is a summary due?
//! let mut totals = Totals::default();
//! outlines(session)?.iter().for_each(|outline| totals.add(outline));
//! let trigger: Trigger = "any(messages(20), turns(2))".parse()?;
//! let facts = Facts::new(&totals, Timestamp(0));
//! assert!(trigger.when(&facts).is_now());
//! assert_eq!(trigger.standing(&facts).to_string(), "messages 6 of 20, turns 2 of 2");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bench;
mod brief;
mod engine;
mod error;
pub mod hook;
pub mod model;
pub mod retry;
pub mod search;
pub mod settings;
pub mod store;
mod summary;
mod worker;

pub use engine::{
    Appended, Batch, Builder, Context, ContextRequest, Engine, Explanation, Flags, Fork, ForkKind, Found,
    Pace, Page, Queue, QueueEntry, Session, SessionInfo, ShownSummary, SlotExplanation, SlotStatus,
    Summarize, Summarized, Workspace,
};
pub use error::{Error, Next};
pub use summary::Summary;

pub use epitome_core as core;
