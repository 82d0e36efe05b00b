//! Caches recently read windows. If a session has only grown since its window was read, the next window needs only the
//! new messages.
//!
//! New messages do not increment the session's revision, but every other change that affects a window does. So while
//! the revision is the same, a session's window is the cached window with the new messages at its end. One statement
//! reads the session's row and the new messages, so the result is consistent without a transaction.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use epitome_core::message::{Message, Seq};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;
use quick_cache::sync::Cache;
use quick_cache::{OptionsBuilder, Weighter};

use super::changes::SessionState;
use super::decode::{self, AFTER_OUTLINE, AFTER_SESSION, OUTLINE, RowRef, SESSION, message_at, outline};
use super::executor::{Executor, SqlBatch};
use super::op_error::OpResult;
use super::query_types::{DecideReach, Reach, Window};
use super::rows::{SessionId, SessionKey, SummaryRow};
use super::sql::Sql;
use super::window::{ReadWindow, SessionHint};
use super::window_tail::{TailBuilder, cut_at_end, first_uncovered, last_covered, messages_to_read};

/// Maximum number of new messages by which a cached window is extended. If there are more new messages, the whole
/// window is read again.
const MAX_NEW: usize = 256;

/// Maximum size of a cached window in bytes: 512 KiB.
const MAX_WINDOW: usize = 512 << 10;

/// Maximum size of all cached windows together in bytes: 4 MiB.
const MAX_TOTAL: usize = 4 << 20;

/// Approximate overhead of a cache entry in bytes.
const ENTRY_OVERHEAD: usize = 1 << 10;

/// Maximum number of sessions whose id and window length are cached.
const MAX_HINTS: usize = 16_384;

/// A cached window, with the values on which it depends. If one of these values has changed, the window cannot be
/// extended.
#[derive(Debug)]
pub(super) struct CachedWindow {
    id: SessionId,
    head: Seq,
    revision: i64,
    reach: Reach,
    /// The window without its session's state.
    window: Window,
    /// For each message of the tail: the number of the message that opened its turn.
    openers: BTreeMap<Seq, Seq>,
    bytes: usize,
}

/// The result of extending a cached window.
pub(super) enum Extended {
    /// The caller's [`DecideReach`] returned `None`.
    Declined,
    /// There are no new messages.
    Same(Window),
    /// The window with the new messages, and its cache entry. The entry is `None` if the window is too large to cache.
    Grown(Window, Option<Arc<CachedWindow>>),
}

/// The query for a session's row and the messages after its cached window, newest first, for PostgreSQL. The text of
/// the oldest messages is NULL if the newer messages already have more than [`MAX_WINDOW`] bytes.
static NEW_MESSAGES: LazyLock<String> = LazyLock::new(|| {
    let from = format!(
        "(SELECT m.*, CASE WHEN coalesce(sum(octet_length(body)) OVER (ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING \
         AND 1 PRECEDING), 0) <= {MAX_WINDOW} THEN body END AS words FROM (SELECT * FROM epitome.messages \
         WHERE session = $3 AND seq > $4 ORDER BY seq DESC LIMIT $5) m) n ON true"
    );
    new_messages_sql(&from, "n.words", "ORDER BY n.seq DESC")
});

/// The query of [`NEW_MESSAGES`] for SQLite. SQLite returns rows one by one, so the caller stops at [`MAX_WINDOW`]
/// bytes. With a subquery, SQLite would first copy all rows with their text.
static NEW_MESSAGES_IN_FILE: LazyLock<String> = LazyLock::new(|| {
    new_messages_sql(
        "epitome.messages n ON n.session = $3 AND n.seq > $4",
        "n.body",
        "ORDER BY n.seq DESC LIMIT $5",
    )
});

/// Number of columns of a new message. In each row, the columns of the session come after these columns.
const AFTER_NEW: usize = AFTER_OUTLINE + 2;

fn new_messages_sql(from: &str, text: &str, order: &str) -> String {
    let prefixed = |table: &str, columns: &str| {
        columns.split(", ").map(|column| format!("{table}.{}", column.trim())).collect::<Vec<_>>().join(", ")
    };
    let (outline, session) = (prefixed("n", OUTLINE), prefixed("s", SESSION));
    format!(
        "SELECT {outline}, {text}, n.opener, {session}, s.revision, w.settings FROM epitome.sessions s \
         JOIN epitome.workspaces w ON w.name = s.workspace LEFT JOIN {from} \
         WHERE s.workspace = $1 AND s.name = $2 AND s.state = 'open' {order}"
    )
}

/// A new message: its outline, the message that opened its turn, and its content.
type AppendedMessage = (Outline, Seq, Message);

