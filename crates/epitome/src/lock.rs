//! One way to take a mutex: a panic elsewhere does not poison it.
//!
//! Every value behind a mutex in this crate is whole whenever the lock is free, so a panic while it was held leaves
//! nothing half done.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, also after a thread panicked while holding it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
