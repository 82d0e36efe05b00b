//! Appends messages: first counts the tokens of the messages, then writes the messages in one transaction.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use epitome_core::message::{Message, MessageError, Seq, Span, Timestamp, Tokens};
use epitome_core::outline::{Cut, Outline};
use epitome_core::tokens::{Counter, Encoding};
use metrics::counter;
use serde::Serialize;

use super::Shared;
use super::checks::{DEEPEST, is_too_deep};
use super::session::Session;
use crate::error::{Error, check_name};
use crate::event::EventBody;
use crate::metrics::{APPENDED_MESSAGES, APPENDED_TOKENS};
use crate::settings::Settings;
use crate::store::{
    self, Changes, EarlierAppend, Load, Membership, NewMessage, SessionId, SessionKey, SessionRow,
    SessionState, SlotRow,
};

/// Messages that are appended together. Either all messages are stored, or no message is stored.
///
/// ```
/// use epitome::{Batch, Message};
///
/// let one: Batch = Message::user("Hello.").into();
/// let two = Batch::from([Message::user("Hello."), Message::assistant("Hello!")]).key("turn-1");
/// assert_eq!((one.len(), two.len()), (1, 2));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Batch {
    messages: Vec<Message>,
    key: Option<String>,
    after: Option<Seq>,
}

impl Batch {
    /// Appends only if `seq` is the session's last message; 0 means an empty session. If another client has appended
    /// messages in the meantime, the append fails with a conflict and adds nothing.
    ///
    /// ```
    /// # async fn try_it() -> Result<(), epitome::Error> {
    /// use epitome::{Batch, Engine, Error, Message};
    ///
    /// let session = Engine::memory().await?.session("ann");
    /// session.append(Batch::from(Message::user("Hello.")).after(0)).await?;
    /// let late = session.append(Batch::from(Message::user("Hello!")).after(0)).await;
    /// assert!(matches!(late, Err(Error::Conflict(_))));
    /// # Ok(())
    /// # }
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(try_it()).unwrap();
    /// ```
    pub fn after(mut self, seq: Seq) -> Self {
        self.after = Some(seq);
        self
    }

    /// Sets an idempotency key, so that a client can safely repeat an append whose response was lost. If the same
    /// messages are appended again with the same key, nothing is added. Other messages with the same key are a
    /// conflict. A key is stored for a week.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }
}

impl From<Message> for Batch {
    fn from(message: Message) -> Self {
        Self { messages: vec![message], key: None, after: None }
    }
}

impl From<Vec<Message>> for Batch {
    fn from(messages: Vec<Message>) -> Self {
        Self { messages, key: None, after: None }
    }
}

impl<const N: usize> From<[Message; N]> for Batch {
    fn from(messages: [Message; N]) -> Self {
        Self { messages: messages.into(), key: None, after: None }
    }
}

/// The result of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Appended {
    /// The sequence numbers of the first and the last appended message.
    #[serde(flatten)]
    pub span: Span,
    /// Whether an earlier append with the same key had already stored the messages.
    pub repeated: bool,
    /// The session's id in the store, as in [`SessionInfo::id`](super::SessionInfo::id). Do not show the id to tenants.
    #[serde(skip)]
    pub session: SessionId,
    /// The encoding that counts the session's tokens.
    #[serde(skip)]
    pub encoding: Encoding,
}

/// Maximum total size of messages whose tokens are counted in the calling task, in bytes. The tokens of larger batches
/// are counted on another thread.
const MAX_INLINE_BYTES: u64 = 16 << 10;

/// Maximum length of an idempotency key, in bytes.
const MAX_KEY_BYTES: usize = 256;

/// A message with everything that can be computed before its sequence number is assigned.
struct CountedMessage {
    message: Message,
    tokens: Tokens,
    body: String,
}

/// Messages that are appended in one transaction, with their tokens counted in one encoding.
struct Attempt {
    messages: Vec<CountedMessage>,
    encoding: Encoding,
    /// The idempotency key, and the hash of the messages.
    idempotency: Option<(String, Vec<u8>)>,
    /// The expected last message of the session; `None` if any last message is accepted.
    after: Option<Seq>,
}

/// The result of an attempt.
enum AttemptOutcome {
    /// The messages were appended. The second field is the number of tokens of the messages. The third field is whether
    /// a slot is due.
    Appended(Appended, Tokens, bool),
    /// The session uses this other encoding, so the messages must be counted again.
    OtherEncoding(Encoding),
}

