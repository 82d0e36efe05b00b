//! Defines the trait that every provider's format implements.
//!
//! Each format implements the trait once, in its own file. The other modules and crates use formats only
//! through this trait. They never compare the names of formats. A new format needs one new file and one line in
//! `registry`.
//!
//! Three methods have no default implementation: [`Format::about`] (a table of facts), [`Format::read`] and
//! [`Format::encode`]. The default methods for answers read the answers of OpenAI's chat completions, because
//! most servers use that format.

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

/// How clearly a message shows its format. The variants are in order, the clearest hint first. If several
/// formats recognise a message, the format with the clearest hint is used. If their hints are equally clear,
/// the format that was registered first is used. A content type that exists in only one format
/// ([`Format::owns_content_type`]) is a weaker hint than [`FormatHint::Shape`] and a clearer hint than the
/// other variants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FormatHint {
    /// Only this format has messages of this shape.
    Shape,
    /// The message's type exists only in this format.
    Type,
    /// The message has a field or a role that exists only in this format.
    Field,
    /// The message has a field of this format, but gateways accept this field in other formats too.
    SharedField,
}

/// How clearly the fields of a request, except its message list, show the request's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestHint {
    /// The request has a field that exists only in this format. This hint is used before the messages are
    /// examined.
    Certain,
    /// The request probably has this format. This hint is used only if no message gives a hint.
    Likely,
}

/// The facts about a format. To create them, write `About { list_field: "input", ..About::new("mine") }`.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The format's name in command-line flags, settings and stored messages. It consists of lower-case
    /// letters, digits and `-`. It must never change, because stored messages contain it.
    pub name: &'static str,
    /// Whether this is Epitome's own format. That format has fields for a message's flags, position and
    /// metadata.
    pub is_native: bool,
    /// The request field that contains the list of messages.
    pub list_field: &'static str,
    /// Whether a request may contain a string in place of the list.
    pub list_may_be_text: bool,
    /// The request field that contains the system prompt. `None` if the system prompt is a message in the list.
    pub system_field: Option<SystemField>,
    /// Whether a reply may consist of several consecutive items. These items are read as one message.
    pub reply_is_items: bool,
    /// Request fields that refer to history stored at the provider.
    pub remote_history_fields: &'static [&'static str],
    /// Item types that refer to history stored at the provider.
    pub remote_history_items: &'static [&'static str],
    /// Writes a message part as a block. Set this function for a format in which user and assistant messages
    /// alternate and each message is a list of blocks. Consecutive messages of the same side (user or
    /// assistant) are then merged, and each block may have its own flags. `None` if the list is flat: messages
    /// of one side may follow each other.
    pub encode_block: Option<fn(&Part) -> Value>,
    /// The `type` of a content piece that contains text, such as `text` or `input_text`.
    pub text_type: &'static str,
    /// The possible names of the request field that limits the output tokens, the oldest name first. If the
    /// provider rejects a name, the model call tries the next name.
    pub limit_names: &'static [&'static str],
    /// Words that mark the relevant events of a stream: events with token counts, stop reasons or failures.
    /// Each pair is a word and the start of an irrelevant value. An event is relevant if it contains the word
    /// in quotation marks. But the word does not count if it is the name of a field whose value starts with the
    /// second string. If the second string is empty, the word always counts.
    /// [`UsageListener`](crate::UsageListener) parses only relevant events.
    pub relevant_words: &'static [(&'static str, &'static str)],
    /// What the provider accepts in messages.
    pub limits: FormatLimits,
    /// The HTTP endpoint. `None` if no provider uses this format.
    pub endpoint: Option<Endpoint>,
}

impl About {
    /// Returns the default facts for a format with this name. Its requests have the form `{"messages": […]}`.
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

/// Describes the request field that contains the system prompt. Epitome reads this field as a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemField {
    /// The name of the request field.
    pub name: &'static str,
    /// The start of the JSON of the message that represents the request field. The field's value and a `}`
    /// complete the JSON.
    pub message_start: &'static str,
    /// The name of the message's field that contains the value.
    pub message_field: &'static str,
}

