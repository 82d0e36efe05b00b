//! Lists: a page of them, by number.

use std::borrow::Cow;

use axum::http::StatusCode;
use axum::response::Response;
use epitome::{Keep, Listed, Listing};
use epitome_http::reply::done;
use serde::Serialize;
use serde_json::{Map, Value};

use super::check::{self, Paging};
use super::filter::Filter;
use super::moment::Moment;
use super::refusal::Refusal;
use super::sent::Pairs;

#[derive(Debug, Serialize)]
struct PageOut<T> {
    items: Vec<T>,
    total: u64,
    page: u64,
    size: u64,
    pages: u64,
}

/// Which page, and of which items.
pub(super) struct Wanted {
    pub(super) paging: Paging,
    pub(super) filter: Filter,
}

impl Wanted {
    pub(super) fn read(pairs: &Pairs, body: &Value, known: &[&str]) -> Result<Self, Refusal> {
        let paging = Paging::read(&pairs.0)?;
        let filters = check::filters(body)?;
        let filter = Filter::read(&filters, known).map_err(Refusal::unfit)?;
        Ok(Self { paging, filter })
    }

    pub(super) fn skip(&self) -> u64 {
        self.paging.page.saturating_sub(1).saturating_mul(self.paging.size)
    }

    pub(super) fn limit(&self) -> usize {
        usize::try_from(self.paging.size).unwrap_or(usize::MAX)
    }

    /// The page as a store is asked for it: `field` gives an item's fields by name.
    pub(super) fn listing<T>(
        self,
        field: impl for<'a> Fn(&'a T, &str) -> Option<Cow<'a, Value>> + Send + Sync + 'static,
    ) -> Listing<T> {
        let (skip, limit, reverse) = (self.skip(), self.limit(), self.paging.reverse);
        let filter = self.filter;
        let keep = (!filter.is_empty())
            .then(|| -> Keep<T> { Box::new(move |item| filter.keeps(|name| field(item, name))) });
        Listing { keep, skip, limit, reverse, ..Listing::default() }
    }
}

/// The answer.
pub(super) fn page<T: Serialize>(paging: &Paging, listed: Listed<T>) -> Result<Response, Refusal> {
    let Listed { items, total } = listed;
    let (page, size) = (paging.page, paging.size);
    Ok(done(StatusCode::OK, &PageOut { items, total, page, size, pages: total.div_ceil(size.max(1)) })?)
}

/// The fields that all things with notes have.
pub(super) fn noted<'a>(
    name: &str,
    (own, id): (&str, &str),
    metadata: &'a Map<String, Value>,
    created: i64,
) -> Option<Cow<'a, Value>> {
    Some(Cow::Owned(match name {
        "id" | "name" => id.into(),
        name if name == own => id.into(),
        "metadata" => Value::Object(metadata.clone()),
        "created_at" => Moment::from_millis(created).to_string().into(),
        _ => return None,
    }))
}
