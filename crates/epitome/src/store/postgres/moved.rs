//! A store notices that a SQLite file is being moved into its database, and stops.
//!
//! The move itself is in `moving`, which is there only where SQLite is compiled in too; a database can be half moved
//! whichever program opens it.

use std::sync::atomic::Ordering;

use super::super::ask;
use super::super::error::StoreError;
use super::super::sql::Sql;
use super::asking::Asking;
use super::error::{Outcome, Trouble};
use super::{Postgres, again};

impl Postgres {
    /// An error where a move into it was begun and is not finished. Gives when the last one began.
    pub(super) async fn refuse_half_moved(&self) -> Result<Option<i64>, StoreError> {
        let last: Result<_, StoreError> = again!(self, self.last_move());
        let last = last?;
        if last.is_some_and(|(_, finished)| !finished) {
            let reason = "a SQLite file is being moved into it, and that is not finished; let `epitome migrate` go on \
                          until it is"
                .to_owned();
            return Err(StoreError::Unreachable { path: self.place.to_string(), reason });
        }
        Ok(last.map(|(begun, _)| begun))
    }

    /// When the last move into it began, and whether it is finished.
    async fn last_move(&self) -> Outcome<Option<(i64, bool)>> {
        let sql = Sql::new("SELECT begun, finished IS NOT NULL FROM epitome.moving", []);
        ask::first(&mut Asking::alone(self), sql, |row| Ok((row.int(0)?, row.flag(1)?))).await
    }

    /// An error where a move was begun since it was opened. Whoever writes meanwhile notices by itself; this is for whoever
    /// only reads, or was asleep.
    pub(super) async fn look_for_a_move(&self) -> Outcome<()> {
        if self.last_move().await?.map(|(begun, _)| begun) == self.moved {
            return Ok(());
        }
        self.noticed.moved.store(true, Ordering::Release);
        Err(Trouble::Moving)
    }
}
