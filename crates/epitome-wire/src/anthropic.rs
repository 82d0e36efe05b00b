//! Implements Anthropic's Messages format. User and assistant messages alternate, and each message is a list of
//! blocks.
//!
//! In this format, the system prompt is a field of the request and not a message. This module reads and writes
//! it as a message with the role `system`. Blocks of unknown types are stored in the residue of their message.
//! Blocks of tools that run at the provider are an example.

use epitome_core::inspect::Finish;
use epitome_core::message::{Content, Media, MediaSource, Message, Part, Role, ToolCall, ToolResult};
use epitome_core::view;
use serde_json::{Map, Value, json};

use crate::answer::{PartialAnswer, Question, ReadStatus, has_failed, kind, text};
use crate::field::{self, Object, Result};
use crate::fit::{Fitter, FormatLimits, LATER_SYSTEM_PREFIX, is_blank, opening_message};
use crate::format::{
    About, Endpoint, ErrorReply, Format, FormatHint, MergedMessage, RequestHint, SystemField,
};
use crate::pieces::{Piece, is_blank_text};
use crate::raw::{self, FLAGS_FIELD, RawFields};
use crate::usage::{PartialUsage, tokens};
use crate::{Dialect, blank_if_nothing, chat, flags, media, part_of, restore};

const ROLES: &[&str] = &["user", "assistant", "system"];

/// Anthropic's Messages format.
#[derive(Debug)]
pub(crate) struct Anthropic;

static ABOUT: About = About {
    system_field: Some(SystemField {
        name: "system",
        message_start: "{\"role\":\"system\",\"content\":",
        message_field: "content",
    }),
    remote_history_fields: &["context_management"],
    encode_block: Some(encode_block),
    endpoint: Some(Endpoint {
        provider: "anthropic",
        base_url: "https://api.anthropic.com/v1",
        route: "messages",
        route_name: "messages",
        client_base: "/anthropic",
        key_env: "ANTHROPIC_API_KEY",
        key: ("x-api-key", ""),
        credentials: &["anthropic-version", "anthropic-beta"],
        headers: &[("anthropic-version", "2023-06-01")],
    }),
    relevant_words: &[("message_start", ""), ("message_delta", ""), ("message_stop", ""), ("error", "")],
    // The provider accepts reasoning that Anthropic signed, and media in tool results. Reasoning with an id
    // comes from another provider and is not sent.
    limits: FormatLimits {
        max_id_length: 64,
        accepts_media,
        media_in_results: true,
        forwards_reasoning: false,
        accepts_reasoning: |signature, id| signature.is_some() && id.is_none(),
        ..chat::LIMITS
    },
    ..About::new("anthropic")
};

impl Format for Anthropic {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn message_hint(&self, message: &Object) -> Option<FormatHint> {
        let mut pieces = message.get("content").and_then(Value::as_array).into_iter().flatten();
        let marked = |piece: &Value| piece.get("cache_control").is_some() || piece.get("citations").is_some();
        pieces.any(marked).then_some(FormatHint::SharedField)
    }

    fn owns_content_type(&self, kind: &str) -> bool {
        matches!(kind, "thinking" | "redacted_thinking" | "image" | "document" | "search_result")
            || kind.ends_with("tool_use")
            || kind.ends_with("tool_result")
    }

    fn request_hint(&self, request: &RawFields<'_>, system_in_list: bool) -> Option<RequestHint> {
        let has = |field: &str| request.get(field).is_some();
        let tools = request.get("tools").map(raw::items).unwrap_or_default();
        let schema = |tool: &&str| RawFields::of(tool).get("input_schema").is_some();
        if has("system") || has("anthropic_version") || tools.iter().any(schema) {
            return Some(RequestHint::Certain);
        }
        // A request to Anthropic never has a system message in its list.
        let claude = request.get("model").is_some_and(|model| model.starts_with("\"claude"));
        let own = claude || ["stop_sequences", "thinking", "top_k"].into_iter().any(has);
        (own && !system_in_list).then_some(RequestHint::Likely)
    }

