//! Adjusts messages to the limits of a format before they are written.
//!
//! The core's view has already made the list's structure valid: call pairs, order, one result per call. This
//! module adjusts the content. It limits the characters and lengths of ids and names, makes arguments an
//! object and removes blank text. It replaces media by text where the format cannot carry them, and sends
//! reasoning only to the provider that wrote it. Epitome's flags, metadata and residues are left out, since
//! strict gateways reject unknown fields.
//!
//! Each message is fitted only by what came before it, never by what comes after. So a list that grows at its
//! end keeps its beginning byte for byte.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use epitome_core::message::{Author, Content, Media, Message, Part, Role, ToolCall, ToolResult};
use epitome_core::view::NOTE;

use crate::media;

/// Prefix of a later system message in a format that has no place for one.
pub(crate) const LATER_ORDER: &str = "[note from the system]\n";

/// Text for a failed tool result without content.
const FAILED: &str = "[error]";

/// The limits of a format.
#[derive(Debug, Clone, Copy)]
pub struct Wants {
    /// Maximum length of a call's id, in characters.
    pub longest_id: usize,
    /// Whether a user's message can carry this medium.
    pub carried: fn(&Media) -> bool,
    /// Whether a tool result can carry media.
    pub media_in_results: bool,
    /// Whether a tool result can carry media if it was received with them. Results that Epitome writes are
    /// text, but the caller's provider accepts what the caller sent.
    pub media_came_in_results: bool,
    /// Whether reasoning with this signature and this id is sent.
    pub reasoning: fn(Option<&str>, Option<&str>) -> bool,
    /// Whether all reasoning is sent back to the provider in a request that contained it.
    pub reasoning_goes_back: bool,
    /// Whether calls and reasoning have item ids (`fc_…`, `rs_…`).
    pub item_ids: bool,
}

pub(crate) struct Fitter {
    wants: Wants,
    ids: Names,
    tools: Names,
    authors: Names,
    /// Item ids that were sent. They are optional, so a duplicate is dropped.
    items: HashSet<Arc<str>>,
}

impl Fitter {
    pub(crate) fn new(wants: Wants) -> Self {
        let ids = Names::new(wants.longest_id);
        Self { wants, ids, tools: Names::new(64), authors: Names::new(64), items: HashSet::new() }
    }

    /// Creates a fitter for a forwarded request.
    pub(crate) fn for_body(wants: Wants) -> Self {
        let reasoning =
            if wants.reasoning_goes_back { |_: Option<&str>, _: Option<&str>| true } else { wants.reasoning };
        Self::new(Wants { reasoning, ..wants })
    }

    /// Returns the message as it is to be written; `None` if no part of it can be sent.
    pub(crate) fn fit(&mut self, message: &Message) -> Option<Message> {
        let mut parts: Vec<Part> =
            message.parts.iter().filter_map(|part| self.part(message.role, part)).collect();
        // Providers reject trailing reasoning.
        while parts.pop_if(|part| matches!(part, Part::Thinking { .. })).is_some() {}
        if parts.is_empty() {
            return None;
        }
        let author = self.author(message);
        Some(Message { author, ..Message::new(message.role, parts) })
    }

    /// Returns the author's name in allowed characters.
    pub(crate) fn author(&mut self, message: &Message) -> Option<Author> {
        message.author.as_deref().map(|author| self.authors.shown(author))
    }

    /// Returns one part of a message as it is to be written; `None` if it cannot be sent.
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

    /// Returns whether a tool result may be sent with the media it was received with.
    pub(crate) fn shows(&self, content: &[Content]) -> bool {
        let shown = |piece: &Content| match piece {
            Content::Text { text } => !is_blank(text),
            Content::Media(media) => self.carried(media).is_some(),
        };
        self.wants.media_came_in_results && content.iter().all(shown)
    }

    /// Returns the medium with its type resolved, if this format can carry it.
    fn carried(&self, media: &Media) -> Option<Media> {
        let media = media::told(media);
        (self.wants.carried)(&media).then_some(media)
    }

    /// Returns the content of a tool result. A failed result contains text only, and at least one text.
    /// Anthropic rejects anything else, and the other formats have no error flag, so an empty result would
    /// look like a success. Existing text is never changed, because failing tools report the failure
    /// themselves.
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

    /// Returns the item's id if it is valid and unused; an empty string if it cannot be sent.
    fn item_id(&mut self, start: &str, id: Option<&str>) -> Option<String> {
        let id = id?;
        if !self.wants.item_ids {
            return Some(id.to_owned());
        }
        let good = id.starts_with(start) && is_plain(id, 64) && self.items.insert(id.into());
        Some(if good { id.to_owned() } else { String::new() })
    }
}

/// Returns the first message for a list that would not begin with the user.
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

/// Maps names to allowed characters. A name that had to be changed gets a hash of the original, so that two
/// names never become one.
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
