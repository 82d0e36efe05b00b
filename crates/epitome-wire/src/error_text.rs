//! What the body of an error says, in whichever of its forms.
//!
//! Providers put what they like into the message of an error, the prompt included. It is read here for signs and
//! numbers, a bounded part of it, and never passed on. What a status and these signs mean together is decided by the
//! caller: for our own calls where models are asked, for forwarded requests in `too_long`.

use epitome_core::message::Tokens;
use serde_json::Value;

/// So much of a provider's message is looked at, in characters: what it has to say comes first, and what it
/// quotes comes after.
const LOOKED_AT: usize = 400;

/// The codes of errors that say a request is too long; the last two for too many messages, or one that is too long by itself.
const CODES: &str = "context_length_exceeded|exceed_context_size_error|request_too_large|array_above_max_length|\
    string_above_max_length";

/// What such errors say: OpenAI's and Anthropic's; those of Gemini, xAI, Moonshot, Zhipu, Qwen, Copilot and Cohere; those of
/// SGLang, Ollama, LM Studio, text-generation-inference and LiteLLM.
const TOO_LONG: &str = "prompt is too long|maximum context length|context limit|context window|context size|\
    input tokens exceed|too many input tokens|input is too long|reduce the length of the messages|\
    exceeds the maximum number of tokens|maximum prompt length|exceeded model token limit|prompt exceeds max length|\
    range of input length should be|prompt token count|too many tokens|\
    longer than the model's context length|exceeds the context length|exceeds context length|\
    greater than the context length|`inputs` tokens + `max_new_tokens`|contextwindowexceedederror";

/// What stands before the number of tokens that were sent.
const INPUT: &str = "resulted in|too long:|your request has|exceed context limit:|contains at least|prompt contains|\
    request contains|token count (|token count of|the input (|given:|keep the first";

/// The same, where the room for the answer may be in it.
const SENT: &str = "requested a total of|requested about|requested:|requested|request (";

/// What stands before the number of tokens that are allowed.
const LIMIT: &str = ": limit|maximum context length is|maximum context length of|maximum context length:|\
    maximum prompt length is|configured limit of|the limit of|model token limit:|context size (|context window of|\
    context length of only|context length of|context length (|tokens allowed (|tokens allowed|must be <=|should be [1,|>";

/// What stands behind the number of tokens that were meant for the answer.
const OUTPUT: &str = "in the completion|for the completion|in the output|output tokens|`max_new_tokens`";

/// What an error's body says.
#[derive(Debug, Default)]
pub struct ErrorText {
    message: String,
    kind: String,
    code: String,
    param: String,
    sent: Option<Tokens>,
    limit: Option<Tokens>,
}

/// The numbers in an error, as the provider counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    /// How much was sent; with the room for the answer in it, where `output` is told and `is_input` is not.
    pub sent: Option<Tokens>,
    /// How much is allowed.
    pub limit: Option<Tokens>,
    /// How much of both was meant for the answer, where the error says so.
    pub output: Option<Tokens>,
    /// Whether `sent` is what was sent and nothing else.
    pub is_input: bool,
}

impl ErrorText {
    /// Of a body; nothing where it is no JSON.
    pub fn read(body: &[u8]) -> Self {
        serde_json::from_slice(body).map_or_else(|_| Self::default(), |body| Self::of(&body))
    }

    /// As [`ErrorText::read`]; what is not JSON, or only its beginning, is taken as words.
    pub fn read_words(body: &[u8]) -> Self {
        match serde_json::from_slice(body) {
            Ok(body) => Self::of(&body),
            Err(_) => {
                // A character has four bytes at most.
                let begin = body.get(..body.len().min(4 * LOOKED_AT)).unwrap_or_default();
                Self { message: looked_at(&String::from_utf8_lossy(begin)), ..Self::default() }
            }
        }
    }

    /// `{"error": {…}}`, `[{"error": {…}}]`, `{"error": "…"}`, or the error itself.
    pub fn of(body: &Value) -> Self {
        let body = body.get(0).unwrap_or(body);
        let error = body.get("error").filter(|error| !error.is_null()).unwrap_or(body);
        let text = |key: &str| match error.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let mut message = looked_at(error.as_str().or_else(|| error.get("message")?.as_str()).unwrap_or(""));
        // Where frameworks say it, and what a gateway was told by whom it asked.
        for more in [error.get("detail"), error.pointer("/metadata/raw")] {
            if let Some(more) = more.and_then(Value::as_str) {
                message.push('\n');
                message.push_str(&looked_at(more));
            }
        }
        // A server that knows of none says 0.
        let tokens = |key: &str| error.get(key).and_then(Value::as_u64).filter(|tokens| *tokens > 0);
        let (sent, limit) = (tokens("n_prompt_tokens"), tokens("n_ctx"));
        Self { message, kind: text("type"), code: text("code"), param: text("param"), sent, limit }
    }

    /// Whether its type or its code is this word.
    pub fn is(&self, word: &str) -> bool {
        self.kind == word || self.code == word
    }

    /// Whether its message contains one of these, which are in small letters.
    pub fn says(&self, words: &[&str]) -> bool {
        words.iter().any(|word| self.message.contains(word))
    }

