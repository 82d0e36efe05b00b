//! Implements OpenAI's Responses API: a flat list of items, in which one reply may consist of several items.
//!
//! The items of a reply (reasoning, text, calls) are read as one message. The provider rejects a request that
//! contains a reasoning item without the items that belong to the reasoning, so Epitome must not separate these
//! items. Calls of tools that the provider defines (`shell_call`, `computer_call` and similar) are read as
//! calls if they have a `call_id`, so that each call stays together with its output. A call without a
//! `call_id`, and an item of an unknown type, is stored only in the residue of its message.
//!
//! The request field `instructions` is read as the item `{"instructions": …}`. An `input` that is a string is
//! read as one item, which is the string.

use epitome_core::inspect::Finish;
use epitome_core::message::{Content, Media, MediaSource, Message, Part, Role, ToolCall, ToolResult};
use serde_json::{Map, Value, json};

use crate::answer::{PartialAnswer, Question, ReadStatus, has_failed, kind, text};
use crate::field::{self, Object, Result};
use crate::fit::{Fitter, FormatLimits, is_blank, is_plain};
use crate::format::{About, Endpoint, Format, FormatHint, SystemField};
use crate::pieces::{Piece, is_blank_text, is_rejected};
use crate::raw::RawFields;
use crate::usage::{PartialUsage, tokens};
use crate::{Dialect, blank_if_nothing, chat, media, openai, part_of, restore};

const ROLES: &[&str] = &["system", "developer", "user", "assistant"];
/// The name of the request field. The item that represents this field contains a field with the same name.
const INSTRUCTIONS: &str = "instructions";

/// OpenAI's Responses API.
#[derive(Debug)]
pub(crate) struct Responses;

static ABOUT: About = About {
    list_field: "input",
    list_may_be_text: true,
    system_field: Some(SystemField {
        name: INSTRUCTIONS,
        message_start: "{\"instructions\":",
        message_field: INSTRUCTIONS,
    }),
    reply_is_items: true,
    remote_history_fields: &["previous_response_id", "conversation", "context_management"],
    remote_history_items: &["item_reference", "compaction", "compaction_summary"],
    text_type: "input_text",
    limit_names: &["max_output_tokens"],
    endpoint: Some(Endpoint { route: "responses", route_name: "responses", ..openai::ENDPOINT }),
    relevant_words: &[
        ("response.completed", ""),
        ("response.incomplete", ""),
        ("response.failed", ""),
        ("error", ""),
    ],
    // The provider accepts tool results that are text, and OpenAI's reasoning if it has an id or encrypted
    // content. Reasoning without an id comes from another provider and is not sent.
    limits: FormatLimits {
        max_id_length: 64,
        // Anthropic's file ids begin with this prefix. OpenAI does not recognise these ids.
        accepts_media: |media| match &media.source {
            MediaSource::File(id) => !id.starts_with("file_"),
            _ => media::is_accepted_by_openai(media),
        },
        received_media_in_results: true,
        forwards_reasoning: false,
        accepts_reasoning: |signature, id| id.is_some_and(|id| !id.is_empty() || signature.is_some()),
        has_item_ids: true,
        ..chat::LIMITS
    },
    ..About::new("responses")
};

impl Format for Responses {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn message_hint(&self, message: &Object) -> Option<FormatHint> {
        let instructions = !message.contains_key("role") && message.contains_key(INSTRUCTIONS);
        if instructions && !message.contains_key("output") {
            return Some(FormatHint::Shape);
        }
        message.get("type").is_some_and(Value::is_string).then_some(FormatHint::Type)
    }

    fn owns_content_type(&self, kind: &str) -> bool {
        matches!(kind, "input_text" | "output_text" | "input_image" | "input_file")
    }