    fn read(&self, wire: &Value) -> Result<Message> {
        let fields = field::object(wire)?;
        let role = match field::name(fields, "role")? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            other => return Err(field::unknown_value("role", other, ROLES)),
        };
        let mut parts = Vec::new();
        match fields.get("content") {
            None => return Err(field::missing("content")),
            Some(Value::String(text)) => parts.push(Part::text(text)),
            _ => each_block(fields, |block| read_block(role, block, &mut parts))?,
        }
        let answers = role == Role::User && !parts.is_empty();
        let answers = answers && parts.iter().all(|part| matches!(part, Part::ToolResult(_)));
        Ok(Message::new(if answers { Role::Tool } else { role }, blank_if_nothing(parts)))
    }

    /// Encodes one message.
    fn encode(&self, message: &Message) -> Vec<Value> {
        let role = match message.role {
            Role::System | Role::Developer => "system",
            Role::Assistant => "assistant",
            Role::User | Role::Peer | Role::Tool => "user",
        };
        let content = match message.parts.as_slice() {
            [Part::Text { text }] => json!(text),
            parts => parts.iter().map(encode_block).collect(),
        };
        vec![json!({ "role": role, "content": content })]
    }

    /// Writes the request fields. User and assistant messages alternate, and the first message is a user
    /// message. The reasoning in a reply stays at its position. A system message that comes later in the list
    /// becomes a note in a user message.
    fn write(&self, messages: &[Message]) -> Map<String, Value> {
        let mut fitter = Fitter::new(ABOUT.limits);
        let (mut system, mut turns) = (Vec::new(), Vec::<(&str, Vec<Value>)>::new());
        let mut drops_reasoning = false;
        for message in messages {
            let lost = has_unsent_block(message);
            let Some(mut message) = fitter.fit(message) else { continue };
            // If some reasoning of a turn is removed, the rest of the turn's reasoning must be removed too.
            // Providers reject reasoning whose beginning is missing.
            drops_reasoning = match message.role {
                Role::Assistant => drops_reasoning || lost,
                Role::Tool => drops_reasoning,
                _ => false,
            };
            let in_system = message.role.is_system() && turns.is_empty();
            let role = message.role;
            for part in &mut message.parts {
                match part {
                    // Anthropic rejects a request whose last message is a reply that ends in whitespace. All
                    // replies are trimmed, because a reply must be written in the same way whether or not it is
                    // the last message.
                    Part::Text { text } if role == Role::Assistant => text.truncate(text.trim_end().len()),
                    Part::Text { text } if role.is_system() && !in_system => {
                        text.insert_str(0, LATER_SYSTEM_PREFIX);
                    }
                    _ => {}
                }
            }
            message.parts.retain(|part| !drops_reasoning || !matches!(part, Part::Thinking { .. }));
            // In a user message, tool results come before all other blocks. The order of the blocks in a reply
            // does not change, because reasoning between text and calls must be sent back unchanged.
            message.parts.sort_by_key(|part| !matches!(part, Part::ToolResult(_)));
            let mut blocks: Vec<Value> = message.parts.iter().map(encode_block).collect();
            if in_system {
                system.append(&mut blocks);
                continue;
            }
            let side = if message.role == Role::Assistant { "assistant" } else { "user" };
            match turns.last_mut() {
                Some((last, merged)) if *last == side => {
                    // Two messages are merged into one. If they are replies, the reasoning at the start of both
                    // replies must be at the start of the merged reply.
                    let leading =
                        |blocks: &[Value]| blocks.iter().take_while(|block| is_reasoning(block)).count();
                    let (at, count) = (leading(merged), leading(&blocks));
                    merged.splice(at..at, blocks.drain(..count));
                    merged.append(&mut blocks);
                }
                _ => turns.push((side, blocks)),
            }
        }
        let lacks_user = turns.first().is_none_or(|(side, _)| *side == "assistant");
        if lacks_user && !(turns.is_empty() && system.is_empty()) {
            turns.insert(0, ("user", opening_message().parts.iter().map(encode_block).collect()));
        }
        let mut fields = Map::new();
        if !system.is_empty() {
            fields.insert("system".to_owned(), Value::Array(system));
        }
        let turns = turns.into_iter().map(|(role, content)| json!({ "role": role, "content": content }));
        fields.insert("messages".to_owned(), turns.collect());
        fields
    }

    /// Returns the blocks of an Anthropic message. Content that is a string counts as one block.
    fn pieces<'a>(&self, text: &'a str, value: &Value) -> Vec<Piece<'a>> {
        let role = match self::text(value, "role") {
            "assistant" => Role::Assistant,
            "system" => Role::System,
            _ => Role::User,
        };
        let texts = raw::blocks(RawFields::of(text).get("content").unwrap_or_default(), "text");
        if let Some(content) = value.get("content").and_then(Value::as_str) {
            let parts = || vec![Part::text(content)];
            let piece = |text| Piece { acceptable: !is_blank(content), ..Piece::new(text, parts()) };
            return texts.into_iter().map(piece).collect();
        }
        let values = value.get("content").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let pieces = texts.into_iter().zip(values).map(|(text, block)| {
            let mut parts = Vec::new();
            if let Some(fields) = block.as_object() {
                let _ = read_block(role, fields, &mut parts);
            }
            let empty = |part: &Part| matches!(part, Part::Text { text } if text.is_empty());
            parts.retain(|part| !empty(part));
            // Anthropic rejects a blank text at any position in a tool result.
            let nested = block.get("content").and_then(Value::as_array).into_iter().flatten();
            let misplaced = match kind(block) {
                // If a block of these types is in a message of the wrong role, no part was read from the block.
                "tool_use" | "tool_result" | "thinking" | "redacted_thinking" => parts.is_empty(),
                "image" | "document" | "search_result" => role != Role::User,
                kind => role == Role::System && kind != "text",
            };
            let acceptable = !misplaced && !is_blank_text(block) && !nested.into_iter().any(is_blank_text);
            Piece { acceptable, ..Piece::new(text, parts) }
        });
        pieces.collect()
    }

    /// Splits a message that was merged from several messages: before and after each summary that Epitome
    /// wrote, and before each block whose flags differ from the flags of the block before it.
    fn split(&self, message: &Message, wire: &Value) -> Result<Option<Vec<MergedMessage>>> {
        let (Some(fields), Some(blocks)) = (wire.as_object(), wire.get("content").and_then(Value::as_array))
        else {
            return Ok(None);
        };
        if message.role == Role::Tool && blocks.iter().all(|block| block.get(FLAGS_FIELD).is_none()) {
            return Ok(None);
        }
        let whole = flags::read(fields)?;
        let flags = blocks.iter().enumerate().map(|(at, block)| {
            let read = |block| flags::check(block).and_then(|()| flags::read(block));
            let own = block.as_object().map_or(Ok((false, false)), read);
            let own = own.map_err(|error| error.under(&format!("content[{at}]")))?;
            let text = block.get("text").and_then(Value::as_str).filter(|text| text.starts_with('<'));
            let alone = text.map(|text| Message::new(message.role, [Part::text(text)]));
            let summary = alone.is_some_and(|alone| view::recognise(&alone).is_some());
            Ok(((whole.0 || own.0, whole.1 || own.1), summary))
        });
        let flags: Vec<((bool, bool), bool)> = flags.collect::<Result<_>>()?;
        let runs = || flags.chunk_by(|(one, was), (next, is)| one == next && !was && !is);
        if runs().count() < 2 && flags.iter().all(|(flags, _)| *flags == whole) {
            return Ok(None);
        }
        let mut start = 0;
        let runs = runs().filter_map(|run| {
            let ((pinned, skip), _) = run.first()?;
            let run = start..start + run.len();
            start = run.end;
            let content = blocks.get(run.clone()).unwrap_or_default();
            let flags = json!({ "pinned": pinned, "skip": skip });
            Some((run, json!({ "role": fields.get("role"), "content": content, (FLAGS_FIELD): flags })))
        });
        Ok(Some(runs.collect()))
    }

    fn request_body(&self, question: &Question<'_>) -> Value {
        field::without_nulls(json!({
            "model": question.model,
            (question.limit_field): question.max_output,
            "system": (!question.system.is_empty()).then_some(question.system),
            "messages": [{"role": "user", "content": question.user}],
            "stream": question.stream,
        }))
    }

    fn read_body(&self, partial: &mut PartialAnswer, body: &Value) -> ReadStatus {
        self.read_usage(body, &mut partial.usage);
        if has_failed(body) {
            return ReadStatus::Failed(body.clone());
        }
        let Some(blocks) = body.get("content").and_then(Value::as_array) else {
            return ReadStatus::Unexpected;
        };
        for block in blocks.iter().filter(|block| kind(block) == "text") {
            let Some(text) = block.get("text").and_then(Value::as_str) else { return ReadStatus::Unexpected };
            partial.text.push_str(text);
        }
        set_finish(partial, body);
        ReadStatus::Done
    }

    fn read_event(&self, partial: &mut PartialAnswer, event: &Value) -> ReadStatus {
        let inside = |field: &str| event.get(field).unwrap_or(&Value::Null);
        match kind(event) {
            "message_start" => self.read_usage(inside("message"), &mut partial.usage),
            // This text was empty in all observed answers. If it is not empty, it belongs to the answer's text.
            "content_block_start" => partial.text.push_str(text(inside("content_block"), "text")),
            "content_block_delta" if kind(inside("delta")) == "text_delta" => {
                partial.text.push_str(text(inside("delta"), "text"));
            }
            "message_delta" => {
                set_finish(partial, inside("delta"));
                self.read_usage(event, &mut partial.usage);
            }
            "message_stop" => {
                partial.ended = true;
                return ReadStatus::Done;
            }
            "error" => return ReadStatus::Failed(event.clone()),
            "" => return ReadStatus::Unexpected,
            // Pings, ends of blocks and events of unknown types are ignored.
            _ => {}
        }
        ReadStatus::Continue
    }

    /// A streamed answer reports its token counts in two events. The counts are cumulative, and some servers
    /// report a count in only one of the two events. So the larger count is used.
    fn read_usage(&self, reply: &Value, sums: &mut PartialUsage) {
        let Some(usage) = reply.get("usage") else { return };
        let counts = [
            (&mut sums.input, "input_tokens"),
            (&mut sums.cache_read, "cache_read_input_tokens"),
            (&mut sums.cache_write, "cache_creation_input_tokens"),
            (&mut sums.output, "output_tokens"),
        ];
        for (sum, key) in counts {
            if let Some(count) = tokens(usage.get(key)) {
                *sum = Some(sum.unwrap_or(0).max(count));
            }
        }
    }

    fn error_body(&self, error: &ErrorReply<'_>) -> Value {
        let ErrorReply { message, kind, id, .. } = error;
        json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": id})
    }
}

