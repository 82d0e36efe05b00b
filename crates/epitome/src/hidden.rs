//! What stays out of a log where the value that holds it is printed: words of conversations, programs, other workspaces.

use std::fmt;
use std::ops::Deref;

/// Something that is not shown by `{:?}`.
#[derive(Clone, Default)]
pub(crate) struct Hidden<T>(pub(crate) T);

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

impl<T> Deref for Hidden<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