    fn read(&self, item: &Value) -> Result<Message> {
        if let Value::String(text) = item {
            return Ok(Message::user(text));
        }
        let fields = field::object(item)?;
        match field::optional_text(fields, "type")? {
            None if !fields.contains_key("role") && fields.contains_key(INSTRUCTIONS) => {
                Ok(Message::system(field::text(fields, INSTRUCTIONS)?))
            }
            None | Some("message") => read_text_message(fields),
            Some("reasoning") => read_reasoning(fields),
            Some("item_reference") => Ok(Message::assistant("")),
            Some(kind) => match kind.strip_suffix("_output") {
                Some(_) if fields.contains_key("call_id") || fields.contains_key(call_id_field(kind)) => {
                    read_result(kind, fields)
                }
                Some(_) => Ok(Message::user("")),
                None if kind.ends_with("_call") && fields.contains_key("call_id") => read_call(kind, fields),
                None if kind.ends_with("_response") => Ok(Message::user("")),
                None => Ok(Message::assistant("")),
            },
        }
    }

    /// Encodes one message. Each part of a reply becomes one item. The text and media of any other message
    /// become one item together.
    fn encode(&self, message: &Message) -> Vec<Value> {
        let role = if message.role == Role::Peer { Role::User } else { message.role };
        let mut out = Vec::new();
        let mut content = Vec::new();
        for part in &message.parts {
            match part {
                Part::Text { text } if role == Role::Assistant => {
                    out.push(item(role, &[json!({ "type": "output_text", "text": text })]));
                }
                Part::Media(media) if role == Role::Assistant => {
                    out.push(item(
                        role,
                        &[json!({ "type": "output_text", "text": media::placeholder(media) })],
                    ));
                }
                Part::Text { text } => content.push(text_piece(text)),
                Part::Media(media) => content.push(encode_media(media)),
                Part::Thinking { text, signature, id, .. } => {
                    let text = (!text.is_empty()).then(|| json!({ "type": "summary_text", "text": text }));
                    out.push(field::without_nulls(json!({
                        "type": "reasoning",
                        "id": id.as_ref().filter(|id| !id.is_empty()),
                        "summary": text.into_iter().collect::<Vec<_>>(),
                        "encrypted_content": signature,
                    })));
                }
                Part::ToolCall(call) => out.push(field::without_nulls(json!({
                    "type": "function_call",
                    "id": call.item_id.as_deref(),
                    "call_id": &*call.id,
                    "name": call.name,
                    "arguments": call.arguments,
                }))),
                Part::ToolResult(result) => out.push(json!({
                    "type": "function_call_output",
                    "call_id": &*result.call,
                    "output": media::encode_content(&result.content, text_piece, encode_media),
                })),
            }
        }
        if !content.is_empty() {
            out.push(item(role, &content));
        }
        out
    }

    /// Writes the first message to the request field `instructions`, if the message was read from this field.
    /// As an item, the message would occur twice after a caller merges the returned fields into the original
    /// request. Writes all other system messages as items, so that they keep their role and stay separate
    /// messages.
    fn write(&self, messages: &[Message]) -> Map<String, Value> {
        let mut fitter = Fitter::new(ABOUT.limits);
        let (mut fields, mut rest) = (Map::new(), messages);
        if let Some((first, others)) = messages.split_first()
            && let Some(text) = received_instructions(first)
        {
            fields.insert(INSTRUCTIONS.to_owned(), text);
            rest = others;
        }
        let fitted = rest.iter().filter_map(|message| fitter.fit(message));
        let input: Vec<Value> = fitted.flat_map(|message| self.encode(&message)).collect();
        fields.insert("input".to_owned(), Value::Array(input));
        fields
    }

