//! Reading what was asked for by name or number.

use std::sync::Arc;

use epitome_core::message::{Message, Seq, Span};
use epitome_core::slot::Scope;

use super::super::columns::scope_text;
use super::super::{
    Ahead, Filling, Pick, PickSummaries, Portion, SessionId, SessionKey, SessionRow, Stamp, SummaryId,
    SummaryRow, UsageQuery, UsageSum,
};
use super::Postgres;
use super::change::{in_order, summaries_pipe};
use super::error::{Outcome, nonsense};
use super::given::Given;
use super::lens::Lens;
use super::pipe::Pipe;
use super::rows::{self, OUTLINE, SESSION, SESSION_NAME, get, outline, uint};
use super::tx::Tx;

/// So many messages with their words are read at a time.
const PAGE: usize = 200;

/// Whether there is anything of a session to be seen: one that was deleted may still be partly there.
const IS_THERE: &str = "SELECT 1 FROM epitome.sessions WHERE id = $1 AND state <> 'gone'";

fn one<T>(
    found: &[Vec<tokio_postgres::Row>],
    read: impl Fn(&tokio_postgres::Row) -> Outcome<T>,
) -> Outcome<Option<T>> {
    found.first().and_then(|rows| rows.first()).map(read).transpose()
}

impl Postgres {
    /// Where a session is, as far as contexts go.
    pub(super) async fn stamp_once(&self, key: &SessionKey) -> Outcome<Option<Stamp>> {
        let sql = "SELECT s.id, s.head, s.revision, w.revision FROM epitome.sessions s \
             JOIN epitome.workspaces w ON w.name = s.workspace WHERE s.workspace = $1 AND s.name = $2 AND s.state = 'open'";
        let found =
            self.once(Pipe::new().then(sql, [(&*key.workspace).into(), (&*key.session).into()])).await?;
        let stamp = one(&found, |row| {
            Ok(Stamp {
                session: get(row, 0)?,
                head: uint(row, 1)?,
                revision: uint(row, 2)?,
                workspace: uint(row, 3)?,
            })
        })?;
        if let Some(stamp) = &stamp {
            self.known.named(key, stamp.session);
        }
        Ok(stamp)
    }

    /// The number of the session of that name.
    pub(super) async fn number(&self, key: &SessionKey) -> Outcome<Option<SessionId>> {
        let sql = "SELECT id FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open'";
        let found =
            self.once(Pipe::new().then(sql, [(&*key.workspace).into(), (&*key.session).into()])).await?;
        one(&found, |row| get(row, 0))
    }

    pub(super) async fn ahead_once(
        &self,
        id: SessionId,
        scope: &Scope,
        after: Seq,
        limit: usize,
    ) -> Outcome<Ahead> {
        let lens = Lens::new(id, scope);
        let sql = format!("SELECT {SESSION} FROM epitome.sessions WHERE id = $1 AND state = 'open'");
        let mut pipe = Pipe::new().then(sql, [id.into()]).then(IS_THERE, [id.into()]);
        lens.shapes(&mut pipe, (after.saturating_add(1), Seq::MAX), false, limit.saturating_add(1));
        let (tx, found) = Tx::read(self, pipe).await?;
        tx.finish(Pipe::new()).await?;
        let [row, there, shapes] = found.as_slice() else {
            return Err(nonsense("the database answers less than it was asked"));
        };
        if there.is_empty() {
            return Ok(Ahead { log: Vec::new(), end: None });
        }
        let row = row.first().map(rows::session).transpose()?;
        let log = shapes.iter().take(limit).map(outline).collect::<Outcome<Vec<_>>>()?;
        // Where a copy will end is not known before it is shown.
        let end = row.filter(|_| shapes.len() <= limit).map(|row| match scope {
            Scope::Session => row.tracker.cut_at_end(),
            Scope::Author(author) => row.tracker.own_cut_at_end(author),
        });
        Ok(Ahead { log, end })
    }

