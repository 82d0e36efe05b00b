//! Routes for messages: append, read, flag.

use std::borrow::Cow;

use epitome::dialect::DialectError;
use epitome::rules::message::{Message, Seq};
use epitome::settings::suggest::did_you_mean;
use epitome::{Batch, Flags, Page as Range, Portion};
use epitome_http::body::{JsonBody, run_blocking};
use serde_json::value::RawValue;

use super::openapi::{Messages, MessagesPage};
use super::prelude::*;
use super::wire::MessageOut;

/// Header with the idempotency key of an append.
const IDEMPOTENCY_KEY: &str = "idempotency-key";

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AppendQuery {
    /// Appends only if this is the newest message of the session; 0 means that the session must be empty. Otherwise the
    /// response is a conflict (409).
    after: Option<u64>,
}

/// Appends one message or several messages: all of them or none. The messages are durable when the response is sent.
/// Creates the session if it does not exist.
///
/// A message is `{"role", "content"}` in OpenAI's or Anthropic's format, `{"role", "parts"}` in Epitome's format, or an
/// item of OpenAI's Responses. The format is detected from the message's fields, unless the field `format` names the
/// format. Unrecognised fields are stored too.
#[utoipa::path(post, path = "/v1/sessions/{session}/messages", tag = "messages", params(
    ("idempotency-key" = Option<String>, Header, description = "Identifies this append for one week. The same append \
        with the same key adds nothing. A different append with the same key is a conflict", max_length = 256,
        min_length = 1),
    AppendQuery,
), request_body = Messages, responses(
    (status = 200, description = "The messages were appended before, with the same key", body = openapi::Appended),
    (status = 201, description = "The messages are stored", body = openapi::Appended),
))]
pub(crate) async fn append(call: Writing<AppendQuery>, headers: HeaderMap, body: JsonBody) -> Answer {
    let JsonBody { value, exact, size, memory } = body;
    let messages = run_blocking(size, || read(value, exact.as_deref())).await??;
    let mut batch = Batch::from(messages);
    if let Some(key) = headers.get(IDEMPOTENCY_KEY) {
        let key = std::str::from_utf8(key.as_bytes());
        let not_utf8 = |_| Problem::invalid("idempotency-key: is not UTF-8; send 1 to 256 bytes of UTF-8");
        batch = batch.key(key.map_err(not_utf8)?);
    }
    if let Some(after) = call.query.after {
        batch = batch.after(after);
    }
    let appended = call.session().append(batch).await?;
    drop(memory);
    let status = if appended.repeated { StatusCode::OK } else { StatusCode::CREATED };
    json_response(status, &appended)
}

/// Reads messages in any supported format. If the parsed value might have lost digits of a number, reads the messages
/// from the text instead.
fn read(value: Value, text: Option<&[u8]>) -> Result<Vec<Message>, Problem> {
    let text = text.and_then(|text| list_text(std::str::from_utf8(text).ok()?, &value));
    let (format, list) = match value {
        Value::Array(list) => (None, list),
        Value::Object(fields) if fields.contains_key("messages") => named_list(fields)?,
        message @ Value::Object(_) => (None, vec![message]),
        _ => {
            let detail = "the body: expected a message, a list of messages, or {\"messages\": [...]}";
            return Err(Problem::invalid(detail));
        }
    };
    let named = format.map(|format| format.0);
    let dialect = named.or_else(|| list.iter().find_map(Dialect::detect)).unwrap_or(Dialect::OPENAI);
    let messages = match text {
        Some(text) => dialect.read_text(&text),
        None => dialect.read(&Value::Array(list)),
    };
    messages.map_err(|wrong: DialectError| {
        let hint = if named.is_some() {
            String::new()
        } else {
            format!(" (read as {dialect}; `format` sets another format)")
        };
        Problem::invalid(format!("{wrong}{hint}"))
    })
}

/// Returns the part of the body's text that is the message list. `body` is the parsed text.
fn list_text<'a>(text: &'a str, body: &Value) -> Option<Cow<'a, str>> {
    #[derive(Deserialize)]
    struct Wrapped<'a> {
        #[serde(borrow)]
        messages: &'a RawValue,
    }
    match body {
        Value::Object(fields) if fields.contains_key("messages") => {
            serde_json::from_str(text).ok().map(|Wrapped { messages }| messages.get().into())
        }
        Value::Object(_) => Some(format!("[{text}]").into()),
        _ => Some(text.into()),
    }
}

