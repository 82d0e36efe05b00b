//! Implements Anthropic's Messages format: two alternating sides, each message a list of blocks.
//!
//! The system prompt is a field of the request and not a message. Here it is read and written as a message
//! with the role `system`. Blocks of unknown types, such as those of tools that run at the provider, are
//! stored in the residue of their message.

use epitome_core::inspect::Finish;
use epitome_core::message::{Content, Media, MediaSource, Message, Part, Role, ToolCall, ToolResult};
use epitome_core::view;
use serde_json::{Map, Value, json};

use crate::asking::{Hearing, Question, Then, has_failed, kind, text};
use crate::field::{self, Object, Result};
use crate::fit::{Fitter, LATER_ORDER, Wants, is_blank, opener};
use crate::format::{About, Endpoint, Format, Head, Merged, Refusal, RequestSign, Sign};
use crate::pieces::{Piece, is_blank_text};
use crate::raw::{self, FLAGS, Members};
use crate::usage::{Usage, tokens};
use crate::{Dialect, blank_if_nothing, chat, flags, media, part_of, restored};

const ROLES: &str = "user, assistant, and system for the system prompt";

/// Anthropic's Messages format.
#[derive(Debug)]
pub(crate) struct Anthropic;

static ABOUT: About = About {
    head: Some(Head { field: "system", opening: "{\"role\":\"system\",\"content\":", inner: "content" }),
    elsewhere: &["context_management"],
    block: Some(spell_part),
    endpoint: Some(Endpoint {
        provider: "anthropic",
        base_url: "https://api.anthropic.com/v1",
        route: "messages",
        called: "messages",
        client_base: "/anthropic",
        key_env: "ANTHROPIC_API_KEY",
        key: ("x-api-key", ""),
        credentials: &["anthropic-version", "anthropic-beta"],
        headers: &[("anthropic-version", "2023-06-01")],
    }),
    telling: &[("message_start", ""), ("message_delta", ""), ("message_stop", ""), ("error", "")],
    // Accepts reasoning that Anthropic signed, and media in results. Reasoning with an id comes from another
    // provider.
    wants: Wants {
        longest_id: 64,
        carried,
        media_in_results: true,
        reasoning_goes_back: false,
        reasoning: |signature, id| signature.is_some() && id.is_none(),
        ..chat::WANTS
    },
    ..About::new("anthropic")
};

impl Format for Anthropic {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn sign(&self, message: &Object) -> Option<Sign> {
        let mut pieces = message.get("content").and_then(Value::as_array).into_iter().flatten();
        let marked = |piece: &Value| piece.get("cache_control").is_some() || piece.get("citations").is_some();
        pieces.any(marked).then_some(Sign::Mark)
    }

    fn has_piece(&self, kind: &str) -> bool {
        matches!(kind, "thinking" | "redacted_thinking" | "image" | "document" | "search_result")
            || kind.ends_with("tool_use")
            || kind.ends_with("tool_result")
    }

    fn request_sign(&self, request: &Members<'_>, system_in_list: bool) -> Option<RequestSign> {
        let has = |field: &str| request.get(field).is_some();
        let tools = request.get("tools").map(raw::items).unwrap_or_default();
        let schema = |tool: &&str| Members::of(tool).get("input_schema").is_some();
        if has("system") || has("anthropic_version") || tools.iter().any(schema) {
            return Some(RequestSign::Own);
        }
        // Anthropic never has a system message in the list.
        let claude = request.get("model").is_some_and(|model| model.starts_with("\"claude"));
        let own = claude || ["stop_sequences", "thinking", "top_k"].into_iter().any(has);
        (own && !system_in_list).then_some(RequestSign::Likely)
    }

