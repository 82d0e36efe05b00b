//! Rules for names of workspaces, sessions and authors, and the name of the built-in extractive summarizer.

/// Name of the built-in extractive summarizer.
pub(crate) const LOCAL: &str = "local";

/// Returns whether a workspace, a session or an author can have this name: 1 to 512 bytes, and no control characters.
///
/// ```
/// assert!(epitome::is_name("ann/4711") && !epitome::is_name("") && !epitome::is_name("two\nlines"));
/// ```
pub fn is_name(name: &str) -> bool {
    (1..=512).contains(&name.len()) && !name.contains(char::is_control)
}
