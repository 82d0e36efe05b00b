//! Imports that nearly every route needs.

pub(super) use std::sync::Arc;
pub(super) use std::time::Duration;

pub(super) use axum::body::Body;
pub(super) use axum::extract::State;
pub(super) use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
pub(super) use axum::response::{IntoResponse, Response};
pub(super) use bytes::Bytes;
pub(super) use epitome::dialect::Dialect;
pub(super) use epitome_http::auth::Operator;
pub(super) use epitome_http::body::Json;
pub(super) use epitome_http::listen::wait_for_stop;
pub(super) use epitome_http::problem::Problem;
pub(super) use epitome_http::query::{NoParams, Query};
pub(super) use epitome_http::reply::{IfNoneMatch, json_response};
pub(super) use epitome_http::scrub::scrub;
pub(super) use serde::{Deserialize, Serialize};
pub(super) use serde_json::{Map, Value, json};
pub(super) use utoipa::{IntoParams, ToSchema};

pub(super) use super::call::{Answer, Reading, Writing, page_limit};
pub(super) use super::wire::Page;
pub(super) use super::{App, openapi};
pub(super) use crate::format::Format;