    fn read(&self, wire: &Value) -> Result<Message> {
        let fields = field::object(wire)?;
        let role = match field::name(fields, "role")? {
            "user" => Role::User,
            "assistant" => Role::Assistant,
            "system" => Role::System,
            other => return Err(field::unknown("role", other, ROLES)),
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

    /// Writes one message without any adjustment.
    fn spell(&self, message: &Message) -> Vec<Value> {
        let role = match message.role {
            Role::System | Role::Developer => "system",
            Role::Assistant => "assistant",
            Role::User | Role::Peer | Role::Tool => "user",
        };
        let content = match message.parts.as_slice() {
            [Part::Text { text }] => json!(text),
            parts => parts.iter().map(spell_part).collect(),
        };
        vec![json!({ "role": role, "content": content })]
    }

    /// Writes the fields to send. The sides alternate and the user is first. A reply's reasoning stays in its
    /// position. A later system message becomes a note on the user's side.
    fn write(&self, messages: &[Message]) -> Map<String, Value> {
        let mut fitter = Fitter::new(ABOUT.wants);
        let (mut system, mut turns) = (Vec::new(), Vec::<(&str, Vec<Value>)>::new());
        let mut unreasoned = false;
        for message in messages {
            let lost = lost_a_block(message);
            let Some(mut message) = fitter.fit(message) else { continue };
            // If part of a turn's reasoning is removed, the rest must be removed too: providers reject
            // reasoning that begins in the middle.
            unreasoned = match message.role {
                Role::Assistant => unreasoned || lost,
                Role::Tool => unreasoned,
                _ => false,
            };
            let head = message.role.is_system() && turns.is_empty();
            let role = message.role;
            for part in &mut message.parts {
                match part {
                    // Anthropic rejects trailing whitespace in the last reply. The spelling must not depend
                    // on whether a reply is the last, so all are trimmed.
                    Part::Text { text } if role == Role::Assistant => text.truncate(text.trim_end().len()),
                    Part::Text { text } if role.is_system() && !head => text.insert_str(0, LATER_ORDER),
                    _ => {}
                }
            }
            message.parts.retain(|part| !unreasoned || !matches!(part, Part::Thinking { .. }));
            // Results come before all other blocks of the user's side. A reply keeps its order: reasoning
            // between text and calls must be sent back unchanged.
            message.parts.sort_by_key(|part| !matches!(part, Part::ToolResult(_)));
            let mut blocks: Vec<Value> = message.parts.iter().map(spell_part).collect();
            if head {
                system.append(&mut blocks);
                continue;
            }
            let side = if message.role == Role::Assistant { "assistant" } else { "user" };
            match turns.last_mut() {
                Some((last, said)) if *last == side => {
                    // The two replies become one, which must begin with the leading reasoning of both.
                    let leading =
                        |blocks: &[Value]| blocks.iter().take_while(|block| is_reasoning(block)).count();
                    let (at, count) = (leading(said), leading(&blocks));
                    said.splice(at..at, blocks.drain(..count));
                    said.append(&mut blocks);
                }
                _ => turns.push((side, blocks)),
            }
        }
        let lacks_user = turns.first().is_none_or(|(side, _)| *side == "assistant");
        if lacks_user && !(turns.is_empty() && system.is_empty()) {
            turns.insert(0, ("user", opener().parts.iter().map(spell_part).collect()));
        }
        let mut fields = Map::new();
        if !system.is_empty() {
            fields.insert("system".to_owned(), Value::Array(system));
        }
        let turns = turns.into_iter().map(|(role, content)| json!({ "role": role, "content": content }));
        fields.insert("messages".to_owned(), turns.collect());
        fields
    }

    /// Returns the blocks of an Anthropic message; a string counts as one block.
    fn pieces<'a>(&self, text: &'a str, value: &Value) -> Vec<Piece<'a>> {
        let role = match self::text(value, "role") {
            "assistant" => Role::Assistant,
            "system" => Role::System,
            _ => Role::User,
        };
        let texts = raw::blocks(Members::of(text).get("content").unwrap_or_default(), "text");
        if let Some(said) = value.get("content").and_then(Value::as_str) {
            let piece = |text| Piece { sound: !is_blank(said), ..Piece::new(text, vec![Part::text(said)]) };
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
            // A blank text inside a result is rejected in any position.
            let nested = block.get("content").and_then(Value::as_array).into_iter().flatten();
            let misplaced = match kind(block) {
                // No part was read from these if they are on the wrong side.
                "tool_use" | "tool_result" | "thinking" | "redacted_thinking" => parts.is_empty(),
                "image" | "document" | "search_result" => role != Role::User,
                kind => role == Role::System && kind != "text",
            };
            let sound = !misplaced && !is_blank_text(block) && !nested.into_iter().any(is_blank_text);
            Piece { sound, ..Piece::new(text, parts) }
        });
        pieces.collect()
    }

    /// Splits a message that was merged from several: a summary of Epitome, and runs of blocks with their own
    /// flags. Returns the blocks of each message and its stand-alone form. `None` if it is a single message.
    fn split(&self, message: &Message, wire: &Value) -> Result<Option<Vec<Merged>>> {
        let (Some(fields), Some(blocks)) = (wire.as_object(), wire.get("content").and_then(Value::as_array))
        else {
            return Ok(None);
        };
        if message.role == Role::Tool && blocks.iter().all(|block| block.get(FLAGS).is_none()) {
            return Ok(None);
        }
        let whole = flags::of(fields)?;
        let flags = blocks.iter().enumerate().map(|(at, block)| {
            let own = block.as_object().map_or(Ok((false, false)), flags::of);
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
            let said = blocks.get(run.clone()).unwrap_or_default();
            let flags = json!({ "pinned": pinned, "skip": skip });
            Some((run, json!({ "role": fields.get("role"), "content": said, (FLAGS): flags })))
        });
        Ok(Some(runs.collect()))
    }

    fn ask(&self, question: &Question<'_>) -> Value {
        field::given(json!({
            "model": question.model,
            (question.limit): question.most,
            "system": (!question.system.is_empty()).then_some(question.system),
            "messages": [{"role": "user", "content": question.user}],
            "stream": question.stream,
        }))
    }

    fn take(&self, hearing: &mut Hearing, body: &Value) -> Then {
        self.count(body, &mut hearing.usage);
        if has_failed(body) {
            return Then::Failed(body.clone());
        }
        let Some(blocks) = body.get("content").and_then(Value::as_array) else { return Then::Odd };
        for block in blocks.iter().filter(|block| kind(block) == "text") {
            let Some(said) = block.get("text").and_then(Value::as_str) else { return Then::Odd };
            hearing.text.push_str(said);
        }
        stop(hearing, body);
        Then::End
    }

    fn hear(&self, hearing: &mut Hearing, event: &Value) -> Then {
        let inside = |field: &str| event.get(field).unwrap_or(&Value::Null);
        match kind(event) {
            "message_start" => self.count(inside("message"), &mut hearing.usage),
            // Empty in all observed cases; any content here belongs to the text.
            "content_block_start" => hearing.text.push_str(text(inside("content_block"), "text")),
            "content_block_delta" if kind(inside("delta")) == "text_delta" => {
                hearing.text.push_str(text(inside("delta"), "text"));
            }
            "message_delta" => {
                stop(hearing, inside("delta"));
                self.count(event, &mut hearing.usage);
            }
            "message_stop" => {
                hearing.ended = true;
                return Then::End;
            }
            "error" => return Then::Failed(event.clone()),
            "" => return Then::Odd,
            // Pings, ends of blocks, and unknown future events.
            _ => {}
        }
        Then::GoOn
    }

    /// A streamed answer reports its usage in two events. The numbers are cumulative, and some servers fill
    /// in only one of the events, so the larger number is used.
    fn count(&self, reply: &Value, sums: &mut Usage) {
        let Some(usage) = reply.get("usage") else { return };
        let places = [
            (&mut sums.input, "input_tokens"),
            (&mut sums.cache_read, "cache_read_input_tokens"),
            (&mut sums.cache_write, "cache_creation_input_tokens"),
            (&mut sums.output, "output_tokens"),
        ];
        for (place, key) in places {
            if let Some(said) = tokens(usage.get(key)) {
                *place = Some(place.unwrap_or(0).max(said));
            }
        }
    }

    fn refusal(&self, refusal: &Refusal<'_>) -> Value {
        let Refusal { message, kind, id, .. } = refusal;
        json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": id})
    }
}

