//! What a provider's format has to say for itself.
//!
//! One trait, implemented once for each format, in one file each. Reading, writing, rewriting, asking, listening and HTTP
//! ask a format through it and match on no name, so one more format is one more file and one line in `registry`.
//!
//! Three methods have no default: [`Format::about`], the facts in a table, [`Format::read`] and [`Format::spell`]. By default
//! everything about answers is as in chat completions, which most servers speak.

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

/// How clearly a message shows that it is of a format, from the clearest to the vaguest. Where several formats see themselves in
/// one message, the clearest counts, and of equal ones that of the format that was registered first. A piece of content that
/// only one format has ([`Format::has_piece`]) counts right after [`Sign::Shape`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// No other format has a message of this shape.
    Shape,
    /// Its type is one of its own.
    Type,
    /// A field or a role is its own.
    Field,
    /// A field that gateways take on other formats too.
    Mark,
}

/// How clearly the other fields of a request show its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestSign {
    /// No other format has such a field: this counts before any message does.
    Own,
    /// Most likely: this counts where no message shows anything.
    Likely,
}

/// The facts about a format: `About { list: "input", ..About::new("mine") }`.
#[derive(Debug, Clone, Copy)]
pub struct About {
    /// What it is called in flags, settings and stored messages: lower case letters, digits and `-`. It never changes.
    pub name: &'static str,
    /// Whether it is Epitome's own, which says a message's flags, place and notes in fields of its own.
    pub is_native: bool,
    /// The field of a request that is the list of messages.
    pub list: &'static str,
    /// Whether a text may stand for the whole list.
    pub list_may_be_text: bool,
    /// The field of a request that is the system prompt; none where that is a message.
    pub head: Option<Head>,
    /// Whether a reply is several items in a row, which are one message here.
    pub reply_is_items: bool,
    /// Fields of a request by which the provider holds part of the history itself.
    pub elsewhere: &'static [&'static str],
    /// Types of items that stand for such a part.
    pub references: &'static [&'static str],
    /// How a part is spelled as a block, where messages are lists of blocks by two sides that take turns: neighbours of one
    /// side are merged, and each block may have flags of its own. None where a list is flat.
    pub block: Option<fn(&Part) -> Value>,
    /// The type of a piece of content that is words.
    pub text_kind: &'static str,
    /// The names of the field that limits what may be written, the oldest first. Where one is refused, the next is tried.
    pub limit_names: &'static [&'static str],
    /// Words that may stand between two quotation marks in an event that says what was counted, how an answer ended or what
    /// failed; each with the beginning of a value behind it that says nothing of the kind, or with nothing. Events without
    /// them are not parsed by who wants to know only that.
    pub telling: &'static [(&'static str, &'static str)],
    /// What of a message can be sent.
    pub wants: Wants,
    /// Where it is spoken; none where no provider speaks it.
    pub endpoint: Option<Endpoint>,
}

impl About {
    /// A format whose requests are `{"messages": […]}`, with nothing special about it.
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

/// The system prompt of formats that have it in a field of the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The field.
    pub field: &'static str,
    /// How the message begins that stands for it; its value and a `}` follow.
    pub opening: &'static str,
    /// The field of that message that holds the value.
    pub inner: &'static str,
}

impl Head {
    /// Whether this message stands for the field.
    pub fn stands_for(&self, message: &Value) -> bool {
        let own: Value = serde_json::from_str(&self.message("null")).unwrap_or_default();
        let mut fields = own.as_object().into_iter().flatten();
        message.get(self.inner).is_some()
            && fields.all(|(name, value)| name == self.inner || message.get(name) == Some(value))
    }

    /// The message that stands for this value of the field.
    pub(crate) fn message(&self, value: &str) -> String {
        format!("{}{value}}}", self.opening)
    }
}

/// Where a format is spoken over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Who speaks it: the name in settings (`provider = "openai"`, `[proxy] openai_upstream`) and the beginning of its
    /// paths in the proxy (`/openai/v1/…`). Formats of one provider share it.
    pub provider: &'static str,
    /// The provider's own address, up to and with the version: `https://api.openai.com/v1`.
    pub base_url: &'static str,
    /// Its route after the version: `chat/completions`.
    pub route: &'static str,
    /// What the route is called in errors.
    pub called: &'static str,
    /// What a client's base URL ends with that points at the proxy.
    pub client_base: &'static str,
    /// The environment's variable that usually holds the key.
    pub key_env: &'static str,
    /// The header that shows a key, and what stands before the key in it.
    pub key: (&'static str, &'static str),
    /// Other headers in which the provider takes a key, tells who asks, or in which version.
    pub credentials: &'static [&'static str],
    /// Headers that every request has.
    pub headers: &'static [(&'static str, &'static str)],
}

impl Endpoint {
    /// The provider's own address, without the version.
    pub fn address(&self) -> &'static str {
        self.base_url.strip_suffix("/v1").unwrap_or(self.base_url)
    }

    /// The path in the proxy whose requests are read and condensed.
    pub fn proxy_path(&self) -> String {
        format!("/{}/v1/{}", self.provider, self.route)
    }
}

