//! Who and what there is beside messages: workspaces, authors, who belongs to which session.
//!
//! Lists are read by age, a page at a time, and tell how many there are in all. Where only some are wanted, whoever asks
//! says which: the rows are looked at one by one, and no more of them held than the page.

use std::sync::Arc;

use epitome_core::message::Timestamp;
use serde_json::{Map, Value};

/// What is known of a workspace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkspaceRow {
    /// Its name.
    pub name: Arc<str>,
    /// Its settings, a partial document; empty when nothing was set.
    pub settings: String,
    /// The caller's notes on it.
    pub metadata: Map<String, Value>,
    /// What other APIs keep of it: one object per API, by its name.
    pub attributes: Map<String, Value>,
    /// When it came to be.
    pub created: Timestamp,
}

/// What is known of an author.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AuthorRow {
    /// By which name messages are theirs.
    pub name: Arc<str>,
    /// The caller's notes on them.
    pub metadata: Map<String, Value>,
    /// What other APIs keep of them, by their names.
    pub attributes: Map<String, Value>,
    /// When they were first heard of.
    pub created: Timestamp,
}

/// An author in a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemberRow {
    /// Who.
    pub author: AuthorRow,
    /// What other APIs keep of them there, by their names.
    pub attributes: Map<String, Value>,
}

/// How a session's members change.
#[derive(Debug, Clone, PartialEq)]
pub enum Membership {
    /// Joins, where they are not there yet. An author nobody knew comes to be. Attributes are merged into those that are
    /// stored of them there: within each API's part, a given field replaces the stored one and the others stay.
    Join(Arc<str>, Option<Map<String, Value>>),
    /// Leaves. What they said stays.
    Leave(Arc<str>),
    /// All leave who are there.
    LeaveAll,
}

/// Merges attributes into those that are stored: within the part of each API, a field that is given replaces the stored one,
/// and the others stay.
pub(super) fn merge_attributes(stored: &mut Map<String, Value>, given: &Map<String, Value>) {
    for (owner, part) in given {
        match (stored.get_mut(owner), part) {
            (Some(Value::Object(stored)), Value::Object(part)) => stored.extend(part.clone()),
            _ => {
                stored.insert(owner.clone(), part.clone());
            }
        }
    }
}

/// Says whether something is wanted in a list.
pub type Keep<T> = Box<dyn Fn(&T) -> bool + Send + Sync>;

/// Which page of a list. By age, unless `after` is given.
pub struct Listing<T> {
    /// Only these; all of them where nobody says.
    pub keep: Option<Keep<T>>,
    /// Only the one of this name.
    pub name: Option<Arc<str>>,
    /// By name, and only those after this one. How many there are in all is not counted then.
    pub after: Option<Arc<str>>,
    /// Past so many of those.
    pub skip: u64,
    /// At most so many.
    pub limit: usize,
    /// Youngest first.
    pub reverse: bool,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self { keep: None, name: None, after: None, skip: 0, limit: 100, reverse: false }
    }
}

impl<T> Listing<T> {
    /// The one of that name.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// Those after this one by name, at most so many.
    pub fn by_name(after: Option<&str>, limit: usize) -> Self {
        // No name is empty, so all come after nothing.
        Self { after: Some(after.unwrap_or_default().into()), limit, ..Self::default() }
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed<T> {
    /// Those on the page, oldest first unless told.
    pub items: Vec<T>,
    /// How many there are in all, of those that were wanted.
    pub total: u64,
}

impl<T> Default for Listed<T> {
    fn default() -> Self {
        Self { items: Vec::new(), total: 0 }
    }
}

impl<T> Listed<T> {
    /// The same, each of them made into something else.
    pub fn map<U>(self, make: impl FnMut(T) -> U) -> Listed<U> {
        Listed { items: self.items.into_iter().map(make).collect(), total: self.total }
    }

    /// The first of them.
    pub fn one(self) -> Option<T> {
        self.items.into_iter().next()
    }

    /// Takes one more of those that are wanted, where it is on the page.
    pub fn take(&mut self, item: T, skip: u64, limit: usize) {
        if self.total >= skip && self.items.len() < limit {
            self.items.push(item);
        }
        self.total = self.total.saturating_add(1);
    }
}

/// Decides what shall be kept of a workspace or an author, from what is; `None` to write nothing. It must depend on
/// nothing else.
pub type DecideRow<T> = Box<dyn Fn(Option<&T>) -> Option<T> + Send + Sync>;

/// What came of deleting a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deleted {
    /// It is gone.
    Gone,
    /// There was none.
    Absent,
    /// It has sessions, and stays.
    InUse,
}