/// Returns the format and the messages of a body `{"format", "messages"}`.
fn named_list(mut fields: Map<String, Value>) -> Result<(Option<Format>, Vec<Value>), Problem> {
    let Some(Value::Array(list)) = fields.remove("messages") else {
        return Err(Problem::invalid("messages: expected a list of messages"));
    };
    let format = fields.remove("format").map(Format::deserialize).transpose();
    let format = format.map_err(|wrong| {
        let wrong = wrong.to_string();
        Problem::invalid(if wrong.starts_with("format: ") { wrong } else { format!("format: {wrong}") })
    })?;
    match fields.keys().next() {
        None => Ok((format, list)),
        Some(unknown) => {
            let similar = did_you_mean(unknown, ["messages", "format"]);
            let detail = format!("{unknown:?}: no such field; {similar}allowed are messages and format");
            Err(Problem::invalid(detail))
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MessagesQuery {
    /// The value `next` of the previous page. The page begins after this message or, with `reverse`, before it.
    after: Option<u64>,
    /// Maximum number of messages.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
    /// Whether the newest message comes first.
    #[serde(default)]
    reverse: bool,
    /// Lists only messages of this author, and the results of this author's tool calls.
    scope: Option<String>,
    /// Format of the messages. A message that was sent in this format is returned as it was sent.
    format: Option<Format>,
}

/// Lists the original messages of a session.
#[utoipa::path(get, path = "/v1/sessions/{session}/messages", tag = "messages", params(MessagesQuery), responses(
    (status = 200, description = "A page of messages", body = MessagesPage),
))]
pub(crate) async fn list(call: Reading<MessagesQuery>) -> Answer {
    let MessagesQuery { after, limit, reverse, scope, format } = &call.query;
    let scope = scope.as_deref().map(Into::into);
    let range = Range { scope, ..range(*after, *reverse, page_limit(*limit)?) };
    let _turn = call.app.permits.pages.acquire().await;
    let messages = call.or_suggest(call.session().messages(range).await).await?;
    page(messages, *format, &call.if_none_match)
}

/// Approximate maximum size of a page's messages, in bytes. A page that reaches this size ends, even if it has fewer
/// messages than its limit allows.
const PAGE_BYTES: u64 = 4 << 20;

/// Returns the range of messages after a position. With `reverse`, returns the range before the position, newest
/// message first.
pub(super) fn range(after: Option<u64>, reverse: bool, limit: usize) -> Range {
    let (after, before) = if reverse { (None, after) } else { (after, None) };
    Range { after, before, reverse, limit, bytes: Some(PAGE_BYTES), scope: None }
}

/// Renders a page of messages in the requested format.
pub(super) fn page(
    messages: Portion<Message>,
    format: Option<Format>,
    if_none_match: &IfNoneMatch,
) -> Answer {
    let next = messages.last().filter(|_| messages.more).map(|message| message.seq.to_string());
    match format {
        None => {
            let items = messages.into_iter().map(MessageOut::new).collect();
            if_none_match.respond(&Page { items, next })
        }
        Some(format) => {
            let texts = format.0.restore_text(&messages).into_iter();
            if_none_match.respond(&Page { items: texts.flat_map(RawValue::from_string).collect(), next })
        }
    }
}

/// Sets a message's flags. If the message belongs to a batch of tool calls, the whole batch is pinned or skipped.
#[utoipa::path(patch, path = "/v1/sessions/{session}/messages/{seq}", tag = "messages", params(
    ("seq" = u64, Path, description = "The message's position in the session", minimum = 1),
), request_body = openapi::SetFlags, responses(
    (status = 200, description = "The message after the change", body = openapi::Message),
))]
pub(crate) async fn flag(call: Writing, Json(flags): Json<Flags>) -> Answer {
    let (session, seq) = (call.session(), call.path_number::<Seq>("seq")?);
    call.or_suggest(session.flag(seq, flags).await).await?;
    let after = seq.checked_sub(1).filter(|after| *after > 0);
    let messages = session.messages(Range { after, limit: 1, ..Range::default() }).await?;
    match messages.into_iter().next() {
        Some(message) => json_response(StatusCode::OK, &MessageOut::new(message)),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}
