//! Reads messages and summaries of a session by its id.

use epitome_core::message::{Message, Seq, Span};
use epitome_core::slot::Scope;

use super::decode::{self, OUTLINE, RowRef, SESSION, SUMMARY, outline, scope_text};
use super::executor::{self, Executor, SqlBatch};
use super::log_query::LogQuery;
use super::op_error::OpResult;
use super::query_types::{OutlinesAfter, PickMessages, PickSummaries, Portion, PortionBuilder};
use super::rows::{SessionId, SummaryId, SummaryRow};
use super::sql::Sql;
use super::sql_params::{SqlParam, int};
use super::window_tail::cut_at_end;

/// Maximum number of messages that are read with their text at a time.
const PAGE_SIZE: usize = 200;

/// A query that returns a row if the session is not deleted. The other rows of a deleted session may still exist, so
/// reads run this check.
const NOT_DELETED: &str = "SELECT 1 FROM epitome.sessions WHERE id = $1 AND state <> 'gone'";

/// Reads at most `limit` outlines of a scope's messages, starting after message `after`.
pub(super) async fn outlines_after(
    db: &mut dyn Executor,
    id: SessionId,
    scope: &Scope,
    after: Seq,
    limit: usize,
) -> OpResult<OutlinesAfter> {
    let sql = format!("SELECT {SESSION} FROM epitome.sessions WHERE id = $1 AND state = 'open'");
    let (mut row, mut exists, mut log) = (None, false, Vec::new());
    let outlines = LogQuery::new(id, scope).outlines(
        (after.saturating_add(1), Seq::MAX),
        false,
        limit.saturating_add(1),
    );
    let batch = SqlBatch::new()
        .first(Sql::new(sql, [id.into()]), &mut row, decode::session)
        .any(Sql::new(NOT_DELETED, [id.into()]), &mut exists)
        .all(outlines, &mut log, outline);
    db.finish(batch).await?;
    if !exists {
        return Ok(OutlinesAfter { log: Vec::new(), end: None });
    }
    // The end of a hidden copy is unknown until the copy becomes visible.
    let end = row.filter(|_| log.len() <= limit).map(|row| cut_at_end(&row.tracker, scope).0);
    log.truncate(limit);
    Ok(OutlinesAfter { log, end })
}

pub(super) async fn messages(
    db: &mut dyn Executor,
    id: SessionId,
    pick: &PickMessages,
) -> OpResult<Portion<Message>> {
    let (log_query, mut within, reverse, limit, bytes) = match pick {
        PickMessages::Seqs(seqs) => return messages_by_seq(db, id, seqs).await,
        PickMessages::Page { scope, within, reverse, limit, bytes } => {
            (LogQuery::new(id, scope), *within, *reverse, *limit, *bytes)
        }
    };
    let mut builder = PortionBuilder::new(limit, bytes);
    let mut size = limit.saturating_add(1).min(db.page_size(PAGE_SIZE));
    loop {
        let (mut exists, mut seen, mut last) = (false, 0, None);
        let portion = &mut builder;
        let each = |row: RowRef<'_>| {
            let (message, bytes) = decode::message_row(row)?;
            (seen, last) = (seen + 1, Some(message.seq));
            portion.push(message, bytes);
            Ok(!portion.is_full())
        };
        let sql = log_query.page(within, reverse, (size, bytes));
        db.run(SqlBatch::new().any(Sql::new(NOT_DELETED, [id.into()]), &mut exists).each(sql, each)).await?;
        if !exists {
            return Ok(Portion::default());
        }
        let rest = last.filter(|_| seen >= size && !builder.is_full()).and_then(|last| match reverse {
            true => Span::new(within.from, last.saturating_sub(1)),
            false => Span::new(last.saturating_add(1), within.through),
        });
        let Some(rest) = rest else { return Ok(builder.build()) };
        (within, size) = (rest, db.page_size(PAGE_SIZE));
    }
}