    pub(super) async fn messages_once(&self, id: SessionId, pick: &Pick) -> Outcome<Portion<Message>> {
        match pick {
            Pick::Seqs(seqs) => {
                let sql = format!(
                    "SELECT {OUTLINE}, body FROM epitome.messages WHERE session = $1 AND seq = ANY($2) ORDER BY seq"
                );
                let wanted = Given::Ints(seqs.iter().map(|seq| super::given::int(*seq)).collect());
                let pipe = Pipe::new().then(IS_THERE, [id.into()]).then(sql, [id.into(), wanted]);
                let found = self.once(pipe).await?;
                let [there, found] = found.as_slice() else { return Ok(Portion::default()) };
                if there.is_empty() {
                    return Ok(Portion::default());
                }
                let items = found.iter().map(|row| Ok(rows::words(row)?.0)).collect::<Outcome<Vec<_>>>()?;
                Ok(Portion { items, more: false })
            }
            Pick::Page { scope, within, reverse, limit, bytes } => {
                let lens = Lens::new(id, scope);
                let mut filling = Filling::new(*limit, *bytes);
                let mut within = *within;
                let mut size = limit.saturating_add(1).min(PAGE);
                loop {
                    let mut pipe = Pipe::new().then(IS_THERE, [id.into()]);
                    lens.page(&mut pipe, within, *reverse, (size, *bytes));
                    let found = self.once(pipe).await?;
                    let [there, found] = found.as_slice() else { break };
                    if there.is_empty() {
                        return Ok(Portion::default());
                    }
                    let mut last = None;
                    for row in found {
                        let (message, bytes) = rows::words(row)?;
                        last = Some(message.seq);
                        filling.take(message, bytes);
                        if filling.is_over() {
                            return Ok(filling.done());
                        }
                    }
                    let Some(last) = last.filter(|_| found.len() >= size) else { break };
                    let rest = match reverse {
                        true => Span::new(within.from, last.saturating_sub(1)),
                        false => Span::new(last.saturating_add(1), within.through),
                    };
                    let Some(rest) = rest else { break };
                    within = rest;
                    size = PAGE;
                }
                Ok(filling.done())
            }
        }
    }

    pub(super) async fn summaries_once(
        &self,
        id: SessionId,
        pick: &PickSummaries,
    ) -> Outcome<Vec<SummaryRow>> {
        let ids = match pick {
            PickSummaries::Ids(ids) => ids.clone(),
            other => self.summary_ids(id, other).await?,
        };
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.once(summaries_pipe(id, &ids).then(IS_THERE, [id.into()])).await?;
        match found.as_slice() {
            [found, there] if !there.is_empty() => in_order(found, &ids),
            _ => Ok(Vec::new()),
        }
    }

    async fn summary_ids(&self, id: SessionId, pick: &PickSummaries) -> Outcome<Vec<SummaryId>> {
        let pipe = match pick {
            PickSummaries::Ids(_) | PickSummaries::Standing => {
                let sql = "SELECT id FROM epitome.summaries WHERE session = $1 AND state = 'standing' ORDER BY scope, slot";
                Pipe::new().then(sql, [id.into()])
            }
            PickSummaries::History { slot: None, before, limit } => {
                let sql = "SELECT id FROM epitome.summaries WHERE session = $1 AND id < $2 ORDER BY id DESC LIMIT $3";
                Pipe::new().then(sql, [id.into(), before.unwrap_or(i64::MAX).into(), (*limit).into()])
            }
            PickSummaries::History { slot: Some((scope, name)), before, limit } => {
                let sql = "SELECT id FROM epitome.summaries WHERE session = $1 AND scope = $2 AND slot = $3 AND id < $4 \
                     ORDER BY id DESC LIMIT $5";
                let before = before.unwrap_or(i64::MAX).into();
                let given =
                    [id.into(), scope_text(scope).into(), name.as_str().into(), before, (*limit).into()];
                Pipe::new().then(sql, given)
            }
        };
        let found = self.once(pipe).await?;
        found.iter().flatten().map(|row| get(row, 0)).collect()
    }

