//! How a list of messages is recognised as a conversation that was seen before. The condenser and the proxy use this
//! one definition of equal messages and this one comparison of lists.
//!
//! A caller hands in the whole list each time, without a name for it. Two forms of its fingerprints are used:
//!
//! - [`Prints`], in memory: two fast keyed hashes of each message, of all of it and of its edges. Any message of a list can
//!   be compared by itself, so that a turn costs a few looks: at the ends, and at places in between that change from
//!   turn to turn. All of them are compared where there are several conversations, and before something is cut.
//! - [`Chain`], for indexes and the store: a cryptographic hash of each beginning of a list, made of the one before and one
//!   more message. Two lists share it where they are the same up to that message, and nowhere after they part. It is the
//!   same in every process. What standing orders at the head say is left out, since some of them tell the time.
//!
//! What a message says counts, and not how its provider's format spelled it, since cache marks move with each request.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use epitome_core::message::{Content, Media, MediaSource, Message, Part, Seq};

use crate::store::ListHash;

/// Of a long text, this many bytes at either end are compared in passing.
const EDGE: usize = 128;

/// How many of the newest messages are compared each time, and as many others.
const LOOKS: usize = 8;

/// Where a list lies in memory. Two lists that are held at once lie in two places, so one that did not move is taken for the
/// same after a few looks; it proves nothing by itself.
pub(crate) type Place = (usize, usize);

/// Where this one lies.
pub(crate) fn place(messages: &[Message]) -> Place {
    let first = messages.first().map_or(0, |message| message.parts.as_ptr().addr());
    (messages.as_ptr().addr(), first)
}

/// How many standing orders come first.
fn head_of(messages: &[Message]) -> usize {
    messages.iter().take_while(|message| message.role.is_system()).count()
}

/// The fingerprints of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Print {
    whole: u64,
    edges: u64,
}

/// How much of a message a fingerprint covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cover {
    Whole,
    /// The ends of long texts only.
    Edges,
}

/// The fingerprints of a conversation's messages, when they were taken in.
#[derive(Debug, Clone, Default)]
pub(crate) struct Prints {
    prints: Vec<Print>,
    /// How many of the first are standing orders.
    head: usize,
    /// The places of pinned messages: always shown, so always compared.
    pinned: Vec<usize>,
    /// Where the next look in between begins.
    turn: usize,
}

impl Prints {
    pub(crate) fn of(messages: &[Message], key: &RandomState) -> Self {
        let mut prints = Self::default();
        prints.extend(messages, key);
        prints
    }

    pub(crate) fn len(&self) -> usize {
        self.prints.len()
    }

    /// Takes in what is new at the list's end.
    pub(crate) fn extend(&mut self, messages: &[Message], key: &RandomState) {
        let new = messages.get(self.len()..).unwrap_or_default();
        if self.head == self.len() {
            self.head += head_of(new);
        }
        let pinned = (self.len()..).zip(new).filter(|(_, message)| message.pinned).map(|(at, _)| at);
        self.pinned.extend(pinned.take(LOOKS.saturating_sub(self.pinned.len())));
        self.prints.extend(new.iter().map(|message| Print {
            whole: print(message, Cover::Whole, key),
            edges: print(message, Cover::Edges, key),
        }));
    }

    /// Whether the list seems to go on with these: standing orders, what is pinned and the newest are the same word for
    /// word, and so are some between them at their edges, half of which are after `from`, where messages are still shown.
    pub(crate) fn seem(&mut self, messages: &[Message], from: usize, key: &RandomState) -> bool {
        let len = self.len();
        if messages.len() < len {
            return false;
        }
        let turn = self.turn;
        self.turn = self.turn.wrapping_add(1);
        let from = from.min(len);
        let looks = (0..LOOKS).map(|look| somewhere(turn, look, len));
        let shown = (0..LOOKS).map(|look| from.saturating_add(somewhere(turn, look, len - from)));
        let whole = (0..self.head.saturating_add(1)).chain(len.saturating_sub(LOOKS)..len);
        let whole = whole.chain(self.pinned.iter().copied()).filter(|at| *at < len);
        let between = looks.chain(shown).filter(|at| *at < len);
        self.same(messages, whole, Cover::Whole, key) && self.same(messages, between, Cover::Edges, key)
    }

    /// Whether the list is this one with other standing orders, as where those tell the time: as many of them, and
    /// everything after them word for word the same.
    pub(crate) fn differ_in_head(&self, messages: &[Message], key: &RandomState) -> bool {
        let mut rest = self.head..self.len();
        self.head > 0
            && head_of(messages) == self.head
            && !rest.is_empty()
            && self.same(messages, &mut rest, Cover::Whole, key)
    }

    /// Whether the first `len` messages of the list are these, word for word.
    pub(crate) fn are(&self, messages: &[Message], len: usize, key: &RandomState) -> bool {
        self.same(messages, 0..len, Cover::Whole, key)
    }

