//! Loads the settings. Flags override environment variables, environment variables override `epitome.toml`, and
//! `epitome.toml` overrides the defaults.
//!
//! The flags ([`SettingsFlags`]) and the environment ([`Environment`]) are arguments. Each source is a layer that is
//! merged over the previous layers and checked with the engine's rules ([`epitome::settings`]). The result, [`Loaded`],
//! is typed and valid. An error names the key and the source that set the key.
//!
//! Two sections belong to the server: `[server]` (database, workspace, how `serve` listens) and `[proxy]` (upstreams).
//! All other sections belong to the engine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use epitome::settings::{
    Nulls, Patch, Settings, SettingsError, drop_other_forms, line_of, other_form, overlay, read,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::suggest::similar_names;

mod file;
mod keys;
mod location;
mod server;
mod template;
mod variables;

pub(crate) use file::NAME as FILE_NAME;
pub(crate) use keys::patch_schema;
pub(crate) use location::{Address, DbLocation, Environment, parse_location};
use server::Sections;
pub(crate) use server::{ProxySettings, RequireKeys, Role, ServerSettings};
pub(crate) use template::template;

/// Settings flags of the command line.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "For every command")]
pub(crate) struct SettingsFlags {
    /// Settings file [default: ./epitome.toml] [env: EPITOME_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Database [default: epitome.db in the data folder] [env: EPITOME_DB]
    #[arg(long, global = true, value_name = "PATH|URL")]
    pub(crate) db: Option<String>,
    /// Workspace to use [default: default] [env: EPITOME_WORKSPACE]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) workspace: Option<String>,
    /// Sets a setting, such as context.max_tokens=50000; can be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// The command's own flags that are settings, such as `--listen` of `epitome serve`.
    #[arg(skip)]
    pub(crate) own: Vec<OwnFlag>,
}

/// A flag that is also a setting. It has the flag's name, the setting's key, and the value.
pub(crate) type OwnFlag = (&'static str, &'static str, Value);

/// The settings in effect.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    /// The engine's settings that differ from the defaults. The engine is built with this patch.
    pub(crate) patch: Patch,
    /// All settings of the engine, with defaults.
    pub(crate) settings: Settings,
    /// Where the database is.
    pub(crate) db: DbLocation,
    /// The sections `[server]` and `[proxy]`.
    pub(crate) server: ServerSettings,
    /// The settings file that was read. None if there is no file.
    pub(crate) file: Option<PathBuf>,
    /// The text of the settings file. Errors use this text to name lines.
    text: String,
    /// Every key that was set, in ascending precedence.
    assignments: Vec<Assignment>,
}

/// The source that set a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The default: no source sets the setting.
    Default,
    /// The settings file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// The flag `--set`.
    Set,
    /// Another flag, such as `--db`.
    Flag(&'static str),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Set => f.write_str("--set"),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

impl Source {
    /// Describes this source for an error about a key. For the settings file, whose content is `text`, the description
    /// also contains the key's line, if the key is found.
    fn with_line(&self, text: &str, key: &str) -> String {
        match (self, line_of(text, key)) {
            (Self::File(path), Some(line)) => format!("{}: line {line}", path.display()),
            _ => self.to_string(),
        }
    }
}

/// A key that a source has set, and its value.
#[derive(Debug, Clone)]
struct Assignment {
    source: Source,
    path: Vec<String>,
    value: Value,
}

/// A setting that differs from its default.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Difference {
    /// Full name of the key.
    pub(crate) key: String,
    /// The value in effect.
    pub(crate) value: Value,
    /// Default value.
    pub(crate) default: Value,
    /// The source that set the value.
    pub(crate) source: String,
}

/// Loads all settings, and locates the database.
pub(crate) fn load(flags: &SettingsFlags, environment: &Environment) -> Result<Loaded, String> {
    let loaded = load_without_database(flags, environment)?;
    let db = loaded.database(loaded.server.db.as_deref(), environment)?;
    Ok(Loaded { db, ..loaded })
}

