//! Hides values from debug output, so that they do not reach logs. Examples are message text and the names of other
//! workspaces.

use std::fmt;
use std::ops::Deref;

/// A value whose debug output (`{:?}`) is only `..`.
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
