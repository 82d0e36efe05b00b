//! Caches recently read windows. A session that only grew then needs only its new messages.
//!
//! A message never changes except for its flags and metadata, and every other change that affects a window increments the
//! session's revision. While the revision is the same, a session's window is the cached one with the new messages at its
//! end. One statement reads both the session and the new messages, so the result is consistent without a transaction.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use epitome_core::message::{Message, Seq};
use epitome_core::outline::{Cut, Outline};
use epitome_core::slot::Scope;
use quick_cache::sync::Cache;
use quick_cache::{OptionsBuilder, Weighter};

use super::ask::{Ask, Batch};
use super::asked::{Look, Reach, Window};
use super::changes::Standing;
use super::decode::{self, AFTER_OUTLINE, AFTER_SESSION, Found, OUTLINE, SESSION, outline, with_words};
use super::rows::{SessionId, SessionKey, SummaryRow};
use super::sql::Sql;
use super::tail::{Tail, at_end, covered, floor, shown};
use super::trouble::Outcome;
use super::window::{Numbered, Seen};

/// Maximum number of new messages for which a cached window is extended instead of read again.
const MOST_NEW: usize = 256;

/// Maximum size of a cached window in bytes: 512 KiB.
const LARGEST: usize = 512 << 10;

/// Maximum size of all cached windows together in bytes: 8 MiB.
const MOST: usize = 4 << 20;

/// Approximate overhead of a cache entry in bytes.
const ENTRY: usize = 1 << 10;

/// Maximum number of sessions whose id is cached.
const MOST_NUMBERS: usize = 16_384;

/// A cached window, with the values that must be unchanged for it to be extended.
#[derive(Debug)]
pub(super) struct Held {
    id: SessionId,
    head: Seq,
    revision: i64,
    reach: Reach,
    /// The window without its session's state.
    window: Window,
    /// For each message of the tail, the message that opened its turn.
    openers: BTreeMap<Seq, Seq>,
    bytes: usize,
}

/// The result of extending a cached window.
pub(super) enum Since {
    /// `look` returned `None`.
    Nothing,
    /// There are no new messages.
    Same(Window),
    /// The window with the new messages, and its cache entry, `None` if that is too large.
    Grown(Window, Option<Arc<Held>>),
}

/// Selects the session and the messages after a window, newest first, with the text of as many as fit [`LARGEST`].
static NEW: LazyLock<String> = LazyLock::new(|| {
    let messages = format!(
        "(SELECT m.*, CASE WHEN coalesce(sum(octet_length(body)) OVER (ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING \
         AND 1 PRECEDING), 0) <= {LARGEST} THEN body END AS words FROM (SELECT * FROM epitome.messages \
         WHERE session = $3 AND seq > $4 ORDER BY seq DESC LIMIT $5) m) n ON true"
    );
    new(&messages, "n.words", "ORDER BY n.seq DESC")
});

/// The query for SQLite, which returns each row as soon as it is read: the reader itself stops at [`LARGEST`] bytes. With a
/// subquery, SQLite would first copy all rows with all their text.
static NEW_IN_FILE: LazyLock<String> = LazyLock::new(|| {
    new("epitome.messages n ON n.session = $3 AND n.seq > $4", "n.body", "ORDER BY n.seq DESC LIMIT $5")
});

/// Number of columns of a new message, which precede those of its session.
const AFTER_NEW: usize = AFTER_OUTLINE + 2;

fn new(messages: &str, words: &str, order: &str) -> String {
    let of = |table: &str, columns: &str| {
        columns.split(", ").map(|column| format!("{table}.{}", column.trim())).collect::<Vec<_>>().join(", ")
    };
    let (outline, session) = (of("n", OUTLINE), of("s", SESSION));
    format!(
        "SELECT {outline}, {words}, n.opener, {session}, s.revision, w.settings FROM epitome.sessions s \
         JOIN epitome.workspaces w ON w.name = s.workspace LEFT JOIN {messages} \
         WHERE s.workspace = $1 AND s.name = $2 AND s.state = 'open' {order}"
    )
}

/// A new message: its outline, the message that opened its turn, and its content.
type New = (Outline, Seq, Message);

