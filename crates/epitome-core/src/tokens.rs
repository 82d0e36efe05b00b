//! Counts tokens.
//!
//! A [`Counter`] counts the tokens of text, messages, calls and tool schemas. If the model's [`Encoding`] is public,
//! the count of text is exact. Otherwise the counter uses another encoding, and a [`Factor`] corrects the count. The
//! factor is learned from the token counts that the provider reports.
//!
//! Roles and delimiters around the text count as a small fixed [`Overhead`]. [`crate::media`] estimates the tokens of
//! media. The base64 data of media is never counted as text. Text that looks like a special token, such as
//! `<|endoftext|>`, counts as ordinary text.
//!
//! Counting 1 MB of text takes 10 to 40 ms. Without word boundaries in the text, it takes about 330 ms. Therefore do
//! not count tokens on threads that must respond quickly. If you store a count, store the counter's name with it.

use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, LazyLock, OnceLock};

use serde::{Deserialize, Serialize};
use tiktoken::CoreBpe;

use crate::media;
use crate::message::{Content, Message, Part, Tokens, ToolCall, ToolResult};
use crate::setting::{self, SettingError};
use crate::suggest::did_you_mean;

/// A public encoding of text into tokens.
///
/// OpenAI has more encodings than these, but the others count ordinary text in the same way: `o200k_harmony` counts
/// like `o200k_base`, `p50k_edit` counts like `p50k_base`, and `gpt2` counts like `r50k_base`.
///
/// ```
/// use epitome_core::tokens::Encoding;
///
/// assert_eq!("o200k".parse(), Ok(Encoding::O200k));
/// assert_eq!(Encoding::Cl100k.to_string(), "cl100k_base");
/// assert_eq!(
///     "o300k".parse::<Encoding>().unwrap_err().to_string(),
///     "encoding: `o300k` is unknown; o200k_base, cl100k_base, p50k_base and r50k_base are allowed",
/// );
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Encoding {
    /// Used by GPT-4o and all later OpenAI models.
    #[default]
    O200k,
    /// Used by GPT-4, GPT-3.5 and the embedding models.
    Cl100k,
    /// Used by OpenAI's last completion models.
    P50k,
    /// Used by GPT-3 and GPT-2.
    R50k,
}

impl Encoding {
    /// All encodings, newest first.
    pub const ALL: [Self; 4] = [Self::O200k, Self::Cl100k, Self::P50k, Self::R50k];

    /// Returns the full name of the encoding, as OpenAI spells it.
    pub fn name(self) -> &'static str {
        match self {
            Self::O200k => "o200k_base",
            Self::Cl100k => "cl100k_base",
            Self::P50k => "p50k_base",
            Self::R50k => "r50k_base",
        }
    }

    /// Returns the encoding of a model. Returns `None` if the model is unknown, or if its provider does not publish the
    /// encoding, as with Claude and Gemini. In that case, use any encoding and a [`Factor`].
    ///
    /// ```
    /// use epitome_core::tokens::Encoding;
    ///
    /// assert_eq!(Encoding::for_model("gpt-4o-mini"), Some(Encoding::O200k));
    /// assert_eq!(Encoding::for_model("openai/gpt-4"), Some(Encoding::Cl100k));
    /// assert_eq!(Encoding::for_model("claude-opus-4-7"), None);
    /// ```
    pub fn for_model(model: &str) -> Option<Self> {
        // Routers put the provider before the model name: `openai/gpt-4o`.
        let bare = model.rsplit_once('/').map_or(model, |(_, bare)| bare);
        match tiktoken::model_to_encoding(bare)? {
            "o200k_base" | "o200k_harmony" => Some(Self::O200k),
            "cl100k_base" => Some(Self::Cl100k),
            "p50k_base" | "p50k_edit" => Some(Self::P50k),
            "r50k_base" | "gpt2" => Some(Self::R50k),
            _ => None,
        }
    }

    /// Returns the encoding's vocabulary, which is loaded only once. The vocabularies are linked statically and not
    /// looked up by name. Therefore no vocabulary can be missing.
    fn bpe(self) -> &'static CoreBpe {
        static O200K: LazyLock<CoreBpe> = LazyLock::new(tiktoken::encoding::o200k_base);
        static CL100K: LazyLock<CoreBpe> = LazyLock::new(tiktoken::encoding::cl100k_base);
        static P50K: LazyLock<CoreBpe> = LazyLock::new(tiktoken::encoding::p50k_base);
        static R50K: LazyLock<CoreBpe> = LazyLock::new(tiktoken::encoding::r50k_base);
        match self {
            Self::O200k => &O200K,
            Self::Cl100k => &CL100K,
            Self::P50k => &P50K,
            Self::R50k => &R50K,
        }
    }
}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Encoding {
    type Err = SettingError;

    fn from_str(name: &str) -> Result<Self, SettingError> {
        let short = name.strip_suffix("_base").unwrap_or(name);
        let encoding =
            Self::ALL.into_iter().find(|encoding| encoding.name().strip_suffix("_base") == Some(short));
        encoding.ok_or_else(|| {
            let allowed = "o200k_base, cl100k_base, p50k_base and r50k_base";
            let similar = did_you_mean(name, Self::ALL.map(Self::name));
            SettingError::new("encoding", format!("`{name}` is unknown; {similar}{allowed} are allowed"))
        })
    }
}