/// Loads all settings, but does not locate the database. Commands that open no database use this function, so that a
/// missing data folder is not an error.
pub(crate) fn load_without_database(
    flags: &SettingsFlags,
    environment: &Environment,
) -> Result<Loaded, String> {
    let by_flag = flags.config.clone().map(|path| ("--config", path));
    let by_variable = || Some(("EPITOME_CONFIG", PathBuf::from(environment.var("EPITOME_CONFIG")?)));
    let named = by_flag.or_else(by_variable);
    let file = file::find(named.as_ref().map(|(by, path)| (*by, path.as_path())), environment)?;
    let (path, entries, text) =
        file.map_or_else(Default::default, |file| (Some(file.path), file.entries, file.text));
    let from_flags = flags.assignments()?;
    let source = Source::File(path.clone().unwrap_or_default());
    let in_file = |(path, value)| Assignment { source: source.clone(), path, value };
    let in_file: Vec<Assignment> = leaves(&entries).into_iter().map(in_file).collect();
    let others: Vec<&Assignment> = in_file.iter().chain(&from_flags).collect();
    let (variables, unknown) = variables::read(environment, &others)?;
    // A flag such as `--db` overrides the same setting in `--set`, so it is a later layer.
    let (sets, own): (Vec<_>, Vec<_>) = from_flags.into_iter().partition(|flag| flag.source == Source::Set);

    let (mut tree, mut assignments) = (Map::new(), Vec::new());
    // If a required key is missing after one layer, a later layer may still set it.
    let (mut checked, mut missing) = (check(&tree), None);
    for (entries, layer) in [(entries, in_file), as_layer(variables), as_layer(sets), as_layer(own)] {
        if entries.is_empty() {
            continue;
        }
        drop_other_forms(&mut tree, &entries);
        for (section, value) in &entries {
            overlay(&mut tree, section, value, u8::MAX, Nulls::SetNull);
        }
        checked = check(&tree);
        if let Err(error) = &checked {
            let message = with_source(error, &layer, &text)
                .unwrap_or_else(|| format!("{}: {error}", source.with_line(&text, error.key())));
            if !error.problem().starts_with("is missing") {
                return Err(message);
            }
            missing.get_or_insert(message);
        }
        assignments.extend(layer);
    }
    let (server, patch) = checked.map_err(|error| missing.unwrap_or_else(|| error.to_string()))?;
    let settings = Settings::default().with(&patch).map_err(|error| error.to_string())?;
    let holds_key =
        |name: &String| settings.models.values().any(|model| model.key_env.as_ref() == Some(name));
    if let Some(unknown) = unknown.iter().find(|name| !holds_key(name)) {
        return Err(variables::unknown_variable(unknown));
    }
    let db = DbLocation::Sqlite(PathBuf::new());
    let loaded = Loaded { patch, settings, db, server, file: path, text, assignments };
    loaded.check_models()?;
    Ok(loaded)
}

impl Loaded {
    /// Returns the source that set a key. A source also counts if it set the key in its other form, a table that
    /// contains the key, or a part of the key's value.
    pub(crate) fn source(&self, key: &str) -> Source {
        let forms = [Some(key.to_owned()), other_form(key)].into_iter().flatten();
        let paths: Vec<Vec<String>> = forms.filter_map(|key| keys::path(&key)).collect();
        let sets = |assignment: &&Assignment| {
            paths.iter().any(|path| path.starts_with(&assignment.path) || assignment.path.starts_with(path))
        };
        let set = self.assignments.iter().rev().find(sets);
        set.map_or(Source::Default, |assignment| assignment.source.clone())
    }

    /// Returns the workspace if a flag has set it. Returns None if the workspace comes from the file, the environment
    /// or the default.
    pub(crate) fn workspace_from_flag(&self) -> Option<&str> {
        let from_flag = matches!(self.source("server.workspace"), Source::Flag(_) | Source::Set);
        from_flag.then_some(self.server.workspace.as_str())
    }

