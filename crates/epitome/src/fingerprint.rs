//! Finds out whether a message list continues a conversation that was seen before. The condenser and the proxy both use
//! this module to compare messages and lists.
//!
//! A caller passes the whole list on every turn, without a name for the conversation. Two kinds of fingerprints
//! identify the conversation:
//!
//! - [`MessageFingerprints`] are stored in memory only. They contain two fast keyed hashes of each message: one of its
//!   whole content, and one of the edges of its texts. Each message has its own hashes, so it is enough to compare a
//!   few messages on each turn: messages at both ends of the list, and messages at other positions, which change from
//!   turn to turn. All messages are compared if there are several conversations, and before messages are removed from a
//!   list.
//! - [`PrefixHashes`] are used in indexes and in the store. For each message, they contain a cryptographic hash of the
//!   list up to this message. The hash is computed from the hash of the previous message and the content of this
//!   message. Two lists have the same hash at a position only if all their messages up to this position are the same.
//!   The hashes are the same in every process. The text of leading system messages is not part of the hashes, because
//!   some of these texts contain the current time.
//!
//! The hashes depend only on the content of a message, not on its JSON in the provider's format. For example, that JSON
//! contains cache markers, which move with each request.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use epitome_core::message::{Content, Media, MediaSource, Message, Part, Seq};

use crate::store::ListHash;

/// Number of bytes at each end of a long text that a quick comparison compares.
const EDGE: usize = 128;

/// Number of messages of each kind that a quick comparison compares at most. There are four kinds: the newest messages,
/// pinned messages, samples from the whole list, and samples from the part of the list that is still shown.
const SAMPLES: usize = 8;

/// Memory address of a list. Two lists that exist at the same time have different addresses. If a list has the same
/// address as the last list of a conversation, comparing a few messages is therefore enough. The address alone is not
/// enough, because memory is reused.
pub(crate) type ListAddress = (usize, usize);

/// Returns the memory address of a list.
pub(crate) fn list_address(messages: &[Message]) -> ListAddress {
    let first = messages.first().map_or(0, |message| message.parts.as_ptr().addr());
    (messages.as_ptr().addr(), first)
}

/// Returns the number of leading system messages.
fn head_of(messages: &[Message]) -> usize {
    messages.iter().take_while(|message| message.role.is_system()).count()
}

/// The fingerprints of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Fingerprint {
    whole: u64,
    edges: u64,
}

/// The part of a message that a fingerprint covers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cover {
    Whole,
    /// The whole message except the middle of long texts.
    Edges,
}

/// The fingerprints of a conversation's messages, computed when each message first appeared.
#[derive(Debug, Clone, Default)]
pub(crate) struct MessageFingerprints {
    fingerprints: Vec<Fingerprint>,
    /// Number of leading system messages.
    head: usize,
    /// Positions of the first pinned messages. Pinned messages are always shown, so they are always compared.
    pinned: Vec<usize>,
    /// Number of quick comparisons so far. It determines the positions of the next samples.
    turn: usize,
}

impl MessageFingerprints {
    pub(crate) fn of(messages: &[Message], key: &RandomState) -> Self {
        let mut fingerprints = Self::default();
        fingerprints.extend(messages, key);
        fingerprints
    }

    pub(crate) fn len(&self) -> usize {
        self.fingerprints.len()
    }

    /// Adds the fingerprints of the new messages at the end of the list.
    pub(crate) fn extend(&mut self, messages: &[Message], key: &RandomState) {
        let new = messages.get(self.len()..).unwrap_or_default();
        if self.head == self.len() {
            self.head += head_of(new);
        }
        let pinned = (self.len()..).zip(new).filter(|(_, message)| message.pinned).map(|(at, _)| at);
        self.pinned.extend(pinned.take(SAMPLES.saturating_sub(self.pinned.len())));
        self.fingerprints.extend(new.iter().map(|message| Fingerprint {
            whole: hash_message(message, Cover::Whole, key),
            edges: hash_message(message, Cover::Edges, key),
        }));
    }

    /// Returns whether the list appears to continue this conversation. Compares the whole content of the leading system
    /// messages, the pinned messages and the newest messages. Also compares the edges of some other messages. Half of
    /// these messages come after the position `from`, where messages are still shown.
    pub(crate) fn match_sampled(&mut self, messages: &[Message], from: usize, key: &RandomState) -> bool {
        let len = self.len();
        if messages.len() < len {
            return false;
        }
        let turn = self.turn;
        self.turn = self.turn.wrapping_add(1);
        let from = from.min(len);
        let samples = (0..SAMPLES).map(|sample| sample_position(turn, sample, len));
        let shown = (0..SAMPLES).map(|sample| from.saturating_add(sample_position(turn, sample, len - from)));
        let whole = (0..self.head.saturating_add(1)).chain(len.saturating_sub(SAMPLES)..len);
        let whole = whole.chain(self.pinned.iter().copied()).filter(|at| *at < len);
        let between = samples.chain(shown).filter(|at| *at < len);
        self.same(messages, whole, Cover::Whole, key) && self.same(messages, between, Cover::Edges, key)
    }

