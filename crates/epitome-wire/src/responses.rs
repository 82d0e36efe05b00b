//! Implements OpenAI's Responses API: a flat list of items, in which a reply is several items.
//!
//! The items of a reply (reasoning, text, calls) are read as one message, because the provider rejects a cut
//! between a reasoning item and the items that follow from it. Calls of tools that the provider defines
//! (`shell_call`, `computer_call` and similar) are read as calls if they have a `call_id`, so that they stay
//! with their outputs. Calls without one, and unknown items, are stored in the residue of their message.
//!
//! `instructions`, and an `input` that is a string, are also read as items: `{"instructions": …}` and the
//! string.

use epitome_core::inspect::Finish;
use epitome_core::message::{Content, Media, MediaSource, Message, Part, Role, ToolCall, ToolResult};
use serde_json::{Map, Value, json};

use crate::asking::{Hearing, Question, Then, has_failed, kind, text};
use crate::field::{self, Object, Result};
use crate::fit::{Fitter, Wants, is_blank, is_plain};
use crate::format::{About, Endpoint, Format, Head, Sign};
use crate::pieces::{Piece, is_blank_text, is_refused};
use crate::raw::Members;
use crate::usage::{Usage, tokens};
use crate::{Dialect, blank_if_nothing, chat, media, openai, part_of, restored};

const ROLES: &str = "system, developer, user and assistant";
/// The request field, and the item that represents it.
const INSTRUCTIONS: &str = "instructions";

/// OpenAI's Responses API.
#[derive(Debug)]
pub(crate) struct Responses;

static ABOUT: About = About {
    list: "input",
    list_may_be_text: true,
    head: Some(Head { field: INSTRUCTIONS, opening: "{\"instructions\":", inner: INSTRUCTIONS }),
    reply_is_items: true,
    elsewhere: &["previous_response_id", "conversation", "context_management"],
    references: &["item_reference", "compaction", "compaction_summary"],
    text_kind: "input_text",
    limit_names: &["max_output_tokens"],
    endpoint: Some(Endpoint { route: "responses", called: "responses", ..openai::ENDPOINT }),
    telling: &[
        ("response.completed", ""),
        ("response.incomplete", ""),
        ("response.failed", ""),
        ("error", ""),
    ],
    // Accepts reasoning with an id or encrypted content from OpenAI, and results in text. Reasoning without
    // an id comes from another provider.
    wants: Wants {
        longest_id: 64,
        // Anthropic's file ids begin with this prefix; OpenAI does not recognise them.
        carried: |media| match &media.source {
            MediaSource::File(id) => !id.starts_with("file_"),
            _ => media::is_seen(media),
        },
        media_came_in_results: true,
        reasoning_goes_back: false,
        reasoning: |signature, id| id.is_some_and(|id| !id.is_empty() || signature.is_some()),
        item_ids: true,
        ..chat::WANTS
    },
    ..About::new("responses")
};

impl Format for Responses {
    fn about(&self) -> &About {
        &ABOUT
    }

    fn sign(&self, message: &Object) -> Option<Sign> {
        let instructions = !message.contains_key("role") && message.contains_key(INSTRUCTIONS);
        if instructions && !message.contains_key("output") {
            return Some(Sign::Shape);
        }
        message.get("type").is_some_and(Value::is_string).then_some(Sign::Type)
    }

