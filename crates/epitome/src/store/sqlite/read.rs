//! Reading messages and summaries by their session's number.

use epitome_core::message::{Message, Seq, Span};
use epitome_core::slot::Scope;
use rusqlite::Connection;

use super::super::asked::{Ahead, Filling, Pick, PickSummaries, Portion};
use super::super::decode;
use super::super::rows::{SessionId, SessionRow, SummaryRow};
use super::super::statements;
use super::super::tail::at_end;
use super::change;
use super::error::Outcome;
use super::lens::Lens;
use super::rows::{SESSION, all, first, first_of};

/// Whether there is anything of a session to be seen: one that was deleted may still be partly there.
fn is_there(db: &Connection, id: SessionId) -> Outcome<bool> {
    Ok(first(db, &statements::is_there(id), |_| Ok(()))?.is_some())
}

pub(super) fn ahead(
    db: &Connection,
    id: SessionId,
    scope: &Scope,
    after: Seq,
    limit: usize,
) -> Outcome<Ahead> {
    let sql = format!("SELECT {SESSION} FROM sessions WHERE id = ?1 AND state = 'open'");
    let row: Option<SessionRow> = first_of(db, &sql, [id], decode::session)?;
    if row.is_none() && !is_there(db, id)? {
        return Ok(Ahead { log: Vec::new(), end: None });
    }
    let lens = Lens::new(db, id, scope);
    let mut log = Vec::new();
    // Where a copy will end is not known before it is shown.
    let mut more = row.is_none();
    let last = row.as_ref().map_or(Seq::MAX, |row| row.tracker.head());
    if let Some(within) = Span::new(after.saturating_add(1), last) {
        lens.walk(within, false, |outline| {
            let fits = log.len() < limit;
            if fits {
                log.push(outline);
            }
            more |= !fits;
            fits
        })?;
    }
    let end = row.filter(|_| !more).map(|row| at_end(&row.tracker, scope).0);
    Ok(Ahead { log, end })
}

pub(super) fn messages(db: &Connection, id: SessionId, pick: &Pick) -> Outcome<Portion<Message>> {
    if !is_there(db, id)? {
        return Ok(Portion::default());
    }
    match pick {
        Pick::Seqs(seqs) => {
            let (lens, mut found) = (Lens::whole(db, id), Portion::default());
            for seq in seqs {
                found.items.extend(lens.one(*seq)?.map(|(message, _)| message));
            }
            Ok(found)
        }
        Pick::Page { scope, within, reverse, limit, bytes } => {
            let mut found = Filling::new(*limit, *bytes);
            Lens::new(db, id, scope).read(*within, *reverse, |message, bytes| {
                found.take(message, bytes);
                !found.is_over()
            })?;
            Ok(found.done())
        }
    }
}

pub(super) fn summaries(db: &Connection, id: SessionId, pick: &PickSummaries) -> Outcome<Vec<SummaryRow>> {
    if !is_there(db, id)? {
        return Ok(Vec::new());
    }
    let ids = match pick {
        PickSummaries::Ids(ids) => ids.clone(),
        _ => all(db, &statements::summary_ids(id, pick), |row| row.int(0))?,
    };
    let mut found = Vec::new();
    for wanted in ids {
        found.extend(change::summary(db, id, wanted)?);
    }
    Ok(found)
}
