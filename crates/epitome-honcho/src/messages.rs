//! Messages: add, list, get, change metadata.

use epitome::rules::message::{Message, Part, Role, Timestamp};
use epitome::{Batch, Listed, Page as Range};

use super::check::{Faults, MessageIn, Paging};
use super::out::{MESSAGE_FIELDS, MICROS, MessageOut, WIRE};
use super::prelude::*;

/// Adds messages: all of them or none, durable when this answers. Creates the session and the peers if they do not
/// exist, and makes the peers members of the session.
pub(super) async fn add(May(access): Writes, Body(body, charged): Body) -> Answer {
    let messages = check::body(&body, check::messages)?;
    drop(body);
    let answer = append(&access, messages).await;
    drop(charged);
    answer
}

/// Adds parsed messages, and answers with them.
pub(super) async fn append(access: &Access, given: Vec<MessageIn>) -> Answer {
    let now = now();
    let mut messages = Vec::with_capacity(given.len());
    for (at, given) in given.into_iter().enumerate() {
        let said = match &given.created_at {
            None => Moment::from_millis(now.millis()),
            Some(text) => Moment::parse(text).ok_or_else(|| Faults::no_moment(Some(at), text))?,
        };
        messages.push(message(given, said));
    }
    let appended = access.session().append(Batch::from(messages.clone())).await?;
    for (message, seq) in messages.iter_mut().zip(appended.span.from..) {
        message.seq = seq;
    }
    let about = (access.named("session"), appended.session);
    let scribe = access.app.scribe(access.workspace.name(), about, appended.encoding.name()).await?;
    let size = messages.iter().map(Message::bytes).sum();
    elsewhere(size, || {
        let told: Vec<MessageOut<'_>> = messages.iter().map(|message| scribe.message(message)).collect();
        done(StatusCode::CREATED, &told)
    })
    .await?
}

/// Converts a message of Honcho into one of Epitome.
fn message(given: MessageIn, said: Moment) -> Message {
    let MessageIn { content, peer_id, metadata, configuration, .. } = given;
    let mut message = Message::new(Role::Peer, [Part::text(content)]);
    message.author = Some(peer_id.into());
    message.metadata = metadata.unwrap_or_default();
    // Epitome uses 0 for a message without a time, so a time of 0 is stored as 1 ms.
    message.at = Timestamp(if said.millis() == 0 { 1 } else { said.millis() });
    // Epitome's times are in milliseconds, so the microseconds are stored with the message.
    let micros = said.0.saturating_sub(Moment::from_millis(message.at.0).0);
    let mut came = Map::new();
    if micros != 0 {
        came.insert(MICROS.to_owned(), micros.into());
    }
    if let Some(configuration) = configuration.filter(|configuration| !configuration.is_empty()) {
        came.insert("configuration".to_owned(), Value::Object(configuration));
    }
    message.wire = (!came.is_empty()).then(|| Box::new(json!({ WIRE: came })));
    message
}

/// Number of messages read at a time when a filter is applied.
const CHUNK: usize = 500;

/// Maximum size of messages read at a time, in bytes.
const CHUNK_BYTES: u64 = 4 << 20;

/// Lists a session's messages, oldest first by default.
pub(super) async fn list(May(access): Reads, pairs: Pairs, Body(body, _charged): Body) -> Answer {
    let Wanted { paging, filter } = Wanted::read(&pairs, &body, MESSAGE_FIELDS)?;
    let (app, session) = (&access.app, access.session());
    let Some(info) = found(session.info().await)? else {
        return page(&paging, Listed::<()>::default());
    };
    let _turn = app.load.paging.acquire().await;
    let scribe = app.scribe(access.workspace.name(), (&info.name, info.id), &info.encoding).await?;
    let wanted = (!filter.is_empty()).then_some(|message: &Message| scribe.wants(message, &filter));
    let Listed { items, total } = listed(&session, info.messages, &paging, wanted).await?;
    let size = items.iter().map(Message::bytes).sum();
    elsewhere(size, || {
        let items = items.iter().map(|message| scribe.message(message)).collect();
        page(&paging, Listed { items, total })
    })
    .await?
}