    fn pieces<'a>(&self, text: &'a str, value: &Value) -> Vec<Piece<'a>> {
        let kind = kind(value);
        let call_type = match kind {
            "tool_search_output" => "tool_search_call",
            kind => kind.strip_suffix("_output").unwrap_or(kind),
        };
        let is_uncommon = call_type != "function_call" && call_type.ends_with("_call");
        let call_type = is_uncommon.then(|| call_type.to_owned());
        // The parts of these items do not contain the item's id.
        let has_own_id = matches!(kind, "" | "message" | "function_call_output");
        let id = value.get("id").filter(|_| has_own_id).and_then(Value::as_str).map(str::to_owned);
        let mut parts = self.read(value).map(|message| message.parts).unwrap_or_default();
        parts.retain(|part| !matches!(part, Part::Text { text } if text.is_empty()));
        let calls = parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call.id.to_string()),
            _ => None,
        });
        let custom_calls = if call_type.is_some() { calls.collect() } else { Vec::new() };
        vec![Piece {
            call_type,
            custom_calls,
            id,
            acceptable: is_acceptable(value),
            ..Piece::new(text, parts)
        }]
    }

    /// Returns whether the item is not a message. An approval is an example.
    fn is_neutral(&self, item: &str) -> bool {
        RawFields::of(item).get("type").is_some_and(|kind| kind != "\"message\"")
    }

    fn result_in_call_type(
        &self,
        encoded: &Value,
        call_type: &dyn Fn(&str) -> Option<String>,
    ) -> Option<Value> {
        if kind(encoded) != "function_call_output" {
            return None;
        }
        let call = encoded.get("call_id")?.as_str()?;
        let output = encoded.get("output").cloned().unwrap_or_default();
        Some(match call_type(call)?.as_str() {
            "local_shell_call" => json!({ "type": "local_shell_call_output", "id": call, "output": output }),
            "tool_search_call" => json!({ "type": "tool_search_output", "call_id": call, "tools": [] }),
            "shell_call" => {
                let command = json!({ "stdout": output, "stderr": "", "outcome": { "type": "timeout" } });
                json!({ "type": "shell_call_output", "call_id": call, "output": [command] })
            }
            call_type => json!({ "type": format!("{call_type}_output"), "call_id": call, "output": output }),
        })
    }

    fn results_contain_text(&self, call_type: &str) -> bool {
        call_type == "custom_tool_call"
    }

    fn request_body(&self, question: &Question<'_>) -> Value {
        field::without_nulls(json!({
            "model": question.model,
            "instructions": (!question.system.is_empty()).then_some(question.system),
            "input": question.user,
            (question.limit_field): question.max_output,
            // The provider must not store the conversation.
            "store": false,
            "stream": question.stream,
        }))
    }

    /// Returns [`ReadStatus::Continue`] for a background response that is not complete yet.
    fn read_body(&self, partial: &mut PartialAnswer, body: &Value) -> ReadStatus {
        self.read_usage(body, &mut partial.usage);
        match body.get("status").and_then(Value::as_str) {
            _ if has_failed(body) => ReadStatus::Failed(body.clone()),
            Some(status @ ("completed" | "incomplete")) if read_finished(partial, body, status).is_some() => {
                ReadStatus::Done
            }
            None | Some("completed" | "incomplete") => ReadStatus::Unexpected,
            Some(_) => ReadStatus::Continue,
        }
    }

    fn read_event(&self, partial: &mut PartialAnswer, event: &Value) -> ReadStatus {
        let response = event.get("response").unwrap_or(&Value::Null);
        match kind(event) {
            "response.output_text.delta" => partial.text.push_str(text(event, "delta")),
            // The last event contains the whole text again. It replaces the text that was read before.
            "response.completed" | "response.incomplete" => {
                partial.ended = true;
                return if self.read_body(partial, response) == ReadStatus::Done {
                    ReadStatus::Done
                } else {
                    ReadStatus::Unexpected
                };
            }
            "response.failed" => {
                self.read_usage(response, &mut partial.usage);
                return ReadStatus::Failed(response.clone());
            }
            "error" => return ReadStatus::Failed(event.clone()),
            "" => return ReadStatus::Unexpected,
            _ => {}
        }
        ReadStatus::Continue
    }

    /// Reads the token counts. In this format, `input_tokens` includes the tokens that were read from a cache.
    fn read_usage(&self, reply: &Value, sums: &mut PartialUsage) {
        let Some(usage) = reply.get("usage") else { return };
        let read = tokens(usage.pointer("/input_tokens_details/cached_tokens"));
        let (input, output) = (tokens(usage.get("input_tokens")), tokens(usage.get("output_tokens")));
        sums.replace(PartialUsage::from_total(input, read, None, output));
    }
}

/// Returns the text of a message that was read from the request field `instructions`. `None` for other
/// messages.
fn received_instructions(message: &Message) -> Option<Value> {
    let mut received = message.role.is_system().then(|| restore::restored(Dialect(&Responses), message).0)?;
    let [Value::Object(item)] = received.as_mut_slice() else { return None };
    item.shift_remove(INSTRUCTIONS)
}

