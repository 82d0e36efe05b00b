//! Windows, the next one of a session from the last: see [`super::recent`].

use epitome_core::slot::Scope;
use tokio_postgres::Row;

use super::super::asked::{Look, View, Window};
use super::super::changes::Standing;
use super::super::decode::{
    self, AFTER_OUTLINE, AFTER_SESSION, OUTLINE, ReadRow, SESSION, outline, with_words,
};
use super::super::error::StoreError;
use super::super::rows::SessionKey;
use super::super::window::{Seen, window};
use super::asking::Asking;
use super::error::Outcome;
use super::pipe::Pipe;
use super::recent::{Held, LARGEST, MOST_NEW};
use super::rows::get;
use super::tx::NOW;
use super::{Postgres, again};

impl Postgres {
    /// A window, from what is held of the session where that tells it, or read as a whole.
    pub(super) async fn read_window(
        &self,
        key: &SessionKey,
        view: &View,
        look: &Look,
    ) -> Result<Option<Window>, StoreError> {
        // Others are seldom asked for twice.
        let whole = view.scope == Scope::Session && view.as_of.is_none();
        if let Some(held) = self.recent.get(key).filter(|_| whole) {
            let since: Result<_, StoreError> = again!(self, self.window_since(key, &held, look));
            if let Some(window) = since? {
                return Ok(window);
            }
            // It would be read in vain the next time too.
            self.recent.forget(key);
        }
        let likely = self.known.number(key);
        let seen: Result<Option<Seen>, StoreError> = again!(self, async {
            let mut asking = Asking::reads(self);
            let seen = window(&mut asking, key, view, look, likely).await;
            asking.ended(seen).await
        });
        let Some(Seen { window, revision, reach, openers }) = seen? else { return Ok(None) };
        if let Some(session) = &window.standing.session {
            self.known.keep(key, session.id, window.tail.len());
        }
        if whole {
            self.recent.put(key, Held::of(&window, revision, reach, openers.into_iter().collect()));
        }
        Ok(Some(window))
    }

    /// The same with what was said since a window was read; nothing where that does not tell it.
    async fn window_since(
        &self,
        key: &SessionKey,
        held: &Held,
        look: &Look,
    ) -> Outcome<Option<Option<Window>>> {
        // One statement is as of one moment without a transaction around it. Newest first: of more words than a window that is
        // kept may have, the older ones are not shown, or it is not told from here.
        let sql = format!(
            "SELECT {}, n.words, n.opener, {}, s.revision, w.settings, ({NOW}) FROM epitome.sessions s \
             JOIN epitome.workspaces w ON w.name = s.workspace LEFT JOIN LATERAL (SELECT m.*, CASE WHEN \
             coalesce(sum(octet_length(body)) OVER (ORDER BY seq DESC ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) < $6 \
             THEN body END AS words FROM (SELECT * FROM epitome.messages WHERE session = $3 AND seq > $4 \
             ORDER BY seq DESC LIMIT $5) m) n ON true \
             WHERE s.workspace = $1 AND s.name = $2 AND s.state = 'open' ORDER BY n.seq DESC",
            of("n", OUTLINE),
            of("s", SESSION)
        );
        let (workspace, name) = ((&*key.workspace).into(), (&*key.session).into());
        let (session, head) = (held.id.into(), held.head.into());
        let given = [workspace, name, session, head, (MOST_NEW + 1).into(), LARGEST.into()];
        let found = self.once(Pipe::new().then(sql, given)).await?;
        let found = found.first().map_or(&[][..], Vec::as_slice);
        let Some(row) = found.first().filter(|_| found.len() <= MOST_NEW) else { return Ok(None) };
        let beside = AFTER_OUTLINE + 2 + AFTER_SESSION;
        let revision = get(row, beside)?;
        let standing = Standing::bare(
            self.moment(get(row, beside + 2)?),
            get(row, beside + 1)?,
            Some(decode::session_at(row, AFTER_OUTLINE + 2)?),
        );
        let Some(reach) = look(&standing) else { return Ok(Some(None)) };
        let said = |row: &&Row| get::<Option<i64>>(row, 0).is_ok_and(|seq| seq.is_some());
        let new = found.iter().filter(said).rev().map(|row| {
            let outline = outline(row)?;
            let words = match get::<Option<&str>>(row, AFTER_OUTLINE)? {
                Some(_) => Some(with_words(&outline, row, AFTER_OUTLINE)?.0),
                None => None,
            };
            Ok((outline, row.uint(AFTER_OUTLINE + 1)?, words))
        });
        let new = new.collect::<Outcome<Vec<_>>>()?;
        let Some((window, held)) = held.grown(standing, revision, reach, new) else { return Ok(None) };
        self.recent.put(key, held);
        Ok(Some(Some(window)))
    }
}

/// Columns of the table that is called so.
fn of(table: &str, columns: &str) -> String {
    columns.split(", ").map(|column| format!("{table}.{}", column.trim())).collect::<Vec<_>>().join(", ")
}
