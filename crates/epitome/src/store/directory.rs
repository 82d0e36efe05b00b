//! Types for workspaces, authors and session members, and for paginated lists of them.
//!
//! A list is sorted by age. Callers read one page at a time, and get the total number of items with it. If the caller
//! passes a filter, all rows are read one by one, but only the rows of the page stay in memory.

use std::sync::Arc;

use epitome_core::message::Timestamp;
use serde_json::{Map, Value};

/// A stored workspace.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WorkspaceRow {
    /// The workspace's name.
    pub name: Arc<str>,
    /// The workspace's settings, a partial JSON document; empty if nothing is set.
    pub settings: String,
    /// The caller's metadata.
    pub metadata: Map<String, Value>,
    /// Data of other APIs: one object per API, keyed by the API's name.
    pub attributes: Map<String, Value>,
    /// When the workspace was created.
    pub created: Timestamp,
}

/// A stored author.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AuthorRow {
    /// The author's name, as it appears in messages.
    pub name: Arc<str>,
    /// The caller's metadata.
    pub metadata: Map<String, Value>,
    /// Data of other APIs: one object per API, keyed by the API's name.
    pub attributes: Map<String, Value>,
    /// When the author first appeared.
    pub created: Timestamp,
}

/// A member of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MemberRow {
    /// The author.
    pub author: AuthorRow,
    /// Data of other APIs about this membership: one object per API, keyed by the API's name.
    pub attributes: Map<String, Value>,
}

/// A change to a session's members.
#[derive(Debug, Clone, PartialEq)]
pub enum Membership {
    /// Adds an author to the session if the author is not a member yet. Creates the author if necessary. The attributes
    /// are merged into the member's stored attributes: within each API's object, a new field replaces the stored field
    /// of the same name, and the other fields stay.
    Join(Arc<str>, Option<Map<String, Value>>),
    /// Removes an author from the session. The author's messages stay.
    Leave(Arc<str>),
    /// Removes all members.
    LeaveAll,
}

/// Merges new attributes into the stored attributes. Within each API's object, a new field replaces the stored field of
/// the same name, and the other fields stay.
pub(super) fn merge_attributes(stored: &mut Map<String, Value>, new: &Map<String, Value>) {
    for (api, fields) in new {
        match (stored.get_mut(api), fields) {
            (Some(Value::Object(stored)), Value::Object(fields)) => stored.extend(fields.clone()),
            _ => {
                stored.insert(api.clone(), fields.clone());
            }
        }
    }
}

/// A filter: returns whether an item belongs in the list.
pub type ListFilter<T> = Box<dyn Fn(&T) -> bool + Send + Sync>;

/// Selects a page of a list. The list is sorted by age, or by name if `after` is set.
pub struct Listing<T> {
    /// The filter; `None` includes all items.
    pub filter: Option<ListFilter<T>>,
    /// If set, only the item with this name is returned.
    pub name: Option<Arc<str>>,
    /// If set, the list is sorted by name, and only items after this name are returned. The total is then only the
    /// number of items on the page.
    pub after: Option<Arc<str>>,
    /// Number of items to skip.
    pub skip: u64,
    /// Maximum number of items.
    pub limit: usize,
    /// Whether the newest items come first.
    pub reverse: bool,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self { filter: None, name: None, after: None, skip: 0, limit: 100, reverse: false }
    }
}

impl<T> Listing<T> {
    /// Selects the item with this name.
    pub fn named(name: impl Into<Arc<str>>) -> Self {
        Self { name: Some(name.into()), ..Self::default() }
    }

    /// Selects at most `limit` items after this name, ordered by name.
    pub fn by_name(after: Option<&str>, limit: usize) -> Self {
        // No name is empty, so every name comes after the empty string.
        Self { after: Some(after.unwrap_or_default().into()), limit, ..Self::default() }
    }
}

/// A page of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPage<T> {
    /// The items on the page, oldest first by default.
    pub items: Vec<T>,
    /// Total number of items that match the filter, on all pages.
    pub total: u64,
}

impl<T> Default for ListPage<T> {
    fn default() -> Self {
        Self { items: Vec::new(), total: 0 }
    }
}

impl<T> ListPage<T> {
    /// Converts each item with `make`.
    pub fn map<U>(self, make: impl FnMut(T) -> U) -> ListPage<U> {
        ListPage { items: self.items.into_iter().map(make).collect(), total: self.total }
    }

    /// Returns the first item.
    pub fn first(self) -> Option<T> {
        self.items.into_iter().next()
    }

    /// Counts an item that matches the filter, and adds it if it is on the page.
    pub fn add(&mut self, item: T, skip: u64, limit: usize) {
        if self.total >= skip && self.items.len() < limit {
            self.items.push(item);
        }
        self.total = self.total.saturating_add(1);
    }
}

/// Receives the stored row of a workspace or an author (`None` if the row does not exist), and returns the new row.
/// Returns `None` to write nothing. The result must depend only on the stored row, because a store may call the
/// function again.
pub type DecideRow<T> = Box<dyn Fn(Option<&T>) -> Option<T> + Send + Sync>;

/// The result of deleting a workspace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkspaceDeletion {
    /// The workspace was deleted.
    Deleted,
    /// The workspace does not exist.
    NotFound,
    /// The workspace has sessions and was not deleted.
    HasSessions,
}