/// A provider's format. See the [module](self).
pub trait Format: Send + Sync + RefUnwindSafe + 'static {
    /// The facts about it.
    fn about(&self) -> &About;

    /// Whether this message shows that it is of this format.
    fn sign(&self, _message: &Object) -> Option<Sign> {
        None
    }

    /// Whether only this format has pieces of content of this `type`.
    fn has_piece(&self, _kind: &str) -> bool {
        false
    }

    /// Whether the fields of a request, its list aside, show that it is of this format. `system_in_list`: whether a message of
    /// the list has the role `system`.
    fn request_sign(&self, _request: &Members<'_>, _system_in_list: bool) -> Option<RequestSign> {
        None
    }

    // Messages.

    /// Reads one message. The flags on it (`epitome: {…}`) are read by the caller.
    fn read(&self, wire: &Value) -> Result<Message, DialectError>;

    /// Spells one message plainly, without flags. What is spelled must be read as the same message again.
    fn spell(&self, message: &Message) -> Vec<Value>;

    /// Writes the fields of a request that carry a valid list.
    fn write(&self, messages: &[Message]) -> Map<String, Value> {
        let mut fitter = Fitter::new(self.about().wants);
        let fitted = messages.iter().filter_map(|message| fitter.fit(message));
        let list: Vec<Value> = fitted.flat_map(|message| self.spell(&message)).collect();
        Map::from_iter([(self.about().list.to_owned(), Value::Array(list))])
    }

    // Rewriting a whole request: what stays the same goes out in its own letters.

    /// What a message is made of: each piece goes out as it came, or not at all.
    fn pieces<'a>(&self, text: &'a str, value: &Value) -> Vec<Piece<'a>> {
        vec![Piece::new(text, self.read(value).map(|message| message.parts).unwrap_or_default())]
    }

    /// The messages that were merged into one of this format, each by its blocks and as it would stand alone; none where it is
    /// one message.
    fn split(&self, _message: &Message, _wire: &Value) -> Result<Option<Vec<Merged>>, DialectError> {
        Ok(None)
    }

    /// Whether an item is said by no side, so that it may stand between a call and its answer.
    fn is_aside(&self, _item: &str) -> bool {
        false
    }

    /// An answer to a call of an uncommon kind, in the form of that kind; none where `spelled` is not such an answer.
    fn answer_in_form(&self, _spelled: &Value, _form: &dyn Fn(&str) -> Option<String>) -> Option<Value> {
        None
    }

    /// Whether answers to calls of this kind hold words, so that they can be compared.
    fn form_has_words(&self, _form: &str) -> bool {
        true
    }

    /// Puts what a message came with into what is spelled in its place, where that still belongs there.
    fn keep_inside(&self, _spelled: &mut Object, _came: &str, _own: &Message, _fitted: &Message) {}

    // Asking a model, and listening to answers.

    /// The body of a request that asks a question.
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

    /// Takes a whole body: [`Then::GoOn`] where the provider still works on the answer, [`Then::Odd`] where it is none.
    fn take(&self, hearing: &mut Hearing, body: &Value) -> Then {
        match (self.hear(hearing, body), body.pointer("/choices/0/message")) {
            (Then::GoOn, Some(message @ Value::Object(_))) if chat::say(hearing, message).is_some() => {
                Then::End
            }
            (Then::GoOn, _) => Then::Odd,
            (then, _) => then,
        }
    }

    /// Takes one event of a stream.
    fn hear(&self, hearing: &mut Hearing, event: &Value) -> Then {
        self.count(event, &mut hearing.usage);
        if let Some(error) = chat::failure(event) {
            return Then::Failed(error);
        }
        let choices = event.get("choices").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for choice in choices {
            let index = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
            // Some servers have an empty reason where others have none.
            hearing.follow(index, !text(choice, "finish_reason").is_empty());
        }
        // The last event brings the usage only; a gateway's own may bring nothing we know.
        let Some(choice) = choices.first() else { return Then::GoOn };
        // Some servers repeat the whole message in the last event, without a delta.
        if choice.get("delta").is_some_and(|delta| chat::say(hearing, delta).is_none()) {
            return Then::Odd;
        }
        // Nothing is said after the reason, but the usage and the end mark still come.
        chat::stop(hearing, choice);
        Then::GoOn
    }

    /// Adds what the provider says it counted. Here the prompt holds what was read from a cache, and what was put into one.
    fn count(&self, said: &Value, sums: &mut Usage) {
        let Some(usage) = said.get("usage") else { return };
        // DeepSeek and Moonshot have their own places; OpenRouter and LiteLLM pass on what Anthropic tells.
        let read = ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"];
        let write = ["/prompt_tokens_details/cache_write_tokens", "/cache_creation_input_tokens"];
        let first = |places: &[&str]| places.iter().find_map(|place| tokens(usage.pointer(place)));
        let output = tokens(usage.get("completion_tokens"));
        sums.replace(Usage::parted(tokens(usage.get("prompt_tokens")), first(&read), first(&write), output));
    }

    /// An error as the provider would say it, for its own clients.
    fn refusal(&self, refusal: &Refusal<'_>) -> Value {
        let Refusal { message, kind, code, .. } = refusal;
        json!({"error": {"message": message, "type": kind, "param": null, "code": code}})
    }
}

/// A message that was merged into another: its blocks, and its wire message alone.
pub type Merged = (Range<usize>, Value);

/// What is refused on behalf of a provider.
#[derive(Debug, Clone, Copy)]
pub struct Refusal<'a> {
    /// What is wrong.
    pub message: &'a str,
    /// The provider's word for such errors.
    pub kind: &'a str,
    /// Ours.
    pub code: &'a str,
    /// The request's id.
    pub id: &'a str,
}