impl Attempt {
    fn decide(
        &self,
        engine: &Shared,
        state: &SessionState,
    ) -> Result<(Option<Changes>, AttemptOutcome), Error> {
        let Self { messages, encoding, idempotency, after } = self;
        let settings = engine.settings_at(state)?;
        check(messages, &settings)?;
        let stored = state.session.as_ref().map(|row| row.encoding.parse());
        let session_encoding = stored.unwrap_or(Ok(settings.encoding)).map_err(Error::invalid)?;
        if session_encoding != *encoding {
            return Ok((None, AttemptOutcome::OtherEncoding(session_encoding)));
        }
        let appended = |span, repeated, session| Appended { span, repeated, session, encoding: *encoding };
        if let (Some(done), Some((_, hash))) = (&state.earlier_append, idempotency) {
            if done.body != *hash {
                return Err(Error::Conflict(
                    "idempotency key: was used before for other messages; use a new key".to_owned(),
                ));
            }
            let session = state.session.as_ref().map_or(0, |row| row.id);
            return Ok((None, AttemptOutcome::Appended(appended(done.span, true, session), 0, false)));
        }
        let head = state.session.as_ref().map_or(0, |row| row.tracker.head());
        if let Some(after) = after.filter(|after| *after != head) {
            return Err(Error::Conflict(format!(
                "after: the session ends with message {head}, not {after}; read its newest messages first"
            )));
        }
        let mut changes = changes_of_append(engine, state, &settings, messages);
        let span = span_of(&changes.messages).ok_or(Error::Closed)?;
        changes.idempotency = idempotency.clone().map(|(key, body)| (key, EarlierAppend { body, span }));
        let due = changes.slots.iter().any(|slot| slot.ready_at().is_some());
        let tokens = changes.messages.iter().map(|message| message.outline.tokens).sum();
        // The id is 0 here, because the store assigns the id of a new session later.
        Ok((Some(changes), AttemptOutcome::Appended(appended(span, false, 0), tokens, due)))
    }
}

impl Session {
    /// Appends messages to the session in one transaction. The messages are durable when the call returns. The call
    /// never waits for a model.
    pub async fn append(&self, batch: impl Into<Batch>) -> Result<Appended, Error> {
        self.check_names()?;
        append(self.shared(), &self.key, batch.into()).await
    }
}

async fn append(shared: &Arc<Shared>, key: &SessionKey, batch: Batch) -> Result<Appended, Error> {
    let Batch { messages, key: idempotency_key, after } = batch;
    if messages.is_empty() {
        return Err(Error::invalid("messages: is empty; append at least one"));
    }
    if let Some(key) = &idempotency_key
        // PostgreSQL cannot store U+0000. If this character were replaced with another, the key would not be found
        // again.
        && (key.is_empty() || key.len() > MAX_KEY_BYTES || key.contains('\0'))
    {
        let problem = format!("idempotency key: 1 to {MAX_KEY_BYTES} bytes and no U+0000 are allowed");
        return Err(Error::Invalid(problem));
    }
    let idempotency =
        idempotency_key.clone().map(|key| Ok::<_, Error>((key, hash(&messages)?))).transpose()?;
    if exceeds_engine_limits(&messages, &shared.settings) {
        // The messages are checked before their tokens are counted, because counting takes time.
        let state = shared.store.session_state(key, Load::default()).await?;
        let settings = shared.settings_at(&state)?;
        check_each(&messages, &settings)?;
    }
    let messages = Arc::new(messages);
    let mut encoding = shared.caches.encodings.get(key).unwrap_or(shared.settings.encoding);
    // A session's encoding never changes. So the second attempt succeeds, except if the session was deleted and
    // recreated.
    for _ in 0..4 {
        let counted = count(Arc::clone(&messages), encoding).await?;
        let load =
            Load { idempotency: idempotency_key.clone(), bytes: written_bytes(&counted), ..Load::default() };
        let attempt = Attempt { messages: counted, encoding, idempotency: idempotency.clone(), after };
        let engine = Arc::clone(shared);
        let decide = move |state: &SessionState| attempt.decide(&engine, state);
        match shared.change(key, load, decide).await? {
            (AttemptOutcome::Appended(mut appended, tokens, due), session) => {
                appended.session = session.unwrap_or(appended.session);
                shared.caches.learn_encoding(key, encoding, shared.settings.encoding);
                if !appended.repeated {
                    shared.activity.appends.fetch_add(1, Ordering::Relaxed);
                    counter!(APPENDED_MESSAGES).increment(appended.span.len());
                    counter!(APPENDED_TOKENS).increment(tokens);
                }
                if due {
                    shared.signals.wake.notify_one();
                }
                return Ok(appended);
            }
            (AttemptOutcome::OtherEncoding(other), _) => encoding = other,
        }
    }
    Err(Error::Conflict(
        "the session was deleted and recreated several times during the append; try again".to_owned(),
    ))
}

