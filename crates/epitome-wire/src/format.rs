//! Defines the trait that every provider's format implements.
//!
//! Each format implements the trait once, in its own file. The other modules and crates use formats only
//! through the trait and never match on names. A new format needs one new file and one line in `registry`.
//!
//! Three methods have no default: [`Format::about`] (a table of facts), [`Format::read`] and
//! [`Format::encode`]. The defaults for answers are those of chat completions, which most servers use.

use std::ops::Range;
use std::panic::RefUnwindSafe;

use epitome_core::message::{Message, Part};
use serde_json::{Map, Value, json};

use crate::answer::{PartialAnswer, Question, ReadStatus, text};
use crate::chat;
use crate::field::{DialectError, Object, without_nulls};
use crate::fit::{Fitter, FormatLimits};
use crate::pieces::Piece;
use crate::raw::RawFields;
use crate::usage::{PartialUsage, tokens};

/// How clearly a message shows its format, from the clearest hint to the weakest. If several formats
/// recognise a message, the clearest hint is used; of equal hints, the format that was registered first. A
/// content type that only one format has ([`Format::owns_content_type`]) ranks directly after
/// [`FormatHint::Shape`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FormatHint {
    /// Only this format has messages of this shape.
    Shape,
    /// The message's type exists only in this format.
    Type,
    /// A field or a role exists only in this format.
    Field,
    /// A field of this format that gateways also accept in other formats.
    SharedField,
}

/// How clearly the other fields of a request show its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestHint {
    /// Only this format has such a field: used before the messages are examined.
    Certain,
    /// Probably this format: used if no message gives a hint.
    Likely,
}

/// The facts about a format: `About { list_field: "input", ..About::new("mine") }`.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The name in flags, settings and stored messages: lower-case letters, digits and `-`. It never changes.
    pub name: &'static str,
    /// Whether it is Epitome's own format, which has fields for a message's flags, position and metadata.
    pub is_native: bool,
    /// The request field that contains the list of messages.
    pub list_field: &'static str,
    /// Whether a string may replace the whole list.
    pub list_may_be_text: bool,
    /// The request field that contains the system prompt; `None` if the system prompt is a message.
    pub system_field: Option<SystemField>,
    /// Whether a reply is several consecutive items, which are read as one message.
    pub reply_is_items: bool,
    /// Request fields that refer to history stored at the provider.
    pub remote_history_fields: &'static [&'static str],
    /// Item types that refer to history stored at the provider.
    pub remote_history_items: &'static [&'static str],
    /// Writes a part as a block, in formats whose messages are lists of blocks by two alternating sides.
    /// Consecutive messages of one side are merged, and each block may have its own flags. `None` if the list
    /// is flat.
    pub encode_block: Option<fn(&Part) -> Value>,
    /// The type of a text piece of content.
    pub text_type: &'static str,
    /// The names of the field that limits the output tokens, oldest first. If the provider rejects one, the
    /// next is tried.
    pub limit_names: &'static [&'static str],
    /// Quoted strings that occur in events with token counts, stop reasons or failures. The second string of a
    /// pair is the start of a value that makes the event irrelevant; empty if there is none. Readers that need
    /// only this information do not parse other events.
    pub relevant_words: &'static [(&'static str, &'static str)],
    /// What the provider accepts in messages.
    pub limits: FormatLimits,
    /// The HTTP endpoint; `None` if no provider uses this format.
    pub endpoint: Option<Endpoint>,
}

impl About {
    /// Returns a format whose requests are `{"messages": […]}`, with default properties.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            is_native: false,
            list_field: "messages",
            list_may_be_text: false,
            system_field: None,
            reply_is_items: false,
            remote_history_fields: &[],
            remote_history_items: &[],
            encode_block: None,
            text_type: "text",
            limit_names: &["max_tokens"],
            relevant_words: &[
                ("usage", "null"),
                ("finish_reason", "null"),
                ("error", "null"),
                ("index", "0"),
            ],
            limits: chat::LIMITS,
            endpoint: None,
        }
    }
}

/// The system prompt in formats that have a request field for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemField {
    /// The request field.
    pub name: &'static str,
    /// The start of the JSON of the message that represents the field. The value and a `}` follow it.
    pub message_start: &'static str,
    /// The field of that message that contains the value.
    pub message_field: &'static str,
}

