//! Moments as they are written.