fn read_text_message(fields: &Object) -> Result<Message> {
    let role = field::role(fields, ROLES)?;
    if !fields.contains_key("content") {
        return Err(field::missing("content"));
    }
    let mut parts = Vec::new();
    read_content(fields, "content", &mut |piece| parts.push(part_of(piece)))?;
    Ok(Message::new(role, blank_if_nothing(parts)))
}

/// Reads the content in the field `key`. Pieces of unknown types are ignored.
fn read_content(fields: &Object, key: &str, push: &mut dyn FnMut(Content)) -> Result<()> {
    match fields.get(key) {
        Some(other @ (Value::Object(_) | Value::Number(_) | Value::Bool(_))) if key == "output" => {
            push(Content::Text { text: other.to_string() });
            Ok(())
        }
        _ => field::content(fields, key, push, |piece, push| {
            match field::optional_text(piece, "type")?.unwrap_or_default() {
                "input_text" | "output_text" | "text" => {
                    push(Content::Text { text: field::text(piece, "text")?.to_owned() });
                }
                "refusal" => push(Content::Text { text: field::text(piece, "refusal")?.to_owned() }),
                "input_audio" => push(Content::Media(media::audio(piece)?)),
                _ => read_media(piece)?.into_iter().for_each(|media| push(Content::Media(media))),
            }
            Ok(())
        }),
    }
}

fn read_media(piece: &Object) -> Result<Option<Media>> {
    let (mime, address) = match field::optional_text(piece, "type")? {
        Some("input_image" | "computer_screenshot") => (media::IMAGE, "image_url"),
        Some("input_file") => (media::FILE, "file_url"),
        _ => return Ok(None),
    };
    if let Some(url) = field::optional_text(piece, address)? {
        return Ok(Some(match address {
            // The URL of a file stays a URL, even if it contains the file's bytes, so that it can be restored
            // as a URL.
            "file_url" => media::new(mime, MediaSource::Url(url.to_owned())),
            _ => media::from_url(url, mime),
        }));
    }
    if let Some(data) = field::optional_text(piece, "file_data")? {
        return Ok(Some(media::file_data(data)));
    }
    let id = field::optional_text(piece, "file_id")?;
    Ok(id.map(|id| media::new(mime, MediaSource::File(id.to_owned()))))
}

fn read_reasoning(fields: &Object) -> Result<Message> {
    let mut texts = Vec::new();
    field::each("summary", field::list(fields, "summary")?, |piece| {
        texts.push(field::optional_text(piece, "text")?.unwrap_or_default().to_owned());
        Ok(())
    })?;
    let part = Part::Thinking {
        text: texts.join("\n\n"),
        signature: field::optional_text(fields, "encrypted_content")?.map(str::to_owned),
        id: Some(field::optional_text(fields, "id")?.unwrap_or_default().to_owned()),
        redacted: false,
    };
    Ok(Message::new(Role::Assistant, [part]))
}

fn read_call(kind: &str, fields: &Object) -> Result<Message> {
    let (name, arguments) = match kind {
        "function_call" => (field::name(fields, "name")?, field::arguments(fields, "arguments")?),
        "custom_tool_call" => (field::name(fields, "name")?, field::arguments(fields, "input")?),
        // The provider defines this tool. The call contains no name, so its type is used as the name.
        _ => (kind.trim_end_matches("_call"), field::arguments(fields, "action")?),
    };
    let name = if name.is_empty() { kind } else { name };
    let item_id = field::optional_text(fields, "id")?.filter(|id| !id.is_empty());
    let call = ToolCall {
        id: field::name(fields, "call_id")?.into(),
        item_id: item_id.map(Into::into),
        name: name.to_owned(),
        arguments,
    };
    Ok(Message::new(Role::Assistant, [Part::ToolCall(call)]))
}

/// Returns the name of the field that contains the id of the output's call.
fn call_id_field(kind: &str) -> &'static str {
    if kind == "local_shell_call_output" { "id" } else { "call_id" }
}

