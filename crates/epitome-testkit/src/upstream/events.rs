//! Converts a whole answer to the events of a stream, in each provider's format.
//!
//! Texts are split into pieces of a few words. Each event is a text that is ready to be sent.

use epitome::dialect::Dialect;
use serde_json::{Value, json};

/// Approximate size of one piece of a text, in bytes.
const PIECE: usize = 24;

/// Returns the events of this answer. In OpenAI's chat format, the events contain token counts only if `counts` is
/// true.
pub fn stream_events(dialect: Dialect, whole: &Value, counts: bool) -> Vec<String> {
    match dialect.name() {
        "anthropic" => anthropic(whole),
        "responses" => responses(whole),
        _ => chat(whole, counts),
    }
}

fn pieces(text: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    for word in text.split_inclusive(' ') {
        if out.last().is_some_and(|last| last.len() >= PIECE) {
            out.push(String::new());
        }
        out.last_mut().unwrap().push_str(word);
    }
    out
}

fn items(value: &Value) -> impl Iterator<Item = (usize, &Value)> {
    value.as_array().into_iter().flatten().enumerate()
}

fn chat(whole: &Value, counts: bool) -> Vec<String> {
    let mut out = Vec::new();
    let mut add = |choices: Value, usage: &Value| {
        let mut chunk = json!({
            "id": whole["id"], "object": "chat.completion.chunk", "created": whole["created"], "model": whole["model"],
            "system_fingerprint": null, "choices": choices,
        });
        if counts {
            chunk["usage"] = usage.clone();
        }
        out.push(format!("data: {chunk}\n\n"));
    };
    let choice = |delta: Value, finish: &Value| json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": finish }]);
    let message = &whole["choices"][0]["message"];
    let start = json!({ "role": "assistant", "content": if message["content"].is_null() { Value::Null } else { json!("") }, "refusal": null });
    add(choice(start, &Value::Null), &Value::Null);
    if let Some(text) = message["content"].as_str() {
        for piece in pieces(text) {
            add(choice(json!({ "content": piece }), &Value::Null), &Value::Null);
        }
    }
    for (at, call) in items(&message["tool_calls"]) {
        let function = json!({ "name": call["function"]["name"], "arguments": "" });
        let first = json!({ "index": at, "id": call["id"], "type": "function", "function": function });
        add(choice(json!({ "tool_calls": [first] }), &Value::Null), &Value::Null);
        for piece in pieces(call["function"]["arguments"].as_str().unwrap()) {
            let next = json!({ "index": at, "function": { "arguments": piece } });
            add(choice(json!({ "tool_calls": [next] }), &Value::Null), &Value::Null);
        }
    }
    add(choice(json!({}), &whole["choices"][0]["finish_reason"]), &Value::Null);
    if counts {
        add(json!([]), &whole["usage"]);
    }
    out.push("data: [DONE]\n\n".to_owned());
    out
}

/// Collects events that have a name. Two of the three wire formats use names.
#[derive(Default)]
struct Named {
    out: Vec<String>,
    numbered: bool,
}

impl Named {
    fn add(&mut self, name: &str, mut data: Value) {
        data["type"] = json!(name);
        if self.numbered {
            data["sequence_number"] = json!(self.out.len());
        }
        self.out.push(format!("event: {name}\ndata: {data}\n\n"));
    }
}

