//! Keeps long agent conversations inside a model's window without losing the thread.
//!
//! This crate does what [`epitome_core`] decides. The engine that stores messages and gives
//! contexts, the worker that has summaries written, the stores (SQLite and Postgres), the models,
//! the dialects of the providers and the inline condenser will stand here. Nothing of HTTP servers
//! or flags will: a program that embeds Epitome gets neither.
//!
//! Today it passes on the rules, as [`core`], and does nothing of its own.
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

pub mod search;
pub mod store;

pub use epitome_core as core;