    /// Whether the messages at these places are the same here and there.
    fn same(
        &self,
        messages: &[Message],
        mut places: impl Iterator<Item = usize>,
        cover: Cover,
        key: &RandomState,
    ) -> bool {
        places.all(|at| match (messages.get(at), self.prints.get(at)) {
            (Some(message), Some(known)) => {
                let known = if cover == Cover::Whole { known.whole } else { known.edges };
                print(message, cover, key) == known
            }
            _ => false,
        })
    }
}

/// Some place among so many, another at each turn. Steps of the golden ratio get everywhere in time.
fn somewhere(turn: usize, look: usize, among: usize) -> usize {
    let step = turn.wrapping_mul(LOOKS).wrapping_add(look) as u64;
    let at = step.wrapping_mul(0x9E37_79B9_7F4A_7C15) % among.max(1) as u64;
    usize::try_from(at).unwrap_or(0)
}

/// A number that two different messages hardly share.
fn print(message: &Message, cover: Cover, key: &RandomState) -> u64 {
    let mut state = key.build_hasher();
    put_message(message, cover, &mut state);
    state.finish()
}

/// The hashes of a list's beginnings.
pub(crate) struct Chain {
    /// Of the list's owner, without a message of it.
    pub(crate) seed: ListHash,
    /// How many standing orders come first.
    pub(crate) head: usize,
    /// Of the first message after them, of the first two, and so on.
    pub(crate) hashes: Vec<ListHash>,
}

impl Chain {
    /// Of a list. `owner` writes whose it is, given the number of its standing orders.
    pub(crate) fn of(messages: &[Message], owner: impl FnOnce(&mut Stable, usize)) -> Self {
        let head = head_of(messages);
        let mut seed = Stable::default();
        owner(&mut seed, head);
        let seed = seed.hash();
        let rest = messages.get(head..).unwrap_or_default();
        let hashes = rest.iter().scan(seed, |last, message| {
            let mut next = Stable::default();
            next.write(last);
            put_message(message, Cover::Whole, &mut next);
            *last = next.hash();
            Some(*last)
        });
        let hashes = hashes.collect();
        Self { seed, head, hashes }
    }

    /// The hash of the whole list.
    pub(crate) fn last(&self) -> Option<ListHash> {
        self.hashes.last().copied()
    }

    /// The hash of the first `len` messages, standing orders included.
    pub(crate) fn at(&self, len: Seq) -> Option<ListHash> {
        self.hashes.get(usize::try_from(len).ok()?.checked_sub(self.head)?.checked_sub(1)?).copied()
    }
}

/// A hasher whose result is the same in every process.
#[derive(Default)]
pub(crate) struct Stable(blake3::Hasher);

impl Stable {
    fn hash(&self) -> ListHash {
        let mut short = ListHash::default();
        self.0.finalize_xof().fill(&mut short);
        short
    }
}

impl Hasher for Stable {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        u64::from_le_bytes(self.hash().first_chunk().copied().unwrap_or_default())
    }
}

/// All that makes a message this one and no other.
fn put_message(message: &Message, cover: Cover, state: &mut impl Hasher) {
    message.role.hash(state);
    (message.author.as_deref(), message.pinned, message.skip, message.parts.len()).hash(state);
    for part in &message.parts {
        std::mem::discriminant(part).hash(state);
        match part {
            Part::Text { text } => put(text, cover, state),
            Part::Thinking { text, signature, id, redacted } => {
                put(text, cover, state);
                put(signature.as_deref().unwrap_or_default(), cover, state);
                (id, redacted).hash(state);
            }
            Part::ToolCall(call) => {
                (&*call.id, call.item_id.as_deref(), &call.name).hash(state);
                put(&call.arguments, cover, state);
            }
            Part::ToolResult(result) => {
                (&*result.call, result.error, result.content.len()).hash(state);
                for content in &result.content {
                    match content {
                        Content::Text { text } => put(text, cover, state),
                        Content::Media(media) => put_media(media, cover, state),
                    }
                }
            }
            Part::Media(media) => put_media(media, cover, state),
        }
    }
}

fn put_media(media: &Media, cover: Cover, state: &mut impl Hasher) {
    media.mime.hash(state);
    std::mem::discriminant(&media.source).hash(state);
    match &media.source {
        MediaSource::Base64(text) | MediaSource::Url(text) | MediaSource::File(text) => {
            put(text, cover, state);
        }
    }
}

fn put(text: &str, cover: Cover, state: &mut impl Hasher) {
    let bytes = text.as_bytes();
    bytes.len().hash(state);
    if cover == Cover::Edges && bytes.len() > 2 * EDGE {
        state.write(bytes.get(..EDGE).unwrap_or_default());
        state.write(bytes.get(bytes.len() - EDGE..).unwrap_or_default());
    } else {
        state.write(bytes);
    }
}

#[cfg(test)]
mod tests;