    fn has_piece(&self, kind: &str) -> bool {
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
            None | Some("message") => said(fields),
            Some("reasoning") => reasoning(fields),
            Some("item_reference") => Ok(Message::assistant("")),
            Some(kind) => match kind.strip_suffix("_output") {
                Some(_) if fields.contains_key("call_id") || fields.contains_key(answers_by(kind)) => {
                    answer(kind, fields)
                }
                Some(_) => Ok(Message::user("")),
                None if kind.ends_with("_call") && fields.contains_key("call_id") => call(kind, fields),
                None if kind.ends_with("_response") => Ok(Message::user("")),
                None => Ok(Message::assistant("")),
            },
        }
    }

    /// Writes one message without adjustment. In a reply each part becomes an item; in other messages all
    /// text becomes one item.
    fn spell(&self, message: &Message) -> Vec<Value> {
        let role = if message.role == Role::Peer { Role::User } else { message.role };
        let mut out = Vec::new();
        let mut content = Vec::new();
        for part in &message.parts {
            match part {
                Part::Text { text } if role == Role::Assistant => {
                    out.push(item(role, &[json!({ "type": "output_text", "text": text })]));
                }
                Part::Media(media) if role == Role::Assistant => {
                    out.push(item(role, &[json!({ "type": "output_text", "text": media::in_words(media) })]));
                }
                Part::Text { text } => content.push(words(text)),
                Part::Media(media) => content.push(spell_media(media)),
                Part::Thinking { text, signature, id, .. } => {
                    let text = (!text.is_empty()).then(|| json!({ "type": "summary_text", "text": text }));
                    out.push(field::given(json!({
                        "type": "reasoning",
                        "id": id.as_ref().filter(|id| !id.is_empty()),
                        "summary": text.into_iter().collect::<Vec<_>>(),
                        "encrypted_content": signature,
                    })));
                }
                Part::ToolCall(call) => out.push(field::given(json!({
                    "type": "function_call",
                    "id": call.item_id.as_deref(),
                    "call_id": &*call.id,
                    "name": call.name,
                    "arguments": call.arguments,
                }))),
                Part::ToolResult(result) => out.push(json!({
                    "type": "function_call_output",
                    "call_id": &*result.call,
                    "output": media::spelled(&result.content, words, spell_media),
                })),
            }
        }
        if !content.is_empty() {
            out.push(item(role, &content));
        }
        out
    }

    /// System messages are written as items, which keep their role and stay separate. Only a message that
    /// came from `instructions` is written there again, so that a caller that merges these fields into the
    /// original request does not duplicate it.
    fn write(&self, messages: &[Message]) -> Map<String, Value> {
        let mut fitter = Fitter::new(ABOUT.wants);
        let (mut fields, mut rest) = (Map::new(), messages);
        if let Some((first, others)) = messages.split_first()
            && let Some(words) = instructions(first)
        {
            fields.insert(INSTRUCTIONS.to_owned(), words);
            rest = others;
        }
        let fitted = rest.iter().filter_map(|message| fitter.fit(message));
        let input: Vec<Value> = fitted.flat_map(|message| self.spell(&message)).collect();
        fields.insert("input".to_owned(), Value::Array(input));
        fields
    }

    fn pieces<'a>(&self, text: &'a str, value: &Value) -> Vec<Piece<'a>> {
        let kind = kind(value);
        let form = match kind {
            "tool_search_output" => "tool_search_call",
            kind => kind.strip_suffix("_output").unwrap_or(kind),
        };
        let form = (form != "function_call" && form.ends_with("_call")).then(|| form.to_owned());
        let unsaid = matches!(kind, "" | "message" | "function_call_output");
        let id = value.get("id").filter(|_| unsaid).and_then(Value::as_str).map(str::to_owned);
        let mut parts = self.read(value).map(|message| message.parts).unwrap_or_default();
        parts.retain(|part| !matches!(part, Part::Text { text } if text.is_empty()));
        let calls = parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) => Some(call.id.to_string()),
            _ => None,
        });
        let custom = if form.is_some() { calls.collect() } else { Vec::new() };
        vec![Piece { form, custom, id, sound: is_sound(value), ..Piece::new(text, parts) }]
    }

    /// For example an approval.
    fn is_aside(&self, item: &str) -> bool {
        Members::of(item).get("type").is_some_and(|kind| kind != "\"message\"")
    }

    fn answer_in_form(&self, spelled: &Value, form: &dyn Fn(&str) -> Option<String>) -> Option<Value> {
        if kind(spelled) != "function_call_output" {
            return None;
        }
        let call = spelled.get("call_id")?.as_str()?;
        let output = spelled.get("output").cloned().unwrap_or_default();
        Some(match form(call)?.as_str() {
            "local_shell_call" => json!({ "type": "local_shell_call_output", "id": call, "output": output }),
            "tool_search_call" => json!({ "type": "tool_search_output", "call_id": call, "tools": [] }),
            "shell_call" => {
                let said = json!({ "stdout": output, "stderr": "", "outcome": { "type": "timeout" } });
                json!({ "type": "shell_call_output", "call_id": call, "output": [said] })
            }
            form => json!({ "type": format!("{form}_output"), "call_id": call, "output": output }),
        })
    }

    fn form_has_words(&self, form: &str) -> bool {
        form == "custom_tool_call"
    }

    fn ask(&self, question: &Question<'_>) -> Value {
        field::given(json!({
            "model": question.model,
            "instructions": (!question.system.is_empty()).then_some(question.system),
            "input": question.user,
            (question.limit): question.most,
            // The provider must not store the conversation.
            "store": false,
            "stream": question.stream,
        }))
    }

    /// A response in the background is returned before it is complete.
    fn take(&self, hearing: &mut Hearing, body: &Value) -> Then {
        self.count(body, &mut hearing.usage);
        match body.get("status").and_then(Value::as_str) {
            _ if has_failed(body) => Then::Failed(body.clone()),
            Some(status @ ("completed" | "incomplete")) if end(hearing, body, status).is_some() => Then::End,
            None | Some("completed" | "incomplete") => Then::Odd,
            Some(_) => Then::GoOn,
        }
    }

    fn hear(&self, hearing: &mut Hearing, event: &Value) -> Then {
        let response = event.get("response").unwrap_or(&Value::Null);
        match kind(event) {
            "response.output_text.delta" => hearing.text.push_str(text(event, "delta")),
            // The last event repeats the whole text.
            "response.completed" | "response.incomplete" => {
                hearing.ended = true;
                return if self.take(hearing, response) == Then::End { Then::End } else { Then::Odd };
            }
            "response.failed" => {
                self.count(response, &mut hearing.usage);
                return Then::Failed(response.clone());
            }
            "error" => return Then::Failed(event.clone()),
            "" => return Then::Odd,
            _ => {}
        }
        Then::GoOn
    }

    /// `input_tokens` includes the tokens read from a cache.
    fn count(&self, reply: &Value, sums: &mut Usage) {
        let Some(usage) = reply.get("usage") else { return };
        let read = tokens(usage.pointer("/input_tokens_details/cached_tokens"));
        let (input, output) = (tokens(usage.get("input_tokens")), tokens(usage.get("output_tokens")));
        sums.replace(Usage::parted(input, read, None, output));
    }
}