impl SystemField {
    /// Returns whether this message represents the request field.
    pub fn represents(&self, message: &Value) -> bool {
        let own: Value = serde_json::from_str(&self.message("null")).unwrap_or_default();
        let mut fields = own.as_object().into_iter().flatten();
        message.get(self.message_field).is_some()
            && fields.all(|(name, value)| name == self.message_field || message.get(name) == Some(value))
    }

    /// Returns the JSON of the message that represents the request field with this value. `value` is JSON.
    pub(crate) fn message(&self, value: &str) -> String {
        format!("{}{value}}}", self.message_start)
    }
}

/// The HTTP endpoint of a format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// The provider's name. Settings contain this name (`provider = "openai"`, `[proxy] openai_upstream`). It
    /// is also the first segment of the provider's paths in the proxy (`/openai/v1/…`). All formats of one
    /// provider have the same name here.
    pub provider: &'static str,
    /// The provider's base URL, including the version, such as `https://api.openai.com/v1`.
    pub base_url: &'static str,
    /// The endpoint's path after the base URL, such as `chat/completions`.
    pub route: &'static str,
    /// The route's name in error messages.
    pub route_name: &'static str,
    /// The path that a client of the proxy adds to the proxy's address to get its base URL, such as
    /// `/openai/v1`.
    pub client_base: &'static str,
    /// The environment variable that usually contains the API key.
    pub key_env: &'static str,
    /// The request header for the API key: the header's name, and the text before the key in the header's
    /// value.
    pub key: (&'static str, &'static str),
    /// The names of other request headers that contain a key, the caller's identity or the API version.
    pub credentials: &'static [&'static str],
    /// The headers that Epitome adds to each of its own requests, as pairs of name and value.
    pub headers: &'static [(&'static str, &'static str)],
}

impl Endpoint {
    /// Returns the provider's base URL without the version.
    pub fn address(&self) -> &'static str {
        self.base_url.strip_suffix("/v1").unwrap_or(self.base_url)
    }

    /// Returns the path of this endpoint in the proxy. The proxy reads and condenses requests to this path.
    pub fn proxy_path(&self) -> String {
        format!("/{}/v1/{}", self.provider, self.route)
    }
}

