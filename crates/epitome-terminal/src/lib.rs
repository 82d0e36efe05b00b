//! Terminal output and its helpers, shared by all commands of Epitome.
//!
//! | module | job |
//! |---|---|
//! | [`show`] | output: lines, JSON, tables, colours, progress, and numbers and dates as people read them |
//! | [`failure`] | why a command failed: its line on standard error and its exit code |
//! | [`flags`] | values of flags that several commands have |
//! | [`suggest`] | suggestions for mistyped names |
//! | [`output`] | files that appear when they are complete, or not at all |
//! | [`cleanup`] | removal of files and end of processes after a signal |
//!
//! Nothing here reads settings, opens a database or depends on a command: callers pass plain values.

pub mod cleanup;
pub mod failure;
pub mod flags;
pub mod output;
pub mod show;

pub use epitome::settings::suggest;
