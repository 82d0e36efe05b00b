//! What the commands of Epitome share on a terminal.
//!
//! | module | job |
//! |---|---|
//! | [`show`] | where output goes: lines, JSON, tables, colours, progress, numbers and dates as people read them |
//! | [`failure`] | why a command failed: its one line on standard error and its exit code |
//! | [`flags`] | values of flags that several commands take |
//! | [`near`] | suggestions for mistyped names |
//! | [`output`] | files that are there when they are whole, or not at all |
//! | [`leftovers`] | files and processes that a signal must not leave behind |
//!
//! Nothing here reads settings, opens a database or knows a command: callers hand in plain values.

pub mod failure;
pub mod flags;
pub mod leftovers;
pub mod output;
pub mod show;

pub use epitome::settings::near;