/// Reads a block. Blocks of unknown types, and blocks that are not allowed in a message of this role, are
/// ignored.
fn read_block(role: Role, block: &Object, parts: &mut Vec<Part>) -> Result<()> {
    let kind = field::name(block, "type")?;
    match (kind, role) {
        ("thinking", Role::Assistant) => parts.push(Part::Thinking {
            text: field::text(block, "thinking")?.to_owned(),
            signature: field::optional_text(block, "signature")?.map(str::to_owned),
            id: None,
            redacted: false,
        }),
        ("redacted_thinking", Role::Assistant) => parts.push(Part::Thinking {
            text: String::new(),
            signature: Some(field::text(block, "data")?.to_owned()),
            id: None,
            redacted: true,
        }),
        ("tool_use", Role::Assistant) => {
            let arguments = match block.get("input") {
                None | Some(Value::Null) => String::new(),
                Some(input) => input.to_string(),
            };
            parts.push(Part::ToolCall(ToolCall {
                id: field::name(block, "id")?.into(),
                item_id: None,
                name: field::name(block, "name")?.to_owned(),
                arguments,
            }));
        }
        ("tool_result", Role::User) => parts.push(Part::ToolResult(ToolResult {
            call: field::name(block, "tool_use_id")?.into(),
            content: read_result(block)?,
            error: field::flag(block, "is_error")?,
        })),
        _ => read_content(block, &mut |piece| parts.push(part_of(piece)))?,
    }
    Ok(())
}

