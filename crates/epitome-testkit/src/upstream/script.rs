//! The answers of the imitated model. They look like the work of an agent, and are the same in every run.
//!
//! The turns have different lengths. A reply contains one tool call or several parallel tool calls. In some turns no
//! reply contains reasoning; in other turns every reply, only the first reply, or every second reply contains
//! reasoning. Each turn ends with text.

use epitome::dialect::Dialect;
use serde_json::{Value, json};

/// The beginning of a question about the facts. The answer contains the facts that the list still contains.
pub const RECALL: &str = "Recall";

/// The creation time of all answers, in seconds since 1970.
const CREATED: u64 = 1_760_000_000;

/// Number of replies in each turn, in order.
const LENGTHS: [usize; 6] = [4, 9, 2, 14, 6, 23];
const NOUNS: [&str; 7] = ["berth", "crane", "tide", "invoice", "pilot", "ledger", "mooring"];

/// The current position in the script.
#[derive(Debug, Default)]
pub struct Script {
    said: usize,
    turn: usize,
    place: usize,
}

/// An answer, independent of the wire format.
#[derive(Debug, Clone, Default)]
pub struct ScriptedReply {
    number: usize,
    thinking: Option<String>,
    words: String,
    calls: Vec<(&'static str, Value)>,
}

impl Script {
    /// Returns the next answer. If `tools` is false, the answer contains only text.
    pub fn next(&mut self, tools: bool) -> ScriptedReply {
        self.said += 1;
        if !tools {
            let words = format!("Answer {}: the berths on the north quay are free until Monday.", self.said);
            return ScriptedReply { number: self.said, words, ..ScriptedReply::default() };
        }
        let (said, place, length) = (self.said, self.place, LENGTHS[self.turn % LENGTHS.len()]);
        let thinks = match self.turn % 4 {
            0 => false,
            1 => true,
            2 => place == 0,
            _ => place.is_multiple_of(2),
        };
        let file = |n: usize| format!("src/{}_{}.rs", NOUNS[n % NOUNS.len()], n % 31);
        let mut words = String::new();
        let mut calls = Vec::new();
        match place {
            _ if place + 1 == length => {
                words =
                    format!("Step {said} is done: `{}` adds up fees in øre, and its tests pass.", file(said));
            }
            _ if place % 6 == 0 => calls.push(("list_files", json!({}))),
            _ if place % 6 == 1 => {
                words = format!("I read what {} needs.", file(said));
                calls.extend((0..3).map(|n| ("read_file", json!({ "path": file(said + n) }))));
            }
            _ if place % 6 == 2 => {
                calls.push(("grep", json!({ "pattern": format!("\"fee_{said}\\b\""), "path": "src" })));
                calls.push(("read_file", json!({ "path": file(said * 3) })));
            }
            _ if place % 6 == 3 => calls.push((
                "edit_file",
                json!({ "path": file(said), "old": "f64", "new": format!("Øre, // {said}\n") }),
            )),
            _ if place % 6 == 4 => calls.push(("run_tests", json!({ "filter": NOUNS[said % NOUNS.len()] }))),
            _ => calls.push(("read_file", json!({ "path": file(said + 5), "lines": [said, said + 40] }))),
        }
        self.place += 1;
        if self.place == length {
            (self.turn, self.place) = (self.turn + 1, 0);
        }
        let thinking = thinks.then(|| format!("What does step {said} need? The file first, then its tests."));
        ScriptedReply { number: said, thinking, words, calls }
    }
}

/// Returns an answer that contains the facts that occur in the texts.
pub fn recalled(texts: &[&str], facts: &[(&str, &str)]) -> ScriptedReply {
    let answer = facts.iter().map(|(name, fact)| {
        let found = texts.iter().any(|text| text.contains(fact));
        format!("{name}: {}", if found { fact } else { "I do not know" })
    });
    ScriptedReply { words: answer.collect::<Vec<_>>().join("\n"), ..ScriptedReply::default() }
}

/// Returns a summary as a careful model would write it. The summary contains each fact that occurs in the texts, and
/// the size of the texts in bytes.
pub fn summary(texts: &[&str], facts: &[(&str, &str)]) -> ScriptedReply {
    let shown = facts.iter().filter(|(_, fact)| texts.iter().any(|text| text.contains(fact)));
    let mut lines: Vec<String> = shown.map(|(name, fact)| format!("- {name}: {fact}")).collect();
    let bytes: usize = texts.iter().map(|text| text.len()).sum();
    lines.push(format!(
        "- Of the work so far {bytes} bytes were read; files were changed one by one, tests ran."
    ));
    ScriptedReply { words: lines.join("\n"), ..ScriptedReply::default() }
}

impl ScriptedReply {
    /// Returns the whole answer in the provider's format.
    pub fn answer(&self, dialect: Dialect, input: u64, cached: u64) -> Value {
        let output = 20 + self.words.len() as u64 / 4 + 30 * self.calls.len() as u64;
        match dialect.name() {
            "anthropic" => json!({
                "id": format!("msg_{}", self.number), "type": "message", "role": "assistant", "model": "stand-in",
                "content": self.blocks(),
                "stop_reason": if self.calls.is_empty() { "end_turn" } else { "tool_use" }, "stop_sequence": null,
                "usage": {
                    "input_tokens": input - cached, "cache_read_input_tokens": cached,
                    "cache_creation_input_tokens": 0, "output_tokens": output,
                },
            }),
            "responses" => json!({
                "id": format!("resp_{}", self.number), "object": "response", "status": "completed", "created_at": CREATED,
                "model": "stand-in", "output": self.items(), "error": null, "incomplete_details": null,
                "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
                "usage": {
                    "input_tokens": input, "input_tokens_details": { "cached_tokens": cached },
                    "output_tokens": output, "output_tokens_details": { "reasoning_tokens": 0 },
                    "total_tokens": input + output,
                },
            }),
            _ => json!({
                "id": format!("chatcmpl-{}", self.number), "object": "chat.completion", "created": CREATED,
                "model": "stand-in",
                "choices": [{
                    "index": 0, "message": self.message(), "logprobs": null,
                    "finish_reason": if self.calls.is_empty() { "stop" } else { "tool_calls" },
                }],
                "usage": {
                    "prompt_tokens": input, "prompt_tokens_details": { "cached_tokens": cached },
                    "completion_tokens": output, "total_tokens": input + output,
                },
            }),
        }
    }