impl Held {
    /// Creates a cache entry for a window.
    fn of(window: &Window, revision: i64, reach: Reach, openers: BTreeMap<Seq, Seq>) -> Option<Arc<Self>> {
        let session = window.standing.session.as_ref()?;
        let (id, head) = (session.id, session.tracker.head());
        let standing = Standing::bare(window.standing.now, String::new(), None);
        let window = Window { standing, ..window.clone() };
        let held = Self { id, head, revision, reach, window, openers, bytes: 0 };
        held.sized()
    }

    /// Computes the entry's size; `None` if it is too large to cache.
    fn sized(mut self) -> Option<Arc<Self>> {
        self.bytes = self.size();
        (self.bytes <= LARGEST).then(|| Arc::new(self))
    }

    /// Returns the approximate memory use in bytes.
    fn size(&self) -> usize {
        let Window { leading, pinned, opener, tail, .. } = &self.window;
        let outlines = leading.iter().chain(pinned).chain(opener).chain(tail);
        let outlines = outlines.map(|outline| {
            let author = outline.author.as_ref().map_or(0, |author| author.len().saturating_add(16));
            size_of::<Outline>().saturating_add(author)
        });
        let words =
            self.window.words.iter().map(|message| message.memory().saturating_add(size_of::<Message>()));
        let openers = self.openers.len().saturating_mul(4 * size_of::<Seq>());
        let summaries = self.window.summaries.iter().map(|row| {
            let facts = &row.facts;
            let added = facts.added.iter().map(|name| name.len().saturating_add(size_of::<String>()));
            let focus = facts.focus.as_ref().map_or(0, String::len);
            let texts = [row.text.len(), row.sources.len(), focus];
            texts.into_iter().chain(added).fold(size_of::<SummaryRow>(), usize::saturating_add)
        });
        let all = outlines.chain(words).chain(summaries);
        all.fold(ENTRY.saturating_add(openers), usize::saturating_add)
    }

