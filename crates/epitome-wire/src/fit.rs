//! Adjusts messages to the limits of a format before they are written.
//!
//! [`epitome_core::view`] has already made the structure of the list valid: the order of the messages, and the
//! pairs of calls and results. This module adjusts the content of the messages:
//!
//! - It replaces ids and names that are too long or contain characters that are not allowed.
//! - It converts the arguments of calls to a JSON object.
//! - It removes blank text.
//! - It replaces media with text if the format cannot carry the media.
//! - It removes reasoning that another provider wrote.
//! - It removes Epitome's flags, metadata and residues, because strict gateways reject unknown fields.
//!
//! The result for a message depends only on this message and the messages before it. So if messages are
//! appended to a list, the result for the earlier messages stays the same byte for byte.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use epitome_core::message::{Author, Content, Media, Message, Part, Role, ToolCall, ToolResult};
use epitome_core::view::NOTE;

use crate::media;

/// Prefix for the text of a system message that comes later in the list. It is used in formats that allow a
/// system message only at the start.
pub(crate) const LATER_SYSTEM_PREFIX: &str = "[note from the system]\n";

/// Text for a failed tool result without content.
const FAILED_RESULT: &str = "[error]";

/// The limits of a format: what providers accept in its messages.
#[derive(Debug, Clone, Copy)]
pub struct FormatLimits {
    /// Maximum length of a call's id, in characters.
    pub max_id_length: usize,
    /// Returns whether a user message can carry these media.
    pub accepts_media: fn(&Media) -> bool,
    /// Whether a tool result can carry media.
    pub media_in_results: bool,
    /// Whether a tool result that was received with media is forwarded with these media. This may be true
    /// although `media_in_results` is false, because the provider accepts the media that its own client sent.
    pub received_media_in_results: bool,
    /// Returns whether reasoning is sent. The arguments are the signature and the id of the reasoning.
    pub accepts_reasoning: fn(Option<&str>, Option<&str>) -> bool,
    /// Whether a forwarded request contains all reasoning of the received request, regardless of
    /// `accepts_reasoning`.
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
    /// Item ids that were already sent. An item id is optional, so a duplicate id is removed.
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

    /// Returns the adjusted message. `None` if no part of the message can be sent.
    pub(crate) fn fit(&mut self, message: &Message) -> Option<Message> {
        let mut parts: Vec<Part> =
            message.parts.iter().filter_map(|part| self.part(message.role, part)).collect();
        // Providers reject a message that ends with reasoning.
        while parts.pop_if(|part| matches!(part, Part::Thinking { .. })).is_some() {}
        if parts.is_empty() {
            return None;
        }
        let author = self.author(message);
        Some(Message { author, ..Message::new(message.role, parts) })
    }

    /// Returns the author's name with allowed characters only. `None` if the message has no author.
    pub(crate) fn author(&mut self, message: &Message) -> Option<Author> {
        message.author.as_deref().map(|author| self.authors.allowed(author))
    }

    /// Returns one adjusted part of a message. `None` if the part cannot be sent.
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

    /// Returns the media with their normalized type. `None` if the format cannot carry the media.
    fn accepted(&self, media: &Media) -> Option<Media> {
        let media = media::normalized(media);
        (self.limits.accepts_media)(&media).then_some(media)
    }

    /// Returns the adjusted content of a tool result. The content of a failed result is text and is never
    /// empty. Anthropic rejects other failed results. The other formats have no error flag, so an empty failed
    /// result would look like a success. The text itself is not marked as an error, because a failing tool
    /// reports the failure in its text.
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

    /// Returns the item's id. The result is an empty string if the id is invalid or was already sent. `None` if
    /// there is no id.
    fn item_id(&mut self, start: &str, id: Option<&str>) -> Option<String> {
        let id = id?;
        if !self.limits.has_item_ids {
            return Some(id.to_owned());
        }
        let good = id.starts_with(start) && is_plain(id, 64) && self.item_ids.insert(id.into());
        Some(if good { id.to_owned() } else { String::new() })
    }
}

/// Returns the placeholder user message for a list that would not start with a user message.
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

/// Maps each name to a name with allowed characters and an allowed length. A changed name contains a hash of
/// the original name, so that two different names never become the same name.
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
