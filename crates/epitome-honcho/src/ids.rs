//! Creates opaque ids: of messages, and of sessions whose names must not be revealed.
//!
//! A message's id has 21 characters, as in Honcho. The first thirteen are a mark of its session, derived from the
//! store's secret. So an id does not reveal how many sessions there are, and is valid only in its own session. The last
//! eight encode the message's sequence number.

use std::time::{SystemTime, UNIX_EPOCH};

use epitome::rules::message::Seq;
use epitome::store::SessionId;

/// The characters of ids. They need no escaping in a path.
const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Number of characters that identify the session.
const MARK: usize = 13;

/// Number of characters that encode the sequence number, six bits each.
const PLACE: usize = 8;

/// Creates ids.
#[derive(Clone)]
pub(super) struct Ids {
    secret: [u8; 32],
}

/// The mark of one session, from which the ids of its messages are made.
pub(super) struct Mark(String);

impl Ids {
    pub(super) fn new(secret: [u8; 32]) -> Self {
        Self { secret }
    }

    /// Returns the mark of a session.
    pub(super) fn mark(&self, session: SessionId) -> Mark {
        Mark(self.name("message", &session.to_le_bytes(), MARK))
    }

    /// Returns an id for a session that does not reveal its name.
    pub(super) fn session(&self, workspace: &str, session: &str) -> String {
        // Names do not contain newlines, so this is unambiguous.
        self.name("session", format!("{workspace}\n{session}").as_bytes(), MARK + PLACE)
    }

    /// Returns a name for a new session.
    pub(super) fn fresh(&self) -> String {
        use std::hash::{BuildHasher, RandomState};
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        // Each `RandomState` is based on the system's random numbers.
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
    /// Returns a message's id.
    pub(super) fn message(&self, seq: Seq) -> String {
        let place = (0..PLACE).rev().map(|at| letter(seq >> (6 * at)));
        self.0.chars().chain(place).collect()
    }

    /// Returns the sequence number of the message with this id, `None` if the id is not from this session.
    pub(super) fn seq(&self, name: &str) -> Option<Seq> {
        let place = name.strip_prefix(self.0.as_str()).filter(|place| place.len() == PLACE)?;
        place.bytes().try_fold(0, |seq, byte| {
            let at = LETTERS.iter().position(|letter| *letter == byte)?;
            Some((seq << 6) | at as Seq)
        })
    }
}

/// Returns the character for the lowest six bits.
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
