//! Names that tell nothing: of messages, and of sessions where theirs are not to be told.
//!
//! A message is known by 21 characters, as theirs are. Ours say which session it is of and its place there: the first
//! thirteen are a mark of the session that only the store's secret makes, so that nobody learns how many sessions there
//! are, and a message's name is good for its own session alone; the last eight are its place.

use std::time::{SystemTime, UNIX_EPOCH};

use epitome::rules::message::Seq;
use epitome::store::SessionId;

/// The letters of such names: what can stand in a path as it is.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// So many say which session.
const MARK: usize = 13;

/// So many say which message: six bits each.
const PLACE: usize = 8;

/// Makes names.
#[derive(Clone)]
pub(super) struct Ids {
    secret: [u8; 32],
}

/// The mark of one session, from which its messages' names are made.
pub(super) struct Mark(String);

impl Ids {
    pub(super) fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    /// The mark of a session.
    pub(super) fn mark(&self, session: SessionId) -> Mark {
        Mark(self.name("message", &session.to_le_bytes(), MARK))
    }

    /// A session by a name of nobody's choosing.
    pub(super) fn session(&self, workspace: &str, session: &str) -> String {
        // No name holds a newline.
        self.name("session", format!("{workspace}\n{session}").as_bytes(), MARK + PLACE)
    }

    /// A name for a new session.
    pub(super) fn fresh(&self) -> String {
        use std::hash::{BuildHasher, RandomState};
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        // Each of these is made of the system's own randomness.
        let chance = [RandomState::new().hash_one(now), RandomState::new().hash_one(!now)];
        self.name("fresh", format!("{now} {chance:?}").as_bytes(), MARK + PLACE)
    }

    fn name(&self, kind: &str, of: &[u8], length: usize) -> String {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(kind.as_bytes()).update(b"\n").update(of);
        let hash = hasher.finalize();
        hash.as_bytes().iter().take(length).map(|byte| letter(u64::from(*byte))).collect()
    }
}

impl Mark {
    /// A message's name.
    pub(super) fn message(&self, seq: Seq) -> String {
        let place = (0..PLACE).rev().map(|at| letter(seq >> (6 * at)));
        self.0.chars().chain(place).collect()
    }

    /// The place of the message of that name; nothing where it is no name of this session's.
    pub(super) fn seq(&self, name: &str) -> Option<Seq> {
        let place = name.strip_prefix(self.0.as_str()).filter(|place| place.len() == PLACE)?;
        place.bytes().try_fold(0, |seq, byte| {
            let at = LETTERS.iter().position(|letter| *letter == byte)?;
            Some((seq << 6) | at as Seq)
        })
    }
}

/// The letter of the lowest six bits.
fn letter(bits: u64) -> char {
    let at = usize::try_from(bits & 63).unwrap_or_default();
    LETTERS.get(at).map_or('A', |letter| char::from(*letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_place_in_its_own_session_and_nowhere_else() {
        let ids = Ids::new([7; 32]);
        let (one, two) = (ids.mark(1), ids.mark(2));
        for seq in [1, 2, 63, 64, 4_095, 1 << 30, (1 << 48) - 1] {
            let name = one.message(seq);
            assert_eq!(name.len(), 21);
            assert!(name.bytes().all(|byte| LETTERS.contains(&byte)));
            assert_eq!(one.seq(&name), Some(seq));
            assert_eq!(two.seq(&name), None);
            assert_eq!(Ids::new([8; 32]).mark(1).seq(&name), None);
        }
        for odd in ["", "zzz", "é", "AAAAAAAAAAAAAAAAAAAAA"] {
            assert_eq!(one.seq(odd), None);
        }
        let mut odd = one.message(5);
        odd.push('A');
        assert_eq!(one.seq(&odd), None);
    }

    #[test]
    fn names_of_sessions_are_their_own() {
        let ids = Ids::new([7; 32]);
        assert_eq!(ids.session("w", "s"), ids.session("w", "s"));
        assert_ne!(ids.session("w", "s"), ids.session("v", "s"));
        assert_ne!(ids.fresh(), ids.fresh());
        assert_eq!(ids.fresh().len(), 21);
    }
}
