//! The routes of Honcho's v3, for programs that were written for it: they change a URL, and nothing else.
//!
//! Nothing is kept here. A workspace, a session, a message of theirs is one of ours, seen in their words; what they call a
//! peer is an author. Where their server breaks a promise, ours is kept (`docs/honcho.md`).

mod check;
mod filter;
mod jwt;
mod moment;