    /// Returns the session's current window, built from this one and the new messages, and the new cache entry if it
    /// changed. `None` if the window must be read again.
    pub(super) async fn since(
        &self,
        ask: &mut dyn Ask,
        key: &SessionKey,
        look: &Look,
    ) -> Outcome<Option<Since>> {
        let (workspace, name) = ((&*key.workspace).into(), (&*key.session).into());
        let given = [workspace, name, self.id.into(), self.head.into(), (MOST_NEW + 1).into()];
        let (mut found, mut new, mut rows, mut bytes) = (None, Vec::new(), 0, 0);
        let each = |row: Found<'_>| {
            rows += 1;
            if found.is_none() {
                let session = decode::session_at(row, AFTER_NEW)?;
                let beside = AFTER_NEW + AFTER_SESSION;
                found = Some((session, row.int(beside)?, row.string(beside + 1)?));
            }
            if row.maybe_int(0)?.is_some() {
                let outline = outline(row)?;
                // If the text was left out, the limit in bytes was already exceeded.
                if let Some(text) = row.maybe_text(AFTER_OUTLINE)? {
                    bytes += text.len();
                    let (message, _) = with_words(&outline, row, AFTER_OUTLINE)?;
                    new.push((outline, row.uint(AFTER_OUTLINE + 1)?, message));
                }
            }
            Ok(rows <= MOST_NEW && bytes <= LARGEST)
        };
        ask.ask(Batch::new().timed().each(Sql::own(&**NEW, &**NEW_IN_FILE, given), each)).await?;
        let fits = rows <= MOST_NEW && bytes <= LARGEST;
        let Some((session, revision, settings)) = found.filter(|_| fits) else { return Ok(None) };
        let standing = Standing::bare(ask.now().await?, settings, Some(session));
        let Some(reach) = look(&standing) else { return Ok(Some(Since::Nothing)) };
        new.reverse();
        Ok(self.grown(standing, revision, reach, new))
    }

    fn grown(&self, standing: Standing, revision: i64, reach: Reach, new: Vec<New>) -> Option<Since> {
        let (known, session) = (&self.window, standing.session.as_ref()?);
        let same = session.id == self.id
            && revision == self.revision
            && (reach.tokens, reach.deep) == (self.reach.tokens, self.reach.deep);
        let head = session.tracker.head();
        let all = new.iter().map(|(outline, _, _)| outline.seq).eq(self.head.saturating_add(1)..=head);
        // Messages that are flagged or leading change more than the end of the window.
        let plain = new.iter().all(|(outline, _, _)| !outline.pinned && !outline.skip && !outline.leading);
        // The first new message may continue a pinned call batch.
        let joins = new.first().is_some_and(|(outline, _, _)| outline.cut < Cut::InLoop);
        if !same || !all || !plain || (joins && !known.pinned.is_empty()) {
            return None;
        }
        if new.is_empty() {
            return Some(Since::Same(Window { standing, ..known.clone() }));
        }
        let mut openers = self.openers.clone();
        let mut words: BTreeMap<Seq, Message> =
            known.words.iter().map(|message| (message.seq, message.clone())).collect();
        let mut outlines = Vec::with_capacity(new.len());
        for (outline, opener, message) in new {
            openers.insert(outline.seq, opener);
            words.insert(outline.seq, message);
            outlines.push(outline);
        }
        let floor = floor(reach, &known.summaries);
        let mut tail = Tail::new(false, reach.tokens, floor, &known.pinned);
        let mut whole = true;
        for outline in outlines.iter().rev().chain(known.tail.iter().rev()) {
            whole = tail.take(outline.clone());
            if !whole {
                break;
            }
        }
        let (tail, from) = tail.done();
        // If the whole cached tail fits, it starts where it did before: it was already long enough without the new messages.
        let from = if whole { known.from } else { from };
        let opener = self.opener(&tail, from, &openers)?;
        let covered = covered(reach, &known.summaries);
        let ahead = known.leading.iter().chain(&known.pinned).chain(&opener);
        let seqs: Vec<Seq> = shown(false, ahead, &tail, covered).into_keys().collect();
        let words: Option<Vec<Message>> = seqs.iter().map(|seq| words.remove(seq)).collect();
        let (end, open_calls) = at_end(&session.tracker, &Scope::Session);
        let window = Window {
            leading: known.leading.clone(),
            pinned: known.pinned.clone(),
            opener,
            from,
            end,
            open_calls,
            skipped: session.skipped,
            summaries: known.summaries.clone(),
            words: words?,
            tail,
            standing,
        };
        openers.retain(|seq, _| *seq >= from);
        let held = Self::of(&window, revision, reach, openers);
        Some(Since::Grown(window, held))
    }

    /// Returns the message that opened the turn in which the tail starts, if it is not in the tail. `None` if the cached
    /// window does not contain it.
    fn opener(&self, tail: &[Outline], from: Seq, openers: &BTreeMap<Seq, Seq>) -> Option<Option<Outline>> {
        let Some(first) = tail.first().filter(|first| first.turn > 0 && !first.opens_turn && from > 1) else {
            return Some(None);
        };
        let seq = *openers.get(&first.seq)?;
        if seq == 0 {
            return Some(None);
        }
        let known = self.window.tail.iter().chain(&self.window.opener).find(|outline| outline.seq == seq)?;
        Some(Some(known.clone()).filter(|opener| opener.turn == first.turn && opener.seq < from))
    }
}

/// Caches of recently read windows and of session ids.
#[derive(Debug)]
pub struct Recent {
    windows: Cache<SessionKey, Arc<Held>, Bytes>,
    numbers: Cache<SessionKey, Numbered>,
}

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<SessionKey, Arc<Held>> for Bytes {
    fn weight(&self, _: &SessionKey, held: &Arc<Held>) -> u64 {
        held.bytes as u64
    }
}

impl Default for Recent {
    fn default() -> Self {
        // Few shards on any machine: each must fit several entries of the largest size.
        let (items, bytes) = (MOST / LARGEST, MOST as u64);
        let options =
            OptionsBuilder::new().estimated_items_capacity(items).weight_capacity(bytes).shards(2).build();
        let windows = match options {
            Ok(options) => Cache::with_options(options, Bytes, Default::default(), Default::default()),
            Err(_) => Cache::with_weighter(items, bytes, Bytes),
        };
        Self { windows, numbers: Cache::new(MOST_NUMBERS) }
    }
}