/// Returns the text of a message that came from the request field `instructions`.
fn instructions(message: &Message) -> Option<Value> {
    let mut came = message.role.is_system().then(|| restored::of(Dialect(&Responses), message).0)?;
    let [Value::Object(item)] = came.as_mut_slice() else { return None };
    item.shift_remove(INSTRUCTIONS)
}

fn said(fields: &Object) -> Result<Message> {
    let role = field::role(fields, ROLES)?;
    if !fields.contains_key("content") {
        return Err(field::missing("content"));
    }
    let mut parts = Vec::new();
    content(fields, "content", &mut |piece| parts.push(part_of(piece)))?;
    Ok(Message::new(role, blank_if_nothing(parts)))
}

/// Reads the content. Unknown types are ignored.
fn content(fields: &Object, key: &str, say: &mut dyn FnMut(Content)) -> Result<()> {
    match fields.get(key) {
        Some(other @ (Value::Object(_) | Value::Number(_) | Value::Bool(_))) if key == "output" => {
            say(Content::Text { text: other.to_string() });
            Ok(())
        }
        _ => field::content(fields, key, say, |piece, say| {
            match field::optional_text(piece, "type")?.unwrap_or_default() {
                "input_text" | "output_text" | "text" => {
                    say(Content::Text { text: field::text(piece, "text")?.to_owned() });
                }
                "refusal" => say(Content::Text { text: field::text(piece, "refusal")?.to_owned() }),
                "input_audio" => say(Content::Media(media::sound(piece)?)),
                _ => medium(piece)?.into_iter().for_each(|found| say(Content::Media(found))),
            }
            Ok(())
        }),
    }
}

