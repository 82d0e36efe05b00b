//! By what a list is known again: a hash for each of its beginnings.
//!
//! Every hash is made of the one before and of one more message, so that two lists share a hash where they are the same up to
//! that message, and nowhere after they part. Standing orders at the head are left out, since some of them tell the time: only
//! how many there are counts. What the messages say counts, and not how the wire spelled it, since cache marks move with each
//! request.

use std::hash::Hasher;

use epitome_core::message::{Message, Seq};

use super::Caller;
use crate::condenser::put_message;
use crate::store::ListHash;

/// The hashes of a list.
pub(super) struct Chain {
    /// Of whoever the list belongs to, without a message of it.
    pub(super) seed: ListHash,
    /// How many standing orders come first.
    pub(super) head: usize,
    /// Of the first message after them, of the first two, and so on.
    pub(super) hashes: Vec<ListHash>,
}

impl Chain {
    pub(super) fn of(workspace: &str, caller: &Caller<'_>, messages: &[Message]) -> Self {
        let head = messages.iter().take_while(|message| message.role.is_system()).count();
        let mut seed = Fed::new();
        for text in [workspace, caller.wire, caller.session.unwrap_or_default()] {
            seed.write_usize(text.len());
            seed.write(text.as_bytes());
        }
        seed.write(caller.id);
        seed.write_usize(head);
        seed.write_u8(u8::from(caller.session.is_some()));
        let seed = seed.hash();
        let mut last = seed;
        let rest = messages.get(head..).unwrap_or_default();
        let hashes = rest.iter().map(|message| {
            let mut next = Fed::new();
            next.write(&last);
            put_message(message, false, &mut next);
            last = next.hash();
            last
        });
        let hashes = hashes.collect();
        Self { seed, head, hashes }
    }

    /// The hash of the whole list.
    pub(super) fn last(&self) -> Option<ListHash> {
        self.hashes.last().copied()
    }

    /// The hash of the first `len` messages, standing orders included.
    pub(super) fn at(&self, len: Seq) -> Option<ListHash> {
        self.hashes.get(usize::try_from(len).ok()?.checked_sub(self.head)?.checked_sub(1)?).copied()
    }
}

/// What is written to it ends up in a hash that is the same tomorrow.
struct Fed(blake3::Hasher);

impl Fed {
    fn new() -> Self {
        Self(blake3::Hasher::new())
    }

    fn hash(&self) -> ListHash {
        let mut short = ListHash::default();
        self.0.finalize_xof().fill(&mut short);
        short
    }
}

impl Hasher for Fed {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        u64::from_le_bytes(self.hash().first_chunk().copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use epitome_core::drawing::messages;

    use super::*;

    const ANN: Caller<'static> = Caller { id: b"ann", session: None, wire: "openai" };

    fn chain(caller: &Caller<'_>, drawn: &str) -> Vec<ListHash> {
        Chain::of("home", caller, &messages(drawn).unwrap()).hashes
    }

    #[test]
    fn two_lists_share_what_they_begin_with_and_nothing_after() {
        let (one, two) = (chain(&ANN, "s u:3 a(x) r(x):9 a:4 u:7"), chain(&ANN, "s u:3 a(x) r(x):9 a:5 u:7"));
        let same: Vec<bool> = one.iter().zip(&two).map(|(one, two)| one == two).collect();
        assert_eq!(same, [true, true, true, false, false]);
        assert_eq!(chain(&ANN, "s u:3 a(x)"), one[..2]);
    }

    #[test]
    fn nobody_elses_list_is_known_by_the_same_hash() {
        let drawn = "s u:3 a:4";
        let mine = chain(&ANN, drawn);
        for other in [
            Caller { id: b"bob", ..ANN },
            Caller { session: Some("s1"), ..ANN },
            Caller { session: Some(""), ..ANN },
            Caller { wire: "anthropic", ..ANN },
        ] {
            assert!(chain(&other, drawn).iter().zip(&mine).all(|(one, two)| one != two), "{other:?}");
        }
        let elsewhere = Chain::of("work", &ANN, &messages(drawn).unwrap()).hashes;
        assert!(elsewhere.iter().zip(&mine).all(|(one, two)| one != two));
    }

    #[test]
    fn what_standing_orders_say_does_not_count_and_how_many_there_are_does() {
        let list = |orders: &[&str]| {
            let head = orders.iter().map(|text| Message::system(*text));
            let list: Vec<Message> = head.chain([Message::user("Hello")]).collect();
            Chain::of("home", &ANN, &list)
        };
        assert_eq!(list(&["It is 9:00."]).hashes, list(&["It is 9:01."]).hashes);
        assert_ne!(list(&["It is 9:00."]).hashes, list(&[]).hashes);
        let two = list(&["a", "b"]);
        assert_eq!((two.at(3), two.at(2), two.at(4)), (two.last(), None, None));
    }
}
