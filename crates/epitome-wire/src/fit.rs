//! Adjusts messages to the limits of a format before they are written.
//!
//! The core's view has already made the list's structure valid: call pairs, order, one result per call. This
//! module adjusts the content. It limits the characters and lengths of ids and names, makes arguments an
//! object and removes blank text. It replaces media by text where the format cannot carry them, and sends
//! reasoning only to the provider that wrote it. It leaves out Epitome's flags, metadata and residues, because
//! strict gateways reject unknown fields.
//!
//! The result for a message depends only on earlier messages. So if a list grows at its end, its beginning
//! stays the same byte for byte.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use epitome_core::message::{Author, Content, Media, Message, Part, Role, ToolCall, ToolResult};
use epitome_core::view::NOTE;

use crate::media;

/// Prefix of a later system message, in formats whose only system message is the first.
pub(crate) const LATER_SYSTEM_PREFIX: &str = "[note from the system]\n";

/// Text for a failed tool result without content.
const FAILED_RESULT: &str = "[error]";

/// What a format accepts in messages.
#[derive(Debug, Clone, Copy)]
pub struct FormatLimits {
    /// Maximum length of a call's id, in characters.
    pub max_id_length: usize,
    /// Whether a user's message can carry these media.
    pub accepts_media: fn(&Media) -> bool,
    /// Whether a tool result can carry media.
    pub media_in_results: bool,
    /// Whether a tool result that was received with media is sent with them. Results that Epitome writes are
    /// text, but the caller's provider accepts what the caller sent.
    pub received_media_in_results: bool,
    /// Whether reasoning with this signature and this id is sent.
    pub accepts_reasoning: fn(Option<&str>, Option<&str>) -> bool,
    /// Whether a forwarded request keeps all reasoning that it was received with.
    pub forwards_reasoning: bool,
    /// Whether calls and reasoning have item ids (`fc_…`, `rs_…`).
    pub has_item_ids: bool,
}

/// Adjusts messages to a format's limits, in the order of the list.
pub(crate) struct Fitter {
    limits: FormatLimits,
    call_ids: NameMap,
    tools: NameMap,
    authors: NameMap,
    /// Item ids that were sent. They are optional, so a duplicate is removed.
    item_ids: HashSet<Arc<str>>,
}

impl Fitter {
    pub(crate) fn new(limits: FormatLimits) -> Self {
        Self {
            limits,
            call_ids: NameMap::new(limits.max_id_length),
            tools: NameMap::new(64),
            authors: NameMap::new(64),
            item_ids: HashSet::new(),
        }
    }

    /// Creates a fitter for a forwarded request.
    pub(crate) fn for_forwarding(limits: FormatLimits) -> Self {
        let all: fn(Option<&str>, Option<&str>) -> bool = |_, _| true;
        let accepts_reasoning = if limits.forwards_reasoning { all } else { limits.accepts_reasoning };
        Self::new(FormatLimits { accepts_reasoning, ..limits })
    }

