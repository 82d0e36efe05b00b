//! Reads messages and summaries of a session by its id.

use epitome_core::message::{Message, Seq, Span};
use epitome_core::slot::Scope;

use super::ask::{self, Ask, Batch};
use super::asked::{Ahead, Filling, Pick, PickSummaries, Portion};
use super::decode::{self, Found, OUTLINE, SESSION, SUMMARY, outline, scope_text};
use super::given::{Given, int};
use super::lens::Lens;
use super::rows::{SessionId, SummaryId, SummaryRow};
use super::sql::Sql;
use super::tail::at_end;
use super::trouble::Outcome;

/// Maximum number of messages with text read at a time.
const PAGE: usize = 200;

/// Checks that a session is not deleted: some rows of a deleted session may still exist.
const IS_THERE: &str = "SELECT 1 FROM epitome.sessions WHERE id = $1 AND state <> 'gone'";

pub(super) async fn ahead(
    ask: &mut dyn Ask,
    id: SessionId,
    scope: &Scope,
    after: Seq,
    limit: usize,
) -> Outcome<Ahead> {
    let sql = format!("SELECT {SESSION} FROM epitome.sessions WHERE id = $1 AND state = 'open'");
    let (mut row, mut there, mut log) = (None, false, Vec::new());
    let shapes =
        Lens::new(id, scope).shapes((after.saturating_add(1), Seq::MAX), false, limit.saturating_add(1));
    let batch = Batch::new()
        .first(Sql::new(sql, [id.into()]), &mut row, decode::session)
        .any(Sql::new(IS_THERE, [id.into()]), &mut there)
        .all(shapes, &mut log, outline);
    ask.finish(batch).await?;
    if !there {
        return Ok(Ahead { log: Vec::new(), end: None });
    }
    // The end of a hidden copy is unknown until it becomes visible.
    let end = row.filter(|_| log.len() <= limit).map(|row| at_end(&row.tracker, scope).0);
    log.truncate(limit);
    Ok(Ahead { log, end })
}

pub(super) async fn messages(ask: &mut dyn Ask, id: SessionId, pick: &Pick) -> Outcome<Portion<Message>> {
    let (lens, mut within, reverse, limit, bytes) = match pick {
        Pick::Seqs(seqs) => return by_seq(ask, id, seqs).await,
        Pick::Page { scope, within, reverse, limit, bytes } => {
            (Lens::new(id, scope), *within, *reverse, *limit, *bytes)
        }
    };
    let mut filling = Filling::new(limit, bytes);
    let mut size = limit.saturating_add(1).min(ask.page(PAGE));
    loop {
        let (mut there, mut seen, mut last) = (false, 0, None);
        let filled = &mut filling;
        let each = |row: Found<'_>| {
            let (message, bytes) = decode::words(row)?;
            (seen, last) = (seen + 1, Some(message.seq));
            filled.take(message, bytes);
            Ok(!filled.is_over())
        };
        let sql = lens.page(within, reverse, (size, bytes));
        ask.ask(Batch::new().any(Sql::new(IS_THERE, [id.into()]), &mut there).each(sql, each)).await?;
        if !there {
            return Ok(Portion::default());
        }
        let rest = last.filter(|_| seen >= size && !filling.is_over()).and_then(|last| match reverse {
            true => Span::new(within.from, last.saturating_sub(1)),
            false => Span::new(last.saturating_add(1), within.through),
        });
        let Some(rest) = rest else { return Ok(filling.done()) };
        (within, size) = (rest, ask.page(PAGE));
    }
}

async fn by_seq(ask: &mut dyn Ask, id: SessionId, seqs: &[Seq]) -> Outcome<Portion<Message>> {
    let sql = format!(
        "SELECT {OUTLINE}, body FROM epitome.messages WHERE session = $1 AND seq = ANY($2) AND EXISTS ({IS_THERE}) ORDER BY seq"
    );
    let sql = Sql::new(sql, [id.into(), Given::Ints(seqs.iter().map(|seq| int(*seq)).collect())]);
    let mut items = Vec::new();
    ask.finish(Batch::new().all(sql, &mut items, |row| Ok(decode::words(row)?.0))).await?;
    Ok(Portion { items, more: false })
}

/// Selects the summaries with these ids, limited to those of this session.
pub(super) fn by_number<'a>(session: SessionId, ids: &[SummaryId]) -> Sql<'a> {
    let sql = format!(
        "SELECT {SUMMARY} FROM epitome.summaries WHERE session = $1 AND id = ANY($2) AND EXISTS ({IS_THERE})"
    );
    Sql::new(sql, [session.into(), Given::Ints(ids.to_vec())])
}

/// Sorts summaries into the order of the requested ids.
pub(super) fn in_order(mut found: Vec<SummaryRow>, ids: &[SummaryId]) -> Vec<SummaryRow> {
    found.sort_by_key(|row| ids.iter().position(|id| *id == row.id));
    found
}

pub(super) async fn summaries(
    ask: &mut dyn Ask,
    id: SessionId,
    pick: &PickSummaries,
) -> Outcome<Vec<SummaryRow>> {
    let ids = match pick {
        PickSummaries::Ids(ids) => ids.clone(),
        _ => ask::all(ask, summary_ids(id, pick), |row| row.int(0)).await?,
    };
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut found = Vec::new();
    ask.finish(Batch::new().all(by_number(id, &ids), &mut found, decode::summary)).await?;
    Ok(in_order(found, &ids))
}

/// Selects the ids of summaries in the requested order. The order comes from an index alone, because sorting rows with their
/// text would be expensive.
fn summary_ids(session: SessionId, pick: &PickSummaries) -> Sql<'_> {
    match pick {
        PickSummaries::Ids(_) | PickSummaries::Standing => {
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

/// Returns the text of the newest summary that was written for the same model request. The query starts from the request's
/// hash and then checks the session, because a workspace may have a million sessions.
pub(super) async fn recall(
    ask: &mut dyn Ask,
    workspace: &str,
    session: SessionId,
    asked: &str,
) -> Outcome<Option<String>> {
    let sql = "SELECT text FROM epitome.summaries AS found INDEXED BY summaries_asked WHERE asked = $1 \
         AND state <> 'undone' \
         AND EXISTS (SELECT 1 FROM epitome.sessions WHERE id = found.session AND workspace = $2 AND state = 'open') \
         AND NOT EXISTS (SELECT 1 FROM epitome.summaries INDEXED BY summaries_asked \
         WHERE asked = $1 AND state = 'undone' AND session = $3) ORDER BY kept DESC LIMIT 1";
    let sql = Sql::new(sql, [asked.into(), workspace.into(), session.into()]);
    ask::first(ask, sql, |row| row.string(0)).await
}
