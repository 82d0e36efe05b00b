//! An agent with tools. Its history grows to ten times its model's window, and it still has the facts at the end.
//!
//! The agent stores its whole history, and passes it to a [`Condenser`] before each call. A simulated provider on
//! loopback rejects the same requests as real providers do, so the example needs no key and no network.
//!
//! `cargo run --example agent_loop` uses OpenAI's chat completions. Add `-- anthropic` or `-- responses` for another
//! format, and `summarizer` for summaries by a model instead of the built-in `local`.

#![allow(
    clippy::print_stdout,
    clippy::indexing_slicing,
    dead_code,
    reason = "an example prints; its test runs `show` only; indexing JSON gives null"
)]

use epitome_testkit::upstream;
use std::fmt::Write;

use epitome::Dialect;
use epitome::rules::message::{Message, ToolCall};
use epitome::{Condenser, ReadyList};
use serde_json::{Map, Value, json};

use upstream::{Manner, Upstream};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The model's context window, in tokens.
pub(crate) const WINDOW: u64 = 16_000;

pub(crate) const SYSTEM: &str =
    "You are a careful engineer. Use your tools, and say what you did when a step is done.";
pub(crate) const RULE: &str = "A rule for all of this work: never edit migrations/0007_berths.sql.";
const TASK: &str = "Port the harbour's billing from floats to whole øre. Begin with src/fees/winter.rs and \
    src/fees/guests.rs, whose totals are off by 0.01 in ticket HB-2214.";

/// Facts that the agent must still have at the end.
pub(crate) const FACTS: &[(&str, &str)] = &[
    ("the task", "Port the harbour's billing from floats to whole øre"),
    ("the first file", "src/fees/winter.rs"),
    ("the second file", "src/fees/guests.rs"),
    ("the ticket", "HB-2214"),
    ("the rule", "never edit migrations/0007_berths.sql"),
];

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let dialect = arguments.iter().find_map(|name| name.parse().ok()).unwrap_or(Dialect::OPENAI);
    print!("{}", show(dialect, arguments.iter().any(|name| name == "summarizer")).await?);
    Ok(())
}

/// Runs the example and returns its output.
pub(crate) async fn show(dialect: Dialect, summarizer: bool) -> Result<String, Error> {
    let upstream = Upstream::start(Manner { window: WINDOW, facts: FACTS, ..Manner::default() }).await;
    let mut settings =
        json!({ "condense": { "strategy": "amortized", "threshold": 0.75, "max_tokens": 1_500 } });
    if summarizer {
        // The simulated provider writes summaries as well. For a real one, set its provider; the key stays in the
        // environment.
        settings["models"]["cheap"] =
            json!({ "provider": "openai", "model": "stand-in", "base_url": upstream.url() });
        settings["condense"]["model"] = json!("cheap");
    }
    let condenser = Condenser::builder()
        .window(WINDOW) // or `.for_model("claude-sonnet-4-5")`: its window is in the model table
        .output_reserve(0)
        .tools(tools(dialect))
        .settings(&settings.to_string())
        .build()?;
    let mut agent = Agent::new(dialect, &upstream.url(), condenser)?;

    let mut out = format!("The window has {WINDOW} tokens. Each line is a call that was condensed.\n\n");
    writeln!(out, " call   history    sent")?;
    let mut request = TASK.to_owned();
    for step in 2.. {
        for call in agent.work(&request).await? {
            if let Some(notice) = call.notice {
                writeln!(out, "{:>5}  {:>8}  {:>6}  {notice}", call.number, call.history, call.sent)?;
            }
        }
        if agent.tokens > 10 * WINDOW {
            break;
        }
        request = format!("Good. Continue with step {step}.");
    }
    let answer = agent.work(&format!("{} what this was all about.", upstream::script::RECALL)).await?;
    let recalled = answer.last().map(|call| call.said.clone()).unwrap_or_default();

    let Agent { tokens, spent, .. } = agent;
    writeln!(
        out,
        "\nThe history has {tokens} tokens, {:.1} times the window; {} calls sent at most {} at once.\n\
         By the model's own count {:.0} tokens were sent in place of {:.0}. Where cached ones cost a tenth, that is \
         {:.0} % of the price.\n\
         Requests refused: {}. Summaries by a model: {}.\n\nThe model's answer at the end, about the first request:\n{recalled}",
        tokens as f64 / WINDOW as f64,
        spent.calls,
        spent.largest,
        spent.sent,
        spent.whole,
        100.0 * Spent::price(spent.sent, spent.cached) / Spent::price(spent.whole, spent.whole_cached),
        upstream.refused().len(),
        upstream.requests().1,
    )?;
    Ok(out)
}

