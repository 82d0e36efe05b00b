//! Keeps long agent conversations inside a model's context window without losing the thread.
//!
//! An [`Engine`] stores every message of a [`Session`], writes summaries of the older ones in the background, and returns
//! "this conversation in N tokens" without waiting for a model. A [`Condenser`] does the same to a message list that the
//! program stores itself, without a database. Both need no key and no network: the built-in extractive summarizer `local`
//! selects sentences and names. Models over a network are set up in [`Settings`], or implement [`model::Model`].
//!
//! ```
//! use epitome::{Condenser, ContextRequest, Dialect, Engine, Message, Session, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), epitome::Error> {
//! let settings = Settings::parse("slot = [{name = 'notes', trigger = 'messages(20)', max_tokens = 300}]")?;
//! let engine = Engine::builder().settings(settings).memory().await?; // `open("agent.db")` stores it in a file
//! let session: Session = engine.session("ann");
//! for n in 1..=30 {
//!     session.append(Message::user(format!("Where is order {n}0071?"))).await?;
//!     session.append(Message::assistant(format!("Order {n}0071 left Leipzig; it arrives on Monday."))).await?;
//! }
//! engine.work().await?; // the background worker does this by itself; the example waits for it
//!
//! // At most 500 tokens: a summary of the older messages, and the newest verbatim.
//! let context = session.context(ContextRequest { fill: true, ..500.into() }).await?;
//! let body = Dialect::OPENAI.write(&context.messages); // {"messages": [...]}
//! assert!(context.report.exhaustive && body["messages"][0]["role"] == "user");
//!
//! // The same for an agent that stores its own message list, before each model call.
//! let condenser = Condenser::builder().for_model("gpt-5-mini").build()?;
//! let history = [Message::user("Which berths are free?")];
//! assert_eq!(condenser.before_model(&history).await.len(), 1); // far from the model's window: the list as it is
//! # engine.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! [`settings`] contains every setting, [`dialect`] the message formats of providers, [`model`] the summarizing models,
//! [`inline`] what a proxy does to requests, [`store`] the databases, and [`rules`] the pure rules that decide everything.
//! [`Error`] is sorted by what the caller does next.

mod breaker;
mod brief;
pub mod condenser;
mod context;
mod engine;
mod error;
pub mod event;
mod fingerprint;
mod hidden;
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
// When a store is not compiled in, the items that only this store uses are unused.
#[cfg_attr(not(all(feature = "sqlite", feature = "postgres")), allow(unused))]
pub mod store;
mod summarizer;
mod summary;
mod table;
mod time;
mod worker;
mod writer;

pub use condenser::{Call, Condenser, CondenserBuilder, Kept, Ready, Report, Spent, Thread, Totals, Turn};
pub use engine::{
    Appended, Attributes, Backlog, Batch, Builder, Context, ContextRequest, Engine, Explanation, Flags, Fork,
    ForkKind, Found, HitCursor, Keys, Listener, Notes, Page, Queue, QueueEntry, SEARCH_BYTES, Session,
    SessionInfo, ShownSummary, SlotExplanation, SlotStatus, Summarize, Summarized, Unready, Workspace,
    Written,
};
pub use error::{Error, Next};
pub use names::is_name;
pub use pace::Pace;
pub use settings::Settings;
pub use store::{AuthorRow, Keep, Listed, Listing, MemberRow, Membership, Portion, Stamp, WorkspaceRow};
pub use summary::Summary;

pub use epitome_core as rules;
pub use epitome_core::message::{Message, Part, Role};
pub use epitome_wire as dialect;
pub use epitome_wire::Dialect;

/// Compiles and runs the README's programs as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles and runs the programs of the pages on the library and on condensing as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Library;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/condense.md")]
struct Condensing;
