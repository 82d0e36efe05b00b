//! The server's state, and its answer to a request.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use epitome::dialect::Dialect;
use serde_json::{Value, json};

use super::events;
use super::refuse::{self, Refusal};
use super::script::{self, Script};
use super::tally::{Cache, Tally, texts};
use super::{Behavior, Manner, Seen};

/// The beginning of the prompt of Epitome's summarizers.
const RECORD: &str = "You keep the record of a conversation";

/// The answer to send.
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    /// The pieces of the body. In a stream, each piece is sent separately.
    pub pieces: Vec<Vec<u8>>,
    pub streams: bool,
}

pub struct UpstreamState {
    pub manner: Manner,
    pub next: VecDeque<Behavior>,
    pub always: Option<Behavior>,
    pub seen: VecDeque<Seen>,
    pub in_progress: usize,
    pub hung_up: usize,
    pub refused: Vec<Refusal>,
    /// Number of rejected requests that were sent again unchanged.
    pub repeated: usize,
    /// Number of requests, not including requests from summarizers.
    pub requests: usize,
    pub summaries: usize,
    /// Number of requests that did not begin with the whole previous request.
    pub restarted: usize,
    /// Number of requests without a required text.
    pub without_required_text: usize,
    /// Number of requests that contained another conversation's text.
    pub foreign: usize,
    script: Script,
    memory: Memory,
}

/// Information about earlier requests.
#[derive(Default)]
struct Memory {
    /// Number of requests since the last rejection by `grumbles`.
    patience: usize,
    refused_bodies: HashSet<u64>,
    before: Tally,
    cache: Cache,
}

impl UpstreamState {
    pub fn new(manner: Manner) -> Self {
        Self {
            manner,
            next: VecDeque::new(),
            always: None,
            seen: VecDeque::new(),
            in_progress: 0,
            hung_up: 0,
            refused: Vec::new(),
            repeated: 0,
            requests: 0,
            summaries: 0,
            restarted: 0,
            without_required_text: 0,
            foreign: 0,
            script: Script::default(),
            memory: Memory::default(),
        }
    }

    /// Returns the behavior for a request: from the header `x-act`, else from the queue, else the behavior for all
    /// requests. `None` means a normal answer.
    pub fn act(&mut self, seen: &Seen) -> Option<Behavior> {
        match seen.header("x-act") {
            Some(act) => Behavior::of(act),
            None => self.next.pop_front().or(self.always),
        }
    }

    pub fn keep(&mut self, seen: Seen) {
        if self.manner.keeps == 0 {
            return;
        }
        if self.seen.len() == self.manner.keeps {
            self.seen.pop_front();
        }
        self.seen.push_back(seen);
    }

    /// Returns the answer to a request.
    pub fn answer(&mut self, seen: &Seen, act: Option<Behavior>) -> Answer {
        let dialect = match (seen.method.as_str(), seen.route()) {
            ("POST", "/v1/chat/completions") => Some(Dialect::OPENAI),
            ("POST", "/v1/responses") => Some(Dialect::RESPONSES),
            ("POST", "/v1/messages") => Some(Dialect::ANTHROPIC),
            _ => None,
        };
        let is_anthropic =
            seen.route().starts_with("/v1/messages") || seen.header("anthropic-version").is_some();
        let spoken = dialect.unwrap_or(if is_anthropic { Dialect::ANTHROPIC } else { Dialect::OPENAI });
        if !self.has_key(seen) {
            return Answer::error(
                spoken,
                401,
                "authentication_error",
                "invalid_api_key",
                "Incorrect API key provided.",
            );
        }
        match act {
            Some(Behavior::Busy(seconds)) => {
                let said = "Rate limit reached. Please try again later.";
                let mut answer = Answer::error(spoken, 429, "rate_limit_error", "rate_limit_exceeded", said);
                answer.headers.push(("retry-after", seconds.to_string()));
                return answer;
            }
            Some(Behavior::Fails) => {
                return Answer::error(spoken, 500, "api_error", "server_error", "Something broke.");
            }
            Some(Behavior::Page(status)) => {
                let page = "<html><head><title>Bad gateway</title></head><body>Bad gateway</body></html>";
                return Answer::whole(status, "text/html", page);
            }
            _ => {}
        }
        match dialect {
            Some(dialect) => self.reply(dialect, &seen.json(), act),
            None => self.elsewhere(seen),
        }
    }

    fn has_key(&self, seen: &Seen) -> bool {
        let Some(key) = self.manner.key else { return true };
        let bearer = seen.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        bearer == Some(key) || seen.header("x-api-key") == Some(key)
    }

