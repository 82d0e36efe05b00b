//! Messages: add, list, get, change metadata.

use epitome::rules::message::{Message, Part, Role, Timestamp};
use epitome::{Batch, ListPage, Page as Range};

use super::prelude::*;
use super::validate::{Faults, MessageIn, Paging};
use super::wire::{MESSAGE_FIELDS, MICROS_KEY, MessageOut, WIRE_KEY};

/// Adds either all messages of a request, or none. The messages are durable when the response is sent. Creates the
/// session and the peers if they do not exist, and makes the peers members of the session.
pub(super) async fn add(Authorized(access): CanWrite, Body(body, memory): Body) -> Answer {
    let messages = validate::body(&body, validate::messages)?;
    drop(body);
    let answer = append(&access, messages, |fault, index| fault.within(index).within("messages")).await;
    drop(memory);
    answer
}

/// Adds parsed messages, and responds with the stored messages. `locate` adds the path of the message with an index to a
/// fault in this message.
pub(super) async fn append(
    access: &Access,
    sent: Vec<MessageIn>,
    locate: fn(Faults, usize) -> Faults,
) -> Answer {
    let now = now();
    let mut messages = Vec::with_capacity(sent.len());
    for (index, message) in sent.into_iter().enumerate() {
        let at = match &message.created_at {
            None => IsoTime::from_millis(now.millis()),
            Some(text) => IsoTime::parse(text).ok_or_else(|| {
                locate(Faults::invalid_time(text).within("created_at"), index).within("body")
            })?,
        };
        messages.push(to_message(message, at));
    }
    let appended = access.session().append(Batch::from(messages.clone())).await?;
    for (message, seq) in messages.iter_mut().zip(appended.span.from..) {
        message.seq = seq;
    }
    let about = (access.path_param("session"), appended.session);
    let renderer = access.app.renderer(access.workspace.name(), about, appended.encoding.name()).await?;
    let size = messages.iter().map(Message::bytes).sum();
    run_blocking(size, || {
        let shown: Vec<MessageOut<'_>> = messages.iter().map(|message| renderer.message(message)).collect();
        json_response(StatusCode::CREATED, &shown)
    })
    .await?
}

/// Converts a message of Honcho into a message of Epitome.
fn to_message(message: MessageIn, at: IsoTime) -> Message {
    let MessageIn { content, peer_id, metadata, configuration, .. } = message;
    let mut message = Message::new(Role::Peer, [Part::text(content)]);
    message.author = Some(peer_id.into());
    message.metadata = metadata.unwrap_or_default();
    // In Epitome, the time 0 means that a message has no time. So a message that was sent at time 0 gets the time 1 ms.
    message.at = Timestamp(if at.millis() == 0 { 1 } else { at.millis() });
    // Epitome's times are in milliseconds, so the microseconds are stored separately, in the message's `wire` data.
    let micros = at.0.saturating_sub(IsoTime::from_millis(message.at.0).0);
    let mut extra = Map::new();
    if micros != 0 {
        extra.insert(MICROS_KEY.to_owned(), micros.into());
    }
    if let Some(configuration) = configuration.filter(|configuration| !configuration.is_empty()) {
        extra.insert("configuration".to_owned(), Value::Object(configuration));
    }
    message.wire = (!extra.is_empty()).then(|| Box::new(json!({ WIRE_KEY: extra })));
    message
}

/// Number of messages that are read at a time to apply a filter.
const CHUNK: usize = 500;

/// Maximum size of the messages that are read at a time, in bytes.
const CHUNK_BYTES: u64 = 4 << 20;