/// An agent: its history, and the connection to its model.
pub(crate) struct Agent {
    dialect: Dialect,
    condenser: Condenser,
    http: reqwest::Client,
    url: String,
    tools: Vec<Value>,
    /// All messages. The agent never removes any.
    pub(crate) history: Vec<Message>,
    /// Its size, in tokens.
    pub(crate) tokens: u64,
    pub(crate) spent: Spent,
}

/// One call of the model.
#[derive(Debug, Clone)]
pub(crate) struct Called {
    pub(crate) number: u64,
    pub(crate) history: u64,
    pub(crate) sent: u64,
    /// What was done to the list, if it was condensed.
    pub(crate) notice: Option<String>,
    /// The text of the reply.
    pub(crate) said: String,
}

/// Sums over all calls, by the model's own count.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spent {
    pub(crate) calls: u64,
    pub(crate) largest: u64,
    sent: f64,
    cached: f64,
    /// Cost without condensing, with all but the newest messages cached.
    whole: f64,
    whole_cached: f64,
    last: f64,
    /// The model's token count divided by ours.
    ratio: f64,
}

impl Spent {
    /// In units of one plain token.
    fn price(sent: f64, cached: f64) -> f64 {
        sent - cached + 0.1 * cached
    }
}

impl Agent {
    pub(crate) fn new(dialect: Dialect, url: &str, condenser: Condenser) -> Result<Self, Error> {
        // This workspace builds reqwest without cryptography of its own.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build()?;
        let mut rule = Message::user(RULE);
        rule.pinned = true; // stays verbatim in every request
        let (url, tools, spent) = (url.to_owned(), tools(dialect), Spent::default());
        let mut agent = Self { dialect, condenser, http, url, tools, history: Vec::new(), tokens: 0, spent };
        agent.add(Message::system(SYSTEM));
        agent.add(rule);
        Ok(agent)
    }

    fn add(&mut self, message: Message) {
        self.tokens += self.condenser.counter().message(&message);
        self.history.push(message);
    }

    /// Works call by call until the model requests no more tools.
    pub(crate) async fn work(&mut self, request: &str) -> Result<Vec<Called>, Error> {
        self.add(Message::user(request));
        let mut called = Vec::new();
        loop {
            let (reply, call) = self.call().await?;
            called.push(call);
            let calls: Vec<ToolCall> = reply.calls().cloned().collect();
            self.add(reply);
            if calls.is_empty() {
                return Ok(called);
            }
            for call in calls {
                self.add(Message::tool(call.id, run(&call.name, &call.arguments)));
            }
        }
    }

    /// One call: condenses the list, sends it, and reads the response.
    async fn call(&mut self) -> Result<(Message, Called), Error> {
        let mut ready = self.condenser.before_model(&self.history).await;
        let mut answer = self.post(&ready).await?;
        if let Some(limit) = too_long(&answer) {
            // One retry, if the list can become shorter; the same list would be rejected again.
            ready.turn().too_long(limit);
            ready = self.condenser.before_model(&self.history).await;
            if !ready.report.condensed {
                return Err(format!(
                    "too long, and no more messages can be removed: {}",
                    ready.report.notice
                )
                .into());
            }
            answer = self.post(&ready).await?;
        }
        if !answer["error"].is_null() {
            return Err(format!("refused: {}", answer["error"]["message"]).into());
        }
        let usage = Usage::of(self.dialect, &answer["usage"]);
        ready.turn().reported(usage.input); // from here on the model's own count decides

        let report = &ready.report;
        let (sent, notice) = (report.tokens_after, report.condensed.then(|| report.notice.clone()));
        let reply = read(self.dialect, &answer)?;
        let spent = &mut self.spent;
        spent.calls += 1;
        spent.largest = spent.largest.max(usage.input);
        spent.sent += usage.input as f64;
        spent.cached += usage.cached as f64;
        if ready.is_untouched() {
            spent.ratio = usage.input as f64 / self.tokens as f64;
        }
        // The same request without condensing: a cache would contain it up to the end of the previous one.
        let whole = spent.ratio * self.tokens as f64;
        spent.whole += whole;
        spent.whole_cached += std::mem::replace(&mut spent.last, whole);
        Ok((
            reply.clone(),
            Called { number: spent.calls, history: self.tokens, sent, notice, said: words(&reply) },
        ))
    }

