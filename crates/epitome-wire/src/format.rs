//! Defines the trait that every provider's format implements.
//!
//! Each format implements the trait once, in its own file. Reading, writing, rewriting, model calls, answer
//! parsing and HTTP use formats only through it and never match on names. A new format needs one new file and
//! one line in `registry`.
//!
//! Three methods have no default: [`Format::about`] (a table of facts), [`Format::read`] and
//! [`Format::spell`]. The defaults for answers are those of chat completions, which most servers use.

use std::ops::Range;
use std::panic::RefUnwindSafe;

use epitome_core::message::{Message, Part};
use serde_json::{Map, Value, json};

use crate::asking::{Hearing, Question, Then, text};
use crate::chat;
use crate::field::{DialectError, Object, given};
use crate::fit::{Fitter, Wants};
use crate::pieces::Piece;
use crate::raw::Members;
use crate::usage::{Usage, tokens};

/// How clearly a message shows its format, from the clearest sign to the weakest. If several formats
/// recognise a message, the clearest sign is used; of equal signs, the format that was registered first. A
/// content type that only one format has ([`Format::has_piece`]) ranks directly after [`Sign::Shape`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// Only this format has messages of this shape.
    Shape,
    /// The message's type exists only in this format.
    Type,
    /// A field or a role exists only in this format.
    Field,
    /// A field that gateways also accept in other formats.
    Mark,
}

/// How clearly the other fields of a request show its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestSign {
    /// Only this format has such a field: used before the messages are examined.
    Own,
    /// Probably this format: used if no message shows a sign.
    Likely,
}

/// The facts about a format: `About { list: "input", ..About::new("mine") }`.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// The name in flags, settings and stored messages: lower-case letters, digits and `-`. It never changes.
    pub name: &'static str,
    /// Whether it is Epitome's own format, which has fields for a message's flags, position and metadata.
    pub is_native: bool,
    /// The request field that contains the list of messages.
    pub list: &'static str,
    /// Whether a string may replace the whole list.
    pub list_may_be_text: bool,
    /// The request field that contains the system prompt; `None` if it is a message.
    pub head: Option<Head>,
    /// Whether a reply is several consecutive items, which are read as one message.
    pub reply_is_items: bool,
    /// Request fields that refer to history stored at the provider.
    pub elsewhere: &'static [&'static str],
    /// Item types that refer to such history.
    pub references: &'static [&'static str],
    /// Writes a part as a block, in formats whose messages are lists of blocks by two alternating sides.
    /// Neighbours of one side are merged, and each block may have its own flags. `None` if the list is flat.
    pub block: Option<fn(&Part) -> Value>,
    /// The type of a text piece of content.
    pub text_kind: &'static str,
    /// The names of the field that limits the output tokens, oldest first. If the provider rejects one, the
    /// next is tried.
    pub limit_names: &'static [&'static str],
    /// Strings in quotation marks that occur in events with token counts, stop reasons or failures. Each has
    /// the start of a value that makes it irrelevant, or an empty string. Readers that need only this
    /// information do not parse other events.
    pub telling: &'static [(&'static str, &'static str)],
    /// The limits for sent messages.
    pub wants: Wants,
    /// The HTTP endpoint; `None` if no provider uses this format.
    pub endpoint: Option<Endpoint>,
}

impl About {
    /// Returns a format whose requests are `{"messages": […]}`, with default properties.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            is_native: false,
            list: "messages",
            list_may_be_text: false,
            head: None,
            reply_is_items: false,
            elsewhere: &[],
            references: &[],
            block: None,
            text_kind: "text",
            limit_names: &["max_tokens"],
            telling: &[("usage", "null"), ("finish_reason", "null"), ("error", "null"), ("index", "0")],
            wants: chat::WANTS,
            endpoint: None,
        }
    }
}

/// The system prompt in formats that have a request field for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The request field.
    pub field: &'static str,
    /// The start of the message that represents it; the value and a `}` follow.
    pub opening: &'static str,
    /// The field of that message that contains the value.
    pub inner: &'static str,
}

impl Head {
    /// Returns whether this message represents the field.
    pub fn stands_for(&self, message: &Value) -> bool {
        let own: Value = serde_json::from_str(&self.message("null")).unwrap_or_default();
        let mut fields = own.as_object().into_iter().flatten();
        message.get(self.inner).is_some()
            && fields.all(|(name, value)| name == self.inner || message.get(name) == Some(value))
    }

