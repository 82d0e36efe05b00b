//! Measures Epitome: what contexts keep of a conversation, what they cost, and how fast the engine is.
//!
//! | module | job |
//! |---|---|
//! | [`measure`] | evaluation: which names and answers a list still holds, and what a run of requests costs |
//! | [`play`] | plays one recorded conversation through one policy, with the real engine or condenser |
//! | [`recording`] | recorded conversations, read from files: for `replay`, and for the server's `import` |
//! | [`replay`] | the command `epitome replay`: reads recordings, plays them, shows tables, pages and charts |
//! | [`mod@bench`] | the command `epitome bench`: the engine, the server, the proxy, other condensers |
//! | [`valid`] | what would a provider refuse? |
//! | [`demo`] | the command `epitome demo`: a long conversation condensed in ten seconds |
//!
//! The commands' flags stand beside the commands. Nothing here reads settings or knows the HTTP server's code: what a
//! command needs of either is handed in, and `bench --server` starts the program again.

pub mod bench;
pub mod demo;
pub mod measure;
pub mod play;
pub mod recording;
pub mod replay;
pub mod valid;