    /// Returns the adjusted message; `None` if no part of it can be sent.
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
        message.author.as_deref().map(|author| self.authors.allowed(author))
    }

    /// Returns one adjusted part of a message; `None` if it cannot be sent.
    pub(crate) fn part(&mut self, role: Role, part: &Part) -> Option<Part> {
        match part {
            Part::Text { text } => (role != Role::Tool && !is_blank(text)).then(|| part.clone()),
            Part::Media(media) if role != Role::Tool => Some(match self.accepted(media) {
                Some(media) if role.is_user() => Part::Media(media),
                _ => Part::text(media::placeholder(media)),
            }),
            Part::Thinking { text, signature, id, redacted } if role == Role::Assistant => {
                let id = self.item_id("rs", id.as_deref());
                let signature = signature.as_deref().filter(|signature| !signature.is_empty());
                (self.limits.accepts_reasoning)(signature, id.as_deref()).then(|| Part::Thinking {
                    text: text.clone(),
                    signature: signature.map(str::to_owned),
                    id,
                    redacted: *redacted,
                })
            }
            Part::ToolCall(call) if role == Role::Assistant => Some(Part::ToolCall(ToolCall {
                id: self.call_ids.allowed(&call.id),
                item_id: self
                    .item_id("fc", call.item_id.as_deref())
                    .filter(|id| !id.is_empty())
                    .map(Into::into),
                name: self.tools.allowed(&call.name).to_string(),
                arguments: call.arguments_as_object().into_owned(),
            })),
            Part::ToolResult(result) if matches!(role, Role::Tool | Role::User) => {
                Some(Part::ToolResult(ToolResult {
                    call: self.call_ids.allowed(&result.call),
                    content: self.result_content(&result.content, result.error),
                    error: result.error,
                }))
            }
            _ => None,
        }
    }

    /// Returns whether a tool result with this content may be sent as received.
    pub(crate) fn accepts_received_result(&self, content: &[Content]) -> bool {
        let accepted = |piece: &Content| match piece {
            Content::Text { text } => !is_blank(text),
            Content::Media(media) => self.accepted(media).is_some(),
        };
        self.limits.received_media_in_results && content.iter().all(accepted)
    }

    /// Returns the media with their normalized type, if this format can carry them.
    fn accepted(&self, media: &Media) -> Option<Media> {
        let media = media::normalized(media);
        (self.limits.accepts_media)(&media).then_some(media)
    }

    /// Returns the adjusted content of a tool result. A failed result contains text only, and at least one
    /// text: Anthropic rejects anything else, and the other formats have no error flag, so an empty result
    /// would look like a success. Existing text is never changed, because failing tools report the failure
    /// themselves.
    fn result_content(&self, content: &[Content], failed: bool) -> Vec<Content> {
        let pieces =
            content.iter().filter(|piece| !matches!(piece, Content::Text { text } if is_blank(text)));
        if self.limits.media_in_results && !failed {
            let pieces = pieces.map(|piece| match piece {
                Content::Text { .. } => piece.clone(),
                Content::Media(media) => match self.accepted(media) {
                    Some(media) => Content::Media(media),
                    None => Content::Text { text: media::placeholder(media) },
                },
            });
            return pieces.collect();
        }
        let texts = pieces.map(|piece| match piece {
            Content::Text { text } => text.clone(),
            Content::Media(media) => media::placeholder(media),
        });
        let text = texts.collect::<Vec<_>>().join("\n");
        match text.is_empty() {
            true if failed => vec![Content::Text { text: FAILED_RESULT.to_owned() }],
            true => Vec::new(),
            false => vec![Content::Text { text }],
        }
    }

    /// Returns the item's id, or an empty string if it is invalid or was already sent. `None` if there is no id.
    fn item_id(&mut self, start: &str, id: Option<&str>) -> Option<String> {
        let id = id?;
        if !self.limits.has_item_ids {
            return Some(id.to_owned());
        }
        let good = id.starts_with(start) && is_plain(id, 64) && self.item_ids.insert(id.into());
        Some(if good { id.to_owned() } else { String::new() })
    }
}

/// Returns the user message that is put first in a list which would not begin with the user.
pub(crate) fn opening_message() -> Message {
    Message::user(NOTE)
}

pub(crate) fn is_blank(text: &str) -> bool {
    text.chars().all(char::is_whitespace)
}

/// Returns whether the name matches `^[a-zA-Z0-9_-]{1,max}$`.
pub(crate) fn is_plain(name: &str, max: usize) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    (1..=max).contains(&name.len()) && name.chars().all(plain)
}

/// Maps names to names of allowed characters and length. A name that must be changed gets a hash of the
/// original, so that two names never become one.
struct NameMap {
    max_length: usize,
    allowed: HashMap<Arc<str>, Arc<str>>,
    used: HashSet<Arc<str>>,
}

impl NameMap {
    fn new(max_length: usize) -> Self {
        Self { max_length, allowed: HashMap::new(), used: HashSet::new() }
    }

    fn allowed(&mut self, name: &str) -> Arc<str> {
        if let Some(allowed) = self.allowed.get(name) {
            return Arc::clone(allowed);
        }
        let mut allowed: Arc<str> =
            if is_plain(name, self.max_length) { name.into() } else { self.hashed(name, 0) };
        let mut attempt = 0;
        while self.used.contains(&allowed) {
            attempt += 1;
            allowed = self.hashed(name, attempt);
        }
        self.used.insert(Arc::clone(&allowed));
        self.allowed.insert(name.into(), Arc::clone(&allowed));
        allowed
    }

    fn hashed(&self, name: &str, attempt: u64) -> Arc<str> {
        let hash = blake3::Hasher::new().update(name.as_bytes()).update(&attempt.to_le_bytes()).finalize();
        let hash: String = hash.to_hex().chars().take(16).collect();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
        let start: String = name.chars().map(plain).take(self.max_length.saturating_sub(17)).collect();
        format!("{start}_{hash}").into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_plain_and_stay_distinct() {
        let mut names = NameMap::new(40);
        assert_eq!(&*names.allowed("call_1"), "call_1");
        let changed = names.allowed("call|1");
        let odd = ["call|1", "call 1", "call_1", "", "ü", &"x".repeat(80), &"x".repeat(81), &changed];
        let allowed: HashSet<Arc<str>> = odd.iter().map(|name| names.allowed(name)).collect();
        assert!(allowed.len() == odd.len() && allowed.iter().all(|name| is_plain(name, 40)), "{allowed:?}");
        assert_eq!(names.allowed("call|1"), changed, "the same name maps to the same result");
    }
}
