//! Measures Epitome: what contexts retain of a conversation, what they cost, and how fast the engine is.
//!
//! | module | content |
//! |---|---|
//! | [`evaluation`] | evaluation: which names and answers a message list still contains, and what a series of requests costs |
//! | [`play`] | plays one recorded conversation through one policy, with the real engine or condenser |
//! | [`recording`] | reads recorded conversations from files, for `replay` and for the server's `import` |
//! | [`replay`] | the command `epitome replay`: reads recordings, plays them, shows tables, pages and charts |
//! | [`mod@bench`] | the command `epitome bench`: measures the engine, the server, the proxy and other condensers |
//! | [`demo`] | the command `epitome demo`: condenses a long conversation in ten seconds |
//!
//! Each command's flags are defined in the command's module. This crate neither reads settings nor depends on the server
//! binary: the caller passes in the loaded settings, and `bench --server` starts this program again as a server.

pub mod bench;
pub mod demo;
pub mod evaluation;
pub mod play;
pub mod recording;
pub mod replay;