impl CachedWindow {
    /// Creates a cache entry for a window.
    fn of(window: &Window, revision: i64, reach: Reach, openers: BTreeMap<Seq, Seq>) -> Option<Arc<Self>> {
        let session = window.state.session.as_ref()?;
        let (id, head) = (session.id, session.tracker.head());
        let state = SessionState::bare(window.state.now, String::new(), None);
        let window = Window { state, ..window.clone() };
        let entry = Self { id, head, revision, reach, window, openers, bytes: 0 };
        entry.with_size()
    }

    /// Computes the entry's size. Returns `None` if the entry is too large to cache.
    fn with_size(mut self) -> Option<Arc<Self>> {
        self.bytes = self.size();
        (self.bytes <= MAX_WINDOW).then(|| Arc::new(self))
    }

    /// Returns the approximate memory use in bytes.
    fn size(&self) -> usize {
        let Window { leading, pinned, opener, tail, .. } = &self.window;
        let outlines = leading.iter().chain(pinned).chain(opener).chain(tail);
        let outlines = outlines.map(|outline| {
            let author = outline.author.as_ref().map_or(0, |author| author.len().saturating_add(16));
            size_of::<Outline>().saturating_add(author)
        });
        let messages =
            self.window.messages.iter().map(|message| message.memory().saturating_add(size_of::<Message>()));
        let openers = self.openers.len().saturating_mul(4 * size_of::<Seq>());
        let summaries = self.window.summaries.iter().map(|row| {
            let facts = &row.facts;
            let added = facts.added.iter().map(|name| name.len().saturating_add(size_of::<String>()));
            let focus = facts.focus.as_ref().map_or(0, String::len);
            let texts = [row.text.len(), row.sources.len(), focus];
            texts.into_iter().chain(added).fold(size_of::<SummaryRow>(), usize::saturating_add)
        });
        let all = outlines.chain(messages).chain(summaries);
        all.fold(ENTRY_OVERHEAD.saturating_add(openers), usize::saturating_add)
    }

