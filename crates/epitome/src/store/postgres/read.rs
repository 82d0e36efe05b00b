//! Reading what was asked for by name or number.

use epitome_core::message::{Message, Seq, Span};
use epitome_core::slot::Scope;

use super::super::asked::{Ahead, Filling, Pick, PickSummaries, Portion};
use super::super::decode::{self, OUTLINE, outline};
use super::super::given::{Given, int};
use super::super::rows::{SessionId, SessionKey, Stamp, SummaryRow};
use super::super::sql::Sql;
use super::super::statements;
use super::super::tail::at_end;
use super::Postgres;
use super::change::{in_order, summaries_pipe};
use super::error::{Outcome, nonsense};
use super::lens::Lens;
use super::pipe::Pipe;
use super::rows::{Found, SESSION, first};
use super::tx::Tx;

/// So many messages with their words are read at a time.
const PAGE: usize = 200;

impl Postgres {
    /// Where a session is, as far as contexts go.
    pub(super) async fn stamp_once(&self, key: &SessionKey) -> Outcome<Option<Stamp>> {
        let stamp = first(&self.once(Pipe::new().and(statements::stamp(key))).await?, decode::stamp)?;
        if let Some(stamp) = &stamp {
            self.known.named(key, stamp.session);
        }
        Ok(stamp)
    }

    /// The number of the session of that name.
    pub(super) async fn number(&self, key: &SessionKey) -> Outcome<Option<SessionId>> {
        first(&self.once(Pipe::new().and(statements::number(key))).await?, |row| row.int(0))
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
        let mut pipe = Pipe::new().then(sql, [id.into()]).and(statements::is_there(id));
        lens.shapes(&mut pipe, (after.saturating_add(1), Seq::MAX), false, limit.saturating_add(1));
        let (tx, found) = Tx::read(self, pipe).await?;
        tx.finish(Pipe::new()).await?;
        let [row, there, shapes] = found.as_slice() else {
            return Err(nonsense("the database answers less than it was asked"));
        };
        if there.is_empty() {
            return Ok(Ahead { log: Vec::new(), end: None });
        }
        let row = row.first().map(|row| decode::session(row)).transpose()?;
        let log = shapes.iter().take(limit).map(|row| outline(row)).collect::<Outcome<Vec<_>>>()?;
        // Where a copy will end is not known before it is shown.
        let end = row.filter(|_| shapes.len() <= limit).map(|row| at_end(&row.tracker, scope).0);
        Ok(Ahead { log, end })
    }

    pub(super) async fn messages_once(&self, id: SessionId, pick: &Pick) -> Outcome<Portion<Message>> {
        match pick {
            Pick::Seqs(seqs) => {
                let sql = format!(
                    "SELECT {OUTLINE}, body FROM epitome.messages WHERE session = $1 AND seq = ANY($2) ORDER BY seq"
                );
                let wanted = Given::Ints(seqs.iter().map(|seq| int(*seq)).collect());
                let pipe = Pipe::new().and(statements::is_there(id)).then(sql, [id.into(), wanted]);
                let found = self.once(pipe).await?;
                let [there, found] = found.as_slice() else { return Ok(Portion::default()) };
                if there.is_empty() {
                    return Ok(Portion::default());
                }
                let items = found.iter().map(|row| Ok(decode::words(row)?.0)).collect::<Outcome<Vec<_>>>()?;
                Ok(Portion { items, more: false })
            }
            Pick::Page { scope, within, reverse, limit, bytes } => {
                let lens = Lens::new(id, scope);
                let mut filling = Filling::new(*limit, *bytes);
                let mut within = *within;
                let mut size = limit.saturating_add(1).min(PAGE);
                loop {
                    let mut pipe = Pipe::new().and(statements::is_there(id));
                    lens.page(&mut pipe, within, *reverse, (size, *bytes));
                    let found = self.once(pipe).await?;
                    let [there, found] = found.as_slice() else { break };
                    if there.is_empty() {
                        return Ok(Portion::default());
                    }
                    let mut last = None;
                    for row in found {
                        let (message, bytes) = decode::words(row)?;
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
            _ => self.all(statements::summary_ids(id, pick), |row| row.int(0)).await?,
        };
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.once(summaries_pipe(id, &ids).and(statements::is_there(id))).await?;
        match found.as_slice() {
            [found, there] if !there.is_empty() => in_order(found, &ids),
            _ => Ok(Vec::new()),
        }
    }

    /// Runs a statement by itself, and reads all rows it returns.
    pub(super) async fn all<T>(
        &self,
        sql: Sql<'_>,
        read: impl Fn(Found<'_>) -> Outcome<T>,
    ) -> Outcome<Vec<T>> {
        self.once(Pipe::new().and(sql)).await?.iter().flatten().map(|row| read(row)).collect()
    }
}
