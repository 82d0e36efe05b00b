//! Copying sessions in pieces, showing them, and deleting them.

use epitome_core::message::Seq;

use super::super::decode::ReadRow;
use super::super::error::StoreError;
use super::super::log::CopiedSession;
use super::super::rows::{SessionId, SessionKey};
use super::super::statements;
use super::error::Outcome;
use super::pipe::Pipe;
use super::put::{insert_session, make_workspace};
use super::rows::{self, MESSAGE, get};
use super::tx::Tx;
use super::{Postgres, again, events};

/// So many messages are copied at a time.
const COPY_CHUNK: Seq = 500;

/// And no more bytes than this, unless it is a single message's.
const COPY_BYTES: u64 = 4 << 20;

impl Postgres {
    pub(super) async fn copy_all(&self, from: SessionId, through: Seq) -> Result<SessionId, StoreError> {
        let gone = || StoreError::Failed { reason: "the session was deleted while it was copied".to_owned() };
        let copied: Result<_, StoreError> = again!(self, self.begin_copy(from));
        let copied = copied?.ok_or_else(gone)?;
        let mut first: Seq = 1;
        while first <= through {
            let last: Result<_, StoreError> = again!(self, self.copy_piece(from, copied, first, through));
            let last = match last {
                Ok(Some(last)) => last,
                failed => {
                    // Where this fails too, it is found by its age later.
                    let given_up =
                        "UPDATE epitome.sessions SET state = 'gone' WHERE id = $1 AND state = 'hidden'";
                    let _ = self.once(Pipe::new().then(given_up, [copied.into()])).await;
                    return Err(failed.err().unwrap_or_else(gone));
                }
            };
            if last >= through {
                break;
            }
            first = last.saturating_add(1);
        }
        Ok(copied)
    }

    /// Makes the hidden session that messages are copied into. `None` when there is nothing to copy from.
    async fn begin_copy(&self, from: SessionId) -> Outcome<Option<SessionId>> {
        let sql =
            "SELECT workspace, name FROM epitome.sessions WHERE id = $1 AND state = 'open' FOR KEY SHARE";
        let (mut tx, found) = Tx::write(self, Pipe::new().then(sql, [from.into()])).await?;
        let Some(row) = found.first().and_then(|rows| rows.first()) else {
            tx.give_up().await?;
            return Ok(None);
        };
        let key = SessionKey::new(get::<&str>(row, 0)?, get::<&str>(row, 1)?);
        let copied = insert_session(&mut tx, &key, "hidden").await?;
        let sql = "INSERT INTO epitome.members (session, author, configuration, joined) \
             SELECT $2, author, configuration, joined FROM epitome.members WHERE session = $1";
        tx.commit(Pipe::new().then(sql, [from.into(), copied.into()])).await?;
        Ok(Some(copied))
    }

    /// Copies the next messages, and tells up to which. `None` when either session is not there any more.
    async fn copy_piece(
        &self,
        from: SessionId,
        to: SessionId,
        first: Seq,
        through: Seq,
    ) -> Outcome<Option<Seq>> {
        let there = "SELECT id FROM epitome.sessions WHERE id = $1 AND state = 'open' OR id = $2 AND state = 'hidden' \
             ORDER BY id FOR KEY SHARE";
        let most = first.saturating_add(COPY_CHUNK - 1).min(through);
        let sizes = "SELECT seq, octet_length(body)::bigint FROM epitome.messages WHERE session = $1 AND seq BETWEEN $2 AND $3 \
             ORDER BY seq";
        let pipe = Pipe::new()
            .then(there, [from.into(), to.into()])
            .then(sizes, [from.into(), first.into(), most.into()]);
        let (tx, found) = Tx::write(self, pipe).await?;
        let [there, sizes] = found.as_slice() else {
            return Err(super::error::nonsense("the database answers less than it was asked"));
        };
        if there.len() != 2 {
            tx.give_up().await?;
            return Ok(None);
        }
        // Where nothing is left to copy, all is copied.
        let (mut last, mut bytes) = (through, 0u64);
        for row in sizes {
            let before = bytes;
            bytes = bytes.saturating_add(row.uint(1)?);
            if before > 0 && bytes > COPY_BYTES {
                break;
            }
            last = row.uint(0)?;
        }
        // One that was copied and not heard of is there already.
        let sql = format!(
            "INSERT INTO epitome.messages (session, created, change, {MESSAGE}) SELECT $2, created, change, {MESSAGE} \
             FROM epitome.messages WHERE session = $1 AND seq BETWEEN $3 AND $4 ON CONFLICT DO NOTHING"
        );
        // Says that somebody is still at it.
        let alive = "UPDATE epitome.sessions SET updated = $2 WHERE id = $1";
        let now = tx.now;
        let pipe = Pipe::new()
            .then(sql, [from.into(), to.into(), first.into(), last.into()])
            .then(alive, [to.into(), now.into()]);
        tx.commit(pipe).await?;
        Ok(Some(last))
    }

