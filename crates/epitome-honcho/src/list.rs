//! Lists with numbered pages.

use axum::http::StatusCode;
use epitome::{Keep, Listed, Listing};
use epitome_http::Problem;
use epitome_http::reply::done;
use serde::Serialize;
use serde_json::Value;

use super::check::{self, Paging};
use super::filter::{Fields, Filter};
use super::refusal::{Answer, unfit};
use super::sent::Pairs;

#[derive(Debug, Serialize)]
struct PageOut<T> {
    items: Vec<T>,
    total: u64,
    page: u64,
    size: u64,
    pages: u64,
}

/// The requested page, and the filter of its items.
pub(super) struct Wanted {
    pub(super) paging: Paging,
    pub(super) filter: Filter,
}

impl Wanted {
    pub(super) fn read(pairs: &Pairs, body: &Value, fields: Fields) -> Result<Self, Problem> {
        let paging = Paging::read(&pairs.0)?;
        let filter = Filter::read(&check::filters(body)?, fields).map_err(unfit)?;
        Ok(Self { paging, filter })
    }

    /// Returns the page as a query for the store. `shown` converts an item into the JSON that the filter sees.
    pub(super) fn listing<T>(self, shown: impl Fn(&T) -> Value + Send + Sync + 'static) -> Listing<T> {
        let Self { paging, filter } = self;
        let limit = usize::try_from(paging.size).unwrap_or(usize::MAX);
        let keep =
            (!filter.is_empty()).then(|| -> Keep<T> { Box::new(move |item| filter.keeps(&shown(item))) });
        Listing { keep, skip: paging.skip(), limit, reverse: paging.reverse, ..Listing::default() }
    }
}

/// Returns a page as an answer.
pub(super) fn page<T: Serialize>(paging: &Paging, listed: Listed<T>) -> Answer {
    let Listed { items, total } = listed;
    let (page, size) = (paging.page, paging.size);
    done(StatusCode::OK, &PageOut { items, total, page, size, pages: total.div_ceil(size.max(1)) })
}
