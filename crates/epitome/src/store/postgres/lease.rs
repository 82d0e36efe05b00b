//! Taking a slot: whose turn it is, and which of theirs waits longest.
//!
//! Slots that somebody else is taking or writing to right now are passed over, so that nobody waits for anybody. Only where
//! nothing else is ready are they waited for, and not for long: a session that is written to all the time would never have
//! its turn otherwise, and whoever works until nothing is due would stop too early.

use std::sync::Arc;

use epitome_core::message::Timestamp;
use tokio_postgres::Row;

use super::super::columns::scope_text;
use super::super::{Lease, SessionId, SessionKey, Want};
use super::Postgres;
use super::error::{Outcome, Trouble};
use super::given::Given;
use super::pipe::Pipe;
use super::rows::{self, SLOT, get};
use super::tx::{NOW, Tx};

/// So many workspaces are looked at for one with something ready. Those whose slots wait for a later time are among them.
const MOST_WORKSPACES: usize = 200;

/// What is ready at `$1` and nobody's whose workspaces are `$2`, nor one of the slots `$3`, `$4`, `$5`.
const READY: &str = "FROM epitome.slots s JOIN epitome.sessions o ON o.id = s.session \
     WHERE s.ready_at IS NOT NULL AND s.ready_at <= $1 AND o.state = 'open' AND s.workspace <> ALL($2) \
     AND NOT EXISTS (SELECT 1 FROM unnest($3::bigint[], $4::text[], $5::text[]) AS x (session, scope, name) \
     WHERE x.session = s.session AND x.scope = s.scope AND x.name = s.name)";

/// The one that waits longest.
const FIRST: &str = "ORDER BY s.ready_at, s.session, s.scope, s.name LIMIT 1";

/// How long somebody who writes to a session is waited for.
const WAIT_A_LITTLE: &str = "SET LOCAL lock_timeout = '200ms'";

impl Postgres {
    pub(super) async fn lease_once(&self, want: &Want) -> Outcome<Option<Lease>> {
        // Workers ask often, and most often in vain: that must not cost a transaction.
        let Some(now) = self.anything_ready().await? else { return Ok(None) };
        if let (None, Some(after)) = (&want.session, &want.after) {
            for workspace in self.in_turn(after, now).await? {
                if want.full.contains(&workspace) {
                    continue;
                }
                if let Some(lease) = self.take_one(want, now, Of::Workspace(&workspace)).await? {
                    return Ok(Some(lease));
                }
            }
        }
        // None of those it was the turn of, or there are very many: whoever waits longest.
        let all = want.session.as_ref().map_or(Of::Anybody, Of::Session);
        match self.take_one(want, now, all).await? {
            Some(lease) => Ok(Some(lease)),
            None => self.take_the_passed_over(want, now, all).await,
        }
    }

    /// The moment, where anything is ready at it.
    async fn anything_ready(&self) -> Outcome<Option<Timestamp>> {
        let sql = "SELECT min(ready_at) FROM epitome.slots WHERE ready_at IS NOT NULL";
        let found = self.once(Pipe::new().then(NOW, []).then(sql, [])).await?;
        let one =
            |at: usize| found.get(at).and_then(|rows| rows.first()).map(|row| get::<Option<i64>>(row, 0));
        let now = one(0).transpose()?.flatten().unwrap_or_default();
        let now = self.moment(now);
        let first = one(1).transpose()?.flatten();
        Ok(first.filter(|ready| *ready <= now.0).map(|_| now))
    }

    /// Workspaces with something ready, those after this one first and then round again. Each is a step along an index.
    async fn in_turn(&self, after: &str, now: Timestamp) -> Outcome<Vec<Arc<str>>> {
        let walk = |whose: &str| {
            format!(
                "WITH RECURSIVE turn AS ( \
                 (SELECT workspace, ready_at FROM epitome.slots WHERE ready_at IS NOT NULL AND workspace > $1 \
                 ORDER BY workspace, ready_at LIMIT 1) \
                 UNION ALL SELECT n.workspace, n.ready_at FROM turn CROSS JOIN LATERAL \
                 (SELECT s.workspace, s.ready_at FROM epitome.slots s WHERE s.ready_at IS NOT NULL \
                 AND s.workspace > turn.workspace ORDER BY s.workspace, s.ready_at LIMIT 1) n) \
                 SELECT workspace FROM (SELECT workspace, ready_at FROM turn LIMIT $3) t WHERE ready_at <= $2 {whose}"
            )
        };
        let limit = || MOST_WORKSPACES.into();
        let pipe = Pipe::new()
            .then(walk(""), [after.into(), now.into(), limit()])
            .then(walk("AND workspace <= $4"), ["".into(), now.into(), limit(), after.into()]);
        let found = self.once(pipe).await?;
        found.iter().flatten().map(|row| Ok(get::<&str>(row, 0)?.into())).collect()
    }

