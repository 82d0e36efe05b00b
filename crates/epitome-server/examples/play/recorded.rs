//! Reads recordings, joins them, and writes their requests.
//!
//! Recorders store more fields than were sent, and shorten ids. A strict upstream must accept the untouched requests,
//! so messages are reduced to the fields of the wire format, a call id that was used before is changed together with
//! the id of its result, and invalid characters in names are replaced. If another conversation follows, a call that
//! is still open gets a result.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;

use epitome::dialect::Dialect;
use epitome::rules::message::Message;
use serde_json::{Map, Value, json};

use super::Error;

/// One history, as it was when its last request was sent.
pub struct Run {
    pub id: String,
    messages: Vec<Value>,
    /// The same messages in Epitome's own form, for the other wire formats.
    read: Vec<Message>,
    tools: BTreeSet<String>,
}

/// Reads the recordings of a file. Joins `chain` recordings at a time to one run.
pub fn runs(file: &Path, chain: usize) -> Result<Vec<Run>, Error> {
    let text = std::fs::read_to_string(file)?;
    let mut recorded = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line_number = at + 1;
        let run: Value =
            serde_json::from_str(line).map_err(|error| format!("line {line_number}: {error}"))?;
        let messages = run["messages"].as_array().ok_or(format!("line {line_number}: no messages"))?;
        let id = run["id"].as_str().map_or_else(|| format!("line {line_number}"), str::to_owned);
        recorded.push((id, messages.clone()));
    }
    recorded.chunks(chain).map(Run::of).collect()
}

impl Run {
    fn of(parts: &[(String, Vec<Value>)]) -> Result<Self, Error> {
        let mut writer = Writer::default();
        for (_, messages) in parts {
            writer.join(messages);
        }
        let Writer { messages, tools, .. } = writer;
        let id = parts.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>().join(" + ");
        let read = Dialect::OPENAI.read(&json!({ "messages": messages }))?;
        Ok(Self { id: id.chars().filter(char::is_ascii).take(200).collect(), messages, read, tools })
    }

    /// Returns the number of messages of each request: all before a reply, or, without replies, all up to each message.
    pub fn calls(&self) -> impl Iterator<Item = usize> {
        let replies = |at: &usize| self.messages[*at]["role"] == "assistant";
        let answered = (0..self.messages.len()).any(|at| replies(&at));
        // Consecutive replies are one reply: there is no request between them.
        let is_call = move |at: &usize| *at > 0 && (!answered || (replies(at) && !replies(&(at - 1))));
        let end = self.messages.len() + usize::from(!answered);
        (0..end).filter(is_call)
    }

    /// Returns the request with this number of messages.
    pub fn request(&self, shape: Dialect, messages: usize, stream: bool) -> String {
        let mut body = Map::new();
        body.insert("model".to_owned(), json!("stand-in"));
        match shape.name() {
            "openai" => {
                body.insert("messages".to_owned(), json!(self.messages[..messages]));
            }
            _ => body.extend(shape.write(&self.read[..messages])),
        }
        if shape == Dialect::ANTHROPIC {
            body.insert("max_tokens".to_owned(), json!(1_024));
        }
        if !self.tools.is_empty() {
            body.insert("tools".to_owned(), self.tools.iter().map(|name| tool(shape, name)).collect());
        }
        if stream {
            body.insert("stream".to_owned(), json!(true));
        }
        if stream && shape == Dialect::OPENAI {
            body.insert("stream_options".to_owned(), json!({ "include_usage": true }));
        }
        Value::Object(body).to_string()
    }
}

fn tool(shape: Dialect, name: &str) -> Value {
    let (schema, what) = (json!({ "type": "object" }), "A tool of the recording.");
    match shape.name() {
        "anthropic" => json!({ "name": name, "description": what, "input_schema": schema }),
        "responses" => {
            json!({ "type": "function", "name": name, "description": what, "parameters": schema })
        }
        _ => {
            json!({ "type": "function", "function": { "name": name, "description": what, "parameters": schema } })
        }
    }
}

/// Collects messages that a strict upstream accepts.
#[derive(Default)]
struct Writer {
    messages: Vec<Value>,
    tools: BTreeSet<String>,
    used: HashSet<String>,
    /// The new ids of the newest reply's calls, and the calls that are still open.
    renamed: HashMap<String, String>,
    open: Vec<String>,
}

impl Writer {
    /// Adds a conversation. Of a later conversation, the system messages at its beginning are left out.
    fn join(&mut self, messages: &[Value]) {
        let later = !self.messages.is_empty();
        for id in std::mem::take(&mut self.open) {
            let content = "The work ended here.";
            self.messages.push(json!({ "role": "tool", "tool_call_id": id, "content": content }));
        }
        let is_head = |message: &&Value| message["role"] == "system" || message["role"] == "developer";
        let head = if later { messages.iter().take_while(is_head).count() } else { 0 };
        messages.iter().skip(head).for_each(|message| self.add(message));
    }

    fn add(&mut self, message: &Value) {
        let role = message["role"].as_str().unwrap_or_default();
        let mut out = Map::new();
        out.insert("role".to_owned(), json!(role));
        let calls = message["tool_calls"].as_array().filter(|calls| !calls.is_empty());
        let blank = message["content"].as_str().is_none_or(|text| text.trim().is_empty());
        let said = if blank && message["content"].is_string() && role != "tool" {
            if calls.is_none() {
                return;
            }
            Value::Null
        } else {
            message["content"].clone()
        };
        out.insert("content".to_owned(), said);
        if let Some(name) = message["name"].as_str().filter(|_| role != "tool") {
            let plain = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
            out.insert("name".to_owned(), json!(name.chars().map(plain).take(64).collect::<String>()));
        }
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let id = self.renamed.get(id).cloned().unwrap_or_else(|| id.to_owned());
            self.open.retain(|open| *open != id);
            out.insert("tool_call_id".to_owned(), json!(id));
        } else {
            self.open.clear();
        }
        if let Some(calls) = calls {
            self.renamed.clear();
            let calls: Vec<Value> = calls.iter().map(|call| self.call(call)).collect();
            out.insert("tool_calls".to_owned(), json!(calls));
        }
        self.messages.push(Value::Object(out));
    }

    fn call(&mut self, call: &Value) -> Value {
        let (id, function) = (call["id"].as_str().unwrap_or_default(), &call["function"]);
        let mut own = id.to_owned();
        while !self.used.insert(own.clone()) {
            own = format!("{}_{}", id.chars().take(30).collect::<String>(), self.used.len());
        }
        self.renamed.insert(id.to_owned(), own.clone());
        self.open.push(own.clone());
        self.tools.extend(function["name"].as_str().map(str::to_owned));
        let function = json!({ "name": function["name"], "arguments": function["arguments"] });
        json!({ "id": own, "type": "function", "function": function })
    }
}
