//! Reading what was asked for by name or number.

use std::sync::Arc;

use epitome_core::message::{Message, Seq};
use epitome_core::slot::Scope;
use rusqlite::{Connection, OptionalExtension, params};

use super::super::{
    Ahead, Filling, Pick, PickSummaries, Portion, SessionId, SessionKey, SessionRow, Stamp, SummaryId,
    SummaryRow, UsageQuery, UsageSum,
};
use super::change;
use super::error::Outcome;
use super::lens::Lens;
use super::rows::{self, SESSION, scope_text, uint};

/// Whether there is anything of a session to be seen: one that was deleted may still be partly there.
pub(super) fn is_there(db: &Connection, id: SessionId) -> Outcome<bool> {
    let sql = "SELECT 1 FROM sessions WHERE id = ?1 AND state <> 'gone'";
    Ok(db.prepare_cached(sql)?.query_row([id], |_| Ok(())).optional()?.is_some())
}

/// Where a session is, as far as contexts go.
pub(super) fn stamp(db: &Connection, key: &SessionKey) -> Outcome<Option<Stamp>> {
    let sql = "SELECT s.id, s.head, s.revision, w.revision FROM sessions s JOIN workspaces w ON w.name = s.workspace \
         WHERE s.workspace = ?1 AND s.name = ?2 AND s.state = 'open'";
    let found = db.prepare_cached(sql)?.query_row(params![key.workspace, key.session], |row| {
        Ok(Stamp {
            session: row.get(0)?,
            head: uint(row, 1)?,
            revision: uint(row, 2)?,
            workspace: uint(row, 3)?,
        })
    });
    Ok(found.optional()?)
}

pub(super) fn ahead(
    db: &Connection,
    id: SessionId,
    scope: &Scope,
    after: Seq,
    limit: usize,
) -> Outcome<Ahead> {
    let sql = format!("SELECT {SESSION} FROM sessions WHERE id = ?1 AND state = 'open'");
    let row: Option<SessionRow> = db.prepare_cached(&sql)?.query_row([id], rows::session).optional()?;
    if row.is_none() && !is_there(db, id)? {
        return Ok(Ahead { log: Vec::new(), end: None });
    }
    let lens = Lens::new(db, id, scope);
    let mut log = Vec::new();
    // Where a copy will end is not known before it is shown.
    let mut more = row.is_none();
    let last = row.as_ref().map_or(Seq::MAX, |row| row.tracker.head());
    if let Some(within) = epitome_core::message::Span::new(after.saturating_add(1), last) {
        lens.walk(within, false, |outline| {
            let fits = log.len() < limit;
            if fits {
                log.push(outline);
            }
            more |= !fits;
            fits
        })?;
    }
    let end = row.filter(|_| !more).map(|row| match scope {
        Scope::Session => row.tracker.cut_at_end(),
        Scope::Author(author) => row.tracker.own_cut_at_end(author),
    });
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
    let ids: Vec<SummaryId> = match pick {
        PickSummaries::Ids(ids) => ids.clone(),
        PickSummaries::Standing => {
            let sql = "SELECT id FROM summaries INDEXED BY summaries_standing \
                 WHERE session = ?1 AND state = 'standing' ORDER BY scope, slot";
            let mut statement = db.prepare_cached(sql)?;
            statement.query_map([id], |row| row.get(0))?.collect::<Result<_, _>>()?
        }
        PickSummaries::History { slot: None, before, limit } => {
            let sql = "SELECT id FROM summaries INDEXED BY summaries_by_number \
                 WHERE session = ?1 AND id < ?2 ORDER BY id DESC LIMIT ?3";
            let given = params![id, before.unwrap_or(i64::MAX), rows::rows(*limit)];
            db.prepare_cached(sql)?.query_map(given, |row| row.get(0))?.collect::<Result<_, _>>()?
        }
        // Numbers are put in order from the index alone; rows with their words would be much to sort.
        PickSummaries::History { slot: Some((scope, name)), before, limit } => {
            let sql = "SELECT id FROM summaries INDEXED BY summaries_by_slot WHERE session = ?1 \
                 AND scope = ?2 AND slot = ?3 AND id < ?4 ORDER BY id DESC LIMIT ?5";
            let before = before.unwrap_or(i64::MAX);
            let given = params![id, scope_text(scope), name, before, rows::rows(*limit)];
            db.prepare_cached(sql)?.query_map(given, |row| row.get(0))?.collect::<Result<_, _>>()?
        }
    };
    let mut found = Vec::new();
    for wanted in ids {
        found.extend(change::summary(db, id, wanted)?);
    }
    Ok(found)
}