    /// No name is empty, so all come after nothing.
    pub(super) async fn workspaces_once(&self, after: &str, limit: usize) -> Outcome<Vec<Arc<str>>> {
        let sql =
            "SELECT name FROM epitome.workspaces WHERE name > $1 AND NOT deleted ORDER BY name LIMIT $2";
        let found = self.once(Pipe::new().then(sql, [after.into(), limit.into()])).await?;
        found.iter().flatten().map(|row| Ok(get::<&str>(row, 0)?.into())).collect()
    }

    pub(super) async fn workspace_once(&self, workspace: &str) -> Outcome<String> {
        let sql = "SELECT settings FROM epitome.workspaces WHERE name = $1";
        let found = self.once(Pipe::new().then(sql, [workspace.into()])).await?;
        Ok(one(&found, |row| get(row, 0))?.unwrap_or_default())
    }

    pub(super) async fn recall_once(
        &self,
        workspace: &str,
        session: SessionId,
        asked: &str,
    ) -> Outcome<Option<String>> {
        let sql = "SELECT text FROM epitome.summaries AS found WHERE asked = $1 AND state <> 'undone' \
             AND EXISTS (SELECT 1 FROM epitome.sessions WHERE id = found.session AND workspace = $2 AND state = 'open') \
             AND NOT EXISTS (SELECT 1 FROM epitome.summaries WHERE asked = $1 AND state = 'undone' AND session = $3) \
             ORDER BY kept DESC LIMIT 1";
        let found =
            self.once(Pipe::new().then(sql, [asked.into(), workspace.into(), session.into()])).await?;
        one(&found, |row| get(row, 0))
    }

    pub(super) async fn sessions_once(
        &self,
        workspace: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Outcome<Vec<(Arc<str>, SessionRow)>> {
        let sql = format!(
            "SELECT {SESSION} FROM epitome.sessions WHERE workspace = $1 AND name > $2 AND state = 'open' \
             ORDER BY name LIMIT $3"
        );
        // No name is empty, so all come after nothing.
        let given = [workspace.into(), after.unwrap_or_default().into(), limit.into()];
        let found = self.once(Pipe::new().then(sql, given)).await?;
        found.iter().flatten().map(named_session).collect()
    }

    pub(super) async fn usage_once(&self, query: &UsageQuery) -> Outcome<Vec<UsageSum>> {
        let session = if query.by_session { "session" } else { "''" };
        // Sums of many numbers are of a wider kind there; ours stay the largest they can be.
        // `least` passes over what is not there, and a sum of nothing must stay nothing.
        let sum = |column: &str| {
            format!(
                "CASE WHEN count({column}) > 0 THEN least(sum({column}), 9223372036854775807)::bigint END"
            )
        };
        let sql = format!(
            "SELECT {session} AS apart, scope, slot, model, outcome, count(*), {}, {}, {}, {}, {} FROM epitome.usage \
             WHERE workspace = $1 AND at >= $2 AND ($3::text IS NULL OR session = $3) \
             GROUP BY apart, scope, slot, model, outcome ORDER BY apart, scope, slot, model, outcome",
            sum("input"),
            sum("cached"),
            sum("output"),
            sum("cost"),
            sum("millis")
        );
        let given = [(&*query.workspace).into(), query.since.into(), query.session.as_deref().into()];
        let found = self.once(Pipe::new().then(sql, given)).await?;
        let sum = |row: &tokio_postgres::Row| {
            Ok(UsageSum {
                session: get(row, 0)?,
                scope: get(row, 1)?,
                slot: get(row, 2)?,
                model: get(row, 3)?,
                outcome: get(row, 4)?,
                calls: uint(row, 5)?,
                input: uint(row, 6)?,
                cached: uint(row, 7)?,
                output: uint(row, 8)?,
                cost: get(row, 9)?,
                millis: uint(row, 10)?,
            })
        };
        found.iter().flatten().map(sum).collect()
    }
}

/// A row of [`SESSION`], with its name.
pub(super) fn named_session(row: &tokio_postgres::Row) -> Outcome<(Arc<str>, SessionRow)> {
    Ok((get::<&str>(row, SESSION_NAME)?.into(), rows::session(row)?))
}