    /// Sends a list, with the other fields that the provider requires.
    async fn post(&self, ready: &ReadyList<'_>) -> Result<Value, Error> {
        let mut body: Map<String, Value> = self.dialect.write(ready);
        body.insert("model".to_owned(), json!("stand-in"));
        body.insert("tools".to_owned(), json!(self.tools));
        let path = match self.dialect.name() {
            "anthropic" => {
                body.insert("max_tokens".to_owned(), json!(1_024));
                "messages"
            }
            "responses" => "responses",
            _ => "chat/completions",
        };
        let body = Value::Object(body).to_string();
        let answer = self.http.post(format!("{}/{path}", self.url)).body(body).send().await?.text().await?;
        Ok(serde_json::from_str(&answer)?)
    }
}

/// The model's count of the input tokens.
struct Usage {
    input: u64,
    cached: u64,
}

impl Usage {
    fn of(dialect: Dialect, usage: &Value) -> Self {
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        match dialect.name() {
            // Anthropic reports cached and uncached tokens separately; the total is their sum.
            "anthropic" => {
                let cached = number(&usage["cache_read_input_tokens"]);
                Self { input: number(&usage["input_tokens"]) + cached, cached }
            }
            "responses" => Self {
                input: number(&usage["input_tokens"]),
                cached: number(&usage["input_tokens_details"]["cached_tokens"]),
            },
            _ => Self {
                input: number(&usage["prompt_tokens"]),
                cached: number(&usage["prompt_tokens_details"]["cached_tokens"]),
            },
        }
    }
}

/// Returns the reply in a response.
fn read(dialect: Dialect, answer: &Value) -> Result<Message, Error> {
    let mut reader = dialect.reader();
    let read = match dialect.name() {
        "anthropic" => reader.push(&json!({ "role": "assistant", "content": answer["content"] }))?,
        "responses" => {
            for item in answer["output"].as_array().into_iter().flatten() {
                reader.push(item)?;
            }
            reader.finish()
        }
        _ => reader.push(&answer["choices"][0]["message"])?,
    };
    Ok(read.ok_or("an answer without a reply")?.message)
}

/// Returns whether the response rejects the request as too long, and the limit, if it contains one.
fn too_long(answer: &Value) -> Option<Option<u64>> {
    let error = &answer["error"];
    let message = error["message"].as_str()?;
    let limit = message.split("> ").nth(1).or_else(|| message.split("length is ").nth(1));
    let limit = limit.and_then(|rest| rest.split(' ').next()?.parse().ok());
    (error["code"] == "context_length_exceeded" || message.contains("too long")).then_some(limit)
}

fn words(reply: &Message) -> String {
    use epitome::rules::message::Part;
    let texts = reply.parts.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

/// The tools, in the provider's format.
pub(crate) fn tools(dialect: Dialect) -> Vec<Value> {
    let all = [
        ("list_files", "All files."),
        ("read_file", "A file's lines."),
        ("grep", "Lines that match a pattern."),
        ("edit_file", "Replaces a text in a file."),
        ("run_tests", "Runs the tests whose names contain a word."),
    ];
    let schema = json!({ "type": "object", "properties": { "path": { "type": "string" } } });
    let written = all.map(|(name, description)| match dialect.name() {
        "anthropic" => json!({ "name": name, "description": description, "input_schema": schema }),
        "responses" => {
            json!({ "type": "function", "name": name, "description": description, "parameters": schema })
        }
        _ => {
            let function = json!({ "name": name, "description": description, "parameters": schema });
            json!({ "type": "function", "function": function })
        }
    });
    written.to_vec()
}

/// Runs a tool. The content of the files is generated.
fn run(name: &str, arguments: &str) -> String {
    let n = arguments.bytes().fold(7, |sum, byte| (sum * 31 + usize::from(byte)) % 9_973);
    let lines = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    match name {
        "list_files" => lines(40, &|at| format!("src/berth_{at}.rs  {} bytes\n", 900 + at * 37)),
        "grep" => {
            lines(12, &|at| format!("src/tide_{at}.rs:{}: let fee_{n} = berth.fee(night)?;\n", n % 80 + at))
        }
        "edit_file" => format!("1 line of {arguments} changed"),
        "run_tests" => {
            let ran = lines(18, &|at| format!("test fees::adds_up_{} ... ok\n", n + at));
            format!("{ran}test result: ok. 18 passed; 0 failed; finished in 0.{n}s\n")
        }
        _ => lines(22, &|at| {
            let line = n % 300 + at;
            format!(
                "{line:>4}  let total_{line} = nights.iter().map(|night| rate.of(night, {at})).sum::<Øre>();\n"
            )
        }),
    }
}