fn read_result(block: &Object) -> Result<Vec<Content>> {
    let mut content = Vec::new();
    match block.get("content") {
        Some(Value::String(text)) => content.push(Content::Text { text: text.clone() }),
        _ => each_block(block, |block| read_content(block, &mut |piece| content.push(piece)))?,
    }
    Ok(content)
}

/// Reads each block of the field `content`. The field must be a list, null or missing.
fn each_block(fields: &Object, read: impl FnMut(&Object) -> Result<()>) -> Result<()> {
    match fields.get("content") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(blocks)) => field::each("content", blocks, read),
        Some(other) => Err(field::wrong_type("content", other, "a string or a list")),
    }
}

/// Reads a text block or a media block. Messages, tool results and documents contain such blocks.
fn read_content(block: &Object, push: &mut dyn FnMut(Content)) -> Result<()> {
    match field::name(block, "type")? {
        "text" => push(Content::Text { text: field::text(block, "text")?.to_owned() }),
        kind @ ("image" | "document") => {
            let mime = if kind == "image" { media::IMAGE } else { "application/pdf" };
            field::inner(block, "source", |source| read_source(source, mime, push))?;
        }
        "search_result" => read_texts(block, push),
        _ => {}
    }
    Ok(())
}

fn read_source(source: &Object, mime: &str, push: &mut dyn FnMut(Content)) -> Result<()> {
    let text = |key| field::text(source, key).map(str::to_owned);
    let (mime, source) = match field::name(source, "type")? {
        "base64" => {
            let mime = field::optional_text(source, "media_type")?.unwrap_or_default();
            (mime, MediaSource::Base64(text("data")?))
        }
        "url" => (mime, MediaSource::Url(text("url")?)),
        "file" => (mime, MediaSource::File(text("file_id")?)),
        kind => {
            match kind {
                // A document that consists of text is read as text.
                "text" => push(Content::Text { text: text("data")? }),
                "content" => read_texts(source, push),
                _ => {}
            }
            return Ok(());
        }
    };
    push(Content::Media(media::new(mime, source)));
    Ok(())
}