/// No name is empty, so all come after nothing.
pub(super) fn workspaces(db: &Connection, after: &str, limit: usize) -> Outcome<Vec<Arc<str>>> {
    let mut statement = db.prepare_cached(
        "SELECT name FROM workspaces WHERE name > ?1 AND deleted = 0 ORDER BY name LIMIT ?2",
    )?;
    let names = statement.query_map(params![after, rows::rows(limit)], |row| row.get::<_, String>(0))?;
    Ok(names.map(|name| name.map(Into::into)).collect::<Result<_, _>>()?)
}

pub(super) fn recall(
    db: &Connection,
    workspace: &str,
    session: SessionId,
    asked: &str,
) -> Outcome<Option<String>> {
    // From what was asked to its session: a workspace may have a million of them.
    let sql = "SELECT text FROM summaries AS found INDEXED BY summaries_asked WHERE asked = ?1 AND state <> 'undone' \
         AND EXISTS (SELECT 1 FROM sessions WHERE id = found.session AND workspace = ?2 AND state = 'open') \
         AND NOT EXISTS (SELECT 1 FROM summaries INDEXED BY summaries_asked \
         WHERE asked = ?1 AND state = 'undone' AND session = ?3) ORDER BY kept DESC LIMIT 1";
    let found = db.prepare_cached(sql)?.query_row(params![asked, workspace, session], |row| row.get(0));
    Ok(found.optional()?)
}

pub(super) fn sessions(
    db: &Connection,
    workspace: &str,
    after: Option<&str>,
    limit: usize,
) -> Outcome<Vec<(Arc<str>, SessionRow)>> {
    let sql = format!(
        "SELECT {SESSION} FROM sessions WHERE workspace = ?1 AND name > ?2 AND state = 'open' \
         ORDER BY name LIMIT ?3"
    );
    // No name is empty, so all come after nothing.
    let given = params![workspace, after.unwrap_or_default(), rows::rows(limit)];
    let mut statement = db.prepare_cached(&sql)?;
    let found =
        statement.query_map(given, |row| Ok((row.get::<_, String>(11)?.into(), rows::session(row)?)))?;
    Ok(found.collect::<Result<_, _>>()?)
}

pub(super) fn usage(db: &Connection, query: &UsageQuery) -> Outcome<Vec<UsageSum>> {
    let session = if query.by_session { "session" } else { "''" };
    let sql = format!(
        "SELECT {session} AS apart, scope, slot, model, outcome, count(*), sum(input), sum(cached), sum(output), \
         sum(cost), sum(millis) FROM usage WHERE workspace = ?1 AND at >= ?2 AND (?3 IS NULL OR session = ?3) \
         GROUP BY apart, scope, slot, model, outcome ORDER BY apart, scope, slot, model, outcome"
    );
    let mut statement = db.prepare_cached(&sql)?;
    let given = params![query.workspace, query.since.0, query.session.as_deref()];
    let found = statement.query_map(given, |row| {
        Ok(UsageSum {
            session: row.get(0)?,
            scope: row.get(1)?,
            slot: row.get(2)?,
            model: row.get(3)?,
            outcome: row.get(4)?,
            calls: uint(row, 5)?,
            input: uint(row, 6)?,
            cached: uint(row, 7)?,
            output: uint(row, 8)?,
            cost: row.get(9)?,
            millis: uint(row, 10)?,
        })
    })?;
    Ok(found.collect::<Result<_, _>>()?)
}