    /// Returns whether the list differs from the conversation only in the text of its leading system messages, for
    /// example because the text contains the current time. The number of leading system messages and all later messages
    /// must be the same.
    pub(crate) fn differ_only_in_head(&self, messages: &[Message], key: &RandomState) -> bool {
        let mut rest = self.head..self.len();
        self.head > 0
            && head_of(messages) == self.head
            && !rest.is_empty()
            && self.same(messages, &mut rest, Cover::Whole, key)
    }

    /// Returns whether the first `len` messages of the list are the same as in the conversation.
    pub(crate) fn match_fully(&self, messages: &[Message], len: usize, key: &RandomState) -> bool {
        self.same(messages, 0..len, Cover::Whole, key)
    }

    /// Returns whether the messages at these positions are the same as in the conversation.
    fn same(
        &self,
        messages: &[Message],
        mut positions: impl Iterator<Item = usize>,
        cover: Cover,
        key: &RandomState,
    ) -> bool {
        positions.all(|at| match (messages.get(at), self.fingerprints.get(at)) {
            (Some(message), Some(fingerprint)) => {
                let expected = if cover == Cover::Whole { fingerprint.whole } else { fingerprint.edges };
                hash_message(message, cover, key) == expected
            }
            _ => false,
        })
    }
}

/// Returns the position of a sample: a number less than `among` that changes on each turn. Multiples of the golden
/// ratio reach every position over time.
fn sample_position(turn: usize, sample: usize, among: usize) -> usize {
    let step = turn.wrapping_mul(SAMPLES).wrapping_add(sample) as u64;
    let at = step.wrapping_mul(0x9E37_79B9_7F4A_7C15) % among.max(1) as u64;
    usize::try_from(at).unwrap_or(0)
}

/// Returns a hash that two different messages are very unlikely to share.
fn hash_message(message: &Message, cover: Cover, key: &RandomState) -> u64 {
    let mut state = key.build_hasher();
    write_message(message, cover, &mut state);
    state.finish()
}

/// The hashes of a list.
pub(crate) struct PrefixHashes {
    /// Hash of the list's owner, without any message.
    pub(crate) seed: ListHash,
    /// Number of leading system messages.
    pub(crate) head: usize,
    /// For each message after the leading system messages, the hash of the list up to this message.
    pub(crate) hashes: Vec<ListHash>,
}

impl PrefixHashes {
    /// Computes the hashes of a list. `owner` writes the list's owner and the number of leading system messages into
    /// the hasher of `seed`.
    pub(crate) fn of(messages: &[Message], owner: impl FnOnce(&mut StableHasher, usize)) -> Self {
        let head = head_of(messages);
        let mut seed = StableHasher::default();
        owner(&mut seed, head);
        let seed = seed.hash();
        let rest = messages.get(head..).unwrap_or_default();
        let hashes = rest.iter().scan(seed, |last, message| {
            let mut next = StableHasher::default();
            next.write(last);
            write_message(message, Cover::Whole, &mut next);
            *last = next.hash();
            Some(*last)
        });
        let hashes = hashes.collect();
        Self { seed, head, hashes }
    }

    /// Returns the hash of the whole list. `None` if no message follows the leading system messages.
    pub(crate) fn last(&self) -> Option<ListHash> {
        self.hashes.last().copied()
    }

    /// Returns the hash of the first `len` messages of the list. `len` includes the leading system messages.
    pub(crate) fn at(&self, len: Seq) -> Option<ListHash> {
        self.hashes.get(usize::try_from(len).ok()?.checked_sub(self.head)?.checked_sub(1)?).copied()
    }
}

/// A hasher whose result is the same in every process.
#[derive(Default)]
pub(crate) struct StableHasher(blake3::Hasher);

impl StableHasher {
    fn hash(&self) -> ListHash {
        let mut short = ListHash::default();
        self.0.finalize_xof().fill(&mut short);
        short
    }
}

impl Hasher for StableHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        u64::from_le_bytes(self.hash().first_chunk().copied().unwrap_or_default())
    }
}

/// Hashes everything that distinguishes a message from others.
fn write_message(message: &Message, cover: Cover, state: &mut impl Hasher) {
    message.role.hash(state);
    (message.author.as_deref(), message.pinned, message.skip, message.parts.len()).hash(state);
    for part in &message.parts {
        std::mem::discriminant(part).hash(state);
        match part {
            Part::Text { text } => write_text(text, cover, state),
            Part::Thinking { text, signature, id, redacted } => {
                write_text(text, cover, state);
                write_text(signature.as_deref().unwrap_or_default(), cover, state);
                (id, redacted).hash(state);
            }
            Part::ToolCall(call) => {
                (&*call.id, call.item_id.as_deref(), &call.name).hash(state);
                write_text(&call.arguments, cover, state);
            }
            Part::ToolResult(result) => {
                (&*result.call, result.error, result.content.len()).hash(state);
                for content in &result.content {
                    match content {
                        Content::Text { text } => write_text(text, cover, state),
                        Content::Media(media) => write_media(media, cover, state),
                    }
                }
            }
            Part::Media(media) => write_media(media, cover, state),
        }
    }
}

fn write_media(media: &Media, cover: Cover, state: &mut impl Hasher) {
    media.mime.hash(state);
    std::mem::discriminant(&media.source).hash(state);
    match &media.source {
        MediaSource::Base64(text) | MediaSource::Url(text) | MediaSource::File(text) => {
            write_text(text, cover, state);
        }
    }
}

fn write_text(text: &str, cover: Cover, state: &mut impl Hasher) {
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
