//! The first window of a session that this node has read nothing of: two statements, where nothing about it is unusual.
//!
//! The first tells where the session stands, the second reads its newest messages with their words. Messages never change but
//! for their flags and notes, which count up the session's revision; so both are as of the first one's moment where that is
//! the same in the second. Whatever cannot be told from these two is read the long way.

use std::collections::BTreeMap;

use epitome_core::message::{Message, Seq};
use epitome_core::outline::Outline;
use epitome_core::slot::Scope;
use epitome_core::track::Tracker;

use super::super::asked::{Look, Reach, Window};
use super::super::changes::Standing;
use super::super::decode::{self, AFTER_OUTLINE, OUTLINE, ReadRow, SUMMARY_TEXT, outline, with_words};
use super::super::given::{Given, int};
use super::super::rows::{SessionKey, SummaryRow};
use super::super::tail::{Tail, at_end, covered, floor, shown};
use super::Postgres;
use super::error::Outcome;
use super::pipe::Pipe;
use super::recent::Held;
use super::rows::{AFTER_SESSION, SESSION, get};
use super::tx::NOW;
use super::window::{Found, of};

/// So many of the first messages are read for those that lead.
const LEADING: u64 = 8;

/// So many of the newest at least, and where it is more than this the long way is taken.
const NEWEST: (u64, u64) = (16, 1_024);

/// So many bytes of words are read at once at most: of more messages only shorter ones, and others the long way.
const MOST_BYTES: u64 = 4 << 20;

/// How many columns [`SUMMARY_TEXT`] has.
const AFTER_SUMMARY: usize = 10;

/// A message that was read: its shape, and its words where these were read too.
type Read = (Outline, Option<Message>);

impl Postgres {
    /// Reads a session's own window, up to now; nothing where it is to be read the long way.
    pub(super) async fn window_fresh(&self, key: &SessionKey, look: &Look) -> Outcome<Option<Found>> {
        let Some((standing, revision, summaries)) = self.stands(key).await? else {
            return Ok(Some(Found::Nothing));
        };
        let (Some(reach), Some(session)) = (look(&standing), &standing.session) else {
            return Ok(Some(Found::Nothing));
        };
        let (id, tracker) = (session.id, &session.tracker);
        self.known.named(key, id);
        let head = tracker.head();
        let floor = floor(reach, &summaries);
        let newest = likely(tracker, reach, floor).min(head);
        if newest > NEWEST.1 {
            return Ok(None);
        }
        let after = head.saturating_sub(newest);
        // Of those before, the ones that may lead, and the one that opened the turn under way: it may be a long one.
        let opener = Some(session.opener).filter(|opener| (LEADING + 1..=after).contains(opener));
        let before: Vec<i64> = (1..=LEADING.min(after)).chain(opener).map(int).collect();
        let expected = before.len() as u64 + head.saturating_sub(after);
        let longest = MOST_BYTES / expected.max(1);
        // In no order: that would have to be made. Nothing where something is pinned.
        let columns = format!(
            "{OUTLINE}, CASE WHEN octet_length(body) <= $5 THEN body END, opener, \
             (SELECT revision FROM epitome.sessions WHERE id = $1 AND state = 'open')"
        );
        let unpinned = "NOT EXISTS (SELECT 1 FROM epitome.messages WHERE session = $1 AND pinned)";
        let sql = format!(
            "SELECT {columns} FROM epitome.messages WHERE {unpinned} AND session = $1 AND seq > $3 AND seq <= $4 UNION ALL \
             SELECT {columns} FROM epitome.messages WHERE {unpinned} AND session = $1 AND seq = ANY($2)"
        );
        let given = [id.into(), Given::Ints(before), after.into(), head.into(), longest.into()];
        let found = self.once(Pipe::new().then(sql, given)).await?;
        let found = found.first().map_or(&[][..], Vec::as_slice);
        let now = found.first().map(|row| get::<Option<i64>>(row, AFTER_OUTLINE + 2)).transpose()?;
        if now.flatten() != Some(revision) || found.len() as u64 != expected {
            return Ok(None);
        }
        let mut openers = BTreeMap::new();
        let mut read: BTreeMap<Seq, Read> = BTreeMap::new();
        for row in found {
            let outline = outline(row)?;
            // What cannot be read may not have to be.
            let words = with_words(&outline, row, AFTER_OUTLINE).ok();
            openers.insert(outline.seq, row.uint(AFTER_OUTLINE + 1)?);
            read.insert(outline.seq, (outline, words.map(|(message, _)| message)));
        }
        let Some(window) = window(standing, reach, summaries, (after, read), &openers) else {
            return Ok(None);
        };
        openers.retain(|seq, _| *seq >= window.from);
        self.known.held(key, window.tail.len());
        self.recent.put(key, Held::of(&window, revision, reach, openers));
        Ok(Some(Found::Window(Box::new(window))))
    }

