//! wip
pub mod message;
pub mod outline;
