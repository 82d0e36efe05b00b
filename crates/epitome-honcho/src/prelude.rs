//! What nearly every route needs: the caller, the request, the answer.

pub(super) use std::sync::Arc;

pub(super) use axum::http::StatusCode;
pub(super) use epitome::Session;
pub(super) use epitome::key::Rights;
pub(super) use epitome_http::Problem;
pub(super) use epitome_http::body::elsewhere;
pub(super) use epitome_http::reply::done;
pub(super) use serde_json::{Map, Value, json};

pub(super) use super::filter::{Fields, Filter};
pub(super) use super::gate::{Access, Enters, Gets, May, Reads, Writes, now};
pub(super) use super::list::{Wanted, page};
pub(super) use super::moment::Moment;
pub(super) use super::refusal::{Answer, found, no_message, no_name, no_session, not_offered, unfit};
pub(super) use super::sent::{Body, Pairs};
pub(super) use super::state::Honcho;
pub(super) use super::{check, out};
