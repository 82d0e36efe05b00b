//! What is sent: read by hand, and refused with a list of faults, each with its place.