/// Reads a block. Unknown blocks, and blocks that are not allowed in this role, are ignored.
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
            content: answer(block)?,
            error: field::flag(block, "is_error")?,
        })),
        _ => read_words(block, &mut |piece| parts.push(part_of(piece)))?,
    }
    Ok(())
}

fn answer(block: &Object) -> Result<Vec<Content>> {
    let mut said = Vec::new();
    match block.get("content") {
        Some(Value::String(text)) => said.push(Content::Text { text: text.clone() }),
        _ => each_block(block, |block| read_words(block, &mut |piece| said.push(piece)))?,
    }
    Ok(said)
}

/// Reads the blocks of content that is not a string.
fn each_block(fields: &Object, read: impl FnMut(&Object) -> Result<()>) -> Result<()> {
    match fields.get("content") {
        None | Some(Value::Null) => Ok(()),
        Some(Value::Array(blocks)) => field::each("content", blocks, read),
        Some(other) => Err(field::wrong("content", other, "a string or a list")),
    }
}

/// Reads text and media blocks, which occur in messages, results and documents.
fn read_words(block: &Object, say: &mut dyn FnMut(Content)) -> Result<()> {
    match field::name(block, "type")? {
        "text" => say(Content::Text { text: field::text(block, "text")?.to_owned() }),
        kind @ ("image" | "document") => {
            let mime = if kind == "image" { media::IMAGE } else { "application/pdf" };
            field::inner(block, "source", |source| read_source(source, mime, say))?;
        }
        "search_result" => texts(block, say),
        _ => {}
    }
    Ok(())
}

