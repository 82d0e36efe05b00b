//! Which conversation a list belongs to, told without reading all of it.
//!
//! A caller hands in the whole list each time, and nobody names it. So of each message taken in two prints are kept: of
//! all of it, and of its edges. A list goes on with a conversation where those prints fit: at its ends and at places in
//! between, which change from turn to turn, where only one conversation is known and the list did not move in memory; at
//! every place where there are several, and whenever something is cut. So a turn costs a few looks, and what was changed further back is noticed in time.

use std::hash::{BuildHasher, Hash, Hasher, RandomState};

use epitome_core::message::{Content, Media, MediaSource, Message, Part};

/// Of a long text, so many bytes at either end are looked at in passing.
const EDGE: usize = 128;

/// So many of the newest messages are looked at each time, and as many others.
const LOOKS: usize = 8;

/// Where a list lies in memory. Two lists that are held at once lie in two places, so one that did not move is taken for the
/// same after a few looks; it proves nothing by itself.
pub(super) type Place = (usize, usize);

/// Where this one lies.
pub(super) fn place(messages: &[Message]) -> Place {
    let first = messages.first().map_or(0, |message| message.parts.as_ptr().addr());
    (messages.as_ptr().addr(), first)
}

/// What a message was when it was taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Print {
    whole: u64,
    edges: u64,
}

/// What the messages of a conversation were when they were taken in.
#[derive(Debug, Clone, Default)]
pub(super) struct Prints {
    prints: Vec<Print>,
    /// How many of the first are standing orders.
    head: usize,
    /// The places of those that are pinned: always shown, so always looked at.
    pinned: Vec<usize>,
    /// Where the next look in between begins.
    turn: usize,
}

impl Prints {
    pub(super) fn of(messages: &[Message], hash: &RandomState) -> Self {
        let mut prints = Self::default();
        prints.extend(messages, hash);
        prints
    }

    pub(super) fn len(&self) -> usize {
        self.prints.len()
    }

    /// Takes in what is new at the list's end.
    pub(super) fn extend(&mut self, messages: &[Message], hash: &RandomState) {
        let new = messages.get(self.len()..).unwrap_or_default();
        for (at, message) in (self.len()..).zip(new) {
            if message.role.is_system() && self.head == at {
                self.head += 1;
            }
            if message.pinned && self.pinned.len() < LOOKS {
                self.pinned.push(at);
            }
        }
        self.prints.extend(
            new.iter().map(|message| Print {
                whole: print(message, false, hash),
                edges: print(message, true, hash),
            }),
        );
    }

    /// Whether the list seems to go on with these: standing orders, what is pinned and the newest are the same word for
    /// word, and so are some between them at their edges, half of which are after `from`, where messages are still shown.
    pub(super) fn seem(&mut self, messages: &[Message], from: usize, hash: &RandomState) -> bool {
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
        let mut whole = whole.chain(self.pinned.iter().copied()).filter(|at| *at < len);
        let mut between = looks.chain(shown).filter(|at| *at < len);
        let same = |at: usize, edges: bool| match (messages.get(at), self.prints.get(at)) {
            (Some(message), Some(known)) => {
                print(message, edges, hash) == if edges { known.edges } else { known.whole }
            }
            _ => false,
        };
        whole.all(|at| same(at, false)) && between.all(|at| same(at, true))
    }

    /// Whether the list is this one with other standing orders, as where those tell the time: as many of them, and
    /// everything after them word for word the same.
    pub(super) fn differ_in_head(&self, messages: &[Message], hash: &RandomState) -> bool {
        let head = messages.iter().take_while(|message| message.role.is_system()).count();
        let rest = self.head..self.len();
        head == self.head
            && head > 0
            && !rest.is_empty()
            && match (messages.get(rest.clone()), self.prints.get(rest)) {
                (Some(messages), Some(known)) => messages
                    .iter()
                    .zip(known)
                    .all(|(message, known)| print(message, false, hash) == known.whole),
                _ => false,
            }
    }

    /// Whether the first `len` messages of the list are these, word for word.
    pub(super) fn are(&self, messages: &[Message], len: usize, hash: &RandomState) -> bool {
        match (messages.get(..len), self.prints.get(..len)) {
            (Some(messages), Some(known)) => {
                messages.iter().zip(known).all(|(message, known)| print(message, false, hash) == known.whole)
            }
            _ => false,
        }
    }
}

/// Some place among so many, another at each turn. Steps of the golden ratio get everywhere in time.
fn somewhere(turn: usize, look: usize, among: usize) -> usize {
    let step = turn.wrapping_mul(LOOKS).wrapping_add(look) as u64;
    let at = step.wrapping_mul(0x9E37_79B9_7F4A_7C15) % among.max(1) as u64;
    usize::try_from(at).unwrap_or(0)
}

