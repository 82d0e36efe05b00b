//! What every wire wants of a list alike, done before it is spelled.
//!
//! The core's view has made the list right in shape: pairs, order, one result for each call. Here its pieces are
//! made to fit a wire: letters and lengths of ids and names, arguments that are an object, no blank text, media in
//! words where there is no other way, reasoning only for the provider who wrote it. Flags, notes and residues of
//! ours stay behind, since strict gateways refuse a field they do not know.
//!
//! Each message is fitted by what came before it and never by what comes after, so that a list that grows at its
//! end keeps its beginning, byte for byte.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use epitome_core::message::{Author, Content, Media, Message, Part, Role, ToolCall, ToolResult};
use epitome_core::view::NOTE;

use crate::media;

/// What a later standing order begins with, where there is no place for one.
pub(crate) const LATER_ORDER: &str = "[note from the system]\n";

/// What a tool says that failed and said nothing.
const FAILED: &str = "[error]";

/// What can be sent in a format.
#[derive(Debug, Clone, Copy)]
pub struct Wants {
    /// The longest id of a call, in characters.
    pub longest_id: usize,
    /// Whether a user's message can carry this medium.
    pub carried: fn(&Media) -> bool,
    /// Whether a tool's answer can, too.
    pub media_in_results: bool,
    /// Whether it can where it came so: we write answers in words, but the caller's provider reads what they sent.
    pub media_came_in_results: bool,
    /// Whether reasoning is sent that has this signature and this id.
    pub reasoning: fn(Option<&str>, Option<&str>) -> bool,
    /// Whether all reasoning goes back to the provider in a request that came with it.
    pub reasoning_goes_back: bool,
    /// Whether calls and reasoning have names of their own (`fc_…`, `rs_…`).
    pub item_ids: bool,
}

pub(crate) struct Fitter {
    wants: Wants,
    ids: Names,
    tools: Names,
    authors: Names,
    /// Item ids that were sent. They may be left out, so a second use is.
    items: HashSet<Arc<str>>,
}

impl Fitter {
    pub(crate) fn new(wants: Wants) -> Self {
        let ids = Names::new(wants.longest_id);
        Self { wants, ids, tools: Names::new(64), authors: Names::new(64), items: HashSet::new() }
    }

    /// For a request that is passed on.
    pub(crate) fn for_body(wants: Wants) -> Self {
        let reasoning =
            if wants.reasoning_goes_back { |_: Option<&str>, _: Option<&str>| true } else { wants.reasoning };
        Self::new(Wants { reasoning, ..wants })
    }

    /// The message as it is to be spelled; `None` where nothing of it can be sent.
    pub(crate) fn fit(&mut self, message: &Message) -> Option<Message> {
        let mut parts: Vec<Part> =
            message.parts.iter().filter_map(|part| self.part(message.role, part)).collect();
        // Reasoning that leads to nothing is refused.
        while parts.pop_if(|part| matches!(part, Part::Thinking { .. })).is_some() {}
        if parts.is_empty() {
            return None;
        }
        let author = self.author(message);
        Some(Message { author, ..Message::new(message.role, parts) })
    }

    /// Who says it, in letters that are allowed.
    pub(crate) fn author(&mut self, message: &Message) -> Option<Author> {
        message.author.as_deref().map(|author| self.authors.shown(author))
    }

    /// One part of a message, as it is to be spelled; `None` where it cannot be sent.
    pub(crate) fn part(&mut self, role: Role, part: &Part) -> Option<Part> {
        match part {
            Part::Text { text } => (role != Role::Tool && !is_blank(text)).then(|| part.clone()),
            Part::Media(media) if role != Role::Tool => Some(match self.carried(media) {
                Some(media) if role.is_user() => Part::Media(media),
                _ => Part::text(media::in_words(media)),
            }),
            Part::Thinking { text, signature, id, redacted } if role == Role::Assistant => {
                let id = self.item_id("rs", id.as_deref());
                let signature = signature.as_deref().filter(|signature| !signature.is_empty());
                (self.wants.reasoning)(signature, id.as_deref()).then(|| Part::Thinking {
                    text: text.clone(),
                    signature: signature.map(str::to_owned),
                    id,
                    redacted: *redacted,
                })
            }
            Part::ToolCall(call) if role == Role::Assistant => Some(Part::ToolCall(ToolCall {
                id: self.ids.shown(&call.id),
                item_id: self
                    .item_id("fc", call.item_id.as_deref())
                    .filter(|id| !id.is_empty())
                    .map(Into::into),
                name: self.tools.shown(&call.name).to_string(),
                arguments: call.arguments_as_object().into_owned(),
            })),
            Part::ToolResult(result) if matches!(role, Role::Tool | Role::User) => {
                Some(Part::ToolResult(ToolResult {
                    call: self.ids.shown(&result.call),
                    content: self.answer(&result.content, result.error),
                    error: result.error,
                }))
            }
            _ => None,
        }
    }