setting::from_text!(Encoding);

impl From<Encoding> for String {
    fn from(encoding: Encoding) -> Self {
        encoding.name().to_owned()
    }
}

/// The tokens that a message has in addition to its text: roles, brackets and separators.
///
/// Providers do not publish these numbers. The defaults are computed from OpenAI's own examples and rounded up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overhead {
    /// Number of tokens per message for the role and the delimiters.
    pub message: Tokens,
    /// Number of tokens per author, in addition to the tokens of the author's name.
    pub author: Tokens,
    /// Number of tokens per tool call, in addition to the tokens of its name and arguments.
    pub call: Tokens,
    /// Number of tokens per tool schema, in addition to the tokens of its JSON.
    pub tool: Tokens,
}

impl Default for Overhead {
    fn default() -> Self {
        Self { message: 4, author: 2, call: 4, tool: 8 }
    }
}

impl Overhead {
    /// Returns an overhead of zero, so that only the text counts.
    pub const fn none() -> Self {
        Self { message: 0, author: 0, call: 0, tool: 0 }
    }
}

/// Counts tokens. Cheap to clone.
///
/// ```
/// use epitome_core::message::Message;
/// use epitome_core::tokens::{Counter, Encoding};
///
/// let counter = Counter::new(Encoding::O200k);
/// assert_eq!(counter.text("hello world"), 2);
/// assert_eq!(counter.message(&Message::user("hello world")), 6);
///
/// let words = Counter::custom("words", |text| text.split_whitespace().count() as u64);
/// assert_eq!(words.text("one two three"), 3);
/// ```
#[derive(Clone)]
pub struct Counter {
    count: Arc<dyn Fn(&str) -> Tokens + Send + Sync>,
    name: Arc<str>,
    overhead: Overhead,
}

impl Counter {
    /// Creates a counter for `encoding`. The first counter of an encoding loads the vocabulary, which takes up
    /// to 100 ms. Later counters share the vocabulary.
    pub fn new(encoding: Encoding) -> Self {
        let bpe = encoding.bpe();
        Self::custom(encoding.name(), |text| bpe.count(text) as Tokens)
    }

    /// Creates a counter with this name. It counts text with the function `count`.
    ///
    /// Counts are stored with messages under the counter's name, so two functions that count differently need
    /// different names.
    pub fn custom(name: impl Into<Arc<str>>, count: impl Fn(&str) -> Tokens + Send + Sync + 'static) -> Self {
        Self { count: Arc::new(count), name: name.into(), overhead: Overhead::default() }
    }

    /// Returns the same counter with another overhead.
    pub fn with_overhead(mut self, overhead: Overhead) -> Self {
        self.overhead = overhead;
        self
    }

    /// Returns the counter's name. Counters with the same name count text in the same way.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the fixed overhead.
    pub fn overhead(&self) -> Overhead {
        self.overhead
    }

