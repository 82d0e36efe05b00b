//! Whether what was given makes sense, and who is to blame where it does not.
//!
//! The engine checks its own settings; the sections `[server]` and `[proxy]` are read next to them.

use epitome::settings::{Patch, SettingsError, read};
use serde_json::{Map, Value};

use super::server::{Sections, Server};
use super::{Item, Source, keys};
use epitome_terminal::near::near;

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
            // The engine does not know of our sections.
            SettingsError::Unknown { allowed, .. } if allowed.contains(&"encoding") => {
                let all: Vec<&str> = ["server", "proxy"].iter().chain(*allowed).copied().collect();
                let meant = near(&key, all.iter().copied(), 1);
                let meant = meant.first().map(|meant| format!("did you mean {meant}? ")).unwrap_or_default();
                format!("no such setting; {meant}allowed here are {}", all.join(", "))
            }
            _ => problem.to_owned(),
        };
        Self { key, problem }
    }
}

/// Our sections and the engine's settings, or the first thing that is wrong.
pub(super) fn judge(tree: &Map<String, Value>) -> Result<(Server, Patch), Wrong> {
    let mut engine = tree.clone();
    let ours = ["server", "proxy"].into_iter();
    let ours: Map<String, Value> = ours.filter_map(|section| engine.shift_remove_entry(section)).collect();
    let Sections { server, proxy } = read(&Value::Object(ours))?;
    Ok((Server { proxy, ..server }, Patch::from_value(Value::Object(engine))?))
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