    /// Reads the new messages. Returns the session's current window, and a new cache entry if the window has changed.
    /// Returns `None` if the whole window must be read again.
    pub(super) async fn extend(
        &self,
        db: &mut dyn Executor,
        key: &SessionKey,
        decide: &DecideReach,
    ) -> OpResult<Option<Extended>> {
        let (workspace, name) = ((&*key.workspace).into(), (&*key.session).into());
        let params = [workspace, name, self.id.into(), self.head.into(), (MAX_NEW + 1).into()];
        let (mut found, mut new, mut rows, mut bytes) = (None, Vec::new(), 0, 0);
        let each = |row: RowRef<'_>| {
            rows += 1;
            if found.is_none() {
                let session = decode::session_at(row, AFTER_NEW)?;
                let after_session = AFTER_NEW + AFTER_SESSION;
                found = Some((session, row.int(after_session)?, row.string(after_session + 1)?));
            }
            if row.maybe_int(0)?.is_some() {
                let outline = outline(row)?;
                // If the text is NULL, the limit in bytes was already exceeded.
                if let Some(text) = row.maybe_text(AFTER_OUTLINE)? {
                    bytes += text.len();
                    let (message, _) = message_at(&outline, row, AFTER_OUTLINE)?;
                    new.push((outline, row.uint(AFTER_OUTLINE + 1)?, message));
                }
            }
            Ok(rows <= MAX_NEW && bytes <= MAX_WINDOW)
        };
        let sql = Sql::per_database(&**NEW_MESSAGES, &**NEW_MESSAGES_IN_FILE, params);
        db.run(SqlBatch::new().with_time().each(sql, each)).await?;
        let fits = rows <= MAX_NEW && bytes <= MAX_WINDOW;
        let Some((session, revision, settings)) = found.filter(|_| fits) else { return Ok(None) };
        let state = SessionState::bare(db.now().await?, settings, Some(session));
        let Some(reach) = decide(&state) else { return Ok(Some(Extended::Declined)) };
        new.reverse();
        Ok(self.with_new(state, revision, reach, new))
    }

    /// Returns the window with the new messages, which are sorted oldest first. Returns `None` if the whole window must
    /// be read again.
    fn with_new(
        &self,
        state: SessionState,
        revision: i64,
        reach: Reach,
        new: Vec<AppendedMessage>,
    ) -> Option<Extended> {
        let (cached, session) = (&self.window, state.session.as_ref()?);
        let is_same = session.id == self.id
            && revision == self.revision
            && (reach.tokens, reach.deep) == (self.reach.tokens, self.reach.deep);
        let head = session.tracker.head();
        let is_complete =
            new.iter().map(|(outline, _, _)| outline.seq).eq(self.head.saturating_add(1)..=head);
        // Messages that are flagged or leading change more than the end of the window.
        let is_plain = new.iter().all(|(outline, _, _)| !outline.pinned && !outline.skip && !outline.leading);
        // The first new message may continue a pinned call batch.
        let continues_batch = new.first().is_some_and(|(outline, _, _)| outline.cut < Cut::InLoop);
        if !is_same || !is_complete || !is_plain || (continues_batch && !cached.pinned.is_empty()) {
            return None;
        }
        if new.is_empty() {
            return Some(Extended::Same(Window { state, ..cached.clone() }));
        }
        let mut openers = self.openers.clone();
        let mut messages: BTreeMap<Seq, Message> =
            cached.messages.iter().map(|message| (message.seq, message.clone())).collect();
        let mut outlines = Vec::with_capacity(new.len());
        for (outline, opener, message) in new {
            openers.insert(outline.seq, opener);
            messages.insert(outline.seq, message);
            outlines.push(outline);
        }
        let first_uncovered = first_uncovered(reach, &cached.summaries);
        let mut tail = TailBuilder::new(false, reach.tokens, first_uncovered, &cached.pinned);
        let mut all_fit = true;
        for outline in outlines.iter().rev().chain(cached.tail.iter().rev()) {
            all_fit = tail.add(outline.clone());
            if !all_fit {
                break;
            }
        }
        let (tail, from) = tail.build();
        // If the whole cached tail still fits, the new tail starts at the same message. The tail was already long
        // enough without the new messages.
        let from = if all_fit { cached.from } else { from };
        let opener = self.opener(&tail, from, &openers)?;
        let last_covered = last_covered(reach, &cached.summaries);
        let outside_tail = cached.leading.iter().chain(&cached.pinned).chain(&opener);
        let seqs: Vec<Seq> = messages_to_read(false, outside_tail, &tail, last_covered).into_keys().collect();
        let messages: Option<Vec<Message>> = seqs.iter().map(|seq| messages.remove(seq)).collect();
        let (end, open_calls) = cut_at_end(&session.tracker, &Scope::Session);
        let window = Window {
            leading: cached.leading.clone(),
            pinned: cached.pinned.clone(),
            opener,
            from,
            end,
            open_calls,
            skipped: session.skipped,
            summaries: cached.summaries.clone(),
            messages: messages?,
            tail,
            state,
        };
        openers.retain(|seq, _| *seq >= from);
        let entry = Self::of(&window, revision, reach, openers);
        Some(Extended::Grown(window, entry))
    }

    /// Returns the message that opened the turn in which the tail starts. Returns `Some(None)` if no such message is
    /// needed, for example because the tail contains it. Returns `None` if the message is needed, but the cached window
    /// does not contain it.
    fn opener(&self, tail: &[Outline], from: Seq, openers: &BTreeMap<Seq, Seq>) -> Option<Option<Outline>> {
        let Some(first) = tail.first().filter(|first| first.turn > 0 && !first.opens_turn && from > 1) else {
            return Some(None);
        };
        let seq = *openers.get(&first.seq)?;
        if seq == 0 {
            return Some(None);
        }
        let opener = self.window.tail.iter().chain(&self.window.opener).find(|outline| outline.seq == seq)?;
        Some(Some(opener.clone()).filter(|opener| opener.turn == first.turn && opener.seq < from))
    }
}

/// Caches of recently read windows and of session ids.
#[derive(Debug)]
pub struct WindowCache {
    windows: Cache<SessionKey, Arc<CachedWindow>, SizeInBytes>,
    hints: Cache<SessionKey, SessionHint>,
}

#[derive(Debug, Clone)]
struct SizeInBytes;

impl Weighter<SessionKey, Arc<CachedWindow>> for SizeInBytes {
    fn weight(&self, _: &SessionKey, entry: &Arc<CachedWindow>) -> u64 {
        entry.bytes as u64
    }
}

impl Default for WindowCache {
    fn default() -> Self {
        // The number of shards is small on every machine, because each shard must fit several entries of the largest
        // size.
        let (items, bytes) = (MAX_TOTAL / MAX_WINDOW, MAX_TOTAL as u64);
        let options =
            OptionsBuilder::new().estimated_items_capacity(items).weight_capacity(bytes).shards(2).build();
        let windows = match options {
            Ok(options) => Cache::with_options(options, SizeInBytes, Default::default(), Default::default()),
            Err(_) => Cache::with_weighter(items, bytes, SizeInBytes),
        };
        Self { windows, hints: Cache::new(MAX_HINTS) }
    }
}

