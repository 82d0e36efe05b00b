//! Windows, the next one of a session from the last: see [`super::recent`].

use epitome_core::slot::Scope;

use super::super::ask::{Ask, Batch};
use super::super::asked::{Look, View, Window};
use super::super::changes::Standing;
use super::super::decode::{
    self, AFTER_OUTLINE, AFTER_SESSION, Found, OUTLINE, SESSION, outline, with_words,
};
use super::super::error::StoreError;
use super::super::rows::SessionKey;
use super::super::sql::Sql;
use super::super::window::{Numbered, Seen, window};
use super::asking::{Asking, NOW};
use super::error::Outcome;
use super::recent::{Held, LARGEST, MOST_NEW};
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
            let since: Result<_, StoreError> = again!(self.tries(), self.window_since(key, &held, look));
            if let Some(window) = since? {
                return Ok(window);
            }
            // It would be read in vain the next time too.
            self.recent.forget(key);
        }
        let likely = self.known.get(key);
        let seen: Result<Option<Seen>, StoreError> = again!(self.tries(), async {
            let mut asking = Asking::reads(self);
            let seen = window(&mut asking, key, view, look, likely).await;
            asking.ended(seen).await
        });
        let Some(Seen { window, revision, reach, openers }) = seen? else { return Ok(None) };
        if let Some(session) = &window.standing.session {
            self.known.insert(key.clone(), Numbered { id: session.id, held: window.tail.len() });
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
        let beside = AFTER_OUTLINE + 2 + AFTER_SESSION;
        let (mut now, mut new, mut rows) = (None, Vec::new(), 0);
        let each = |row: Found<'_>| {
            rows += 1;
            if now.is_none() {
                let session = decode::session_at(row, AFTER_OUTLINE + 2)?;
                let moment = self.moment(row.int(beside + 2)?);
                now =
                    Some((Standing::bare(moment, row.string(beside + 1)?, Some(session)), row.int(beside)?));
            }
            if row.maybe_int(0)?.is_some() {
                let outline = outline(row)?;
                let words = match row.maybe_text(AFTER_OUTLINE)? {
                    Some(_) => Some(with_words(&outline, row, AFTER_OUTLINE)?.0),
                    None => None,
                };
                new.push((outline, row.uint(AFTER_OUTLINE + 1)?, words));
            }
            Ok(rows <= MOST_NEW)
        };
        Asking::alone(self).ask(Batch::new().each(Sql::new(sql, given), each)).await?;
        let Some((standing, revision)) = now.filter(|_| rows <= MOST_NEW) else { return Ok(None) };
        let Some(reach) = look(&standing) else { return Ok(Some(None)) };
        new.reverse();
        let Some((window, held)) = held.grown(standing, revision, reach, new) else { return Ok(None) };
        self.recent.put(key, held);
        Ok(Some(Some(window)))
    }
}

/// Columns of the table that is called so.
fn of(table: &str, columns: &str) -> String {
    columns.split(", ").map(|column| format!("{table}.{}", column.trim())).collect::<Vec<_>>().join(", ")
}