impl SystemField {
    /// Returns whether this message represents the field.
    pub fn represents(&self, message: &Value) -> bool {
        let own: Value = serde_json::from_str(&self.message("null")).unwrap_or_default();
        let mut fields = own.as_object().into_iter().flatten();
        message.get(self.message_field).is_some()
            && fields.all(|(name, value)| name == self.message_field || message.get(name) == Some(value))
    }

    /// Returns the message that represents this value of the field.
    pub(crate) fn message(&self, value: &str) -> String {
        format!("{}{value}}}", self.message_start)
    }
}

/// The HTTP endpoint of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The provider: its name in settings (`provider = "openai"`, `[proxy] openai_upstream`) and the first
    /// segment of its paths in the proxy (`/openai/v1/…`). Formats of one provider share it.
    pub provider: &'static str,
    /// The provider's base URL, including the version: `https://api.openai.com/v1`.
    pub base_url: &'static str,
    /// Its route after the version: `chat/completions`.
    pub route: &'static str,
    /// The route's name in errors.
    pub route_name: &'static str,
    /// The end of the base URL of a client that uses the proxy.
    pub client_base: &'static str,
    /// The environment variable that usually contains the key.
    pub key_env: &'static str,
    /// The header for the key, and the prefix before the key.
    pub key: (&'static str, &'static str),
    /// Other headers that contain a key, the caller's identity or the API version.
    pub credentials: &'static [&'static str],
    /// Headers of every request.
    pub headers: &'static [(&'static str, &'static str)],
}

impl Endpoint {
    /// Returns the provider's base URL without the version.
    pub fn address(&self) -> &'static str {
        self.base_url.strip_suffix("/v1").unwrap_or(self.base_url)
    }

    /// Returns the proxy path whose requests are read and condensed.
    pub fn proxy_path(&self) -> String {
        format!("/{}/v1/{}", self.provider, self.route)
    }
}