    /// Returns every source that has set a key. Each source is listed once.
    pub(crate) fn sources(&self) -> Vec<String> {
        let mut sources: Vec<String> = Vec::new();
        for assignment in &self.assignments {
            let source = match &assignment.source {
                Source::Set => format!("--set {}", keys::name(&assignment.path)),
                other => other.to_string(),
            };
            if !sources.contains(&source) {
                sources.push(source);
            }
        }
        // Also lists a settings file that was read but sets no key.
        if let Some(file) = self.file.as_ref().map(|file| file.display().to_string())
            && !sources.contains(&file)
        {
            sources.insert(0, file);
        }
        sources
    }

    /// Returns the settings that differ from their defaults.
    pub(crate) fn differences(&self) -> Vec<Difference> {
        let defaults = leaves(&tree_of(ServerSettings::default(), &Settings::default()));
        let defaults: HashMap<Vec<String>, Value> = defaults.into_iter().collect();
        let ours = leaves(&tree_of(self.server.clone(), &self.settings)).into_iter();
        let differs = |(path, value): (Vec<String>, Value)| {
            let default = defaults.get(&path).cloned().unwrap_or_default();
            let key = keys::name(&path);
            let source = self.source(&key);
            // Leaves out the database and the workspace, because `--check-config` shows them separately, without the
            // database's password. Also leaves out values that are derived for a configured model, because they have no
            // source.
            let separate = ["server.db", "server.workspace"].contains(&key.as_str());
            let differs = default != value && source != Source::Default && !separate;
            differs.then(|| Difference { key, value, default, source: source.to_string() })
        };
        ours.filter_map(differs).collect()
    }

    /// Returns a warning for each trigger whose slot does not exist. Such a trigger is never used: a workspace or
    /// session that sets its own slots drops these triggers.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let slots: Vec<&str> = self.settings.slots.iter().map(|slot| slot.slot.name.as_str()).collect();
        let unused = self.settings.triggers.keys().filter(|name| !slots.contains(&name.as_str()));
        let warning = |name: &String| {
            let key = keys::name(&["trigger".to_owned(), name.clone()]);
            let place = match self.source(&key) {
                Source::Set => format!("--set {key}"),
                source => format!("{}: {key}", source.with_line(&self.text, &key)),
            };
            let hint = match similar_names(name, slots.iter().copied(), 1).first() {
                Some(similar) => format!("did you mean trigger.{similar}?"),
                None => format!("the slots are: {}", slots.join(", ")),
            };
            format!("{place}: no slot is named `{name}`, so this trigger is not used; {hint}")
        };
        unused.map(warning).collect()
    }

    /// Checks that every model that a setting names is configured.
    fn check_models(&self) -> Result<(), String> {
        let models = self.settings.models.keys().map(String::as_str);
        let Err(error) = self.settings.check_models(models) else { return Ok(()) };
        let key = error.key();
        Err(match self.source(key.split('[').next().unwrap_or(key)) {
            Source::Set => format!("--set {error}"),
            Source::Flag(flag) => format!("{flag}: {}", error.problem()),
            source => format!("{}: {error}", source.with_line(&self.text, key)),
        })
    }

    /// Returns where the database is.
    fn database(&self, set: Option<&str>, environment: &Environment) -> Result<DbLocation, String> {
        let source = self.source("server.db");
        let Some(set) = set else {
            let folder = environment
                .data_folder()
                .ok_or("--db: required, because the user's data folder cannot be determined")?;
            return Ok(DbLocation::Sqlite(folder.join("epitome.db")));
        };
        // A relative path in a settings file starts at the file's folder, so it does not depend on the current folder.
        let base = match &source {
            Source::File(file) => environment.current_folder.join(file).parent().map(Path::to_owned),
            _ => None,
        };
        // If the file's folder is the current folder, the path stays relative, so that messages show the path as the
        // user typed it.
        let base = base.filter(|base| *base != environment.current_folder).unwrap_or_default();
        let place = source.with_line(&self.text, "server.db");
        parse_location(set, environment, &base).map_err(|problem| format!("{place}: {problem}"))
    }
}

/// Returns all settings as the content of a settings file.
fn tree_of(server: ServerSettings, settings: &Settings) -> Map<String, Value> {
    let Value::Object(engine) = settings.to_value() else { return Map::new() };
    let sections = Sections { proxy: server.proxy.clone(), server, engine };
    match serde_json::to_value(sections) {
        Ok(Value::Object(all)) => all,
        _ => Map::new(),
    }
}

