//! A workspace's settings.

use serde::Deserialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::http::openapi::Settings;

/// What a workspace's settings shall be.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = SetWorkspace)]
#[serde(deny_unknown_fields)]
pub(crate) struct WorkspaceIn {
    /// What is named is changed, null takes a change back.
    #[schema(value_type = Settings)]
    pub(crate) settings: Map<String, Value>,
}