fn read_source(source: &Object, mime: &str, say: &mut dyn FnMut(Content)) -> Result<()> {
    let given = |key| field::text(source, key).map(str::to_owned);
    let (mime, source) = match field::name(source, "type")? {
        "base64" => {
            let told = field::optional_text(source, "media_type")?.unwrap_or_default();
            (told, MediaSource::Base64(given("data")?))
        }
        "url" => (mime, MediaSource::Url(given("url")?)),
        "file" => (mime, MediaSource::File(given("file_id")?)),
        kind => {
            match kind {
                // A document that consists of text is read as text.
                "text" => say(Content::Text { text: given("data")? }),
                "content" => texts(source, say),
                _ => {}
            }
            return Ok(());
        }
    };
    say(Content::Media(media::of(mime, source)));
    Ok(())
}

/// Reads the texts of a document or a search result. Their other fields stay in the residue.
fn texts(block: &Object, say: &mut dyn FnMut(Content)) {
    let content = block.get("content").unwrap_or(&Value::Null);
    let blocks = content.as_array().into_iter().flatten().filter(|block| kind(block) == "text");
    let several = blocks.filter_map(|block| block.get("text")?.as_str());
    content.as_str().into_iter().chain(several).for_each(|text| say(Content::Text { text: text.to_owned() }));
}

