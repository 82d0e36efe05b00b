//! A page of something.

use serde::Serialize;
use utoipa::ToSchema;

/// A page of something.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Page<T> {
    /// What is on this page.
    pub(crate) items: Vec<T>,
    /// What to give as `after` for the next page; nothing where this is the last.
    pub(crate) next: Option<String>,
}

impl<T> Page<T> {
    /// What was read, one more than was asked for where there are more; and how to go on after an item.
    pub(crate) fn new(mut items: Vec<T>, limit: usize, place: impl Fn(&T) -> String) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = items.last().filter(|_| more).map(place);
        Self { items, next }
    }
}
