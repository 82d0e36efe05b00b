//! Locks a mutex even if it is poisoned.
//!
//! A mutex is poisoned when a thread panics while it holds the lock. In this crate such a thread never leaves a value
//! half changed, so other threads can continue to use the value.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex, even if a thread has panicked while it had the lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