async fn messages_by_seq(db: &mut dyn Executor, id: SessionId, seqs: &[Seq]) -> OpResult<Portion<Message>> {
    let sql = format!(
        "SELECT {OUTLINE}, body FROM epitome.messages WHERE session = $1 AND seq = ANY($2) AND EXISTS ({NOT_DELETED}) ORDER BY seq"
    );
    let sql = Sql::new(sql, [id.into(), SqlParam::Ints(seqs.iter().map(|seq| int(*seq)).collect())]);
    let mut items = Vec::new();
    db.finish(SqlBatch::new().all(sql, &mut items, |row| Ok(decode::message_row(row)?.0))).await?;
    Ok(Portion { items, more: false })
}

/// Returns the query for the summaries of this session with these ids.
pub(super) fn summaries_by_id<'a>(session: SessionId, ids: &[SummaryId]) -> Sql<'a> {
    let sql = format!(
        "SELECT {SUMMARY} FROM epitome.summaries WHERE session = $1 AND id = ANY($2) AND EXISTS ({NOT_DELETED})"
    );
    Sql::new(sql, [session.into(), SqlParam::Ints(ids.to_vec())])
}

/// Sorts summaries into the order of the requested ids.
pub(super) fn sort_by_ids(mut found: Vec<SummaryRow>, ids: &[SummaryId]) -> Vec<SummaryRow> {
    found.sort_by_key(|row| ids.iter().position(|id| *id == row.id));
    found
}

pub(super) async fn summaries(
    db: &mut dyn Executor,
    id: SessionId,
    pick: &PickSummaries,
) -> OpResult<Vec<SummaryRow>> {
    let ids = match pick {
        PickSummaries::Ids(ids) => ids.clone(),
        _ => executor::all(db, summary_ids(id, pick), |row| row.int(0)).await?,
    };
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    db.finish(SqlBatch::new().all(summaries_by_id(id, &ids), &mut found, decode::summary)).await?;
    Ok(sort_by_ids(found, &ids))
}

/// Returns the query for the ids of the requested summaries, in the requested order. An index provides this order,
/// because sorting rows with their text would be expensive.
fn summary_ids(session: SessionId, pick: &PickSummaries) -> Sql<'_> {
    match pick {
        PickSummaries::Ids(_) | PickSummaries::Current => {
            let sql = "SELECT id FROM epitome.summaries INDEXED BY summaries_standing \
                 WHERE session = $1 AND state = 'standing' ORDER BY scope, slot";
            Sql::new(sql, [session.into()])
        }
        PickSummaries::History { slot: None, before, limit } => {
            let sql = "SELECT id FROM epitome.summaries INDEXED BY summaries_by_number \
                 WHERE session = $1 AND id < $2 ORDER BY id DESC LIMIT $3";
            Sql::new(sql, [session.into(), before.unwrap_or(i64::MAX).into(), (*limit).into()])
        }
        PickSummaries::History { slot: Some((scope, name)), before, limit } => {
            let sql = "SELECT id FROM epitome.summaries INDEXED BY summaries_by_slot \
                 WHERE session = $1 AND scope = $2 AND slot = $3 AND id < $4 ORDER BY id DESC LIMIT $5";
            let (scope, name) = (scope_text(scope).into(), name.as_str().into());
            let before = before.unwrap_or(i64::MAX).into();
            Sql::new(sql, [session.into(), scope, name, before, (*limit).into()])
        }
    }
}

/// Returns the text of the newest summary that was written for the same model request. The query looks up the request's
/// hash first and then checks the session's workspace, because a workspace may have a million sessions.
pub(super) async fn summary_for_request(
    db: &mut dyn Executor,
    workspace: &str,
    session: SessionId,
    request_hash: &str,
) -> OpResult<Option<String>> {
    let sql = "SELECT text FROM epitome.summaries AS found INDEXED BY summaries_asked WHERE asked = $1 \
         AND state <> 'undone' \
         AND EXISTS (SELECT 1 FROM epitome.sessions WHERE id = found.session AND workspace = $2 AND state = 'open') \
         AND NOT EXISTS (SELECT 1 FROM epitome.summaries INDEXED BY summaries_asked \
         WHERE asked = $1 AND state = 'undone' AND session = $3) ORDER BY kept DESC LIMIT 1";
    let sql = Sql::new(sql, [request_hash.into(), workspace.into(), session.into()]);
    executor::first(db, sql, |row| row.string(0)).await
}