/// A provider's format, see the [module](self).
pub trait Format: Send + Sync + RefUnwindSafe + 'static {
    /// Returns the facts about the format.
    fn about(&self) -> &About;

    /// Returns how clearly this message shows this format; `None` if nothing indicates it.
    fn message_hint(&self, _message: &Object) -> Option<FormatHint> {
        None
    }

    /// Returns whether only this format has content pieces of this `type`.
    fn owns_content_type(&self, _content_type: &str) -> bool {
        false
    }

    /// Returns how clearly the request's fields, except its list, give a hint of this format. `system_in_list`
    /// says whether a message in the list has the role `system`.
    fn request_hint(&self, _request: &RawFields<'_>, _system_in_list: bool) -> Option<RequestHint> {
        None
    }

    // Messages.

    /// Reads one message. The caller reads its flags (`epitome: {…}`).
    fn read(&self, wire: &Value) -> Result<Message, DialectError>;

    /// Writes one message without flags, and without adjusting it to the provider's limits. Reading the result
    /// must produce the same message.
    fn encode(&self, message: &Message) -> Vec<Value>;

    /// Writes the request fields for a valid list, adjusted to the provider's limits.
    fn write(&self, messages: &[Message]) -> Map<String, Value> {
        let mut fitter = Fitter::new(self.about().limits);
        let fitted = messages.iter().filter_map(|message| fitter.fit(message));
        let list: Vec<Value> = fitted.flat_map(|message| self.encode(&message)).collect();
        Map::from_iter([(self.about().list_field.to_owned(), Value::Array(list))])
    }

    // Rewriting a whole request. Unchanged messages are written byte for byte.

    /// Returns the pieces of a message. Each piece is sent exactly as received, or not at all.
    fn pieces<'a>(&self, text: &'a str, value: &Value) -> Vec<Piece<'a>> {
        vec![Piece::new(text, self.read(value).map(|message| message.parts).unwrap_or_default())]
    }

    /// Splits a message that was merged from several. Returns the blocks of each and its stand-alone form;
    /// `None` if it is a single message.
    fn split(&self, _message: &Message, _wire: &Value) -> Result<Option<Vec<MergedMessage>>, DialectError> {
        Ok(None)
    }

    /// Returns whether an item is neither the user's nor the assistant's, so that it may be between a call and
    /// its result.
    fn is_neutral(&self, _item: &str) -> bool {
        false
    }

    /// Converts a result to the type of its call, for calls of an uncommon type. `None` if `encoded` is not
    /// such a result. `call_type` returns the uncommon type of a call by the call's id.
    fn result_in_call_type(
        &self,
        _encoded: &Value,
        _call_type: &dyn Fn(&str) -> Option<String>,
    ) -> Option<Value> {
        None
    }

    /// Returns whether results of calls of this type contain text, so that they can be compared.
    fn results_contain_text(&self, _call_type: &str) -> bool {
        true
    }

    /// Copies data of the received JSON into the encoded message, where it still applies. `original` is the
    /// message that was read from `received`; `fitted` is the message that was encoded.
    fn copy_received_fields(
        &self,
        _encoded: &mut Object,
        _received: &str,
        _original: &Message,
        _fitted: &Message,
    ) {
    }

    // Model calls and their answers.

    /// Returns the request body for a question.
    fn request_body(&self, question: &Question<'_>) -> Value {
        let mut messages = Vec::new();
        if !question.system.is_empty() {
            messages.push(json!({"role": "system", "content": question.system}));
        }
        messages.push(json!({"role": "user", "content": question.user}));
        without_nulls(json!({
            "model": question.model,
            "messages": messages,
            (question.limit_field): question.max_output,
            "stream": question.stream,
            "stream_options": question.stream.then(|| json!({"include_usage": true})),
        }))
    }

    /// Reads a complete body. Returns [`ReadStatus::Continue`] if the provider is still working on the answer,
    /// and [`ReadStatus::Unexpected`] if the body is not an answer.
    fn read_body(&self, partial: &mut PartialAnswer, body: &Value) -> ReadStatus {
        match (self.read_event(partial, body), body.pointer("/choices/0/message")) {
            (ReadStatus::Continue, Some(message @ Value::Object(_)))
                if chat::append_text(partial, message).is_some() =>
            {
                ReadStatus::Done
            }
            (ReadStatus::Continue, _) => ReadStatus::Unexpected,
            (status, _) => status,
        }
    }

    /// Reads one event of a stream.
    fn read_event(&self, partial: &mut PartialAnswer, event: &Value) -> ReadStatus {
        self.read_usage(event, &mut partial.usage);
        if let Some(error) = chat::failure(event) {
            return ReadStatus::Failed(error);
        }
        let choices = event.get("choices").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for choice in choices {
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
            // Some servers send an empty stop reason instead of none.
            partial.track_choice(index, !text(choice, "finish_reason").is_empty());
        }
        // The last event contains only the usage. A gateway's events may contain only unknown data.
        let Some(choice) = choices.first() else { return ReadStatus::Continue };
        // Some servers repeat the whole message in the last event, without a delta.
        if choice.get("delta").is_some_and(|delta| chat::append_text(partial, delta).is_none()) {
            return ReadStatus::Unexpected;
        }
        // No text follows the stop reason, but the usage and the end mark do.
        chat::set_finish(partial, choice);
        ReadStatus::Continue
    }

    /// Adds the provider's token counts. In this format the prompt tokens include those read from and written
    /// to a cache.
    fn read_usage(&self, reply: &Value, sums: &mut PartialUsage) {
        let Some(usage) = reply.get("usage") else { return };
        // DeepSeek and Moonshot use their own fields; OpenRouter and LiteLLM forward Anthropic's numbers.
        let read = ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"];
        let write = ["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"];
        let first = |paths: &[&str]| paths.iter().find_map(|path| tokens(usage.pointer(path)));
        let output = tokens(usage.get("completion_tokens"));
        let input = tokens(usage.get("prompt_tokens"));
        sums.replace(PartialUsage::from_total(input, first(&read), first(&write), output));
    }

    /// Returns an error in the provider's form, for its clients.
    fn error_body(&self, error: &ErrorReply<'_>) -> Value {
        let ErrorReply { message, kind, code, .. } = error;
        json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
    }
}

/// A message that was merged into another: its blocks, and its stand-alone wire message.
pub type MergedMessage = (Range<usize>, Value);

/// An error that Epitome returns in place of a provider.
#[derive(Debug, Clone, Copy)]
pub struct ErrorReply<'a> {
    /// The error message.
    pub message: &'a str,
    /// The provider's type for such errors.
    pub kind: &'a str,
    /// Epitome's error code.
    pub code: &'a str,
    /// The request's id.
    pub id: &'a str,
}