    /// Where a session stands, at which revision, and the summaries that stand.
    async fn stands(&self, key: &SessionKey) -> Outcome<Option<(Standing, i64, Vec<SummaryRow>)>> {
        let sql = format!(
            "SELECT y.*, {}, s.revision, w.settings, ({NOW}) FROM epitome.sessions s \
             JOIN epitome.workspaces w ON w.name = s.workspace LEFT JOIN LATERAL (SELECT {SUMMARY_TEXT} \
             FROM epitome.summaries WHERE session = s.id AND scope = '' AND state = 'standing') y ON true \
             WHERE s.workspace = $1 AND s.name = $2 AND s.state = 'open' ORDER BY y.slot",
            of("s", SESSION)
        );
        let given = [(&*key.workspace).into(), (&*key.session).into()];
        let found = self.once(Pipe::new().then(sql, given)).await?;
        let found = found.first().map_or(&[][..], Vec::as_slice);
        let Some(row) = found.first() else { return Ok(None) };
        let beside = AFTER_SUMMARY + AFTER_SESSION;
        let standing = Standing::bare(
            self.moment(get(row, beside + 2)?),
            get(row, beside + 1)?,
            Some(decode::session_at(row, AFTER_SUMMARY)?),
        );
        let is_one = |row: &&tokio_postgres::Row| get::<Option<i64>>(row, 0).is_ok_and(|id| id.is_some());
        let summaries =
            found.iter().filter(is_one).map(|row| decode::summary(row)).collect::<Outcome<Vec<_>>>()?;
        Ok(Some((standing, get(row, beside)?, summaries)))
    }
}

/// How many of the newest messages are likely to be enough: by how long they are on average, and some more.
fn likely(tracker: &Tracker, reach: Reach, floor: Option<Seq>) -> u64 {
    let head = tracker.head().max(1);
    let by_tokens = u128::from(reach.tokens) * u128::from(head) / u128::from(tracker.tokens().max(1));
    let by_tokens = u64::try_from(by_tokens + by_tokens / 8).unwrap_or(u64::MAX);
    // What a summary covers is not looked at, but for where the turn under way began.
    let uncovered = floor.map_or(u64::MAX, |floor| head.saturating_sub(floor));
    by_tokens.min(uncovered).saturating_add(NEWEST.0)
}

/// The window, from all messages after one and some of the first; nothing where these are not enough.
fn window(
    standing: Standing,
    reach: Reach,
    summaries: Vec<SummaryRow>,
    (after, mut read): (Seq, BTreeMap<Seq, Read>),
    openers: &BTreeMap<Seq, Seq>,
) -> Option<Window> {
    let session = standing.session.as_ref()?;
    let outlines = || read.values().map(|(outline, _)| outline);
    let leading: Vec<Outline> = outlines().take_while(|outline| outline.leading).cloned().collect();
    // There may be more of them.
    if leading.len() as u64 >= LEADING && after > 0 {
        return None;
    }
    let floor = floor(reach, &summaries);
    let mut tail = Tail::new(false, reach.tokens, floor, &[]);
    let enough =
        outlines().rev().take_while(|outline| outline.seq > after).any(|outline| !tail.take(outline.clone()));
    if !enough && after > 0 {
        return None;
    }
    let (tail, from) = tail.done();
    let begins = tail.first().filter(|first| first.turn > 0 && !first.opens_turn && from > 1);
    let opener = match begins.map(|begins| (begins, openers.get(&begins.seq).copied().unwrap_or(0))) {
        None | Some((_, 0)) => None,
        Some((begins, seq)) => {
            let (opener, _) = read.get(&seq)?;
            Some(opener.clone()).filter(|opener| opener.turn == begins.turn && opener.seq < from)
        }
    };
    let covered = covered(reach, &summaries);
    let shown: Vec<Seq> = shown(false, leading.iter().chain(&opener), &tail, covered).into_keys().collect();
    let words: Option<Vec<Message>> =
        shown.iter().map(|seq| read.remove(seq).and_then(|(_, words)| words)).collect();
    let (end, open_calls) = at_end(&session.tracker, &Scope::Session);
    Some(Window {
        leading,
        pinned: Vec::new(),
        opener,
        from,
        end,
        open_calls,
        skipped: session.skipped,
        summaries,
        words: words?,
        tail,
        standing,
    })
}