/// A provider's format, see the [module](self).
pub trait Format: Send + Sync + RefUnwindSafe + 'static {
    /// Returns the facts about the format.
    fn about(&self) -> &About;

    /// Returns how clearly this message shows this format. `None` if nothing in the message shows this format.
    fn message_hint(&self, _message: &Object) -> Option<FormatHint> {
        None
    }

    /// Returns whether only this format has content pieces of this `type`.
    fn owns_content_type(&self, _content_type: &str) -> bool {
        false
    }

    /// Returns how clearly the request's fields, except its message list, show this format. `None` if no field
    /// shows it. `system_in_list` says whether a message in the list has the role `system`.
    fn request_hint(&self, _request: &RawFields<'_>, _system_in_list: bool) -> Option<RequestHint> {
        None
    }

    // Messages.

    /// Reads one message without its flags. The caller reads the flags from the message's field `epitome`.
    fn read(&self, wire: &Value) -> Result<Message, DialectError>;

    /// Writes one message without its flags. The message is not adjusted to the provider's limits. If
    /// [`Format::read`] reads the result, it must return the same message.
    fn encode(&self, message: &Message) -> Vec<Value>;

    /// Writes the request fields that contain these messages, adjusted to the provider's limits. The list must
    /// be valid.
    fn write(&self, messages: &[Message]) -> Map<String, Value> {
        let mut fitter = Fitter::new(self.about().limits);
        let fitted = messages.iter().filter_map(|message| fitter.fit(message));
        let list: Vec<Value> = fitted.flat_map(|message| self.encode(&message)).collect();
        Map::from_iter([(self.about().list_field.to_owned(), Value::Array(list))])
    }

    // Rewriting a whole request. Unchanged messages are written byte for byte as they were received.

    /// Returns the pieces of a message. A piece is the smallest unit that can be sent exactly as received.
    fn pieces<'a>(&self, text: &'a str, value: &Value) -> Vec<Piece<'a>> {
        vec![Piece::new(text, self.read(value).map(|message| message.parts).unwrap_or_default())]
    }

    /// Splits a message that Epitome merged from several messages. Returns the blocks and the separate form of
    /// each of them. `None` if the message was not merged.
    fn split(&self, _message: &Message, _wire: &Value) -> Result<Option<Vec<MergedMessage>>, DialectError> {
        Ok(None)
    }

    /// Returns whether an item is neither a user message nor an assistant message. Such an item may come
    /// between a call and its result.
    fn is_neutral(&self, _item: &str) -> bool {
        false
    }

    /// Converts a tool result to the type that matches its call, if the call has an uncommon type. `None` if
    /// `encoded` is not the result of such a call. `call_type` takes the id of a call and returns the call's
    /// type; it returns `None` for calls of the common type.
    fn result_in_call_type(
        &self,
        _encoded: &Value,
        _call_type: &dyn Fn(&str) -> Option<String>,
    ) -> Option<Value> {
        None
    }

    /// Returns whether the results of calls of this type contain text. Only results with text can be compared
    /// with their received form.
    fn results_contain_text(&self, _call_type: &str) -> bool {
        true
    }

    /// Copies data from the received JSON into the encoded message, if the data still applies. `original` is
    /// the message that was read from the JSON `received`. `fitted` is the adjusted message that was encoded as
    /// `encoded`.
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

    /// Reads the body of an answer that is not a stream. Returns [`ReadStatus::Continue`] if the provider is
    /// still working on the answer, and [`ReadStatus::Unexpected`] if the body is not an answer.
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
            // Some servers send an empty stop reason while the answer continues.
            partial.track_choice(index, !text(choice, "finish_reason").is_empty());
        }
        // An event may have no choices. The last event contains only the token counts, and gateways may send
        // events that contain only unknown data.
        let Some(choice) = choices.first() else { return ReadStatus::Continue };
        // Some servers send the whole message again in the last event, without a `delta`. That copy is ignored.
        if choice.get("delta").is_some_and(|delta| chat::append_text(partial, delta).is_none()) {
            return ReadStatus::Unexpected;
        }
        // No text follows the stop reason, but the token counts and the end mark follow it.
        chat::set_finish(partial, choice);
        ReadStatus::Continue
    }

    /// Stores the provider's token counts in `sums`. In this format, `prompt_tokens` includes the tokens that
    /// were read from a cache and the tokens that were written to a cache.
    fn read_usage(&self, reply: &Value, sums: &mut PartialUsage) {
        let Some(usage) = reply.get("usage") else { return };
        // DeepSeek and Moonshot use their own fields. OpenRouter and LiteLLM forward Anthropic's numbers.
        let read = ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"];
        let write = ["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"];
        let first = |paths: &[&str]| paths.iter().find_map(|path| tokens(usage.pointer(path)));
        let output = tokens(usage.get("completion_tokens"));
        let input = tokens(usage.get("prompt_tokens"));
        sums.replace(PartialUsage::from_total(input, first(&read), first(&write), output));
    }

    /// Returns the body of an error in the provider's form, so that the provider's clients can read it.
    fn error_body(&self, error: &ErrorReply<'_>) -> Value {
        let ErrorReply { message, kind, code, .. } = error;
        json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
    }
}

/// A message that was merged with others into one wire message. Contains the range of its blocks, and the
/// message as a separate wire message.
pub type MergedMessage = (Range<usize>, Value);

/// An error that Epitome returns to a client instead of a provider's answer.
#[derive(Debug, Clone, Copy)]
pub struct ErrorReply<'a> {
    /// The error message.
    pub message: &'a str,
    /// The provider's error type for this error.
    pub kind: &'a str,
    /// Epitome's error code.
    pub code: &'a str,
    /// The request's id.
    pub id: &'a str,
}