    /// Returns the message that represents this value of the field.
    pub(crate) fn message(&self, value: &str) -> String {
        format!("{}{value}}}", self.opening)
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
    pub called: &'static str,
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

/// A provider's format. See the [module](self).
pub trait Format: Send + Sync + RefUnwindSafe + 'static {
    /// Returns the facts about the format.
    fn about(&self) -> &About;

    /// Returns how clearly this message shows this format, or `None`.
    fn sign(&self, _message: &Object) -> Option<Sign> {
        None
    }

    /// Returns whether only this format has content pieces of this `type`.
    fn has_piece(&self, _kind: &str) -> bool {
        false
    }

    /// Returns how clearly the request's fields, except its list, show this format. `system_in_list` says
    /// whether a message in the list has the role `system`.
    fn request_sign(&self, _request: &Members<'_>, _system_in_list: bool) -> Option<RequestSign> {
        None
    }

    // Messages.

    /// Reads one message. The caller reads its flags (`epitome: {…}`).
    fn read(&self, wire: &Value) -> Result<Message, DialectError>;

    /// Writes one message without adjustment and flags. Reading the result must produce the same message.
    fn spell(&self, message: &Message) -> Vec<Value>;

    /// Writes the request fields for a valid list.
    fn write(&self, messages: &[Message]) -> Map<String, Value> {
        let mut fitter = Fitter::new(self.about().wants);
        let fitted = messages.iter().filter_map(|message| fitter.fit(message));
        let list: Vec<Value> = fitted.flat_map(|message| self.spell(&message)).collect();
        Map::from_iter([(self.about().list.to_owned(), Value::Array(list))])
    }

    // Rewriting a whole request: unchanged messages are written byte for byte.

    /// Returns the pieces of a message. Each piece is sent exactly as received, or not at all.
    fn pieces<'a>(&self, text: &'a str, value: &Value) -> Vec<Piece<'a>> {
        vec![Piece::new(text, self.read(value).map(|message| message.parts).unwrap_or_default())]
    }

    /// Splits a message that was merged from several. Returns the blocks of each and its stand-alone form;
    /// `None` if it is a single message.
    fn split(&self, _message: &Message, _wire: &Value) -> Result<Option<Vec<Merged>>, DialectError> {
        Ok(None)
    }

    /// Returns whether an item belongs to no side, so that it may be between a call and its result.
    fn is_aside(&self, _item: &str) -> bool {
        false
    }

    /// Converts a result to the type of its call, for calls of an uncommon type. `None` if `spelled` is not
    /// such a result.
    fn answer_in_form(&self, _spelled: &Value, _form: &dyn Fn(&str) -> Option<String>) -> Option<Value> {
        None
    }

    /// Returns whether results of calls of this type contain text, so that they can be compared.
    fn form_has_words(&self, _form: &str) -> bool {
        true
    }

    /// Copies data of the received message into the written one, where it still applies.
    fn keep_inside(&self, _spelled: &mut Object, _came: &str, _own: &Message, _fitted: &Message) {}

    // Model calls and their answers.

    /// Returns the request body for a question.
    fn ask(&self, question: &Question<'_>) -> Value {
        let mut messages = Vec::new();
        if !question.system.is_empty() {
            messages.push(json!({"role": "system", "content": question.system}));
        }
        messages.push(json!({"role": "user", "content": question.user}));
        given(json!({
            "model": question.model,
            "messages": messages,
            (question.limit): question.most,
            "stream": question.stream,
            "stream_options": question.stream.then(|| json!({"include_usage": true})),
        }))
    }

    /// Reads a complete body. Returns [`Then::GoOn`] if the provider is still working on the answer, and
    /// [`Then::Odd`] if the body is not an answer.
    fn take(&self, hearing: &mut Hearing, body: &Value) -> Then {
        match (self.hear(hearing, body), body.pointer("/choices/0/message")) {
            (Then::GoOn, Some(message @ Value::Object(_))) if chat::say(hearing, message).is_some() => {
                Then::End
            }
            (Then::GoOn, _) => Then::Odd,
            (then, _) => then,
        }
    }

    /// Reads one event of a stream.
    fn hear(&self, hearing: &mut Hearing, event: &Value) -> Then {
        self.count(event, &mut hearing.usage);
        if let Some(error) = chat::failure(event) {
            return Then::Failed(error);
        }
        let choices = event.get("choices").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for choice in choices {
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
            // Some servers send an empty stop reason instead of none.
            hearing.follow(index, !text(choice, "finish_reason").is_empty());
        }
        // The last event contains only the usage. Events of a gateway may contain only unknown data.
        let Some(choice) = choices.first() else { return Then::GoOn };
        // Some servers repeat the whole message in the last event, without a delta.
        if choice.get("delta").is_some_and(|delta| chat::say(hearing, delta).is_none()) {
            return Then::Odd;
        }
        // No text follows the stop reason, but the usage and the end mark do.
        chat::stop(hearing, choice);
        Then::GoOn
    }

    /// Adds the provider's token counts. In this format the prompt tokens include those read from and written
    /// to a cache.
    fn count(&self, said: &Value, sums: &mut Usage) {
        let Some(usage) = said.get("usage") else { return };
        // DeepSeek and Moonshot use their own fields; OpenRouter and LiteLLM forward Anthropic's numbers.
        let read = ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"];
        let write = ["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"];
        let first = |places: &[&str]| places.iter().find_map(|place| tokens(usage.pointer(place)));
        let output = tokens(usage.get("completion_tokens"));
        sums.replace(Usage::parted(tokens(usage.get("prompt_tokens")), first(&read), first(&write), output));
    }

    /// Returns an error in the provider's form, for its clients.
    fn refusal(&self, refusal: &Refusal<'_>) -> Value {
        let Refusal { message, kind, code, .. } = refusal;
        json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
    }
}

/// A message that was merged into another: its blocks, and its stand-alone wire message.
pub type Merged = (Range<usize>, Value);

/// An error that Epitome returns in place of a provider.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// The error message.
    pub message: &'a str,
    /// The provider's type for such errors.
    pub kind: &'a str,
    /// Epitome's error code.
    pub code: &'a str,
    /// The request's id.
    pub id: &'a str,
}
