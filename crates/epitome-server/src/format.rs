//! Parses the name of a provider format in flags and parameters. The API description lists all registered names.

use epitome::dialect::{Dialect, DialectError};
use serde::Deserialize;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use crate::suggest::similar_names;

/// Format of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Format(pub(crate) Dialect);

impl TryFrom<String> for Format {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        // Every flag and parameter that takes a format is called `format`.
        let names = || Dialect::all().into_iter().map(Dialect::name).collect::<Vec<_>>();
        let unknown = |_: DialectError| format!("format: {}", unknown_format(&name, &names()));
        name.parse().map(Self).map_err(unknown)
    }
}

/// Parses the value of a `--format` flag that accepts these formats.
pub(crate) fn parse_flag(name: &str, formats: &[Dialect]) -> Result<Dialect, String> {
    let found = formats.iter().copied().find(|format| format.name() == name);
    found.ok_or_else(|| unknown_format(name, &formats.iter().map(|format| format.name()).collect::<Vec<_>>()))
}

/// Returns the error text for an unknown format. Suggests the supported format with the most similar name, if there is
/// one.
pub(crate) fn unknown_format(name: &str, supported: &[&str]) -> String {
    match similar_names(name, supported.iter().copied(), 1).first() {
        Some(similar) => format!("no such format; did you mean {similar}?"),
        None => format!("no such format; use one of: {}", supported.join(", ")),
    }
}

impl PartialSchema for Format {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("The format of the messages."))
            .enum_values(Some(Dialect::all().into_iter().map(Dialect::name)))
            .into()
    }
}

impl ToSchema for Format {}
