//! Settings from the environment: `context.max_tokens` is `EPITOME_CONTEXT_MAX_TOKENS`.

use serde_json::{Map, Value};

use super::keys::{KEYS, kind_of, value};
use super::{Item, Source, World};
use crate::near::near;

const PREFIX: &str = "EPITOME_";
const PRICES: &str = "EPITOME_PRICES_";

/// Short forms, and what each stands for; nothing where it is no setting.
const SHORT: [(&str, Option<&str>); 3] = [
    ("EPITOME_CONFIG", None),
    ("EPITOME_DB", Some("server.db")),
    ("EPITOME_WORKSPACE", Some("server.workspace")),
];

/// Whether Kubernetes sets it, in every container that runs beside a service called `epitome`, or `epitome-` something.
fn is_kubernetes(name: &str) -> bool {
    let numbered = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    name.ends_with("_SERVICE_HOST")
        || name.ends_with("_PORT")
        || name.contains("_SERVICE_PORT")
        || name.split_once("_PORT_").is_some_and(|(_, rest)| numbered(rest))
}

/// What the environment sets, and variables of ours that nobody knows. Those may still be the keys of models.
///
/// `file` is what the settings file says, and `flags` what is set by them: the names of models are theirs.
pub(super) fn read(
    world: &World,
    file: &Map<String, Value>,
    flags: &[Item],
) -> Result<(Vec<Item>, Vec<String>), String> {
    let (mut items, mut unknown) = (Vec::new(), Vec::new());
    let mut ours: Vec<(String, &std::ffi::OsStr)> = world
        .env
        .iter()
        .map(|(name, text)| (name.to_string_lossy().into_owned(), text.as_os_str()))
        .filter(|(name, text)| name.starts_with(PREFIX) && !text.is_empty())
        .collect();
    ours.sort_unstable();
    // Short forms go over the long ones; and a price is a model's, whom other variables may name.
    ours.sort_by_key(|(name, _)| (name.starts_with(PRICES), SHORT.iter().any(|(short, _)| short == name)));
    for (name, text) in ours {
        let short = SHORT.iter().find(|(short, _)| *short == name);
        if matches!(short, Some((_, None))) || is_kubernetes(&name) {
            continue;
        }
        let path = match short {
            Some((_, Some(path))) => Some(path.split('.').map(str::to_owned).collect()),
            _ => path_of(&name, file, items.iter().chain(flags)),
        };
        match path {
            Some(path) => items.push(item(name, path, text)?),
            None => unknown.push(name),
        }
    }
    Ok((items, unknown))
}

/// Why a variable of ours that nobody knows is refused.
pub(super) fn refuse(variable: &str) -> String {
    let fixed: Vec<String> =
        KEYS.iter().filter(|key| !key.path.contains('*')).map(|key| variable_of(&key.path)).collect();
    match near(variable, fixed.iter().map(String::as_str), 1).first() {
        Some(meant) => format!("{variable}: no such setting; did you mean {meant}?"),
        None => format!("{variable}: no such setting; `epitome --write-config -` lists them all"),
    }
}

fn item(name: String, path: Vec<String>, text: &std::ffi::OsStr) -> Result<Item, String> {
    let text = text.to_str().ok_or_else(|| format!("{name}: is not UTF-8 text"))?;
    let value = value(kind_of(&path), text).map_err(|problem| format!("{name}: {problem}"))?;
    Ok(Item { source: Source::Variable(name), path, value })
}

/// The key that is called so. `items` were set before it.
fn path_of<'a>(
    variable: &str,
    file: &Map<String, Value>,
    items: impl Iterator<Item = &'a Item>,
) -> Option<Vec<String>> {
    let fixed = KEYS.iter().find(|key| !key.path.contains('*') && variable_of(&key.path) == variable);
    match fixed {
        Some(key) => Some(key.path.split('.').map(str::to_owned).collect()),
        None if variable.starts_with(PRICES) => named(variable, PRICES, "prices", &priced_names(file, items)),
        None => named(variable, "EPITOME_MODELS_", "models", &models(file)),
    }
}

/// `EPITOME_MODELS_CHEAP_BASE_URL` as `models.cheap.base_url`, by the name it is known under where it is.
fn named(variable: &str, prefix: &str, table: &str, known: &[String]) -> Option<Vec<String>> {
    let rest = variable.strip_prefix(prefix)?;
    let keys = KEYS.iter().filter_map(|key| key.path.strip_prefix(table)?.strip_prefix(".*."));
    // The longest: `_output_reserve` also ends in what could be a key one day.
    let (key, name) = keys
        .filter_map(|key| Some((key, rest.strip_suffix(&key.to_uppercase())?.strip_suffix('_')?)))
        .filter(|(_, name)| !name.is_empty())
        .max_by_key(|(key, _)| key.len())?;
    let same = known.iter().find(|known| plain(known) == plain(name));
    let name = same.cloned().unwrap_or_else(|| name.to_lowercase());
    Some(vec![table.to_owned(), name, key.to_owned()])
}

/// As a variable can name it.
fn plain(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }).collect()
}

fn variable_of(path: &str) -> String {
    format!("{PREFIX}{}", plain(path))
}

/// The models a file sets up.
fn models(file: &Map<String, Value>) -> Vec<String> {
    let table = file.get("models").and_then(Value::as_object);
    table.map(|models| models.keys().cloned().collect()).unwrap_or_default()
}

/// The names a price may be under: those of prices first, then what providers call the models, then what we
/// do.
fn priced_names<'a>(file: &Map<String, Value>, items: impl Iterator<Item = &'a Item>) -> Vec<String> {
    let prices = file.get("prices").and_then(Value::as_object);
    let mut names: Vec<String> = prices.map(|prices| prices.keys().cloned().collect()).unwrap_or_default();
    if let Some(models) = file.get("models").and_then(Value::as_object) {
        let called = models.values().filter_map(|model| model.get("model")?.as_str());
        names.extend(called.map(str::to_owned).chain(models.keys().cloned()));
    }
    for item in items {
        match item.path.as_slice() {
            [models, name, key] if models == "models" && key == "model" => {
                names.extend([name.clone()].into_iter().chain(item.value.as_str().map(str::to_owned)));
            }
            [prices, name, _] if prices == "prices" => names.push(name.clone()),
            _ => {}
        }
    }
    names
}
