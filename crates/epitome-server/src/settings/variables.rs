//! Reads settings from the environment: `EPITOME_CONTEXT_MAX_TOKENS` sets `context.max_tokens`.

use serde_json::Value;

use super::keys::{KEYS, SCHEMA, parse_value, type_of};
use super::{Assignment, Environment, Source};
use crate::suggest::similar_names;

const PREFIX: &str = "EPITOME_";
const PRICES: &str = "EPITOME_PRICES_";
const MODELS: &str = "EPITOME_MODELS_";

/// Variables with short names. Each has the setting that it sets, or None if it sets no setting.
const SHORT: [(&str, Option<&str>); 3] = [
    ("EPITOME_CONFIG", None),
    ("EPITOME_DB", Some("server.db")),
    ("EPITOME_WORKSPACE", Some("server.workspace")),
];

/// Whether this variable comes from Kubernetes. If the name of a service begins with `epitome`, Kubernetes sets such
/// variables in every container of the same namespace.
fn is_kubernetes(name: &str) -> bool {
    let numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_PORT")
        || name.contains("_SERVICE_PORT")
        || name.split_once("_PORT_").is_some_and(|(_, rest)| numbered(rest))
}

/// Returns the settings from the environment, and the names of `EPITOME_` variables that are not settings. The caller
/// checks whether a model's `key_env` uses such a variable.
///
/// `others` are the assignments of the settings file and the flags, which define the names of models.
pub(super) fn read(
    environment: &Environment,
    others: &[&Assignment],
) -> Result<(Vec<Assignment>, Vec<String>), String> {
    let (mut assignments, mut unknown) = (Vec::new(), Vec::new());
    let mut variables: Vec<(String, &std::ffi::OsStr)> = environment
        .env
        .iter()
        .map(|(name, text)| (name.to_string_lossy().into_owned(), text.as_os_str()))
        .filter(|(name, text)| name.starts_with(PREFIX) && !text.is_empty())
        .collect();
    variables.sort_unstable();
    // Later variables override earlier variables. Short names come after long names. Prices come last, because other
    // variables may define the models whose prices they set.
    variables
        .sort_by_key(|(name, _)| (name.starts_with(PRICES), SHORT.iter().any(|(short, _)| short == name)));
    for (name, text) in variables {
        let short = SHORT.iter().find(|(short, _)| *short == name);
        if matches!(short, Some((_, None))) || is_kubernetes(&name) {
            continue;
        }
        let path = match short {
            Some((_, Some(path))) => Some(path.split('.').map(str::to_owned).collect()),
            _ => path_of(&name, others.iter().copied().chain(&assignments)),
        };
        match path {
            Some(path) => assignments.push(assignment(name, path, text)?),
            None => unknown.push(name),
        }
    }
    Ok((assignments, unknown))
}

/// Returns the error for an `EPITOME_` variable that is not a setting.
pub(super) fn unknown_variable(variable: &str) -> String {
    if let Some(hint) = model_hint(variable) {
        return format!("{variable}: no such setting; {hint}");
    }
    let fixed: Vec<String> =
        KEYS.iter().filter(|key| !key.path.contains('*')).map(|key| name_of(&key.path)).collect();
    match similar_names(variable, fixed.iter().map(String::as_str), 1).first() {
        Some(meant) => format!("{variable}: no such setting; did you mean {meant}?"),
        None => {
            format!("{variable}: no such setting; `epitome --write-config -` lists all settings")
        }
    }
}

/// Returns the schema's hint for a variable that ends like a common mistake, such as `EPITOME_MODELS_CHEAP_API_KEY`.
fn model_hint(variable: &str) -> Option<&'static str> {
    let rest = variable.strip_prefix(MODELS)?;
    let hints = SCHEMA.pointer("/properties/models/additionalProperties/x-hints").and_then(Value::as_object);
    let ends_with = |key: &str| {
        let name = rest.strip_suffix(&key.to_uppercase()).and_then(|name| name.strip_suffix('_'));
        name.is_some_and(|name| !name.is_empty())
    };
    hints.into_iter().flatten().find(|(key, _)| ends_with(key))?.1.as_str()
}

fn assignment(name: String, path: Vec<String>, text: &std::ffi::OsStr) -> Result<Assignment, String> {
    let text = text.to_str().ok_or_else(|| format!("{name}: is not UTF-8 text"))?;
    let value = parse_value(type_of(&path), text).map_err(|problem| format!("{name}: {problem}"))?;
    Ok(Assignment { source: Source::Variable(name), path, value })
}

/// Returns the key that a variable sets. `assignments` are the settings that were read before this variable.
fn path_of<'a>(
    variable: &str,
    assignments: impl Iterator<Item = &'a Assignment> + Clone,
) -> Option<Vec<String>> {
    let fixed = KEYS.iter().find(|key| !key.path.contains('*') && name_of(&key.path) == variable);
    match fixed {
        Some(key) => Some(key.path.split('.').map(str::to_owned).collect()),
        None if variable.starts_with(PRICES) => {
            // The name in the variable can be the provider's name of a model, or a name in the table `models`. The
            // provider's name takes precedence.
            let provider_names =
                assignments.clone().filter_map(|assignment| match assignment.path.as_slice() {
                    [table, _, key] if table == "models" && key == "model" => assignment.value.as_str(),
                    _ => None,
                });
            let existing = names("prices", assignments.clone())
                .chain(provider_names)
                .chain(names("models", assignments));
            named(variable, PRICES, "prices", existing)
        }
        None => named(variable, MODELS, "models", names("models", assignments)),
    }
}

/// Converts `EPITOME_MODELS_CHEAP_BASE_URL` to `models.cheap.base_url`. If a name in `existing`, such as `Cheap`, has
/// the same spelling in a variable, this name is used.
fn named<'a>(
    variable: &str,
    prefix: &str,
    table: &str,
    mut existing: impl Iterator<Item = &'a str>,
) -> Option<Vec<String>> {
    let rest = variable.strip_prefix(prefix)?;
    let keys = KEYS.iter().filter_map(|key| key.path.strip_prefix(table)?.strip_prefix(".*."));
    // Selects the longest key, because a shorter key may be the end of a longer key.
    let (key, name) = keys
        .filter_map(|key| Some((key, rest.strip_suffix(&key.to_uppercase())?.strip_suffix('_')?)))
        .filter(|(_, name)| !name.is_empty())
        .max_by_key(|(key, _)| key.len())?;
    let same = existing.find(|other| as_variable(other) == as_variable(name));
    let name = same.map_or_else(|| name.to_lowercase(), str::to_owned);
    Some(vec![table.to_owned(), name, key.to_owned()])
}

/// Converts a name to its spelling in an environment variable: upper case, with `_` for other characters.
fn as_variable(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

fn name_of(path: &str) -> String {
    format!("{PREFIX}{}", as_variable(path))
}

/// Returns the names that were set in a table such as `models`, whose names the user chooses.
fn names<'a>(
    table: &str,
    assignments: impl Iterator<Item = &'a Assignment>,
) -> impl Iterator<Item = &'a str> {
    assignments.filter_map(move |assignment| match assignment.path.as_slice() {
        [own, name, ..] if own == table => Some(name.as_str()),
        _ => None,
    })
}
