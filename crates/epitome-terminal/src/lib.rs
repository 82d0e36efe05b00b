//! Terminal output, and helpers that all commands of Epitome share.
//!
//! | module | job |
//! |---|---|
//! | [`show`] | prints lines, JSON, tables, colours and progress; formats numbers and dates for people |
//! | [`failure`] | the failure of a command: its line on standard error and its exit code |
//! | [`flags`] | parses values of flags that several commands have |
//! | [`suggest`] | suggests names for mistyped names |
//! | [`output`] | writes files that appear only when they are complete |
//! | [`cleanup`] | removes files and ends processes after a signal |
//!
//! Nothing here reads settings, opens a database or depends on a command: callers pass plain values.

pub mod cleanup;
pub mod failure;
pub mod flags;
pub mod output;
pub mod show;

pub use epitome::settings::suggest;
