//! Lists that are returned in numbered pages.

use axum::http::StatusCode;
use epitome::{ListFilter, ListPage, Listing};
use epitome_http::Problem;
use epitome_http::reply::json_response;
use serde::Serialize;
use serde_json::Value;

use super::error::{Answer, unprocessable};
use super::filter::{Filter, FilterFields};
use super::request::QueryParams;
use super::validate::{self, Paging};

#[derive(Debug, Serialize)]
struct PageOut<T> {
    items: Vec<T>,
    total: u64,
    page: u64,
    size: u64,
    pages: u64,
}

/// A request for a page of a list: the page, and the filter for the list's items.
pub(super) struct ListRequest {
    pub(super) paging: Paging,
    pub(super) filter: Filter,
}

impl ListRequest {
    pub(super) fn parse(params: &QueryParams, body: &Value, fields: FilterFields) -> Result<Self, Problem> {
        let paging = Paging::read(&params.0)?;
        let filter = Filter::parse(&validate::filters(body)?, fields).map_err(unprocessable)?;
        Ok(Self { paging, filter })
    }

    /// Returns the store's query for this page. `to_json` converts an item into the JSON to which the filter is
    /// applied.
    pub(super) fn listing<T>(self, to_json: impl Fn(&T) -> Value + Send + Sync + 'static) -> Listing<T> {
        let Self { paging, filter } = self;
        let limit = usize::try_from(paging.size).unwrap_or(usize::MAX);
        let filter = (!filter.is_empty())
            .then(|| -> ListFilter<T> { Box::new(move |item| filter.matches(&to_json(item))) });
        Listing { filter, skip: paging.skip(), limit, reverse: paging.reverse, ..Listing::default() }
    }
}

/// Responds with a page.
pub(super) fn page_response<T: Serialize>(paging: &Paging, listed: ListPage<T>) -> Answer {
    let ListPage { items, total } = listed;
    let (page, size) = (paging.page, paging.size);
    json_response(StatusCode::OK, &PageOut { items, total, page, size, pages: total.div_ceil(size.max(1)) })
}
