//! Messages: added, read, flagged.

use std::borrow::Cow;

use epitome::dialect::DialectError;
use epitome::rules::message::{Message, Seq};
use epitome::{Batch, Flags, Page as Range, Portion};
use epitome_http::body::{Sent, elsewhere};
use serde_json::value::RawValue;

use super::openapi::{Messages, MessagesPage};
use super::prelude::*;
use super::wire::shown;

/// The key under which an append is done once.
const IDEMPOTENCY: &str = "idempotency-key";

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Where {
    /// Only right after this message, 0 for an empty session; a conflict where somebody added to it meanwhile.
    after: Option<u64>,
}

/// Adds one message or many: all of them or none, durable when it is answered. Makes the session where there is none.
///
/// A message is `{"role", "content"}` as OpenAI or Anthropic have it, an item of OpenAI's Responses, or
/// `{"role", "parts"}` as Epitome keeps it; which one it is shows in its shape, and `format` says it outright. What is not
/// known of it is kept all the same.
#[utoipa::path(post, path = "/v1/sessions/{session}/messages", tag = "messages", params(
    ("idempotency-key" = Option<String>, Header, description = "The same append under the same key adds nothing, for a \
        week; another one under it is a conflict", max_length = 256, min_length = 1),
    Where,
), request_body = Messages, responses(
    (status = 200, description = "They were there already", body = openapi::Appended),
    (status = 201, description = "They are kept", body = openapi::Appended),
))]
pub(crate) async fn append(call: Writing<Where>, headers: HeaderMap, sent: Sent) -> Answer {
    let Sent { value, exact, size, charged } = sent;
    let messages = elsewhere(size, || read(value, exact.as_deref())).await??;
    let mut batch = Batch::from(messages);
    if let Some(key) = headers.get(IDEMPOTENCY) {
        let key = std::str::from_utf8(key.as_bytes());
        batch = batch.key(key.map_err(|_| Problem::invalid("idempotency-key: is not UTF-8"))?);
    }
    if let Some(after) = call.query.after {
        batch = batch.after(after);
    }
    let appended = call.session().append(batch).await?;
    drop(charged);
    let status = if appended.repeated { StatusCode::OK } else { StatusCode::CREATED };
    done(status, &appended)
}

/// Messages in whatever form they came. Where a value might lose digits of a number, they are read from the text.
fn read(value: Value, text: Option<&[u8]>) -> Result<Vec<Message>, Problem> {
    let text = text.and_then(|text| list_in(std::str::from_utf8(text).ok()?, &value));
    let (format, list) = match value {
        Value::Array(list) => (None, list),
        Value::Object(fields) if fields.contains_key("messages") => wrapped(fields)?,
        one @ Value::Object(_) => (None, vec![one]),
        _ => return Err(Problem::invalid("a message, a list of them, or {\"messages\": [...]} is wanted")),
    };
    let told = format.map(|format| format.0).or_else(|| list.iter().find_map(Dialect::of));
    let dialect = told.unwrap_or(Dialect::OPENAI);
    let read = match text {
        Some(text) => dialect.read_text(&text),
        None => dialect.read(&Value::Array(list)),
    };
    read.map_err(|wrong: DialectError| {
        let hint = if format.is_some() {
            String::new()
        } else {
            format!(" (read as {dialect}; `format` says otherwise)")
        };
        Problem::invalid(format!("{wrong}{hint}"))
    })
}

/// The text of the list of messages in a body that was read already.
fn list_in<'a>(text: &'a str, body: &Value) -> Option<Cow<'a, str>> {
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

fn wrapped(mut fields: Map<String, Value>) -> Result<(Option<Format>, Vec<Value>), Problem> {
    let Some(Value::Array(list)) = fields.remove("messages") else {
        return Err(Problem::invalid("messages: a list is wanted"));
    };
    let format = fields.remove("format").map(Format::deserialize).transpose();
    let format = format.map_err(|wrong| Problem::invalid(wrong.to_string()))?;
    match fields.keys().next() {
        None => Ok((format, list)),
        Some(unknown) => {
            Err(Problem::invalid(format!("{unknown:?}: no such field; there are messages and format")))
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Which {
    /// `next` of the page before: the messages after this one, or before it with `reverse`.
    after: Option<u64>,
    /// At most so many.
    #[param(minimum = 1, maximum = 500, default = 100)]
    limit: Option<u64>,
    /// Newest first.
    #[serde(default)]
    reverse: bool,
    /// Only this author's, with the results of their calls.
    scope: Option<String>,
    /// In which form: as they came in, where they came in it.
    format: Option<Format>,
}

/// Messages, word for word.
#[utoipa::path(get, path = "/v1/sessions/{session}/messages", tag = "messages", params(Which), responses(
    (status = 200, description = "A page of them", body = MessagesPage),
))]
pub(crate) async fn list(call: Reading<Which>) -> Answer {
    let Which { after, limit: asked, reverse, scope, format } = &call.query;
    let scope = scope.as_deref().map(Into::into);
    let range = Range { scope, ..range(*after, *reverse, limit(*asked)?) };
    let _turn = call.app.load.paging.acquire().await;
    page(call.session().messages(range).await?, *format, &call.known)
}

/// A page holds no more than about so many bytes of messages, however many are asked for.
const PAGE_BYTES: u64 = 4 << 20;

/// The messages after a place, or before it where the newest come first.
pub(super) fn range(after: Option<u64>, reverse: bool, limit: usize) -> Range {
    let (after, before) = if reverse { (None, after) } else { (after, None) };
    Range { after, before, reverse, limit, bytes: Some(PAGE_BYTES), scope: None }
}

/// A page of messages, in the form that is wanted.
pub(super) fn page(found: Portion<Message>, format: Option<Format>, known: &Known) -> Answer {
    let next = found.last().filter(|_| found.more).map(|message| message.seq.to_string());
    match format {
        None => known.read(&Page { items: found.into_iter().map(shown).collect(), next }),
        Some(format) => {
            let texts = format.0.restore_text(&found).into_iter();
            known.read(&Page { items: texts.flat_map(RawValue::from_string).collect(), next })
        }
    }
}

/// Sets a message's flags. Whole call batches are pinned or skipped with it.
#[utoipa::path(patch, path = "/v1/sessions/{session}/messages/{seq}", tag = "messages", params(
    ("seq" = u64, Path, description = "The message's place", minimum = 1),
), request_body = openapi::SetFlags, responses(
    (status = 200, description = "The message as it is now", body = openapi::Message),
))]
pub(crate) async fn flag(call: Writing, Json(flags): Json<Flags>) -> Answer {
    let (session, seq) = (call.session(), call.number::<Seq>("seq")?);
    session.flag(seq, flags).await?;
    let after = seq.checked_sub(1).filter(|after| *after > 0);
    let found = session.messages(Range { after, limit: 1, ..Range::default() }).await?;
    match found.into_iter().next() {
        Some(message) => done(StatusCode::OK, &shown(message)),
        None => Ok(StatusCode::NO_CONTENT.into_response()),
    }
}