fn medium(piece: &Object) -> Result<Option<Media>> {
    let (mime, address) = match field::optional_text(piece, "type")? {
        Some("input_image" | "computer_screenshot") => (media::IMAGE, "image_url"),
        Some("input_file") => (media::FILE, "file_url"),
        _ => return Ok(None),
    };
    if let Some(url) = field::optional_text(piece, address)? {
        return Ok(Some(match address {
            // A link to a file is never parsed as its bytes, so that it can be restored as a link.
            "file_url" => media::of(mime, MediaSource::Url(url.to_owned())),
            _ => media::at_address(url, mime),
        }));
    }
    if let Some(data) = field::optional_text(piece, "file_data")? {
        return Ok(Some(media::file_data(data)));
    }
    let id = field::optional_text(piece, "file_id")?;
    Ok(id.map(|id| media::of(mime, MediaSource::File(id.to_owned()))))
}

fn reasoning(fields: &Object) -> Result<Message> {
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

fn call(kind: &str, fields: &Object) -> Result<Message> {
    let (name, arguments) = match kind {
        "function_call" => (field::name(fields, "name")?, field::arguments(fields, "arguments")?),
        "custom_tool_call" => (field::name(fields, "name")?, field::arguments(fields, "input")?),
        // A tool of the provider: its type is used as its name.
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

/// Returns the field by which an output refers to its call.
fn answers_by(kind: &str) -> &'static str {
    if kind == "local_shell_call_output" { "id" } else { "call_id" }
}

fn answer(kind: &str, fields: &Object) -> Result<Message> {
    let mut said = Vec::new();
    let output = fields.get("output").and_then(Value::as_object);
    match output.map_or(Ok(None), medium).map_err(|error| error.under("output"))? {
        Some(media) => said.push(Content::Media(media)),
        None => content(fields, "output", &mut |piece| said.push(piece))?,
    }
    // Some clients use the field name that all other types have.
    let by = if fields.contains_key("call_id") { "call_id" } else { answers_by(kind) };
    let call = field::name(fields, by)?.into();
    Ok(Message::new(Role::Tool, [Part::ToolResult(ToolResult { call, content: said, error: false })]))
}

fn item(role: Role, content: &[Value]) -> Value {
    json!({ "type": "message", "role": role.to_string(), "content": content })
}

fn words(text: &str) -> Value {
    json!({ "type": "input_text", "text": text })
}

fn spell_media(media: &Media) -> Value {
    if let Some(sound) = media::sound_spelled(media) {
        return sound;
    }
    let picture = media::is_picture(media);
    let kind = if picture { "input_image" } else { "input_file" };
    match (&media.source, media::address(media)) {
        (MediaSource::File(id), _) => json!({ "type": kind, "file_id": id }),
        (_, Some(address)) if picture => json!({ "type": kind, "image_url": address }),
        (MediaSource::Base64(_), Some(address)) => {
            json!({ "type": kind, "filename": media::file_name(media), "file_data": address })
        }
        (_, address) => json!({ "type": kind, "file_url": address }),
    }
}

fn is_sound(value: &Value) -> bool {
    let Some(item) = value.as_object() else { return false };
    let kind = match item.get("type") {
        None => "message",
        Some(Value::String(kind)) => kind,
        Some(_) => return false,
    };
    let start = match kind {
        "message" => "msg",
        "function_call_output" => "fc",
        // The ids of these items are checked in their parts.
        "reasoning" | "function_call" => "",
        _ => return is_sound_output(kind, item),
    };
    let role = text(value, "role");
    let content = match item.get("content") {
        _ if kind != "message" => true,
        Some(Value::Array(pieces)) => {
            !pieces.is_empty() && !pieces.iter().any(|piece| is_refused(piece, role))
        }
        content => content.and_then(Value::as_str).is_some_and(|text| !is_blank(text)),
    };
    let plain = |id: &str| id.starts_with(start) && is_plain(id, 64);
    let named = item.get("id").is_none_or(|id| id.as_str().is_some_and(plain));
    let instructed = item.contains_key(INSTRUCTIONS) && !item.contains_key("role");
    content && named && !instructed && is_sound_output(kind, item)
}

/// Returns whether an output is text, or a list of pieces that a user message could contain. Outputs of other
/// tools are accepted.
fn is_sound_output(kind_of_item: &str, item: &Object) -> bool {
    let pairs =
        kind_of_item.ends_with("_output") || matches!(kind_of_item, "function_call" | "custom_tool_call");
    if pairs && !item.contains_key("call_id") {
        return false;
    }
    if !matches!(kind_of_item, "function_call_output" | "custom_tool_call_output") {
        return true;
    }
    let known = |piece: &Value| {
        matches!(kind(piece), "input_text" | "input_image" | "input_file") && !is_blank_text(piece)
    };
    match item.get("output") {
        Some(Value::Array(pieces)) => !pieces.is_empty() && pieces.iter().all(known),
        output => output.is_some_and(Value::is_string),
    }
}

/// Reads a finished response; `None` if it has another shape.
fn end(hearing: &mut Hearing, response: &Value, status: &str) -> Option<()> {
    let finish = match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
        _ if status == "completed" => Finish::Complete,
        Some("content_filter") => Finish::Filtered,
        _ => Finish::Length,
    };
    (hearing.text, hearing.finish, hearing.ended) = (String::new(), Some(finish), true);
    for item in response.get("output")?.as_array()? {
        hearing.calls_tool |= kind(item).ends_with("_call");
        let said = item.get("content").and_then(Value::as_array).into_iter().flatten();
        for piece in said.filter(|_| kind(item) == "message") {
            match kind(piece) {
                "output_text" => hearing.text.push_str(piece.get("text")?.as_str()?),
                "refusal" => hearing.finish = Some(Finish::Filtered),
                _ => {}
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Answer, Tally};

    fn hear(hearing: &mut Hearing, event: &str) -> Then {
        hearing.event(Dialect::RESPONSES, event.as_bytes())
    }

    fn answer(body: &Value) -> Option<Answer> {
        let mut hearing = Hearing::default();
        (hearing.document(Dialect::RESPONSES, body) == Then::End).then(|| hearing.answer())
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
    fn only_what_is_said_is_taken_and_the_reason_is_known() {
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
            answer(&response("completed", &text)).unwrap().tally,
            Some(Tally { input: 30, cached: 10, output: 8 })
        );
    }

    #[test]
    fn what_failed_or_is_not_done_is_no_answer() {
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
    fn a_stream_is_whole_only_with_its_end() {
        let mut heard = Hearing::default();
        let mut tell = |event: Value| hear(&mut heard, &event.to_string());
        assert!(matches!(tell(json!({"type": "response.created", "response": {}})), Then::GoOn));
        assert!(matches!(tell(json!({"type": "response.output_text.delta", "delta": "An"})), Then::GoOn));
        assert!(matches!(tell(json!({"type": "error", "code": "server_error"})), Then::Failed(_)));
        assert!(matches!(
            tell(json!({"type": "response.failed", "response": {"error": {}}})),
            Then::Failed(_)
        ));
        assert!(matches!(tell(json!({"no": "type"})), Then::Odd));
        assert!(!heard.is_whole());
        let last = json!({"type": "response.completed", "response": response("completed", &says("output_text", "Ann."))});
        assert!(matches!(hear(&mut heard, &last.to_string()), Then::End));
        let answer = heard.answer();
        assert_eq!((answer.text.as_str(), answer.finish, answer.whole), ("Ann.", Finish::Complete, true));
    }
}
