//! Creates opaque ids of messages and of sessions.
//!
//! A message's id has 21 characters, as in Honcho. The first 13 characters identify the message's session. They are
//! derived from the store's secret, so an id does not reveal how many sessions there are. The last 8 characters encode
//! the message's sequence number. A message's id is valid only in the message's own session.
//!
//! A session's id does not reveal the session's name.

use std::time::{SystemTime, UNIX_EPOCH};

use epitome::rules::message::Seq;
use epitome::store::SessionId;

/// The characters of ids. They need no escaping in a path.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Number of characters that identify the session.
const PREFIX_CHARS: usize = 13;

/// Number of characters that encode the sequence number, six bits each.
const SEQ_CHARS: usize = 8;

/// Creates ids of messages and sessions from the store's secret.
#[derive(Clone)]
pub(super) struct Ids {
    secret: [u8; 32],
}

/// The prefix of all message ids of one session.
pub(super) struct IdPrefix(String);

impl Ids {
    pub(super) fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    /// Returns the prefix of the message ids of a session.
    pub(super) fn prefix(&self, session: SessionId) -> IdPrefix {
        IdPrefix(self.hashed("message", &session.to_le_bytes(), PREFIX_CHARS))
    }

    /// Returns the id of a session. The id does not reveal the session's name.
    pub(super) fn session(&self, workspace: &str, session: &str) -> String {
        // Names contain no newlines, so two different pairs of names never produce the same text.
        self.hashed("session", format!("{workspace}\n{session}").as_bytes(), PREFIX_CHARS + SEQ_CHARS)
    }

    /// Returns a name for a new session.
    pub(super) fn new_session_name(&self) -> String {
        use std::hash::{BuildHasher, RandomState};
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        // Each `RandomState` is based on the system's random numbers.
        let random = [RandomState::new().hash_one(now), RandomState::new().hash_one(!now)];
        self.hashed("fresh", format!("{now} {random:?}").as_bytes(), PREFIX_CHARS + SEQ_CHARS)
    }

    fn hashed(&self, kind: &str, of: &[u8], length: usize) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(kind.as_bytes()).update(b"\n").update(of);
        let hash = hasher.finalize();
        hash.as_bytes().iter().take(length).map(|byte| letter(u64::from(*byte))).collect()
    }
}

impl IdPrefix {
    /// Returns a message's id.
    pub(super) fn message(&self, seq: Seq) -> String {
        let encoded = (0..SEQ_CHARS).rev().map(|at| letter(seq >> (6 * at)));
        self.0.chars().chain(encoded).collect()
    }

    /// Returns the sequence number that a message's id contains; `None` if the id is invalid or from another session.
    pub(super) fn seq(&self, name: &str) -> Option<Seq> {
        let encoded = name.strip_prefix(self.0.as_str()).filter(|encoded| encoded.len() == SEQ_CHARS)?;
        encoded.bytes().try_fold(0, |seq, byte| {
            let at = ALPHABET.iter().position(|letter| *letter == byte)?;
            Some((seq << 6) | at as Seq)
        })
    }
}

/// Returns the character that encodes the lowest six bits.
fn letter(bits: u64) -> char {
    let at = usize::try_from(bits & 63).unwrap_or_default();
    ALPHABET.get(at).map_or('A', |letter| char::from(*letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_decodes_to_its_sequence_number_only_in_its_own_session() {
        let ids = Ids::new([7; 32]);
        let (one, two) = (ids.prefix(1), ids.prefix(2));
        for seq in [1, 2, 63, 64, 4_095, 1 << 30, (1 << 48) - 1] {
            let id = one.message(seq);
            assert_eq!(id.len(), 21);
            assert!(id.bytes().all(|byte| ALPHABET.contains(&byte)));
            assert_eq!(one.seq(&id), Some(seq));
            assert_eq!(two.seq(&id), None);
            assert_eq!(Ids::new([8; 32]).prefix(1).seq(&id), None);
        }
        for invalid in ["", "zzz", "é", "AAAAAAAAAAAAAAAAAAAAA"] {
            assert_eq!(one.seq(invalid), None);
        }
        let mut invalid = one.message(5);
        invalid.push('A');
        assert_eq!(one.seq(&invalid), None);
    }

    #[test]
    fn session_ids_are_stable_and_distinct() {
        let ids = Ids::new([7; 32]);
        assert_eq!(ids.session("w", "s"), ids.session("w", "s"));
        assert_ne!(ids.session("w", "s"), ids.session("v", "s"));
        assert_ne!(ids.new_session_name(), ids.new_session_name());
        assert_eq!(ids.new_session_name().len(), 21);
    }
}