/// Reads the texts of a document or a search result. The other fields stay in the residue of the message.
fn read_texts(block: &Object, push: &mut dyn FnMut(Content)) {
    let content = block.get("content").unwrap_or(&Value::Null);
    let blocks = content.as_array().into_iter().flatten().filter(|block| kind(block) == "text");
    let several = blocks.filter_map(|block| block.get("text")?.as_str());
    content
        .as_str()
        .into_iter()
        .chain(several)
        .for_each(|text| push(Content::Text { text: text.to_owned() }));
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn encode_block(part: &Part) -> Value {
    match part {
        Part::Text { text } => text_block(text),
        Part::Media(media) => encode_media(media),
        Part::Thinking { signature, redacted: true, .. } => {
            json!({ "type": "redacted_thinking", "data": signature.as_deref().unwrap_or_default() })
        }
        Part::Thinking { text, signature, .. } => {
            field::without_nulls(json!({ "type": "thinking", "thinking": text, "signature": signature }))
        }
        Part::ToolCall(call) => {
            let input = call.arguments_as_object();
            let input: Value = serde_json::from_str(&input).unwrap_or_else(|_| json!({}));
            json!({ "type": "tool_use", "id": &*call.id, "name": call.name, "input": input })
        }
        Part::ToolResult(result) => {
            let content = media::encode_content(&result.content, text_block, encode_media);
            field::without_nulls(json!({
                "type": "tool_result",
                "tool_use_id": &*result.call,
                "content": (!result.content.is_empty()).then_some(content),
                "is_error": result.error.then_some(true),
            }))
        }
    }
}

fn encode_media(media: &Media) -> Value {
    let source = match &media.source {
        MediaSource::Base64(data) => json!({ "type": "base64", "media_type": media.mime, "data": data }),
        MediaSource::Url(url) => json!({ "type": "url", "url": url }),
        MediaSource::File(id) => json!({ "type": "file", "file_id": id }),
    };
    json!({ "type": if media::is_image(media) { "image" } else { "document" }, "source": source })
}

/// Returns whether a user's message can contain these media.
fn accepts_media(media: &Media) -> bool {
    let supported = media::is_common_image(media) || media.mime == "application/pdf";
    match &media.source {
        // OpenAI's file ids begin with this prefix. Anthropic does not recognise these ids.
        MediaSource::File(id) => !id.starts_with("file-"),
        MediaSource::Url(url) => url.starts_with("http") && supported,
        MediaSource::Base64(_) => supported,
    }
}

/// Returns whether the message is a reply that was received with reasoning and with blocks that are not sent.
/// For example, blocks of tools that run at the provider are not sent. The reasoning refers to these blocks, so
/// it must not be sent without them. The blocks are not sent because contexts do not count their tokens, and
/// search results can be larger than the whole conversation.
fn has_unsent_block(message: &Message) -> bool {
    let thinks = message.parts.iter().any(|part| matches!(part, Part::Thinking { .. }));
    if !thinks || message.role != Role::Assistant || message.wire.is_none() {
        return false;
    }
    let received = restore::restored(Dialect(&Anthropic), message).0;
    let mut blocks = received.iter().filter_map(|wire| wire.get("content")?.as_array()).flatten();
    let sent = ["text", "thinking", "redacted_thinking", "tool_use", "image", "document", "search_result"];
    blocks.any(|block| !sent.contains(&kind(block)))
}

fn is_reasoning(block: &Value) -> bool {
    kind(block).ends_with("thinking")
}

/// Stores the stop reason, if there is one.
fn set_finish(partial: &mut PartialAnswer, from: &Value) {
    if let Some(reason) = from.get("stop_reason").and_then(Value::as_str) {
        partial.calls_tool = reason == "tool_use";
        partial.finish = Some(match reason {
            "end_turn" | "stop_sequence" => Finish::Complete,
            // The answer is incomplete. It reached a limit, or the provider paused it and expects a request to
            // continue.
            "max_tokens" | "model_context_window_exceeded" | "pause_turn" => Finish::Length,
            "refusal" => Finish::Filtered,
            _ => Finish::Unknown,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, TokenUsage};

    fn read_event(partial: &mut PartialAnswer, event: &str) -> ReadStatus {
        partial.read_event(Dialect::ANTHROPIC, event.as_bytes())
    }

    fn answer(body: &Value) -> Option<Answer> {
        let mut partial = PartialAnswer::default();
        (partial.read_body(Dialect::ANTHROPIC, body) == ReadStatus::Done).then(|| partial.answer())
    }

    fn whole(content: &Value, reason: &str) -> Option<(String, Finish)> {
        answer(&json!({"content": content, "stop_reason": reason})).map(|answer| (answer.text, answer.finish))
    }

    #[test]
    fn only_text_is_read_and_the_stop_reason_is_mapped() {
        let said = |text: &str, finish| Some((text.to_owned(), finish));
        let thought = json!([{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Ann."}]);
        assert_eq!(whole(&thought, "end_turn"), said("Ann.", Finish::Complete));
        let text = || json!([{"type": "text", "text": "Ann."}]);
        assert_eq!(whole(&text(), "max_tokens"), said("Ann.", Finish::Length));
        assert_eq!(whole(&text(), "refusal"), said("Ann.", Finish::Filtered));
        assert_eq!(whole(&text(), "tool_use"), said("", Finish::Unknown));
        assert_eq!(whole(&text(), "model_context_window_exceeded"), said("Ann.", Finish::Length));
        assert_eq!(whole(&text(), "pause_turn"), said("Ann.", Finish::Length));
        assert_eq!(whole(&text(), "weary"), said("Ann.", Finish::Unknown));
        assert_eq!(whole(&json!([]), "end_turn"), said("", Finish::Complete));
        assert_eq!(whole(&json!("Ann."), "end_turn"), None);
        assert_eq!(whole(&json!([{"type": "text", "text": 7}]), "end_turn"), None);
    }

    #[test]
    fn a_stream_is_complete_only_with_its_end() {
        let mut partial = PartialAnswer::default();
        let mut push = |event: Value| read_event(&mut partial, &event.to_string());
        push(
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 30, "output_tokens": 1}}}),
        );
        push(json!({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm."}}));
        push(json!({"type": "ping"}));
        push(json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Ann."}}));
        push(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 8}}));
        assert!(matches!(
            push(json!({"type": "error", "error": {"type": "overloaded_error"}})),
            ReadStatus::Failed(_)
        ));
        assert!(matches!(push(json!({"no": "type"})), ReadStatus::Unexpected));
        assert!(!partial.is_complete());
        assert!(matches!(read_event(&mut partial, r#"{"type": "message_stop"}"#), ReadStatus::Done));
        let answer = partial.answer();
        assert_eq!((answer.text.as_str(), answer.finish, answer.complete), ("Ann.", Finish::Complete, true));
        assert_eq!(answer.usage, Some(TokenUsage { input: 30, cached: 0, output: 8 }));
    }
}
