//! Looking everything through.

use rusqlite::Connection;

use super::super::Fault;
use super::error::Outcome;

pub(super) fn verify(_db: &Connection) -> Outcome<Vec<Fault>> {
    Ok(Vec::new())
}
