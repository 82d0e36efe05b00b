//! Bearer tokens as Honcho signs them.
