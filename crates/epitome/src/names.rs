//! Which names workspaces, sessions and authors may have, and the one that a model always has.

/// The name of the model that is built in.
pub(crate) const LOCAL: &str = "local";

/// Whether a workspace or a session can be called so: 1 to 512 bytes, and no control characters.
///
/// ```
/// assert!(epitome::is_name("ann/4711") && !epitome::is_name("") && !epitome::is_name("two\nlines"));
/// ```
pub fn is_name(name: &str) -> bool {
    (1..=512).contains(&name.len()) && !name.contains(char::is_control)
}