/// Lists a session's messages, oldest first by default.
pub(super) async fn list(
    Authorized(access): CanRead,
    params: QueryParams,
    Body(body, _memory): Body,
) -> Answer {
    let ListRequest { paging, filter } = ListRequest::parse(&params, &body, MESSAGE_FIELDS)?;
    let (app, session) = (&access.app, access.session());
    let Some(info) = existing(session.info().await)? else {
        return page_response(&paging, ListPage::<()>::default());
    };
    let _turn = app.permits.pages.acquire().await;
    let renderer = app.renderer(access.workspace.name(), (&info.name, info.id), &info.encoding).await?;
    let matches = (!filter.is_empty()).then_some(|message: &Message| renderer.matches(message, &filter));
    let ListPage { items, total } = listed(&session, info.messages, &paging, matches).await?;
    let size = items.iter().map(Message::bytes).sum();
    run_blocking(size, || {
        let items = items.iter().map(|message| renderer.message(message)).collect();
        page_response(&paging, ListPage { items, total })
    })
    .await?
}

/// Returns a page of the messages that match. Without a filter, the position of the page is computed, and no messages
/// before the page are read. With a filter, all messages are read, because the response contains the number of matches.
async fn listed(
    session: &Session,
    count: u64,
    paging: &Paging,
    matches: Option<impl Fn(&Message) -> bool + Sync>,
) -> Result<ListPage<Message>, Problem> {
    let all = matches.is_none();
    let (limit, mut skip) = (usize::try_from(paging.size).unwrap_or(usize::MAX), paging.skip());
    let (mut listed, mut last) = (ListPage::default(), None);
    if all {
        last = Some(if paging.reverse { count.saturating_add(1).saturating_sub(skip) } else { skip });
        skip = 0;
    }
    loop {
        let chunk = if all { limit.saturating_sub(listed.items.len()) } else { CHUNK };
        let portion = session.messages(range(last, paging.reverse, count, chunk)).await?;
        last = portion.last().map(|message| message.seq);
        let more = portion.more;
        let matching = match &matches {
            None => portion.items,
            // Counts as long work (`u64::MAX`) even for a few messages, because a filter may have 1,000 conditions.
            Some(matches) => run_blocking(u64::MAX, || portion.into_iter().filter(matches).collect()).await?,
        };
        for message in matching {
            listed.add(message, skip, limit);
            check_page_size(&listed.items)?;
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

/// Maximum size of the messages on a page, in bytes. A page can exceed this size only if its messages were added
/// through native routes, where a message may be larger.
const PAGE_BYTES: u64 = 16 << 20;

fn check_page_size(items: &[Message]) -> Result<(), Problem> {
    match items.iter().map(Message::bytes).sum::<u64>() <= PAGE_BYTES {
        true => Ok(()),
        false => {
            let detail = format!(
                "size: the messages of this page exceed {PAGE_BYTES} bytes together; request a smaller page"
            );
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail))
        }
    }
}

/// Returns the range of the next messages to read: from the last message that was read, up to the end that the session
/// had when the request began.
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
pub(super) async fn read(Authorized(access): CanRead) -> Answer {
    one(&access, None).await
}

/// Replaces the metadata of a message.
pub(super) async fn put(Authorized(access): CanWrite, Body(body, _memory): Body) -> Answer {
    one(&access, validate::body(&body, validate::message_metadata)?).await
}

async fn one(access: &Access, metadata: Option<Map<String, Value>>) -> Answer {
    let (app, session, id) = (&access.app, access.session(), access.path_param("message"));
    let missing = || message_not_found(id);
    let info = existing(session.info().await)?.ok_or_else(missing)?;
    let seq = app.ids().await?.prefix(info.id).seq(id).filter(|seq| (1..=info.messages).contains(seq));
    let seq = seq.ok_or_else(missing)?;
    if let Some(metadata) = metadata {
        session.set_message_metadata(seq, metadata).await?;
    }
    let range = Range { after: seq.checked_sub(1), limit: 1, ..Range::default() };
    let read = session.messages(range).await?;
    let message = read.first().filter(|message| message.seq == seq).ok_or_else(missing)?;
    let renderer = app.renderer(access.workspace.name(), (&info.name, info.id), &info.encoding).await?;
    json_response(StatusCode::OK, &renderer.message(message))
}