fn read_result(kind: &str, fields: &Object) -> Result<Message> {
    let mut result = Vec::new();
    let output = fields.get("output").and_then(Value::as_object);
    match output.map_or(Ok(None), read_media).map_err(|error| error.under("output"))? {
        Some(media) => result.push(Content::Media(media)),
        None => read_content(fields, "output", &mut |piece| result.push(piece))?,
    }
    // Some clients write `call_id` in outputs of every type.
    let id_field = if fields.contains_key("call_id") { "call_id" } else { call_id_field(kind) };
    let call = field::name(fields, id_field)?.into();
    Ok(Message::new(Role::Tool, [Part::ToolResult(ToolResult { call, content: result, error: false })]))
}

fn item(role: Role, content: &[Value]) -> Value {
    json!({ "type": "message", "role": role.to_string(), "content": content })
}

fn text_piece(text: &str) -> Value {
    json!({ "type": "input_text", "text": text })
}

fn encode_media(media: &Media) -> Value {
    if let Some(audio) = media::encode_audio(media) {
        return audio;
    }
    let is_image = media::is_image(media);
    let kind = if is_image { "input_image" } else { "input_file" };
    match (&media.source, media::url(media)) {
        (MediaSource::File(id), _) => json!({ "type": kind, "file_id": id }),
        (_, Some(url)) if is_image => json!({ "type": kind, "image_url": url }),
        (MediaSource::Base64(_), Some(url)) => {
            json!({ "type": kind, "filename": media::file_name(media), "file_data": url })
        }
        (_, url) => json!({ "type": kind, "file_url": url }),
    }
}

/// Returns whether the provider accepts this item.
fn is_acceptable(value: &Value) -> bool {
    let Some(item) = value.as_object() else { return false };
    let kind = match item.get("type") {
        None => "message",
        Some(Value::String(kind)) => kind,
        Some(_) => return false,
    };
    let id_prefix = match kind {
        "message" => "msg",
        "function_call_output" => "fc",
        // The ids of these items are in their parts, which are checked separately.
        "reasoning" | "function_call" => "",
        _ => return is_acceptable_output(kind, item),
    };
    let role = text(value, "role");
    let content = match item.get("content") {
        _ if kind != "message" => true,
        Some(Value::Array(pieces)) => {
            !pieces.is_empty() && !pieces.iter().any(|piece| is_rejected(piece, role))
        }
        content => content.and_then(Value::as_str).is_some_and(|text| !is_blank(text)),
    };
    let plain = |id: &str| id.starts_with(id_prefix) && is_plain(id, 64);
    let has_valid_id = item.get("id").is_none_or(|id| id.as_str().is_some_and(plain));
    let is_instructions = item.contains_key(INSTRUCTIONS) && !item.contains_key("role");
    content && has_valid_id && !is_instructions && is_acceptable_output(kind, item)
}

/// Returns whether the provider accepts the output in this item. The output of a function or of a custom tool
/// must be text, or a list of text, images and files. Items of other types are accepted, unless a required
/// `call_id` is missing.
fn is_acceptable_output(item_type: &str, item: &Object) -> bool {
    let needs_call_id =
        item_type.ends_with("_output") || matches!(item_type, "function_call" | "custom_tool_call");
    if needs_call_id && !item.contains_key("call_id") {
        return false;
    }
    if !matches!(item_type, "function_call_output" | "custom_tool_call_output") {
        return true;
    }
    let is_accepted = |piece: &Value| {
        matches!(kind(piece), "input_text" | "input_image" | "input_file") && !is_blank_text(piece)
    };
    match item.get("output") {
        Some(Value::Array(pieces)) => !pieces.is_empty() && pieces.iter().all(is_accepted),
        output => output.is_some_and(Value::is_string),
    }
}

