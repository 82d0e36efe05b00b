//! wip
pub mod context;
pub mod cut;
pub mod drawing;
pub mod economic;
pub mod excerpt;
mod expr;
pub mod fit;
pub mod keep;
pub mod media;
pub mod message;
pub mod outline;
pub mod plan;
pub mod slot;
pub mod tokens;
pub mod track;
pub mod trigger;
pub mod view;
