//! Names a slot in logs by a hash, so that logs contain no name of a workspace, a session, an author or a slot.
//!
//! A hash has three parts in hexadecimal digits, for the workspace, the session and the slot with its scope:
//! `5f0a2c1b-91d4e07b3c22-c3e1a0b2`. Each part is a hash keyed with the store's secret. Every engine on the store has
//! the same secret, so all engines write the same hash. A reader of the logs who guesses a name cannot check the guess
//! without the secret. [`crate::Engine::find_logged`] finds the names of a hash.

use epitome_core::slot::Scope;

/// Number of hexadecimal digits of the three parts: workspace, session, slot.
const DIGITS: [usize; 3] = [8, 12, 8];

/// Computes the hashes of one store.
pub(crate) struct LogHasher {
    key: [u8; 32],
}

impl LogHasher {
    /// Creates the hasher of the store with this secret.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self { key: blake3::derive_key("epitome 2026 names in logs", secret) }
    }

    /// Returns the first part of a hash, which identifies the workspace.
    pub(crate) fn workspace(&self, workspace: &str) -> String {
        self.hash(DIGITS[0], &["workspace", workspace])
    }

    /// Returns the second part of a hash, which identifies the session.
    pub(crate) fn session(&self, workspace: &str, session: &str) -> String {
        self.hash(DIGITS[1], &["session", workspace, session])
    }

    /// Returns the third part of a hash, which identifies the slot and its scope.
    pub(crate) fn slot(&self, workspace: &str, session: &str, scope: &Scope, slot: &str) -> String {
        // The empty text cannot be the name of an author: names have at least one byte.
        let author = match scope {
            Scope::Session => "",
            Scope::Author(author) => author,
        };
        self.hash(DIGITS[2], &["slot", workspace, session, author, slot])
    }

    /// Returns the whole hash of a slot.
    pub(crate) fn whole(&self, workspace: &str, session: &str, scope: &Scope, slot: &str) -> String {
        let slot = self.slot(workspace, session, scope, slot);
        format!("{}-{}-{slot}", self.workspace(workspace), self.session(workspace, session))
    }

    fn hash(&self, digits: usize, fields: &[&str]) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        for field in fields {
            // Each field follows its length. So two different lists of fields never have the same bytes.
            hasher.update(&(field.len() as u64).to_le_bytes()).update(field.as_bytes());
        }
        hasher.finalize().to_hex().chars().take(digits).collect()
    }
}

/// The parts of a hash that was read from a log.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogHash<'a> {
    pub(crate) workspace: &'a str,
    pub(crate) session: &'a str,
    /// `None` if the hash has only two parts and identifies a session.
    pub(crate) slot: Option<&'a str>,
}

impl<'a> LogHash<'a> {
    /// Parses a hash. Returns `None` if the text does not have the form of a hash.
    pub(crate) fn parse(text: &'a str) -> Option<Self> {
        let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let parts: Vec<&str> = text.split('-').collect();
        let fits = (2..=3).contains(&parts.len())
            && parts.iter().zip(DIGITS).all(|(part, digits)| part.len() == digits && is_hex(part));
        let mut parts = parts.into_iter().filter(|_| fits);
        Some(Self { workspace: parts.next()?, session: parts.next()?, slot: parts.next() })
    }
}

/// Returns whether a text has the form of a hash by which logs name a session or a slot.
///
/// ```
/// assert!(epitome::is_log_hash("5f0a2c1b-91d4e07b3c22-c3e1a0b2") && epitome::is_log_hash("5f0a2c1b-91d4e07b3c22"));
/// assert!(!epitome::is_log_hash("ann") && !epitome::is_log_hash("5F0A2C1B-91D4E07B3C22"));
/// ```
pub fn is_log_hash(text: &str) -> bool {
    LogHash::parse(text).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_depends_on_the_store_and_on_every_name() {
        let hasher = LogHasher::new(&[1; 32]);
        let whole = hasher.whole("acme", "ann", &Scope::Session, "notes");
        assert_eq!(whole, LogHasher::new(&[1; 32]).whole("acme", "ann", &Scope::Session, "notes"));
        let parsed = LogHash::parse(&whole).unwrap();
        assert_eq!(
            (parsed.workspace, parsed.session),
            (&*hasher.workspace("acme"), &*hasher.session("acme", "ann"))
        );
        for other in [
            LogHasher::new(&[2; 32]).whole("acme", "ann", &Scope::Session, "notes"),
            hasher.whole("acm", "eann", &Scope::Session, "notes"),
            hasher.whole("acme", "ann", &Scope::Author("notes".into()), ""),
            hasher.whole("acme", "ann", &Scope::Author("bob".into()), "notes"),
        ] {
            assert_ne!(whole, other);
        }
    }

    #[test]
    fn only_texts_of_that_form_are_hashes() {
        for text in [
            "",
            "-",
            "5f0a2c1b",
            "5f0a2c1b-91d4e07b3c2",
            "5f0a2c1b-91d4e07b3c22-",
            "5f0a2c1b-91d4e07b3c2g",
            "5f0a2c1b-91d4e07b3c22-c3e1a0b2-c3e1a0b2",
            "ä",
            "5f0a2c1b_91d4e07b3c22",
        ] {
            assert_eq!(LogHash::parse(text), None, "{text}");
        }
    }
}