impl WindowCache {
    /// Returns a session's cached window.
    pub(super) fn window(&self, key: &SessionKey) -> Option<Arc<CachedWindow>> {
        self.windows.get(key)
    }

    /// Returns a session's cached id and window length.
    pub(super) fn hint(&self, key: &SessionKey) -> Option<SessionHint> {
        self.hints.get(key)
    }

    /// Caches a session's id and the length of the window that was read. If `cacheable` is set, also caches the window
    /// itself. Returns the window.
    pub(super) fn add(&self, key: &SessionKey, read: ReadWindow, cacheable: bool) -> Window {
        let ReadWindow { window, revision, reach, openers } = read;
        if let Some(session) = &window.state.session {
            self.hints.insert(key.clone(), SessionHint { id: session.id, window_len: window.tail.len() });
        }
        if cacheable {
            self.put(key, CachedWindow::of(&window, revision, reach, openers.into_iter().collect()));
        }
        window
    }

    /// Replaces a session's cached window. If the new window is too large to cache (`entry` is `None`), only removes
    /// the old window.
    pub(super) fn put(&self, key: &SessionKey, entry: Option<Arc<CachedWindow>>) {
        match entry {
            Some(entry) => self.windows.insert(key.clone(), entry),
            None => self.evict_window(key),
        }
    }

    pub(super) fn evict_window(&self, key: &SessionKey) {
        self.windows.remove(key);
    }

    /// Removes a deleted session from the caches.
    pub(super) fn evict(&self, key: &SessionKey) {
        self.windows.remove(key);
        self.hints.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use epitome_core::message::{Media, MediaSource, Part, Role, Timestamp};
    use serde_json::json;

    use super::*;

    /// Returns a cache entry whose window shows only this message.
    fn entry(message: Message) -> Option<Arc<CachedWindow>> {
        let window = Window {
            state: SessionState::bare(Timestamp(0), String::new(), None),
            leading: Vec::new(),
            pinned: Vec::new(),
            opener: None,
            tail: Vec::new(),
            from: 1,
            end: Cut::Legal,
            open_calls: 0,
            skipped: 0,
            summaries: Vec::new(),
            messages: vec![message],
        };
        let reach = Reach { tokens: 1, deep: false };
        let entry =
            CachedWindow { id: 1, head: 1, revision: 0, reach, window, openers: BTreeMap::new(), bytes: 0 };
        entry.with_size()
    }

    #[test]
    fn cached_windows_stay_below_the_size_limit() {
        let long = "x".repeat(150 << 10);
        let media =
            Media { mime: "image/png".to_owned(), source: MediaSource::Base64(long.clone()), size: None };
        let mut with_metadata = Message::user("short");
        with_metadata.metadata.insert("notes".to_owned(), json!(vec![1; 4_000]));
        let kinds = [
            (long.len(), Message::tool("c", long.clone())),
            (long.len(), Message::new(Role::Assistant, [Part::thinking(long.clone())])),
            (long.len(), Message::new(Role::Assistant, [Part::call("c", "f", long.clone())])),
            (long.len(), Message::new(Role::User, [Part::Media(media)])),
            (4_000 * size_of::<serde_json::Value>(), with_metadata),
            (1 << 10, Message::user("short")),
        ];
        for (size, message) in kinds {
            let cache = WindowCache::default();
            let mut cached = 0;
            for session in 0..2 * MAX_TOTAL / size {
                cache.put(&SessionKey::new("w", session.to_string()), entry(message.clone()));
                cached = cache.windows.len();
            }
            assert!(cached * size <= MAX_TOTAL, "{cached} of {size} bytes");
            assert!(cached * size > MAX_TOTAL / 2, "{cached} of {size} bytes");
        }
        assert!(entry(Message::tool("c", "x".repeat(MAX_WINDOW + 1))).is_none());
    }

    #[test]
    fn a_window_that_is_read_often_stays_cached() {
        let cache = WindowCache::default();
        let key = |session: usize| SessionKey::new("w", session.to_string());
        let text = "x".repeat(100 << 10);
        for session in 0..2_000 {
            cache.put(&key(session), entry(Message::user(&text)));
            assert!(cache.window(&key(0)).is_some());
        }
        let others = (1..2_000).filter(|session| cache.window(&key(*session)).is_some()).count();
        assert!(others < MAX_TOTAL / (100 << 10), "{others} others");
        // A window that is too large to cache also removes the old entry.
        cache.put(&key(0), entry(Message::user(text.repeat(20))));
        assert!(cache.window(&key(0)).is_none());
    }
}