/// Returns a page of the messages that match. Without a filter, the start of the page is computed and nothing before it
/// is read. With a filter, all messages are read, because the answer contains the number of matches.
async fn listed(
    session: &Session,
    count: u64,
    paging: &Paging,
    wanted: Option<impl Fn(&Message) -> bool + Sync>,
) -> Result<Listed<Message>, Problem> {
    let all = wanted.is_none();
    let (limit, mut skip) = (usize::try_from(paging.size).unwrap_or(usize::MAX), paging.skip());
    let (mut listed, mut last) = (Listed::default(), None);
    if all {
        last = Some(if paging.reverse { count.saturating_add(1).saturating_sub(skip) } else { skip });
        skip = 0;
    }
    loop {
        let chunk = if all { limit.saturating_sub(listed.items.len()) } else { CHUNK };
        let portion = session.messages(range(last, paging.reverse, count, chunk)).await?;
        last = portion.last().map(|message| message.seq);
        let more = portion.more;
        let kept = match &wanted {
            None => portion.items,
            // Not on this thread, however few messages there are: a filter may have a thousand conditions.
            Some(wanted) => elsewhere(u64::MAX, || portion.into_iter().filter(wanted).collect()).await?,
        };
        for message in kept {
            listed.take(message, skip, limit);
            bearable(&listed.items)?;
        }
        if !more || (all && listed.items.len() >= limit) {
            break;
        }
    }
    if all {
        listed.total = count;
    }
    Ok(listed)
}

/// Maximum size of the messages on a page, in bytes. Messages added through these routes never reach it; messages added
/// through native routes may be larger.
const PAGE_BYTES: u64 = 16 << 20;

fn bearable(items: &[Message]) -> Result<(), Problem> {
    match items.iter().map(Message::bytes).sum::<u64>() <= PAGE_BYTES {
        true => Ok(()),
        false => {
            let detail = "the messages of this page are too large together; use a smaller size";
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail))
        }
    }
}

/// Returns the range after the last message that was read, up to where the session ended when the request began.
fn range(last: Option<u64>, reverse: bool, count: u64, limit: usize) -> Range {
    let (after, before) = if reverse { (None, last) } else { (last, None) };
    let end = count.saturating_add(1);
    Range {
        after,
        before: Some(before.unwrap_or(end)),
        reverse,
        limit,
        bytes: Some(CHUNK_BYTES),
        scope: None,
    }
}

/// Returns one message.
pub(super) async fn look(May(access): Reads) -> Answer {
    one(&access, None).await
}

/// Replaces the metadata of a message.
pub(super) async fn put(May(access): Writes, Body(body, _charged): Body) -> Answer {
    one(&access, check::body(&body, check::metadata)?).await
}

async fn one(access: &Access, metadata: Option<Map<String, Value>>) -> Answer {
    let (app, session, id) = (&access.app, access.session(), access.named("message"));
    let missing = || no_message(id);
    let info = found(session.info().await)?.ok_or_else(missing)?;
    let seq = app.ids().await?.mark(info.id).seq(id).filter(|seq| (1..=info.messages).contains(seq));
    let seq = seq.ok_or_else(missing)?;
    if let Some(metadata) = metadata {
        session.note_message(seq, metadata).await?;
    }
    let range = Range { after: seq.checked_sub(1), limit: 1, ..Range::default() };
    let read = session.messages(range).await?;
    let message = read.first().filter(|message| message.seq == seq).ok_or_else(missing)?;
    let scribe = app.scribe(access.workspace.name(), (&info.name, info.id), &info.encoding).await?;
    done(StatusCode::OK, &scribe.message(message))
}