    /// Returns the reply to a request in one of the three formats, or its rejection.
    fn reply(&mut self, dialect: Dialect, body: &Value, act: Option<Behavior>) -> Answer {
        let tally = Tally::of(body, self.manner.skew);
        let input = tally.input();
        let texts = texts(body);
        let is_summary = body.get("tools").is_none() && texts.iter().any(|text| text.starts_with(RECORD));
        if !is_summary {
            self.requests += 1;
            self.memory.patience += 1;
        }
        let refusal = match refuse::shape(dialect, body) {
            Some(what) => Some(Refusal::Shape(what)),
            None if act == Some(Behavior::Refuses) => {
                Some(Refusal::Shape("refused, as configured by the test".to_owned()))
            }
            None if act == Some(Behavior::TooLong) => Some(Refusal::TooLong { input, window: None }),
            None if is_summary => None,
            None => self.too_long(input),
        };
        if let Some(refusal) = refusal {
            let mut hasher = DefaultHasher::new();
            body.to_string().hash(&mut hasher);
            if !self.memory.refused_bodies.insert(hasher.finish()) {
                self.repeated += 1;
            }
            let answer = refusal.error_body(dialect);
            self.refused.push(refusal);
            return Answer::whole(400, "application/json", answer.to_string());
        }
        let said = if is_summary {
            self.summaries += 1;
            script::summary(&texts, self.manner.facts)
        } else if let Some(question) = texts.last().filter(|text| text.starts_with(script::RECALL)) {
            let others: Vec<&str> = texts.iter().copied().take_while(|text| text != question).collect();
            script::recalled(&others, self.manner.facts)
        } else {
            self.script.next(body.get("tools").is_some())
        };
        if !is_summary {
            let contained = |required: &&str| texts.iter().any(|text| text.contains(*required));
            self.without_required_text += usize::from(!self.manner.always.iter().all(contained));
            let foreign = |text: &&str| self.manner.never.is_some_and(|never| text.contains(never));
            self.foreign += usize::from(texts.iter().any(foreign));
            self.restarted += usize::from(!tally.continues(&self.memory.before));
        }
        let cached = self.memory.cache.read(&tally);
        if !is_summary {
            self.memory.before = tally;
        }
        let whole = said.answer(dialect, input, cached);
        if body["stream"] != json!(true) {
            return Answer::whole(200, "application/json", whole.to_string());
        }
        let counts = body["stream_options"]["include_usage"] == json!(true);
        Answer {
            status: 200,
            headers: vec![("content-type", "text/event-stream; charset=utf-8".to_owned())],
            pieces: events::stream_events(dialect, &whole, counts)
                .into_iter()
                .map(String::into_bytes)
                .collect(),
            streams: true,
        }
    }

    fn too_long(&mut self, input: u64) -> Option<Refusal> {
        let window = match self.manner.shrinks {
            Some((after, window)) if self.requests > after => window,
            _ => self.manner.window,
        };
        if input > window {
            return Some(Refusal::TooLong { input, window: Some(window) });
        }
        let grumbles =
            self.manner.grumbles.is_some_and(|after| self.memory.patience > after) && input > window / 3;
        if grumbles {
            self.memory.patience = 0;
        }
        grumbles.then_some(Refusal::TooLong { input, window: None })
    }

    /// Answers other requests with the list of models, with a token count, or with an echo.
    fn elsewhere(&self, seen: &Seen) -> Answer {
        let body = match (seen.method.as_str(), seen.route()) {
            ("GET", "/v1/models") => {
                let models = ["stand-in", "stand-in-mini"].map(|id| {
                    json!({
                        "id": id, "object": "model", "created": 1_760_000_000, "owned_by": "nobody", "type": "model",
                        "display_name": id, "created_at": "2025-10-09T08:53:20Z",
                    })
                });
                json!({
                    "object": "list", "data": models, "has_more": false, "first_id": "stand-in",
                    "last_id": "stand-in-mini",
                })
            }
            ("POST", "/v1/messages/count_tokens") => {
                json!({ "input_tokens": Tally::of(&seen.json(), self.manner.skew).input() })
            }
            _ if seen.body.is_empty() => json!({ "method": seen.method, "path": seen.path }),
            _ => {
                let kind = seen.header("content-type").unwrap_or("application/octet-stream").to_owned();
                return Answer::whole(200, &kind, seen.body.clone());
            }
        };
        Answer::whole(200, "application/json", body.to_string())
    }
}

impl Answer {
    pub fn whole(status: u16, kind: &str, text: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type", kind.to_owned()), ("x-request-id", "req_stand_in".to_owned())];
        Self { status, headers, pieces: vec![text.into()], streams: false }
    }

    /// Creates an error in the provider's format.
    fn error(dialect: Dialect, status: u16, kind: &str, code: &str, message: &str) -> Self {
        let body = if dialect == Dialect::ANTHROPIC {
            json!({ "type": "error", "error": { "type": kind, "message": message }, "request_id": "req_1" })
        } else {
            json!({ "error": { "message": message, "type": kind, "param": null, "code": code } })
        };
        Self::whole(status, "application/json", body.to_string())
    }
}