    /// Shows a copied session. False when the name is taken or there is no such copy.
    pub(super) async fn reveal_once(&self, key: &SessionKey, copy: &CopiedSession) -> Outcome<bool> {
        let copied = copy.id;
        let there = "SELECT 1 FROM epitome.sessions WHERE id = $1 AND state = 'hidden' FOR UPDATE";
        let taken = "SELECT 1 FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open'";
        let pipe = Pipe::new()
            .then(there, [copied.into()])
            .then(taken, [(&*key.workspace).into(), (&*key.session).into()]);
        let (mut tx, found) = Tx::write(self, pipe).await?;
        let is = |at: usize| found.get(at).is_some_and(|rows| !rows.is_empty());
        if !is(0) || is(1) {
            tx.give_up().await?;
            return Ok(false);
        }
        make_workspace(&mut tx, &key.workspace).await?;
        let mut pipe = Pipe::new();
        let sql = "UPDATE epitome.sessions SET state = 'open', workspace = $2, name = $3 WHERE id = $1";
        pipe.push(sql, [copied.into(), (&*key.workspace).into(), (&*key.session).into()]);
        rows::update_session(&mut pipe, copied, None, &copy.row);
        for summary in &copy.summaries {
            pipe.add(statements::insert_summary(copied, summary.id, summary));
        }
        for slot in &copy.slots {
            pipe.add(statements::put_slot((copied, &key.workspace), slot, slot.active));
        }
        events::tell(&mut pipe, key, &copy.events, None, tx.now)?;
        tx.commit(pipe).await?;
        Ok(true)
    }

    /// Hides a session for ever. Its rows go later; its slots at once, so that nobody works on them,
    /// and so does what was told of it.
    pub(super) async fn delete_once(&self, key: &SessionKey) -> Outcome<bool> {
        // What is told of it counts, though nobody will hear of it.
        while self.number_once(&key.workspace).await? {}
        let sql = "SELECT id FROM epitome.sessions WHERE workspace = $1 AND name = $2 AND state = 'open' FOR UPDATE";
        let named = [(&*key.workspace).into(), (&*key.session).into()];
        let (tx, found) = Tx::write(self, Pipe::new().then(sql, named)).await?;
        let Some(row) = found.first().and_then(|rows| rows.first()) else {
            tx.give_up().await?;
            return Ok(false);
        };
        let id: SessionId = get(row, 0)?;
        let mut pipe = Pipe::new()
            .then(
                "UPDATE epitome.sessions SET state = 'gone', version = version + 1 WHERE id = $1",
                [id.into()],
            )
            .then("DELETE FROM epitome.slots WHERE session = $1", [id.into()]);
        events::forget(&mut pipe, key);
        tx.commit(pipe).await?;
        self.known.forget(key);
        self.chores.notify_one();
        Ok(true)
    }
}