/// Returns a layer: the assignments, and the content of a settings file that would set the same keys.
fn as_layer(assignments: Vec<Assignment>) -> (Map<String, Value>, Vec<Assignment>) {
    let mut entries = Map::new();
    for Assignment { path, value, .. } in &assignments {
        let Some((section, below)) = path.split_first() else { continue };
        let value = below.iter().rev().fold(value.clone(), |value, key| json!({ key: value }));
        overlay(&mut entries, section, &value, u8::MAX, Nulls::SetNull);
    }
    (entries, assignments)
}

impl SettingsFlags {
    /// Returns the settings from the flags: first the settings of `--set`, then the settings of flags such as `--db`.
    fn assignments(&self) -> Result<Vec<Assignment>, String> {
        let mut assignments = Vec::new();
        for set in &self.set {
            let (name, text) = set.split_once('=').ok_or_else(|| {
                format!("--set {set}: expected KEY=VALUE, such as context.max_tokens=50000")
            })?;
            let path = keys::path(name).ok_or_else(|| format!("--set {set}: invalid name of a setting"))?;
            let value = keys::parse_value(keys::type_of(&path), text)
                .map_err(|problem| format!("--set {}: {problem}", keys::name(&path)))?;
            assignments.push(Assignment { source: Source::Set, path, value });
        }
        let db = self.db.iter().map(|db| ("--db", "server.db", db.as_str().into()));
        let workspace = self.workspace.iter();
        let workspace = workspace.map(|name| ("--workspace", "server.workspace", name.as_str().into()));
        for (flag, key, value) in db.chain(workspace).chain(self.own.clone()) {
            let path = key.split('.').map(str::to_owned).collect();
            assignments.push(Assignment { source: Source::Flag(flag), path, value });
        }
        Ok(assignments)
    }
}

/// Returns every key whose value is not a table, with its value. A list is one value.
fn leaves(table: &Map<String, Value>) -> Vec<(Vec<String>, Value)> {
    let mut all = Vec::new();
    for (key, value) in table {
        match value {
            Value::Object(inner) => {
                let below = leaves(inner).into_iter();
                all.extend(below.map(|(path, value)| ([vec![key.clone()], path].concat(), value)));
            }
            value => all.push((vec![key.clone()], value.clone())),
        }
    }
    all
}

/// Checks a settings tree. Returns the server's sections and the engine's settings, or the first error.
fn check(tree: &Map<String, Value>) -> Result<(ServerSettings, Patch), SettingsError> {
    // If nothing is set, does not build the schema, because building it takes longer than the rest of a short command's
    // start.
    let Sections { server, proxy, engine } = match tree.is_empty() {
        true => Sections::default(),
        false => read(Value::Object(tree.clone()), &keys::SCHEMA)?,
    };
    let mut server = ServerSettings { proxy, ..server };
    server.validate()?;
    Ok((server, Patch::from_value(Value::Object(engine))?))
}

/// Adds the source to an error. The source is that of one assignment in this layer: the assignment whose key has the
/// most leading parts in common with the error's key. `text` is the text of the settings file.
fn with_source(error: &SettingsError, layer: &[Assignment], text: &str) -> Option<String> {
    let key: Vec<String> = keys::path(error.key())
        .unwrap_or_default()
        .into_iter()
        .map(|part| part.split('[').next().unwrap_or_default().to_owned())
        .collect();
    let in_common = |set: &&Assignment| set.path.iter().zip(&key).take_while(|(one, two)| one == two).count();
    let Assignment { source, path, .. } = layer.iter().max_by_key(in_common)?;
    let is_key_itself = keys::name(path) == error.key();
    Some(match source {
        Source::Set if is_key_itself => format!("--set {error}"),
        Source::Set => format!("--set {}: {error}", keys::name(path)),
        Source::Variable(_) | Source::Flag(_) if is_key_itself => format!("{source}: {}", error.problem()),
        source => format!("{}: {error}", source.with_line(text, error.key())),
    })
}

#[cfg(test)]
mod tests;