    /// Returns the number of tokens of a text.
    pub fn text(&self, text: &str) -> Tokens {
        (self.count)(text)
    }

    /// Returns the number of tokens of a message as it is sent to a model. This includes the overhead, the author and
    /// all parts. In most dialects, each tool result is a separate message, so each result adds the overhead of a
    /// message.
    ///
    /// Ids, signatures and metadata are not counted, because models do not receive them as text.
    pub fn message(&self, message: &Message) -> Tokens {
        let mut envelope = self.overhead.message;
        if let Some(author) = &message.author {
            envelope = envelope.saturating_add(self.text(author)).saturating_add(self.overhead.author);
        }
        let (mut results, mut rest): (Tokens, Tokens) = (0, envelope);
        let mut says_more = message.parts.is_empty();
        for part in &message.parts {
            let size = match part {
                Part::ToolResult(result) => {
                    results = results.saturating_add(self.result(result).saturating_add(envelope));
                    continue;
                }
                Part::Text { text } | Part::Thinking { text, .. } => self.text(text),
                Part::ToolCall(call) => self.call(call),
                Part::Media(media) => media::tokens(media),
            };
            rest = rest.saturating_add(size);
            says_more = true;
        }
        if says_more { results.saturating_add(rest) } else { results }
    }

    /// Returns the number of tokens of a list of messages.
    pub fn messages(&self, messages: &[Message]) -> Tokens {
        messages.iter().fold(0, |sum, message| sum.saturating_add(self.message(message)))
    }

    fn result(&self, result: &ToolResult) -> Tokens {
        let sizes = result.content.iter().map(|content| match content {
            Content::Text { text } => self.text(text),
            Content::Media(media) => media::tokens(media),
        });
        sizes.fold(0, Tokens::saturating_add)
    }

    /// Returns the number of tokens of a tool call: its name, and its arguments as they are sent.
    pub fn call(&self, call: &ToolCall) -> Tokens {
        let words = self.text(&call.name).saturating_add(self.text(&call.arguments_as_object()));
        words.saturating_add(self.overhead.call)
    }

    /// Returns the number of tokens of the tool schemas, which are part of every request.
    ///
    /// ```
    /// # use epitome_core::tokens::{Counter, Encoding};
    /// let counter = Counter::new(Encoding::O200k);
    /// let tools = [serde_json::json!({ "name": "ls" }), serde_json::json!({ "name": "cat" })];
    /// assert_eq!(counter.tools(&tools), counter.text(r#"{"name":"ls"}"#) + counter.text(r#"{"name":"cat"}"#) + 16);
    /// ```
    pub fn tools(&self, schemas: &[serde_json::Value]) -> Tokens {
        let sizes =
            schemas.iter().map(|schema| self.text(&schema.to_string()).saturating_add(self.overhead.tool));
        sizes.fold(0, Tokens::saturating_add)
    }

    /// Counts a text and stores the count in `cached`, so that a repeated call does not count again.
    pub(crate) fn text_once(&self, text: &str, cached: &OnceLock<(Arc<str>, Tokens)>) -> Tokens {
        match cached.get_or_init(|| (self.name.clone(), self.text(text))) {
            (name, tokens) if *name == self.name => *tokens,
            _ => self.text(text),
        }
    }
}

impl fmt::Debug for Counter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Counter").field("name", &self.name).field("overhead", &self.overhead).finish()
    }
}

/// The ratio between a provider's token counts and the local token counts.
///
/// A factor is used for models whose encoding is not public. Each request size that the provider reports moves the
/// factor towards the ratio of this request. Large requests have more weight than small requests, and new requests have
/// more weight than old ones. The factor therefore depends mainly on the last ten large requests. A single extreme
/// request has a limited influence. Its ratio is limited to between two thirds and 1.5 times the current factor. Its
/// weight is at most a tenth of the remembered tokens, or half of them at the start.
///
/// A factor is applied and displayed in hundredths. It stays between 0.5 and 3, because a larger difference is caused
/// by different content and not by tokenizers. Internally, a factor uses only integers, so that the same reports
/// produce the same factor on every machine.
///
/// ```
/// use epitome_core::tokens::Factor;
///
/// let mut factor = Factor::default();
/// assert_eq!(factor.apply(1_000), 1_000);
/// for _ in 0..10 {
///     factor.learn(20_000, 24_400);
/// }
/// assert_eq!((factor.to_string().as_str(), factor.apply(1_000)), ("1.22", 1_220));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Sums")]
pub struct Factor {
    /// Number of remembered tokens, by the local count: from 1 to [`MEMORY`].
    counted: Tokens,
    /// Number of the same tokens, by the provider's count.
    reported: Tokens,
}