fn responses(whole: &Value) -> Vec<String> {
    let mut out = Named { numbered: true, ..Named::default() };
    let mut begun = whole.clone();
    begun["status"] = json!("in_progress");
    begun["output"] = json!([]);
    begun["usage"] = Value::Null;
    out.add("response.created", json!({ "response": begun }));
    out.add("response.in_progress", json!({ "response": begun }));
    for (at, item) in items(&whole["output"]) {
        let id = &item["id"];
        let mut first = item.clone();
        if first.get("status").is_some() {
            first["status"] = json!("in_progress");
        }
        match item["type"].as_str().unwrap() {
            "message" => first["content"] = json!([]),
            "reasoning" => first["summary"] = json!([]),
            _ => first["arguments"] = json!(""),
        }
        out.add("response.output_item.added", json!({ "output_index": at, "item": first }));
        match item["type"].as_str().unwrap() {
            "message" => {
                let (part, place) =
                    (&item["content"][0], json!({ "item_id": id, "output_index": at, "content_index": 0 }));
                let with = |name: &str, value: Value| {
                    let mut event = place.clone();
                    event[name] = value;
                    event
                };
                let empty = json!({ "type": "output_text", "text": "", "annotations": [] });
                out.add("response.content_part.added", with("part", empty));
                for piece in pieces(part["text"].as_str().unwrap()) {
                    let mut event = with("delta", json!(piece));
                    event["logprobs"] = json!([]);
                    out.add("response.output_text.delta", event);
                }
                let mut event = with("text", part["text"].clone());
                event["logprobs"] = json!([]);
                out.add("response.output_text.done", event);
                out.add("response.content_part.done", with("part", part.clone()));
            }
            "reasoning" => {
                let (part, place) =
                    (&item["summary"][0], json!({ "item_id": id, "output_index": at, "summary_index": 0 }));
                let with = |name: &str, value: Value| {
                    let mut event = place.clone();
                    event[name] = value;
                    event
                };
                let empty = json!({ "type": "summary_text", "text": "" });
                out.add("response.reasoning_summary_part.added", with("part", empty));
                for piece in pieces(part["text"].as_str().unwrap()) {
                    out.add("response.reasoning_summary_text.delta", with("delta", json!(piece)));
                }
                out.add("response.reasoning_summary_text.done", with("text", part["text"].clone()));
                out.add("response.reasoning_summary_part.done", with("part", part.clone()));
            }
            _ => {
                let arguments = item["arguments"].as_str().unwrap();
                for piece in pieces(arguments) {
                    let event = json!({ "item_id": id, "output_index": at, "delta": piece });
                    out.add("response.function_call_arguments.delta", event);
                }
                let event = json!({ "item_id": id, "output_index": at, "name": item["name"], "arguments": arguments });
                out.add("response.function_call_arguments.done", event);
            }
        }
        out.add("response.output_item.done", json!({ "output_index": at, "item": item }));
    }
    out.add("response.completed", json!({ "response": whole }));
    out.out
}

fn anthropic(whole: &Value) -> Vec<String> {
    let mut out = Named::default();
    let mut begun = whole.clone();
    begun["content"] = json!([]);
    begun["stop_reason"] = Value::Null;
    begun["usage"]["output_tokens"] = json!(1);
    out.add("message_start", json!({ "message": begun }));
    for (at, block) in items(&whole["content"]) {
        let mut first = block.clone();
        let mut deltas = Vec::new();
        match block["type"].as_str().unwrap() {
            "text" => {
                first["text"] = json!("");
                let texts = pieces(block["text"].as_str().unwrap());
                deltas.extend(texts.into_iter().map(|text| json!({ "type": "text_delta", "text": text })));
            }
            "thinking" => {
                (first["thinking"], first["signature"]) = (json!(""), json!(""));
                let texts = pieces(block["thinking"].as_str().unwrap());
                deltas.extend(
                    texts.into_iter().map(|text| json!({ "type": "thinking_delta", "thinking": text })),
                );
                deltas.push(json!({ "type": "signature_delta", "signature": block["signature"] }));
            }
            _ => {
                first["input"] = json!({});
                let texts = pieces(&block["input"].to_string());
                let delta = |text| json!({ "type": "input_json_delta", "partial_json": text });
                deltas.extend(std::iter::once(String::new()).chain(texts).map(delta));
            }
        }
        out.add("content_block_start", json!({ "index": at, "content_block": first }));
        if at == 0 {
            out.add("ping", json!({}));
        }
        for delta in deltas {
            out.add("content_block_delta", json!({ "index": at, "delta": delta }));
        }
        out.add("content_block_stop", json!({ "index": at }));
    }
    let delta = json!({ "stop_reason": whole["stop_reason"], "stop_sequence": null });
    out.add(
        "message_delta",
        json!({ "delta": delta, "usage": { "output_tokens": whole["usage"]["output_tokens"] } }),
    );
    out.add("message_stop", json!({}));
    out.out
}