/// Returns the span of new messages.
fn span_of(messages: &[NewMessage]) -> Option<Span> {
    let (first, last) = messages.first().zip(messages.last())?;
    Span::new(first.outline.seq, last.outline.seq)
}

fn hash(messages: &[Message]) -> Result<Vec<u8>, Error> {
    let mut value =
        serde_json::to_value(messages).map_err(|error| Error::invalid(format!("messages: {error}")))?;
    // Metadata with the same keys in another order must have the same hash.
    value.sort_all_objects();
    Ok(blake3::hash(value.to_string().as_bytes()).as_bytes().to_vec())
}

/// Counts the tokens of messages and serializes the messages, on another thread if they are large.
async fn count(messages: Arc<Vec<Message>>, encoding: Encoding) -> Result<Vec<CountedMessage>, Error> {
    let bytes = messages.iter().fold(0, |sum: u64, message| sum.saturating_add(message.bytes()));
    let count = move || -> Result<Vec<CountedMessage>, Error> {
        let counter = Counter::new(encoding);
        let counted = |message: &Message| {
            let body =
                store::content_json(message).map_err(|error| Error::invalid(format!("message: {error}")))?;
            Ok(CountedMessage { tokens: counter.message(message), body, message: message.clone() })
        };
        messages.iter().map(counted).collect()
    };
    if bytes <= MAX_INLINE_BYTES {
        return count();
    }
    tokio::task::spawn_blocking(count).await.map_err(|_| Error::Closed)?
}

/// Returns the approximate size of these messages as rows, in bytes. A row has the content and about twenty numbers.
fn written_bytes(messages: &[CountedMessage]) -> usize {
    messages.iter().map(|counted| counted.body.len().saturating_add(256)).fold(0, usize::saturating_add)
}

/// Returns whether the messages exceed the engine's limits. Whether they are refused depends on the session's settings.
fn exceeds_engine_limits(messages: &[Message], settings: &Settings) -> bool {
    let limits = &settings.limits;
    messages.len() as u64 > limits.batch || messages.iter().any(|message| message.bytes() > limits.message)
}

/// Rejects messages that are too large or invalid.
fn check(counted: &[CountedMessage], settings: &Settings) -> Result<(), Error> {
    check_each(counted.iter().map(|counted| &counted.message), settings)?;
    let most = settings.limits.body;
    let body = counted.iter().fold(0, |sum: u64, counted| sum.saturating_add(counted.body.len() as u64));
    if body > most {
        return Err(Error::invalid(format!(
            "messages: {body} bytes; at most {most} (limits.body) are allowed"
        )));
    }
    Ok(())
}

fn check_each<'a>(
    messages: impl IntoIterator<Item = &'a Message, IntoIter: ExactSizeIterator>,
    settings: &Settings,
) -> Result<(), Error> {
    let (limits, messages) = (&settings.limits, messages.into_iter());
    if messages.len() as u64 > limits.batch {
        let (count, most) = (messages.len(), limits.batch);
        return Err(Error::invalid(format!(
            "messages: {count} at once; at most {most} (limits.batch) are allowed"
        )));
    }
    let each = limits.of_message();
    for (at, message) in messages.enumerate() {
        if let Some(author) = message.author.as_ref().filter(|author| !author.is_empty()) {
            check_name(&format!("messages[{at}].author"), author)?;
        }
        if is_too_deep(&message.metadata) {
            return Err(Error::invalid(format!(
                "messages[{at}].metadata: nests deeper than {DEEPEST} levels"
            )));
        }
        message.check(&each).map_err(|error| match &error {
            MessageError::TooLarge { field, .. } => {
                Error::invalid(format!("messages[{at}].{error} (limits.{field})"))
            }
            _ => Error::invalid(format!("messages[{at}].{error}")),
        })?;
    }
    Ok(())
}