    /// Whether an answer of a tool may go out with these media, since it came with them.
    pub(crate) fn shows(&self, content: &[Content]) -> bool {
        let shown = |piece: &Content| match piece {
            Content::Text { text } => !is_blank(text),
            Content::Media(media) => self.carried(media).is_some(),
        };
        self.wants.media_came_in_results && content.iter().all(shown)
    }

    /// The medium, saying what it is, where this wire carries it.
    fn carried(&self, media: &Media) -> Option<Media> {
        let media = media::told(media);
        (self.wants.carried)(&media).then_some(media)
    }

    /// What a tool said. A failure is told in words only and in one at least: Anthropic refuses anything else, and
    /// the other two know no flag, so that nothing at all would look like success. Words are never changed; tools
    /// that fail say so.
    fn answer(&self, content: &[Content], failed: bool) -> Vec<Content> {
        let pieces =
            content.iter().filter(|piece| !matches!(piece, Content::Text { text } if is_blank(text)));
        if self.wants.media_in_results && !failed {
            let pieces = pieces.map(|piece| match piece {
                Content::Text { .. } => piece.clone(),
                Content::Media(media) => match self.carried(media) {
                    Some(media) => Content::Media(media),
                    None => Content::Text { text: media::in_words(media) },
                },
            });
            return pieces.collect();
        }
        let words = pieces.map(|piece| match piece {
            Content::Text { text } => text.clone(),
            Content::Media(media) => media::in_words(media),
        });
        let words = words.collect::<Vec<_>>().join("\n");
        match words.is_empty() {
            true if failed => vec![Content::Text { text: FAILED.to_owned() }],
            true => Vec::new(),
            false => vec![Content::Text { text: words }],
        }
    }

    /// The provider's name for an item, if it is one and is not used yet; empty where it cannot be sent.
    fn item_id(&mut self, start: &str, id: Option<&str>) -> Option<String> {
        let id = id?;
        if !self.wants.item_ids {
            return Some(id.to_owned());
        }
        let good = id.starts_with(start) && is_plain(id, 64) && self.items.insert(id.into());
        Some(if good { id.to_owned() } else { String::new() })
    }
}

/// What stands first where the list would begin otherwise than with the user.
pub(crate) fn opener() -> Message {
    Message::user(NOTE)
}

pub(crate) fn is_blank(text: &str) -> bool {
    text.chars().all(char::is_whitespace)
}

/// `^[a-zA-Z0-9_-]{1,longest}$`
pub(crate) fn is_plain(name: &str, longest: usize) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=longest).contains(&name.len()) && name.chars().all(plain)
}

/// Names in letters that are allowed everywhere. One that had to be changed carries a hash of what it was, and no
/// two become one.
struct Names {
    longest: usize,
    shown: HashMap<Arc<str>, Arc<str>>,
    used: HashSet<Arc<str>>,
}

impl Names {
    fn new(longest: usize) -> Self {
        Self { longest, shown: HashMap::new(), used: HashSet::new() }
    }

    fn shown(&mut self, name: &str) -> Arc<str> {
        if let Some(shown) = self.shown.get(name) {
            return Arc::clone(shown);
        }
        let mut shown: Arc<str> =
            if is_plain(name, self.longest) { name.into() } else { self.hashed(name, 0) };
        let mut again = 0;
        while self.used.contains(&shown) {
            again += 1;
            shown = self.hashed(name, again);
        }
        self.used.insert(Arc::clone(&shown));
        self.shown.insert(name.into(), Arc::clone(&shown));
        shown
    }

    fn hashed(&self, name: &str, again: u64) -> Arc<str> {
        let hash = blake3::Hasher::new().update(name.as_bytes()).update(&again.to_le_bytes()).finalize();
        let hash: String = hash.to_hex().chars().take(16).collect();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let start: String = name.chars().map(plain).take(self.longest.saturating_sub(17)).collect();
        format!("{start}_{hash}").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_plain_and_stay_apart() {
        let mut names = Names::new(40);
        assert_eq!(&*names.shown("call_1"), "call_1");
        let changed = names.shown("call|1");
        let odd = ["call|1", "call 1", "call_1", "", "ü", &"x".repeat(80), &"x".repeat(81), &changed];
        let shown: HashSet<Arc<str>> = odd.iter().map(|name| names.shown(name)).collect();
        assert!(shown.len() == odd.len() && shown.iter().all(|name| is_plain(name, 40)), "{shown:?}");
        assert_eq!(names.shown("call|1"), changed, "once and for all");
    }
}
