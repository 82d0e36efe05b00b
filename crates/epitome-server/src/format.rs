//! The name of a provider format, as flags and parameters give it: a name of the registry, described as a list of them.

use epitome::dialect::{Dialect, DialectError};
use serde::Deserialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

/// In whose form messages come or go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Format(pub(crate) Dialect);

impl TryFrom<String> for Format {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        // It is called `format` wherever it is given.
        let names = || Dialect::all().into_iter().map(Dialect::name).collect::<Vec<_>>().join(", ");
        name.parse().map(Self).map_err(|_: DialectError| format!("format: there are {}", names()))
    }
}

impl PartialSchema for Format {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("In whose form messages come or go."))
            .enum_values(Some(Dialect::all().into_iter().map(Dialect::name)))
            .into()
    }
}

impl ToSchema for Format {}
