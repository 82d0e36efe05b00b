//! Imports that nearly every route needs.

pub(super) use std::sync::Arc;

pub(super) use axum::http::StatusCode;
pub(super) use epitome::Session;
pub(super) use epitome::key::Rights;
pub(super) use epitome_http::Problem;
pub(super) use epitome_http::body::run_blocking;
pub(super) use epitome_http::reply::json_response;
pub(super) use serde_json::{Map, Value, json};

pub(super) use super::auth::{
    Access, AnyCaller, Authorized, CanGetOrCreate, CanRead, CanWrite, no_access, now,
};
pub(super) use super::error::{
    Answer, existing, invalid_name, message_not_found, not_offered, session_not_found, unprocessable,
};
pub(super) use super::filter::{Filter, FilterFields};
pub(super) use super::iso_time::IsoTime;
pub(super) use super::list::{ListRequest, page_response};
pub(super) use super::request::{Body, QueryParams};
pub(super) use super::state::Honcho;
pub(super) use super::{validate, wire};