/// A number that two different messages hardly share. `edges` looks at the ends of long texts only.
fn print(message: &Message, edges: bool, hash: &RandomState) -> u64 {
    let mut state = hash.build_hasher();
    put_message(message, edges, &mut state);
    state.finish()
}

/// All that makes a message this one and no other.
pub(crate) fn put_message(message: &Message, edges: bool, state: &mut impl Hasher) {
    message.role.hash(state);
    (message.author.as_deref(), message.pinned, message.skip, message.parts.len()).hash(state);
    for part in &message.parts {
        std::mem::discriminant(part).hash(state);
        match part {
            Part::Text { text } => put(text, edges, state),
            Part::Thinking { text, signature, id, redacted } => {
                put(text, edges, state);
                put(signature.as_deref().unwrap_or_default(), edges, state);
                (id, redacted).hash(state);
            }
            Part::ToolCall(call) => {
                (&*call.id, call.item_id.as_deref(), &call.name).hash(state);
                put(&call.arguments, edges, state);
            }
            Part::ToolResult(result) => {
                (&*result.call, result.error, result.content.len()).hash(state);
                for content in &result.content {
                    match content {
                        Content::Text { text } => put(text, edges, state),
                        Content::Media(media) => put_media(media, edges, state),
                    }
                }
            }
            Part::Media(media) => put_media(media, edges, state),
        }
    }
}

fn put_media(media: &Media, edges: bool, state: &mut impl Hasher) {
    media.mime.hash(state);
    std::mem::discriminant(&media.source).hash(state);
    match &media.source {
        MediaSource::Base64(text) | MediaSource::Url(text) | MediaSource::File(text) => {
            put(text, edges, state);
        }
    }
}

fn put(text: &str, edges: bool, state: &mut impl Hasher) {
    let bytes = text.as_bytes();
    bytes.len().hash(state);
    if edges && bytes.len() > 2 * EDGE {
        state.write(bytes.get(..EDGE).unwrap_or_default());
        state.write(bytes.get(bytes.len() - EDGE..).unwrap_or_default());
    } else {
        state.write(bytes);
    }
}

#[cfg(test)]
mod tests {
    use epitome_core::drawing::messages;

    use super::*;

    #[test]
    fn a_list_that_only_grew_is_known_and_any_other_is_not() {
        let hash = RandomState::new();
        let list = messages("s u:3 a(x) r(x):9 a:4 u:7 a:2").unwrap();
        let mut known = Prints::of(list.get(..5).unwrap(), &hash);
        assert!(known.seem(&list, 0, &hash) && known.are(&list, 5, &hash));
        for at in 0..5 {
            let mut other = list.clone();
            other[at].pinned = !other[at].pinned;
            assert!(!known.are(&other, 5, &hash), "a flag of {at}");
            let mut other = list.clone();
            other[at].parts.push(Part::text("more"));
            assert!(!known.are(&other, 5, &hash), "words of {at}");
            assert!(!known.seem(&other, 0, &hash), "so few are all looked at");
        }
        assert!(!known.seem(&list[..4], 0, &hash), "a shorter one is another");
    }

    #[test]
    fn a_change_further_back_is_noticed_in_time() {
        let hash = RandomState::new();
        let list: Vec<Message> = (0..1_000).map(|n| Message::user(format!("order {n}"))).collect();
        let mut known = Prints::of(&list, &hash);
        let mut other = list.clone();
        other[477] = Message::user("something else");
        let noticed = (0..1_000).position(|_| !known.seem(&other, 0, &hash));
        assert!(noticed.is_some_and(|turn| turn < 500), "{noticed:?}");
        assert!(!known.are(&other, 1_000, &hash), "at once, where all are looked at");
    }

    #[test]
    fn what_differs_only_in_the_middle_of_a_long_text_is_told_apart_where_it_matters() {
        let hash = RandomState::new();
        let list = |role: Message, middle: &str| {
            let mut list = vec![role, Message::user("first")];
            list.push(Message::user(format!("{0}{middle}{0}", "x".repeat(500))));
            list.extend((0..20).map(|n| Message::user(format!("order {n}"))));
            list
        };
        let bare = || Message::system("Be brief.");
        let mut known = Prints::of(&list(bare(), "a"), &hash);
        assert!(known.seem(&list(bare(), "b"), 0, &hash), "not in passing");
        assert!(!known.are(&list(bare(), "b"), 3, &hash));
        // What is always shown is looked at whole, always.
        let head = |middle: &str| list(Message::system(format!("{0}{middle}{0}", "x".repeat(500))), "a");
        let mut known = Prints::of(&head("a"), &hash);
        assert!(known.seem(&head("a"), 0, &hash) && !known.seem(&head("b"), 0, &hash));
        let mut pinned = list(bare(), "a");
        pinned[2].pinned = true;
        let mut known = Prints::of(&pinned, &hash);
        pinned[2].parts = list(bare(), "b")[2].parts.clone();
        assert!(!known.seem(&pinned, 0, &hash));
    }
}
