//! Finds and parses `epitome.toml`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::{Map, Number, Value};

use super::Environment;

/// Name of the settings file.
pub(crate) const NAME: &str = "epitome.toml";

/// A settings file that was read.
#[derive(Debug)]
pub(super) struct File {
    /// Path of the file, as messages show it.
    pub(super) path: PathBuf,
    pub(super) entries: Map<String, Value>,
    /// The whole text, without a byte order mark.
    pub(super) text: String,
}

/// Reads the settings file. `named` is the flag or variable that names a file, and the file's path. If `named` is None,
/// reads the file in the current folder, or else the file in the user's config folder. Returns None if there is no
/// file.
pub(super) fn find(named: Option<(&str, &Path)>, environment: &Environment) -> Result<Option<File>, String> {
    if let Some((by, named)) = named {
        let found = read(named, &environment.current_folder.join(named))?;
        return found.map(Some).ok_or_else(|| format!("{by}: there is no file {}", named.display()));
    }
    if let Some(file) = read(Path::new(NAME), &environment.current_folder.join(NAME))? {
        return Ok(Some(file));
    }
    match environment.config_folder().map(|folder| folder.join(NAME)) {
        Some(path) => read(&path, &path),
        None => Ok(None),
    }
}

fn read(shown: &Path, path: &Path) -> Result<Option<File>, String> {
    let name = shown.display();
    let text = match std::fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map_err(|_| format!("{name}: is not UTF-8 text"))?,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(format!("{name}: cannot be read: {error}")),
    };
    let entries = parse(&text).map_err(|problem| format!("{name}: {problem}"))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text).to_owned();
    Ok(Some(File { path: shown.to_owned(), entries, text }))
}

/// Parses TOML. The error names line and column.
pub(super) fn parse(text: &str) -> Result<Map<String, Value>, String> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let before = text.get(..at).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        format!("line {line}, column {column}: {}", error.message())
    })?;
    Ok(table.into_iter().map(|(key, value)| (key, json(value))).collect())
}

fn json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::String(text),
        toml::Value::Integer(whole) => Value::from(whole),
        // JSON has no NaN or infinity, so these become texts. A later check refuses the text and names the key.
        toml::Value::Float(number) => {
            Number::from_f64(number).map_or_else(|| Value::String(number.to_string()), Value::Number)
        }
        toml::Value::Boolean(flag) => Value::Bool(flag),
        toml::Value::Datetime(date) => Value::String(date.to_string()),
        toml::Value::Array(list) => list.into_iter().map(json).collect(),
        toml::Value::Table(table) => {
            Value::Object(table.into_iter().map(|(key, value)| (key, json(value))).collect())
        }
    }
}