impl Recent {
    /// Returns a session's cached window.
    pub(super) fn window(&self, key: &SessionKey) -> Option<Arc<Held>> {
        self.windows.get(key)
    }

    /// Returns a session's cached id.
    pub(super) fn number(&self, key: &SessionKey) -> Option<Numbered> {
        self.numbers.get(key)
    }

    /// Caches the session's id of a window that was read, and the window itself if `again` is set.
    pub(super) fn saw(&self, key: &SessionKey, seen: Seen, again: bool) -> Window {
        let Seen { window, revision, reach, openers } = seen;
        if let Some(session) = &window.standing.session {
            self.numbers.insert(key.clone(), Numbered { id: session.id, held: window.tail.len() });
        }
        if again {
            self.put(key, Held::of(&window, revision, reach, openers.into_iter().collect()));
        }
        window
    }

    /// Replaces a session's cached window; with `None` (too large) only removes it.
    pub(super) fn put(&self, key: &SessionKey, held: Option<Arc<Held>>) {
        match held {
            Some(held) => self.windows.insert(key.clone(), held),
            None => self.forget_window(key),
        }
    }

    pub(super) fn forget_window(&self, key: &SessionKey) {
        self.windows.remove(key);
    }

    /// Removes a deleted session from the caches.
    pub(super) fn forget(&self, key: &SessionKey) {
        self.windows.remove(key);
        self.numbers.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use epitome_core::message::{Media, MediaSource, Part, Role, Timestamp};
    use serde_json::json;

    use super::*;

    /// Returns a cache entry whose window shows only this message.
    fn held(message: Message) -> Option<Arc<Held>> {
        let window = Window {
            standing: Standing::bare(Timestamp(0), String::new(), None),
            leading: Vec::new(),
            pinned: Vec::new(),
            opener: None,
            tail: Vec::new(),
            from: 1,
            end: Cut::Legal,
            open_calls: 0,
            skipped: 0,
            summaries: Vec::new(),
            words: vec![message],
        };
        let reach = Reach { tokens: 1, deep: false };
        let held = Held { id: 1, head: 1, revision: 0, reach, window, openers: BTreeMap::new(), bytes: 0 };
        held.sized()
    }

    #[test]
    fn what_is_kept_of_windows_is_bounded_whatever_is_in_them() {
        let long = "x".repeat(150 << 10);
        let media =
            Media { mime: "image/png".to_owned(), source: MediaSource::Base64(long.clone()), size: None };
        let mut noted = Message::user("short");
        noted.metadata.insert("notes".to_owned(), json!(vec![1; 4_000]));
        let kinds = [
            (long.len(), Message::tool("c", long.clone())),
            (long.len(), Message::new(Role::Assistant, [Part::thinking(long.clone())])),
            (long.len(), Message::new(Role::Assistant, [Part::call("c", "f", long.clone())])),
            (long.len(), Message::new(Role::User, [Part::Media(media)])),
            (4_000 * size_of::<serde_json::Value>(), noted),
            (1 << 10, Message::user("short")),
        ];
        for (real, message) in kinds {
            let recent = Recent::default();
            let mut kept = 0;
            for session in 0..2 * MOST / real {
                recent.put(&SessionKey::new("w", session.to_string()), held(message.clone()));
                kept = recent.windows.len();
            }
            assert!(kept * real <= MOST, "{kept} of {real} bytes");
            assert!(kept * real > MOST / 2, "{kept} of {real} bytes");
        }
        assert!(held(Message::tool("c", "x".repeat(LARGEST + 1))).is_none());
    }

    #[test]
    fn the_window_that_is_asked_for_stays_and_the_others_go() {
        let recent = Recent::default();
        let key = |session: usize| SessionKey::new("w", session.to_string());
        let text = "x".repeat(100 << 10);
        for session in 0..2_000 {
            recent.put(&key(session), held(Message::user(&text)));
            assert!(recent.window(&key(0)).is_some());
        }
        let kept = (1..2_000).filter(|session| recent.window(&key(*session)).is_some()).count();
        assert!(kept < MOST / (100 << 10), "{kept} others");
        // A window that is too large to cache also removes the old entry.
        recent.put(&key(0), held(Message::user(text.repeat(20))));
        assert!(recent.window(&key(0)).is_none());
    }
}
