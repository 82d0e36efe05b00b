//! Every key: its name, how its value is written, what it means.
//!
//! One list for the environment, for `--set` and for the file that `--write-config` writes. Whether a value
//! is allowed is the engine's to say; here it is only made into what a file would have said.

use serde_json::{Number, Value};

/// How a value is written where everything is text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// As it is.
    Text,
    /// `50000`, also `50_000`.
    Whole,
    /// `0.4`.
    Number,
    /// `true` or `false`.
    Flag,
    /// `cheap, main`, or JSON: `["cheap", "main"]`.
    Names,
    /// JSON.
    Json,
    /// `2.50`, or `none`.
    Cap,
}

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    /// Its full name; `*` is a name of the user's own.
    pub(super) path: &'static str,
    pub(super) kind: Kind,
    pub(super) meaning: &'static str,
    /// A value other than the default.
    pub(super) example: &'static str,
}

const fn key(path: &'static str, kind: Kind, example: &'static str, meaning: &'static str) -> Key {
    Key { path, kind, meaning, example }
}

/// Those that are set by name, in the order of the file.
pub(super) const KEYS: &[Key] = &[
    key(
        "server.db",
        Kind::Text,
        r#""sqlite:epitome.db""#,
        "The database: a path, from this file's folder on, or sqlite:PATH; or a PostgreSQL that many nodes share,\n\
         postgres://USER:PASSWORD@HOST:PORT/DATABASE. Unless set, epitome.db in the user's data folder.",
    ),
    key("server.connections", Kind::Whole, "32", "How many connections to PostgreSQL a node has at most."),
    key(
        "server.patience",
        Kind::Text,
        r#""2m""#,
        "For how long it is tried again when PostgreSQL cannot be reached, before a caller is told.",
    ),
    key(
        "server.workspace",
        Kind::Text,
        r#""team-a""#,
        "Whose sessions commands work on: nothing crosses a workspace. Callers over HTTP say theirs.",
    ),
    key(
        "server.role",
        Kind::Text,
        r#""worker""#,
        "What `epitome serve` does: \"api\" answers and writes no summaries, \"worker\" writes them and answers\n\
         only /healthz, /readyz and /metrics, \"all\" does both.",
    ),
    key("server.listen", Kind::Text, r#""0.0.0.0:7878""#, "Where `epitome serve` listens."),
    key(
        "server.require_keys",
        Kind::Text,
        r#""always""#,
        "When callers need keys: \"off-loopback\" on every address that other machines reach, \"always\", or\n\
         \"never\": then whoever reaches the address may read and write everything.",
    ),
    key(
        "server.jwt_secret_env",
        Kind::Text,
        r#""AUTH_JWT_SECRET""#,
        "The environment variable that holds the secret by which tokens (JWT) for Honcho's routes are signed,\n\
         never the secret itself. With it those routes want a token, or a key of ours, on every address.",
    ),
    key(
        "server.log_level",
        Kind::Text,
        r#""debug""#,
        "How much `epitome serve` logs: error, warn, info or debug.",
    ),
    key(
        "server.log_format",
        Kind::Text,
        r#""json""#,
        "In which form: text, json, or \"auto\" for text on a terminal and JSON elsewhere.",
    ),
    key(
        "proxy.openai_upstream",
        Kind::Text,
        r#""http://127.0.0.1:8000""#,
        "Where /openai/v1/x goes on to: this address and /v1/x.",
    ),
    key(
        "proxy.anthropic_upstream",
        Kind::Text,
        r#""https://gateway.example.com/anthropic""#,
        "The same for /anthropic/v1/x.",
    ),
    key(
        "proxy.shadow",
        Kind::Flag,
        "true",
        "Whether the proxy changes nothing and only tells what it would have saved.",
    ),
    key("proxy.timeout", Kind::Text, r#""2m""#, "For so long an upstream may say nothing, 100ms to 24h."),
    key(
        "encoding",
        Kind::Text,
        r#""cl100k_base""#,
        "How tokens are counted. It is fixed for a session when that is created.",
    ),
    key(
        "context.summary_share",
        Kind::Number,
        "0.25",
        "How much of what pinned messages leave of a context its summary may take, more than 0 and at most 1;\n\
         half as much again where the context is filled.",
    ),
    key(
        "context.max_tokens",
        Kind::Whole,
        "50000",
        "How large a context may be; whoever asks for more is refused.",
    ),
    key(
        "summarize.models",
        Kind::Names,
        r#"["cheap", "main", "local"]"#,
        "Who writes summaries: the first that can. `local` needs no key and no network.",
    ),
    key(
        "summarize.auto",
        Kind::Flag,
        "false",
        "Whether slots that do not say themselves fire by themselves.",
    ),
    key(
        "summarize.instructions",
        Kind::Text,
        r#""Answer in French.""#,
        "Said to models as they are, for slots that have no instructions of their own.",
    ),
    key(
        "summarize.stand_in_after",
        Kind::Text,
        r#""1h""#,
        "When `local` stands in for models that fail: a time, 0 for at once, or \"never\".",
    ),
    key(
        "summarize.redact",
        Kind::Flag,
        "false",
        "Whether secrets are taken out of what models are shown and write.",
    ),
    key(
        "summarize.catch_up",
        Kind::Text,
        r#""step""#,
        "What a slot does that is far behind: \"join\" its windows, or \"step\" through them.",
    ),
    key(
        "summarize.spend_cap_per_day",
        Kind::Cap,
        "2.50",
        "What a workspace may spend on summaries in a day (UTC), in the prices' money; \"none\" for no cap.",
    ),
    key(
        "summarize.breaker_after",
        Kind::Whole,
        "3",
        "After so many failures in a row a provider is left alone ...",
    ),
    key("summarize.breaker_for", Kind::Text, r#""5m""#, "... for so long."),
    key(
        "trigger.short",
        Kind::Text,
        r#""messages(10)""#,
        "When slots of that name are due, whatever the list of slots says of them. Any slot's name will do.",
    ),
    key("trigger.long", Kind::Text, r#""messages(30)""#, "The same for the other default slot."),
    key(
        "condense.enabled",
        Kind::Flag,
        "false",
        "Whether lists are condensed inline (`epitome condense`, POST /v1/condense, the proxy); false lets them\n\
         through as they are.",
    ),
    key(
        "condense.strategy",
        Kind::Text,
        r#""pipeline(mask, summarize)""#,
        "By which means: noop, recent, mask, summarize, amortized, or pipeline(.., ..) of them. Each may say what\n\
         it keeps, as in recent(messages(50)).",
    ),
    key(
        "condense.trigger",
        Kind::Text,
        r#""any(tokens(100000), economic)""#,
        "When. By default any(tokens(170000), window(0.75)), and tokens(170000) where nobody knows the model's\n\
         window.",
    ),
    key(
        "condense.threshold",
        Kind::Number,
        "0.5",
        "Short form of trigger: 0.5 is window(0.5). Of the two, set one.",
    ),
    key(
        "condense.keep",
        Kind::Text,
        r#""turns(3)""#,
        "What stays of the newest: messages(n), turns(n), tokens(n) or window(fraction). By default as much as\n\
         the strategy likes: 6 messages for summarize and amortized, 10 for mask, 50 for recent.",
    ),
    key(
        "condense.keep_last",
        Kind::Whole,
        "20",
        "Short form of keep: 20 is messages(20). Of the two, set one.",
    ),
    key(
        "condense.keep_first",
        Kind::Whole,
        "2",
        "How many messages stay after the leading system ones, until a summary stands.",
    ),
    key(
        "condense.model",
        Kind::Text,
        r#""cheap""#,
        "Who writes the summaries: one of models, or `local`, which needs no key and no network. In the proxy\n\
         also \"same\": the request's own model, with the caller's key, while the request is open.",
    ),
    key(
        "condense.wait",
        Kind::Flag,
        "true",
        "Whether an agent's turn waits for the model. Where not, `local` writes until its summary is there.",
    ),
    key(
        "condense.window",
        Kind::Whole,
        "128000",
        "The window of the model a list is for, where neither the request nor the shipped table tells; \"none\"\n\
         where it is not known.",
    ),
    key(
        "condense.max_tokens",
        Kind::Whole,
        "2000",
        "How large a summary may be. By default 4000, and 1000 where the trigger is economic.",
    ),
    key(
        "condense.min_worth",
        Kind::Number,
        "0.2",
        "The part of a request that a condensation must save, more than 0 and at most 1.",
    ),
    key(
        "condense.summary_role",
        Kind::Text,
        r#""system""#,
        "In which role the summary is sent: user or system.",
    ),
    key(
        "condense.prompt",
        Kind::Text,
        r#""Sum up: {conversation_text}""#,
        "A template of its own, in place of the profile's.",
    ),
    key("condense.profile", Kind::Text, r#""coding""#, "auto, general, coding, research or support."),
    key(
        "condense.instructions",
        Kind::Text,
        r#""Name every open question.""#,
        "Said to the model as they are.",
    ),
    key("limits.message", Kind::Whole, "262144", "Bytes of one message's parts."),
    key("limits.batch", Kind::Whole, "100", "Messages in one append."),
    key("limits.body", Kind::Whole, "1048576", "Bytes of one request."),
    key("limits.metadata", Kind::Whole, "4096", "Bytes of one message's metadata, as JSON."),
    key(
        "slot",
        Kind::Json,
        "",
        "The summaries that are kept. The list is taken as a whole: with one slot of your own, those two\n\
         are gone unless you write them down too.",
    ),
    key("models.*.provider", Kind::Text, r#""openai""#, "Whose wire format: openai, anthropic or local."),
    key("models.*.model", Kind::Text, r#""gpt-5-mini""#, "What the provider calls it."),
    key(
        "models.*.base_url",
        Kind::Text,
        r#""https://api.openai.com/v1""#,
        "Where it is asked; the provider's own address unless set. It ends in /v1 on both\n\
         wires: https://api.openai.com/v1, https://api.anthropic.com/v1, http://127.0.0.1:11434/v1.",
    ),
    key(
        "models.*.key_env",
        Kind::Text,
        r#""OPENAI_API_KEY""#,
        "The environment variable that holds the key, never the key itself. With a base_url of your\n\
         own no key is sent unless it is named here.",
    ),
    key("models.*.timeout", Kind::Text, r#""2m""#, "How long one call may take."),
    key("models.*.window", Kind::Whole, "128000", "How many tokens it reads and writes in all."),
    key("models.*.output_reserve", Kind::Whole, "16000", "How many of those are kept free for its answer."),
    key("models.*.stream", Kind::Flag, "false", "Whether its answer is streamed."),
    key("prices.*.input", Kind::Number, "0.25", "What it reads, per million tokens."),
    key("prices.*.output", Kind::Number, "2.00", "What it writes."),
    key("prices.*.cache_read", Kind::Number, "0.025", "What it reads from a cache; `input` unless set."),
    key("prices.*.cache_write", Kind::Number, "0.25", "What it puts into a cache; `input` unless set."),
];

/// Those of one slot: key, example, meaning. The first ones are written for the two default slots too.
pub(super) const SLOT_KEYS: &[(&str, &str, &str)] = &[
    ("name", r#""notes""#, "Unique within its scope."),
    ("preset", r#""frequent""#, "What the other keys start from: frequent, long or lean."),
    ("scope", r#""builder""#, "Whose messages it covers: an author's; the whole session's unless set."),
    (
        "trigger",
        r#""turns(30)""#,
        "When it fires: messages(n), turns(n), tokens(n), chars(n), window(fraction), every(seconds),\n\
         idle(seconds), important(n), all(.., ..), any(.., ..).",
    ),
    (
        "keep",
        r#""turns(2)""#,
        "What stays out of it: messages(n), turns(n), tokens(n) or a window(fraction).",
    ),
    ("max_tokens", "1500", "How large it may be; or max_chars."),
    ("max_chars", "4000", "The same in characters."),
    ("auto", "true", "Whether it fires by itself; summarize.auto unless set."),
    ("profile", r#""coding""#, "auto, general, coding, research or support."),
    ("prompt", r#""Sum up: {conversation_text}""#, "A template of its own, in place of the profile's."),
    ("instructions", r#""Name every open question.""#, "Said to the model as they are."),
    ("models", r#"["main"]"#, "Who writes it; summarize.models unless set."),
    ("catch_up", r#""step""#, "What it does when it is far behind; summarize.catch_up unless set."),
];

/// How the value of this key is written, where there is such a key.
pub(super) fn kind_of(path: &[String]) -> Option<Kind> {
    let fits = |key: &&Key| {
        let pattern: Vec<&str> = key.path.split('.').collect();
        pattern.len() == path.len()
            && pattern.iter().zip(path).all(|(want, have)| *want == "*" || want == have)
    };
    KEYS.iter().find(fits).map(|key| key.kind)
}

/// What a file would have said. What cannot be read stays a text, and is refused as such with what is
/// allowed; an error is one that only shows here.
pub(super) fn value(kind: Option<Kind>, text: &str) -> Result<Value, String> {
    let trimmed = text.trim();
    let as_text = || Value::String(text.to_owned());
    let json = || serde_json::from_str::<Value>(trimmed);
    let number = || trimmed.parse().ok().and_then(Number::from_f64).map_or_else(as_text, Value::Number);
    Ok(match kind {
        Some(Kind::Text) => as_text(),
        Some(_) if trimmed == "null" => Value::Null,
        Some(Kind::Whole) => trimmed.replace('_', "").parse::<u64>().map_or_else(|_| as_text(), Value::from),
        Some(Kind::Number) => number(),
        Some(Kind::Flag) => trimmed.parse::<bool>().map_or_else(|_| as_text(), Value::from),
        Some(Kind::Names) if !trimmed.starts_with('[') => {
            trimmed.split(',').map(str::trim).filter(|name| !name.is_empty()).map(Value::from).collect()
        }
        Some(Kind::Names | Kind::Json) => json().map_err(|error| format!("not JSON: {error}"))?,
        Some(Kind::Cap) if trimmed == "none" => Value::String(trimmed.to_owned()),
        Some(Kind::Cap) => number(),
        None => json().unwrap_or_else(|_| as_text()),
    })
}

/// The parts of a full name such as `prices."gpt-5.1".input`; none where it is not one.
pub(super) fn path(name: &str) -> Option<Vec<String>> {
    let mut parts: Vec<String> = vec![String::new()];
    let mut quoted = false;
    for c in name.trim().chars() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(String::new()),
            c => parts.last_mut()?.push(c),
        }
    }
    (!quoted && parts.iter().all(|part| !part.trim().is_empty())).then_some(parts)
}

/// The other way round.
pub(super) fn name(path: &[String]) -> String {
    let plain = |part: &&String| part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let part = |part: &String| if plain(&part) { part.clone() } else { format!("{part:?}") };
    path.iter().map(part).collect::<Vec<_>>().join(".")
}
