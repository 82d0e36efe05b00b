//! Keeps long agent conversations inside a model's context window.
//!
//! An [`Engine`] stores every message of a [`Session`], writes summaries of the older messages in the background, and
//! returns the conversation within a token budget. Appending messages and requesting the conversation never wait for a
//! model. A [`Condenser`] shortens a message list that the program stores itself. It needs no database.
//!
//! By default, an engine and a condenser need no API key and no network. The built-in extractive summarizer `local`
//! writes the summaries: it selects sentences and names from the messages. To use a model over a network, define the
//! model in [`Settings`], or implement [`model::Model`].
//!
//! ```
//! use epitome::{Condenser, ContextRequest, Dialect, Engine, Message, Session, Settings};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), epitome::Error> {
//! let settings = Settings::parse("slot = [{name = 'notes', trigger = 'messages(20)', max_tokens = 300}]")?;
//! let engine = Engine::builder().settings(settings).memory().await?; // `open("agent.db")` stores sessions in a file
//! let session: Session = engine.session("ann");
//! for n in 1..=30 {
//!     session.append(Message::user(format!("Where is order {n}0071?"))).await?;
//!     session.append(Message::assistant(format!("Order {n}0071 left Leipzig; it arrives on Monday."))).await?;
//! }
//! engine.work().await?; // the worker writes summaries in the background; the example waits for them
//!
//! // At most 500 tokens: a summary of the older messages, and the newest messages verbatim.
//! let context = session.context(ContextRequest { fill: true, ..500.into() }).await?;
//! let body = Dialect::OPENAI.write(&context.messages); // {"messages": [...]}
//! assert!(context.report.exhaustive && body["messages"][0]["role"] == "user");
//!
//! // For an agent that stores its own message list: condense the list before each model call.
//! let condenser = Condenser::builder().for_model("gpt-5-mini").build()?;
//! let history = [Message::user("Which berths are free?")];
//! assert_eq!(condenser.before_model(&history).await.len(), 1); // the list fits the model's window, so it is unchanged
//! # engine.close().await;
//! # Ok(())
//! # }
//! ```
//!
//! The module [`settings`] contains every setting. The module [`dialect`] contains the message formats of providers.
//! The module [`model`] contains the models that write summaries. The module [`inline`] shortens the requests of a
//! proxy. The module [`store`] contains the databases. The module [`rules`] contains pure functions for all decisions,
//! such as when a summary is due. [`Error::remedy`] returns what the caller should do after an error.
//!
//! # Glossary
//!
//! | term | meaning |
//! |---|---|
//! | workspace | One tenant, whose sessions, settings, keys and costs are invisible to other workspaces. |
//! | session | One conversation: a named, append-only log of messages. |
//! | message | One entry of the log, numbered from 1, with a role, an author, parts (text, tool calls, results, media) and metadata. |
//! | turn | A user message and all messages after it, up to the next user message. |
//! | summary | A text that covers the messages of a session from the first up to a certain message, and replaces these messages in a context, while the messages stay stored. |
//! | slot | The configuration of one summary of a session: its trigger, scope, size and models. |
//! | trigger | The condition under which a slot's next summary is due, such as `messages(20)`. |
//! | scope | The messages that a slot covers: the whole session, or the messages of one author. |
//! | budget | The largest size of a context, in tokens. |
//! | context | The newest messages that fit the budget, verbatim, and a summary of everything older. |
//! | complete (`exhaustive`) | A context is complete if every message is either shown in it or covered by its summary. |
//! | gap | The messages that a context neither shows nor covers by its summary. |
//! | pinned | A flag on a message: every context shows the message verbatim. |
//! | skip | A flag on a message: no summary includes the message, and no trigger counts it. |
//! | condense | To shorten the agent's own message list before a model call. |
//! | strategy | The method by which a list is condensed, such as `summarize`, `mask` or `recent`. |
//! | lease | A worker's temporary, exclusive right to write a slot's next summary. |
//! | fence | A number that increases with each lease of a slot; the store rejects a commit with an older number. |
//! | dialect | The message format of one provider API, such as OpenAI's chat completions. |
//! | entity | A name, number, path, date or identifier that a summary must repeat exactly. |
//! | extractive summarizer | A summarizer that selects sentences and entities from the messages and writes none; the built-in one, `local`, needs no key and no network. |
//! | fallback summary (`stand_in`) | A summary that `local` writes while the configured models fail; the next summary by a model replaces it. |
//! | stable prefix (`steady`) | A beginning of a context that rarely changes; until it changes, the provider's prompt cache stays valid. |
//! | fill | An option of a context request: the context uses the rest of its budget for older messages, in addition to the summary. |
//! | replay | To run recorded conversations through several ways of building contexts, and to measure for each way what the agent would have forgotten and what its calls would have cost. |

mod brief;
mod circuit_breaker;
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
mod log_hash;
pub mod metrics;
pub mod model;
mod model_permits;
mod named_model;
mod names;
mod pace;
mod price;
mod request;
pub mod retry;
pub mod search;
pub mod settings;
mod shared;
mod spend_reservations;
// When a store is not compiled in, the items that only this store uses are unused.
#[cfg_attr(not(all(feature = "sqlite", feature = "postgres")), allow(unused))]
pub mod store;
mod summarizer;
mod summary;
mod table;
mod time;
mod worker;

pub use condenser::{
    Call, Condenser, CondenserBuilder, ModelCall, ReadyList, Report, Thread, ThreadState, Totals, Turn,
};
pub use engine::{
    Appended, Attributes, Backlog, Batch, Builder, Context, ContextRequest, Engine, Explanation, Flags, Fork,
    ForkKind, HitCursor, Keys, Listener, LoggedSlot, Page, Queue, QueueEntry, SEARCH_BYTES, SearchHit,
    Session, SessionInfo, ShownSummary, SlotExplanation, SlotStatus, Summarize, Summarized, Unready, Update,
    Upserted, Workspace,
};
pub use error::{Error, Remedy};
pub use log_hash::is_log_hash;
pub use names::is_name;
pub use pace::Pace;
pub use settings::Settings;
pub use store::{
    AuthorRow, ListFilter, ListPage, Listing, MemberRow, Membership, Portion, Stamp, WorkspaceRow,
};
pub use summary::Summary;

pub use epitome_core as rules;
pub use epitome_core::message::{Message, Part, Role};
pub use epitome_wire as dialect;
pub use epitome_wire::Dialect;

/// Compiles and runs the README's programs as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles and runs the programs in `docs/library.md` and `docs/condense.md` as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/library.md")]
struct Library;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/condense.md")]
struct Condensing;
