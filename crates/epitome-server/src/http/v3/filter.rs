//! Which items of a list are wanted.
