//! Re-exports the items that most commands use: the database, the settings, output and errors.

pub(super) use std::path::{Path, PathBuf};
pub(super) use std::sync::Arc;
pub(super) use std::time::Duration;

pub(super) use epitome::dialect::Dialect;
pub(super) use epitome::{Page, Session, SlotExplanation};
pub(super) use epitome_terminal::cleanup;
pub(super) use epitome_terminal::failure::Failure;
pub(super) use epitome_terminal::output::Output;
pub(super) use epitome_terminal::show::{Progress, Show, Table, ago, bytes, count, grouped, printable, utc};
pub(super) use serde::Serialize;
pub(super) use serde_json::{Value, json};

pub(super) use super::SessionArgs;
pub(super) use crate::database::Database;
pub(super) use crate::settings::{DbLocation, Environment, Loaded};