    /// The status that stands in the body where the answer's own says that all is well.
    pub fn status(&self) -> Option<u16> {
        self.code.parse().ok().filter(|status| (400..600).contains(status))
    }

    /// The request was refused for the name of the limit, this one.
    pub fn dislikes(&self, name: &str) -> bool {
        let named =
            self.param == name || self.message.contains(&format!("'{name}'")) || self.message.contains(name);
        let words =
            ["unsupported", "not supported", "unrecognized", "unknown", "not permitted", "unexpected"];
        named && (self.is("unsupported_parameter") || self.is("unknown_parameter") || self.says(&words))
    }

    /// Whether a request that is answered with this status and this error is too long: sent again as it is, it is never
    /// taken.
    pub fn is_too_long(&self, status: u16) -> bool {
        match status {
            // A gateway that counts bytes says no more than this.
            413 => true,
            400 | 422 | 500 => self.has_signs(),
            429 => self.is_more_than_ever(),
            _ => false,
        }
    }

    fn has_signs(&self) -> bool {
        CODES.split('|').any(|code| self.is(code)) || TOO_LONG.split('|').any(|sign| self.says(&[sign]))
    }

    /// How much was sent and how much is allowed.
    pub fn sizes(&self) -> Sizes {
        // Where nothing is said of tokens, numbers are bytes.
        if self.sent.or(self.limit).is_none() && !self.says(&["token", "context", "prompt", "input length"]) {
            return Sizes::default();
        }
        let after = |signs: &str| signs.split('|').find_map(|sign| number_after(&self.message, sign));
        let before = |signs: &str| signs.split('|').find_map(|sign| number_before(&self.message, sign));
        let input = self.sent.or_else(|| after(INPUT));
        let limit = self.limit.or_else(|| after(LIMIT)).or_else(|| before("maximum context length"));
        // `199000 + 4000 > 200000`.
        let plus = || number(self.message.split_once("context limit:")?.1.split_once('+')?.1.trim_start());
        let output = before(OUTPUT).or_else(plus).or_else(|| after("tokens' is too large:"));
        Sizes { sent: input.or_else(|| after(SENT)), limit, output, is_input: input.is_some() }
    }

    /// A single request that is larger than all that is allowed in a minute or a day: however long one waits, it
    /// is never taken.
    fn is_more_than_ever(&self) -> bool {
        let Sizes { sent, limit, .. } = self.sizes();
        matches!((sent, limit), (Some(sent), Some(limit)) if sent > limit)
            && self.says(&["tokens per ", "(tp"])
    }

    /// The status and the provider's word for it.
    pub fn word(&self, status: u16) -> String {
        let is_code = |word: &&String| {
            (1..=40).contains(&word.len())
                && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        match [&self.code, &self.kind].into_iter().find(is_code) {
            Some(word) => format!("{status}, {word}"),
            None => status.to_string(),
        }
    }
}

/// The beginning of a text, in small letters.
fn looked_at(text: &str) -> String {
    text.chars().take(LOOKED_AT).collect::<String>().to_lowercase()
}

/// The number that follows these words at once, where they stand with one.
fn number_after(text: &str, words: &str) -> Option<Tokens> {
    text.match_indices(words).find_map(|(at, _)| number(text.get(at + words.len()..)?.trim_start()))
}

/// The number that these words follow at once, with or without the word `tokens` between.
fn number_before(text: &str, words: &str) -> Option<Tokens> {
    text.match_indices(words).find_map(|(at, _)| {
        let before = text.get(..at)?.trim_end();
        let before = before.strip_suffix("tokens").unwrap_or(before).trim_end();
        number(before.rsplit(|c: char| !c.is_ascii_digit() && !matches!(c, ',' | '_' | '.')).next()?)
    })
}

/// `131072`, `131,072`, `131_072`, `131.072`, `128k`, `8 K`, `1.5m`; none where it is 0.
fn number(text: &str) -> Option<Tokens> {
    let digit = |c: char| c.is_ascii_digit();
    let end = text.find(|c: char| !digit(c) && !matches!(c, ',' | '_' | '.')).unwrap_or(text.len());
    let (number, rest) = text.split_at_checked(end)?;
    let number = number.trim_end_matches(|c| !digit(c)).replace([',', '_'], "");
    let (whole, part) = number.split_once('.').unwrap_or((&number, ""));
    let whole: Tokens = whole.parse().ok()?;
    let rest = rest.trim_start();
    let unit = rest.strip_prefix(['k', 'm']).filter(|after| !after.starts_with(char::is_alphanumeric));
    let factor: Tokens = match unit {
        None => 1,
        Some(_) if rest.starts_with('k') => 1_000,
        Some(_) => 1_000_000,
    };
    if factor == 1 && part.split('.').all(|group| group.len() == 3) {
        return number.replace('.', "").parse().ok();
    }
    // Of a part no more than thousandths matter, and none without a unit.
    let thousandths: Tokens = format!("{part:0<3}").get(..3)?.parse().ok()?;
    let part = if factor == 1 { 0 } else { factor / 1_000 * thousandths };
    Some(whole.saturating_mul(factor).saturating_add(part)).filter(|tokens| *tokens > 0)
}