/// Returns the changes that append these messages and count them for the trigger of every slot.
fn changes_of_append(
    shared: &Shared,
    state: &SessionState,
    settings: &Settings,
    counted: &[CountedMessage],
) -> Changes {
    let now = state.now;
    let mut session = state.session.clone().unwrap_or_else(|| new_session(settings.encoding, now));
    let mut slots = session_slots(state, settings);
    let configs: Vec<_> = slots
        .iter()
        .map(|row| {
            let config = settings.slot(&row.scope, &row.name);
            (config, config.and_then(|config| shared.room(settings, config)))
        })
        .collect();
    let mut messages = Vec::with_capacity(counted.len());
    for counted in counted {
        let mut outline = session.tracker.push_sized(&counted.message, counted.tokens);
        if outline.at == Timestamp::default() {
            outline.at = now;
        }
        if outline.opens_turn {
            session.opener = outline.seq;
        }
        session.count_skipped(&outline);
        for (row, (config, room)) in slots.iter_mut().zip(&configs) {
            match config {
                Some(config) => drop(row.state.advance(&config.slot, &outline, *room)),
                // The settings do not define this slot, so its trigger counts nothing. If the settings define the slot
                // again later, `last_seq` shows that there are new messages.
                None if row.scope.holds(&outline) && !outline.skip => {
                    row.state.since.last_seq = outline.seq;
                }
                None => {}
            }
        }
        messages.push(NewMessage { outline, opener: session.opener, body: counted.body.clone() });
    }
    session.updated = now;
    for row in &mut slots {
        // The new messages may end the tool call or loop for which the slot was parked.
        row.work.parked = false;
        row.update_waiting_since(now);
    }
    // Unchanged slots need not be written.
    slots.retain(|row| state.slot(&row.scope, &row.name) != Some(row));
    let events = span_of(&messages).map(EventBody::Message).into_iter().collect();
    Changes {
        session: Some(session),
        messages,
        slots,
        members: authors_of(counted),
        events,
        ..Changes::default()
    }
}

/// Returns the authors of these messages. Each author becomes a member of the session unless the author is a member
/// already.
fn authors_of(counted: &[CountedMessage]) -> Vec<Membership> {
    let authors = counted.iter().filter_map(|counted| counted.message.author.as_ref());
    let mut seen = HashSet::new();
    let new = authors.filter(|author| !author.is_empty() && seen.insert(*author));
    new.map(|author| Membership::Join(Arc::clone(author), None)).collect()
}

impl SessionRow {
    /// Updates the number of skipped messages for a new message. If one message of a call batch is skipped, all
    /// messages of the batch count as skipped.
    pub(super) fn count_skipped(&mut self, outline: &Outline) {
        if outline.cut >= Cut::InLoop {
            (self.batch_from, self.batch_skipped) = (outline.seq, false);
        }
        if self.batch_skipped {
            self.skipped = self.skipped.saturating_add(1);
        } else if outline.skip {
            self.batch_skipped = true;
            let batch = outline.seq.saturating_sub(self.batch_from).saturating_add(1);
            self.skipped = self.skipped.saturating_add(batch);
        }
    }
}

/// Creates a session from these messages, with this metadata, and with the settings and attributes of the session
/// `from`. Returns false if the session exists already.
pub(super) async fn create(
    shared: &Arc<Shared>,
    key: &SessionKey,
    messages: Vec<Message>,
    from: &SessionRow,
    metadata: serde_json::Map<String, serde_json::Value>,
) -> Result<bool, Error> {
    let state = shared.store.session_state(key, Load::default()).await?;
    let settings = shared.settings_of(&state.workspace_settings, &from.settings)?;
    let counted = count(Arc::new(messages), settings.encoding).await?;
    let (engine, document, attributes) = (Arc::clone(shared), from.settings.clone(), from.attributes.clone());
    let decide = move |state: &SessionState| {
        if state.session.is_some() {
            return Ok((None, false));
        }
        let mut changes = changes_of_append(&engine, state, &settings, &counted);
        if let Some(session) = &mut changes.session {
            session.settings.clone_from(&document);
            session.metadata.clone_from(&metadata);
            session.attributes.clone_from(&attributes);
        }
        Ok((Some(changes), true))
    };
    Ok(shared.change(key, Load::default(), decide).await?.0)
}

/// Returns the row of a session without messages.
pub(super) fn new_session(encoding: Encoding, now: Timestamp) -> SessionRow {
    let encoding = encoding.name().to_owned();
    SessionRow { encoding, batch_from: 1, created: now, updated: now, ..SessionRow::default() }
}

/// Returns the slots of a session: the stored slots, and new rows for the other slots that the settings define. If the
/// session has messages already, the trigger of a new slot counts only messages from now on. The first summary of the
/// new slot will also cover all earlier messages.
pub(super) fn session_slots(state: &SessionState, settings: &Settings) -> Vec<SlotRow> {
    let mut slots = state.slots.clone();
    let head = state.session.as_ref().map_or(0, |row| row.tracker.head());
    for config in &settings.slots {
        let slot = &config.slot;
        if state.slot(&slot.scope, &slot.name).is_none() {
            let mut row = SlotRow::new(slot.scope.clone(), &slot.name);
            if head > 0 {
                row.state.undo(0, head, state.now);
            }
            slots.push(row);
        }
    }
    slots
}