    /// Takes the one that waits longest of those in question, and that nobody writes to.
    async fn take_one(&self, want: &Want, now: Timestamp, of: Of<'_>) -> Outcome<Option<Lease>> {
        // The session's row too: whoever holds it is about to write its slots over.
        let (more, given) = of.ready(want, now);
        let sql = format!(
            "SELECT {SLOT}, s.session, o.workspace, o.name {READY} {more} {FIRST} FOR NO KEY UPDATE OF s, o SKIP LOCKED"
        );
        let (tx, found) = Tx::write(self, Pipe::new().then_all(sql, given)).await?;
        match found.first().and_then(|rows| rows.first()) {
            Some(row) => Ok(Some(take(tx, want, row).await?)),
            None => {
                tx.give_up().await?;
                Ok(None)
            }
        }
    }

    /// Takes the one that waits longest, though its session is being written to: it waits for that to be done.
    async fn take_the_passed_over(&self, want: &Want, now: Timestamp, of: Of<'_>) -> Outcome<Option<Lease>> {
        let (more, given) = of.ready(want, now);
        let found = self
            .once(Pipe::new().then_all(format!("SELECT s.session {READY} {more} {FIRST}"), given))
            .await?;
        let Some(row) = found.first().and_then(|rows| rows.first()) else { return Ok(None) };
        let session: SessionId = get(row, 0)?;
        let (more, given) = Of::Number(session).ready(want, now);
        let sql = format!(
            "SELECT {SLOT}, s.session, o.workspace, o.name {READY} {more} {FIRST} FOR NO KEY UPDATE OF s SKIP LOCKED"
        );
        // The session first, as whoever writes to it does: so two who wait never wait for each other.
        let lock = "SELECT 1 FROM epitome.sessions WHERE id = $1 FOR NO KEY UPDATE";
        let pipe = Pipe::new().then(WAIT_A_LITTLE, []).then(lock, [session.into()]).then_all(sql, given);
        let (tx, found) = match Tx::write(self, pipe).await {
            Err(Trouble::Slow) => return Ok(None),
            begun => begun?,
        };
        match found.get(2).and_then(|rows| rows.first()) {
            Some(row) => Ok(Some(take(tx, want, row).await?)),
            None => {
                tx.give_up().await?;
                Ok(None)
            }
        }
    }
}

/// Whose slots are in question.
#[derive(Clone, Copy)]
enum Of<'a> {
    Anybody,
    Workspace(&'a str),
    Session(&'a SessionKey),
    Number(SessionId),
}

impl<'a> Of<'a> {
    /// What is asked of a slot beyond [`READY`], and all that is given for both.
    fn ready(self, want: &'a Want, now: Timestamp) -> (&'static str, Vec<Given<'a>>) {
        let full: Vec<_> = want.full.iter().map(|name| name.as_ref().into()).collect();
        let mut except = (Vec::new(), Vec::new(), Vec::new());
        for (id, scope, name) in &want.except {
            except.0.push(*id);
            except.1.push(scope_text(scope).into());
            except.2.push(name.as_str().into());
        }
        let mut given = vec![
            now.into(),
            Given::Texts(full),
            Given::Ints(except.0),
            Given::Texts(except.1),
            Given::Texts(except.2),
        ];
        let more = match self {
            Self::Anybody => "",
            Self::Workspace(workspace) => {
                given.push(workspace.into());
                "AND s.workspace = $6"
            }
            Self::Session(key) => {
                given.extend([(&*key.workspace).into(), (&*key.session).into()]);
                "AND o.workspace = $6 AND o.name = $7"
            }
            Self::Number(session) => {
                given.push(session.into());
                "AND s.session = $6"
            }
        };
        (more, given)
    }
}

async fn take(tx: Tx<'_>, want: &Want, row: &Row) -> Outcome<Lease> {
    let (mut slot, id, now) = (rows::slot(row)?, get(row, 6)?, tx.now);
    let key = SessionKey::new(get::<&str>(row, 7)?, get::<&str>(row, 8)?);
    if slot.state.due.is_none() {
        slot.state.tick(now);
        slot.mark(now);
    }
    slot.fence = slot.fence.saturating_add(1);
    slot.work.owner = Some(want.owner.clone());
    let hold = i64::try_from(want.hold.as_millis()).unwrap_or(i64::MAX);
    slot.work.until = Some(Timestamp(now.0.saturating_add(hold)));
    let mut pipe = Pipe::new();
    rows::put_slot(&mut pipe, (id, &key.workspace), &slot, slot.active)?;
    pipe.push("UPDATE epitome.sessions SET version = version + 1 WHERE id = $1", [id.into()]);
    // Two that believe to hold it under one fence would both write.
    let sql = "SELECT 1 FROM epitome.slots WHERE session = $1 AND scope = $2 AND name = $3 AND fence = $4 \
         AND work::json ->> 'owner' = $5 AND (work::json ->> 'until')::bigint = $6";
    let (owner, until) = (want.owner.as_str(), slot.work.until.map(|until| until.0));
    let of = scope_text(&slot.scope).into();
    let given = [id.into(), of, slot.name.as_str().into(), slot.fence.into(), owner.into(), until.into()];
    tx.commit_marked(pipe, Some(Pipe::new().then(sql, given))).await?;
    Ok(Lease { key, id, slot, now })
}
