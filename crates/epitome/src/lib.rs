//! wip
pub use epitome_core as core;