/// Reads a finished response. `None` if the response has an unexpected shape.
fn read_finished(partial: &mut PartialAnswer, response: &Value, status: &str) -> Option<()> {
    let finish = match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
        _ if status == "completed" => Finish::Complete,
        Some("content_filter") => Finish::Filtered,
        _ => Finish::Length,
    };
    (partial.text, partial.finish, partial.ended) = (String::new(), Some(finish), true);
    for item in response.get("output")?.as_array()? {
        partial.calls_tool |= kind(item).ends_with("_call");
        let content = item.get("content").and_then(Value::as_array).into_iter().flatten();
        for piece in content.filter(|_| kind(item) == "message") {
            match kind(piece) {
                "output_text" => partial.text.push_str(piece.get("text")?.as_str()?),
                "refusal" => partial.finish = Some(Finish::Filtered),
                _ => {}
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, TokenUsage};

    fn read_event(partial: &mut PartialAnswer, event: &str) -> ReadStatus {
        partial.read_event(Dialect::RESPONSES, event.as_bytes())
    }

    fn answer(body: &Value) -> Option<Answer> {
        let mut partial = PartialAnswer::default();
        (partial.read_body(Dialect::RESPONSES, body) == ReadStatus::Done).then(|| partial.answer())
    }

    fn response(status: &str, output: &Value) -> Value {
        json!({"status": status, "error": null, "output": output, "incomplete_details": null,
            "usage": {"input_tokens": 30, "input_tokens_details": {"cached_tokens": 10}, "output_tokens": 8}})
    }

    fn says(kind: &str, text: &str) -> Value {
        json!([{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": [{"type": kind, "text": text, "refusal": text}]}])
    }

    #[test]
    fn only_output_text_is_read_and_the_stop_reason_is_mapped() {
        let whole = |body: &Value| answer(body).map(|answer| (answer.text, answer.finish));
        let said = |text: &str, finish| Some((text.to_owned(), finish));
        let text = says("output_text", "Ann.");
        assert_eq!(whole(&response("completed", &text)), said("Ann.", Finish::Complete));
        assert_eq!(whole(&response("incomplete", &text)), said("Ann.", Finish::Length));
        let mut filtered = response("incomplete", &text);
        filtered["incomplete_details"] = json!({"reason": "content_filter"});
        assert_eq!(whole(&filtered), said("Ann.", Finish::Filtered));
        assert_eq!(whole(&response("completed", &says("refusal", "No."))), said("", Finish::Filtered));
        let called = json!([{"type": "function_call", "name": "f", "arguments": "{}"}, text[1]]);
        assert_eq!(whole(&response("completed", &called)), said("", Finish::Complete));
        assert_eq!(
            answer(&response("completed", &text)).unwrap().usage,
            Some(TokenUsage { input: 30, cached: 10, output: 8 })
        );
    }

    #[test]
    fn a_failed_or_unfinished_response_is_no_answer() {
        let text = says("output_text", "Ann.");
        for status in ["queued", "in_progress", "failed", "cancelled"] {
            assert!(answer(&response(status, &text)).is_none(), "{status}");
        }
        let mut failed = response("completed", &text);
        failed["error"] = json!({"code": "server_error"});
        assert!(answer(&failed).is_none() && answer(&json!({})).is_none());
        assert!(answer(&json!({"status": "completed", "output": "Ann."})).is_none());
    }

    #[test]
    fn a_stream_is_complete_only_with_its_end() {
        let mut partial = PartialAnswer::default();
        let mut push = |event: Value| read_event(&mut partial, &event.to_string());
        assert!(matches!(push(json!({"type": "response.created", "response": {}})), ReadStatus::Continue));
        assert!(matches!(
            push(json!({"type": "response.output_text.delta", "delta": "An"})),
            ReadStatus::Continue
        ));
        assert!(matches!(push(json!({"type": "error", "code": "server_error"})), ReadStatus::Failed(_)));
        assert!(matches!(
            push(json!({"type": "response.failed", "response": {"error": {}}})),
            ReadStatus::Failed(_)
        ));
        assert!(matches!(push(json!({"no": "type"})), ReadStatus::Unexpected));
        assert!(!partial.is_complete());
        let last = json!({"type": "response.completed", "response": response("completed", &says("output_text", "Ann."))});
        assert!(matches!(read_event(&mut partial, &last.to_string()), ReadStatus::Done));
        let answer = partial.answer();
        assert_eq!((answer.text.as_str(), answer.finish, answer.complete), ("Ann.", Finish::Complete, true));
    }
}
