//! Takes a mutex, ignoring poisoning.
//!
//! Every value behind a mutex in this crate is consistent whenever the lock is free, so a thread that panicked while it had
//! the lock leaves nothing half done.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Takes a lock, even after a thread panicked with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