    fn id(&self, at: usize) -> String {
        format!("call_{}_{at}", self.number)
    }

    fn message(&self) -> Value {
        let words = if self.words.is_empty() { Value::Null } else { json!(self.words) };
        let mut message =
            json!({ "role": "assistant", "content": words, "refusal": null, "annotations": [] });
        if !self.calls.is_empty() {
            let calls = self.calls.iter().enumerate().map(|(at, (name, arguments))| {
                let function = json!({ "name": name, "arguments": arguments.to_string() });
                json!({ "id": self.id(at), "type": "function", "function": function })
            });
            message["tool_calls"] = calls.collect();
        }
        message
    }

    fn items(&self) -> Value {
        let mut items = Vec::new();
        if let Some(thinking) = &self.thinking {
            items.push(json!({
                "type": "reasoning", "id": format!("rs_{}", self.number), "encrypted_content": "c2VhbGVk",
                "summary": [{ "type": "summary_text", "text": thinking }],
            }));
        }
        if !self.words.is_empty() {
            let content = json!([{ "type": "output_text", "text": self.words, "annotations": [] }]);
            items.push(json!({
                "type": "message", "id": format!("msg_{}", self.number), "status": "completed",
                "role": "assistant", "content": content,
            }));
        }
        items.extend(self.calls.iter().enumerate().map(|(at, (name, arguments))| {
            json!({
                "type": "function_call", "id": format!("fc_{}_{at}", self.number), "status": "completed",
                "call_id": self.id(at), "name": name, "arguments": arguments.to_string(),
            })
        }));
        Value::Array(items)
    }

    fn blocks(&self) -> Value {
        let mut blocks = Vec::new();
        if let Some(thinking) = &self.thinking {
            let signature = format!("c2lnbmVk{}", self.number);
            blocks.push(json!({ "type": "thinking", "thinking": thinking, "signature": signature }));
        }
        if !self.words.is_empty() {
            blocks.push(json!({ "type": "text", "text": self.words }));
        }
        blocks.extend(self.calls.iter().enumerate().map(|(at, (name, arguments))| {
            json!({ "type": "tool_use", "id": self.id(at), "name": name, "input": arguments })
        }));
        Value::Array(blocks)
    }
}