fn words(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn spell_part(part: &Part) -> Value {
    match part {
        Part::Text { text } => words(text),
        Part::Media(media) => spell_media(media),
        Part::Thinking { signature, redacted: true, .. } => {
            json!({ "type": "redacted_thinking", "data": signature.as_deref().unwrap_or_default() })
        }
        Part::Thinking { text, signature, .. } => {
            field::given(json!({ "type": "thinking", "thinking": text, "signature": signature }))
        }
        Part::ToolCall(call) => {
            let input = call.arguments_as_object();
            let input: Value = serde_json::from_str(&input).unwrap_or_else(|_| json!({}));
            json!({ "type": "tool_use", "id": &*call.id, "name": call.name, "input": input })
        }
        Part::ToolResult(result) => {
            let content = media::spelled(&result.content, words, spell_media);
            field::given(json!({
                "type": "tool_result",
                "tool_use_id": &*result.call,
                "content": (!result.content.is_empty()).then_some(content),
                "is_error": result.error.then_some(true),
            }))
        }
    }
}

fn spell_media(media: &Media) -> Value {
    let source = match &media.source {
        MediaSource::Base64(data) => json!({ "type": "base64", "media_type": media.mime, "data": data }),
        MediaSource::Url(url) => json!({ "type": "url", "url": url }),
        MediaSource::File(id) => json!({ "type": "file", "file_id": id }),
    };
    json!({ "type": if media::is_picture(media) { "image" } else { "document" }, "source": source })
}

/// Returns whether a user's message can contain this medium.
fn carried(media: &Media) -> bool {
    let known = media::is_known_picture(media) || media.mime == "application/pdf";
    match &media.source {
        // OpenAI's file ids begin with this prefix; Anthropic does not recognise them.
        MediaSource::File(id) => !id.starts_with("file-"),
        MediaSource::Url(url) => url.starts_with("http") && known,
        MediaSource::Base64(_) => known,
    }
}

/// Returns whether a reply with reasoning contained blocks that are not sent, such as those of tools that run
/// at the provider. The reasoning refers to these blocks and must not be sent without them. The blocks are
/// not sent because no context counts their tokens: search results can be larger than the whole conversation.
fn lost_a_block(message: &Message) -> bool {
    let thinks = message.parts.iter().any(|part| matches!(part, Part::Thinking { .. }));
    if !thinks || message.role != Role::Assistant || message.wire.is_none() {
        return false;
    }
    let came = restored::of(Dialect(&Anthropic), message).0;
    let mut blocks = came.iter().filter_map(|wire| wire.get("content")?.as_array()).flatten();
    let sent = ["text", "thinking", "redacted_thinking", "tool_use", "image", "document", "search_result"];
    blocks.any(|block| !sent.contains(&kind(block)))
}

fn is_reasoning(block: &Value) -> bool {
    kind(block).ends_with("thinking")
}

/// Stores the stop reason, if there is one.
fn stop(hearing: &mut Hearing, from: &Value) {
    if let Some(reason) = from.get("stop_reason").and_then(Value::as_str) {
        hearing.calls_tool = reason == "tool_use";
        hearing.finish = Some(match reason {
            "end_turn" | "stop_sequence" => Finish::Complete,
            // The answer is incomplete: it reached a limit, or it was paused and expects a continuation.
            "max_tokens" | "model_context_window_exceeded" | "pause_turn" => Finish::Length,
            "refusal" => Finish::Filtered,
            _ => Finish::Unknown,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, Tally};

    fn hear(hearing: &mut Hearing, event: &str) -> Then {
        hearing.event(Dialect::ANTHROPIC, event.as_bytes())
    }

    fn answer(body: &Value) -> Option<Answer> {
        let mut hearing = Hearing::default();
        (hearing.document(Dialect::ANTHROPIC, body) == Then::End).then(|| hearing.answer())
    }

    fn whole(content: &Value, reason: &str) -> Option<(String, Finish)> {
        answer(&json!({"content": content, "stop_reason": reason})).map(|answer| (answer.text, answer.finish))
    }

    #[test]
    fn only_text_is_taken_and_the_reason_is_known() {
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
    fn a_stream_is_whole_only_with_its_end() {
        let mut heard = Hearing::default();
        let mut tell = |event: Value| hear(&mut heard, &event.to_string());
        tell(
            json!({"type": "message_start", "message": {"usage": {"input_tokens": 30, "output_tokens": 1}}}),
        );
        tell(json!({"type": "content_block_delta", "delta": {"type": "thinking_delta", "thinking": "Hm."}}));
        tell(json!({"type": "ping"}));
        tell(json!({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Ann."}}));
        tell(json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"},
                "usage": {"output_tokens": 8}}));
        assert!(matches!(
            tell(json!({"type": "error", "error": {"type": "overloaded_error"}})),
            Then::Failed(_)
        ));
        assert!(matches!(tell(json!({"no": "type"})), Then::Odd));
        assert!(!heard.is_whole());
        assert!(matches!(hear(&mut heard, r#"{"type": "message_stop"}"#), Then::End));
        let answer = heard.answer();
        assert_eq!((answer.text.as_str(), answer.finish, answer.whole), ("Ann.", Finish::Complete, true));
        assert_eq!(answer.tally, Some(Tally { input: 30, cached: 0, output: 8 }));
    }
}
