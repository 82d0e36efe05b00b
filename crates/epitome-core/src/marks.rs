//! Messages of ours that stand in a list where the log has none, each marked as such.

use crate::message::{CallId, Message};

/// What a call is answered with in the view when the log holds no answer.
pub const NO_RESULT: &str = "[no result recorded]";

/// What stands first where no user message would. Providers refuse a list that starts otherwise.
pub const NOTE: &str = "[…]";

/// The marked result for a call nobody answered.
#[must_use]
pub fn marked_result(call: impl Into<CallId>) -> Message {
    Message::tool(call, NO_RESULT)
}

/// The marked user message for a list that would not start with one.
#[must_use]
pub fn note() -> Message {
    Message::user(NOTE)
}
