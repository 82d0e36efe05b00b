//! Measures Epitome: how much of a conversation a context retains, what requests cost, and how fast the engine is.
//!
//! | module | content |
//! |---|---|
//! | [`evaluation`] | measures which names and answers a message list still contains, and what its requests cost |
//! | [`play`] | plays one recorded conversation through one policy, with the real engine or condenser |
//! | [`recording`] | reads recorded conversations from files, for `replay` and for the server's `import` |
//! | [`replay`] | the command `epitome replay`: reads recordings, plays them, shows tables, pages and charts |
//! | [`mod@bench`] | the command `epitome bench`: measures the engine, the server, the proxy and other condensers |
//! | [`demo`] | the command `epitome demo`: condenses a long conversation in ten seconds |
//!
//! Each command's module defines the command's flags. This crate does not read settings: the caller passes the loaded
//! settings. This crate does not depend on the server's crate: `bench --server` starts the running program again as a
//! server.

pub mod bench;
pub mod demo;
pub mod evaluation;
pub mod play;
pub mod recording;
pub mod replay;