/// A factor that was deserialized and is not yet validated.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sums {
    counted: Tokens,
    reported: Tokens,
}

/// Maximum number of remembered tokens, by the local count.
const MEMORY: Tokens = 1_000_000;
/// Number of remembered tokens at the start. It is small, so that the first real report has an effect.
const START: Tokens = 2_000;
/// Minimum size of a report in tokens. In smaller requests, the count depends more on the overhead than on the text.
const TINY: Tokens = 200;

impl Factor {
    /// Updates the factor from one request. `counted` is the local token count of the request, and `reported` is the
    /// provider's count.
    ///
    /// Both numbers must describe the same request, including system prompt and tools. `counted` must come from a
    /// [`Counter`]. Do not pass requests with media, because the tokens of media are only estimated. The call has no
    /// effect if `reported` is 0 or if `counted` is less than 200.
    pub fn learn(&mut self, counted: Tokens, reported: Tokens) {
        if counted < TINY || reported == 0 {
            return;
        }
        let weight = counted.min(self.counted).min(MEMORY / 10);
        let expected = rescaled(weight, self.reported, self.counted);
        let clamped = rescaled(weight, reported, counted).clamp(expected * 2 / 3, expected * 3 / 2);

        self.counted += weight;
        self.reported += clamped;
        if self.counted > MEMORY {
            self.reported = rescaled(self.reported, MEMORY, self.counted);
            self.counted = MEMORY;
        }
        self.reported = self.reported.clamp(self.counted.div_ceil(2), self.counted * 3);
    }

    /// Estimates the provider's token count from the local token count. Rounds up.
    pub fn apply(&self, tokens: Tokens) -> Tokens {
        let product = u128::from(tokens) * u128::from(self.hundredths());
        Tokens::try_from(product.div_ceil(100)).unwrap_or(Tokens::MAX)
    }

    /// Returns the factor in hundredths, rounded to the nearest whole number. The result is from 50 to 300.
    pub fn hundredths(&self) -> u64 {
        (self.reported * 100 + self.counted / 2) / self.counted
    }
}

/// Returns `tokens` multiplied by `by / unit`. If `unit` is 0, returns `tokens` unchanged.
///
/// ```
/// use epitome_core::condense::rescaled;
///
/// assert_eq!(rescaled(300, 110, 100), 330);
/// assert_eq!(rescaled(300, 110, 0), 300); // the ratio is unknown
/// ```
pub fn rescaled(tokens: Tokens, by: Tokens, unit: Tokens) -> Tokens {
    let product = u128::from(tokens) * u128::from(by);
    product.checked_div(u128::from(unit)).map_or(tokens, |scaled| scaled.try_into().unwrap_or(Tokens::MAX))
}

impl Default for Factor {
    /// Returns the factor 1, which is used until the provider reports a token count.
    fn default() -> Self {
        Self { counted: START, reported: START }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = self.hundredths();
        write!(f, "{}.{:02}", hundredths / 100, hundredths % 100)
    }
}

impl TryFrom<Sums> for Factor {
    type Error = String;

    fn try_from(Sums { counted, reported }: Sums) -> Result<Self, String> {
        // The order matters: the second check cannot overflow if the first has passed.
        if (1..=MEMORY).contains(&counted) && (counted.div_ceil(2)..=counted * 3).contains(&reported) {
            return Ok(Self { counted, reported });
        }
        Err(format!(
            "factor: counted {counted} and reported {reported} are invalid; counted must be from 1 to 1000000, and \
             reported must be from 0.5 to 3 times counted"
        ))
    }
}

#[cfg(test)]
mod tests;
