//! Whether what was given makes sense, and who is to blame where it does not.
//!
//! The engine judges its own settings; the section `[server]` is judged here.

use epitome::settings::{Patch, SettingsError};
use serde_json::{Map, Value};

use super::{Item, Source, keys};

/// Our own section.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) db: Option<String>,
    pub(super) workspace: String,
}

/// What is wrong with a key.
#[derive(Debug)]
pub(super) struct Wrong {
    key: String,
    problem: String,
}

impl Wrong {
    /// Whether nothing is wrong but that something is not said.
    pub(super) fn is_missing(&self) -> bool {
        self.problem.starts_with("is missing")
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.key, self.problem)
    }
}

impl From<SettingsError> for Wrong {
    fn from(error: SettingsError) -> Self {
        let (key, text) = (error.key().to_owned(), error.to_string());
        let problem = text.strip_prefix(&key).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(&text);
        let problem = match &error {
            // The engine does not know of our section.
            SettingsError::Unknown { allowed, .. } if allowed.starts_with("encoding, ") => {
                format!("no such setting; allowed here are server, {allowed}")
            }
            _ => problem.to_owned(),
        };
        Self { key, problem }
    }
}

/// Our section and the engine's settings, or the first thing that is wrong.
pub(super) fn judge(tree: &Map<String, Value>) -> Result<(Server, Patch), Wrong> {
    let wrong = |key: &str, problem: String| Wrong { key: key.to_owned(), problem };
    let mut engine = tree.clone();
    let mut server = Server { db: None, workspace: "default".to_owned() };
    match engine.shift_remove("server") {
        None | Some(Value::Null) => {}
        Some(Value::Object(entries)) => {
            for (key, value) in entries {
                let name = keys::name(&["server".to_owned(), key.clone()]);
                let text = |value: Value| match value {
                    Value::String(text) => Ok(text),
                    other => Err(wrong(&name, format!("{other} given; allowed is a text"))),
                };
                match (key.as_str(), value) {
                    ("db" | "workspace", Value::Null) => {}
                    ("db", value) => server.db = Some(text(value)?),
                    ("workspace", value) => server.workspace = text(value)?,
                    _ => {
                        return Err(wrong(
                            &name,
                            "no such setting; allowed here are db, workspace".to_owned(),
                        ));
                    }
                }
            }
        }
        Some(other) => return Err(wrong("server", format!("{other} given; allowed is a table of settings"))),
    }
    let name = &server.workspace;
    if !epitome::is_name(name) {
        return Err(wrong(
            "server.workspace",
            "a name has 1 to 512 bytes and no control characters".to_owned(),
        ));
    }
    Ok((server, Patch::from_value(Value::Object(engine))?))
}

/// What is wrong, with who of these is to blame: whoever set the key, or something next to it.
pub(super) fn blamed(wrong: &Wrong, stage: &[Item]) -> String {
    let key: Vec<String> = keys::path(&wrong.key)
        .unwrap_or_default()
        .into_iter()
        .map(|part| part.split('[').next().unwrap_or_default().to_owned())
        .collect();
    let common = |item: &&Item| item.path.iter().zip(&key).take_while(|(one, other)| one == other).count();
    let Some(item) = stage.iter().max_by_key(common) else { return wrong.to_string() };
    let own = keys::name(&item.path) == wrong.key;
    match &item.source {
        Source::Set if own => format!("--set {wrong}"),
        Source::Set => format!("--set {}: {wrong}", keys::name(&item.path)),
        source if own => format!("{source}: {}", wrong.problem),
        source => format!("{source}: {wrong}"),
    }
}
