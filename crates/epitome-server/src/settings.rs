//! Loads the settings: flags override the environment, which overrides `epitome.toml`, which overrides the defaults.
//!
//! The sources come in as values ([`Given`], [`World`]). Each layer is merged over the previous one and checked with the
//! engine's rules ([`epitome::settings`]). The result is [`Loaded`]: typed and valid. An error names the key and the
//! source that set it.
//!
//! Two sections belong to the server: `[server]` (database, workspace, how `serve` listens) and `[proxy]` (upstreams). All
//! others belong to the engine.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use epitome::settings::{
    CondenseSettings, Nulls, Patch, Settings, SettingsError, give_way, other_form, overlay, read,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

mod env;
mod file;
mod keys;
mod place;
mod server;
mod write;

pub(crate) use file::NAME as FILE_NAME;
pub(crate) use keys::patch_schema;
pub(crate) use place::{Address, Place, World, read as read_place};
use server::Sections;
pub(crate) use server::{Proxy, RequireKeys, Role, Server};
pub(crate) use write::template;

/// Settings flags of the command line.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "For every command")]
pub(crate) struct Given {
    /// Settings file (./epitome.toml, else the user's) [env: EPITOME_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Database (epitome.db in the data folder) [env: EPITOME_DB]
    #[arg(long, global = true, value_name = "PATH|URL")]
    pub(crate) db: Option<String>,
    /// Workspace of the sessions (default) [env: EPITOME_WORKSPACE]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) workspace: Option<String>,
    /// Sets any settings key; can be repeated
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Flags of the command itself that are settings.
    #[arg(skip)]
    pub(crate) own: Vec<OwnFlag>,
}

/// A flag that is a setting: the flag, its key, its value.
pub(crate) type OwnFlag = (&'static str, &'static str, Value);

/// The settings in effect.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    /// The engine's settings as a patch over the defaults, to build an engine with.
    pub(crate) patch: Patch,
    /// The engine's settings, complete.
    pub(crate) settings: Settings,
    /// Where the database is.
    pub(crate) db: Place,
    /// The server's own sections.
    pub(crate) server: Server,
    /// The settings file that was read.
    pub(crate) file: Option<PathBuf>,
    /// Every key that was set, in ascending precedence.
    items: Vec<Item>,
}

/// Where a setting came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// The default; no source set it.
    Default,
    /// A file.
    File(PathBuf),
    /// An environment variable.
    Variable(String),
    /// `--set`.
    Set,
    /// Another flag.
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

/// One key that was set.
#[derive(Debug, Clone)]
struct Item {
    source: Source,
    path: Vec<String>,
    value: Value,
}

/// A setting that differs from its default.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Difference {
    /// Full name of the key.
    pub(crate) key: String,
    /// Value in effect.
    pub(crate) value: Value,
    /// Default value.
    pub(crate) default: Value,
    /// Source that set it.
    pub(crate) source: String,
}

/// Loads all settings, and locates the database.
pub(crate) fn load(given: &Given, world: &World) -> Result<Loaded, String> {
    let loaded = load_without_database(given, world)?;
    let db = loaded.database(loaded.server.db.as_deref(), world)?;
    Ok(Loaded { db, ..loaded })
}

/// Loads all settings for a command that opens no database, so that a missing data folder is no error.
pub(crate) fn load_without_database(given: &Given, world: &World) -> Result<Loaded, String> {
    let by_flag = given.config.clone().map(|path| ("--config", path));
    let named = by_flag.or_else(|| Some(("EPITOME_CONFIG", PathBuf::from(world.var("EPITOME_CONFIG")?))));
    let file = file::find(named.as_ref().map(|(by, path)| (*by, path.as_path())), world)?;
    let (path, entries) = file.map_or((None, Map::new()), |file| (Some(file.path), file.entries));
    let flags = from_flags(given)?;
    let source = Source::File(path.clone().unwrap_or_default());
    let of_file = |(path, value)| Item { source: source.clone(), path, value };
    let of_file: Vec<Item> = leaves(&entries).into_iter().map(of_file).collect();
    let (variables, unknown) = env::read(world, &of_file.iter().chain(&flags).collect::<Vec<_>>())?;
    // A setting's own flag overrides `--set`.
    let (sets, own): (Vec<Item>, Vec<Item>) = flags.into_iter().partition(|item| item.source == Source::Set);

    let (mut tree, mut items) = (Map::new(), Vec::new());
    // A required key that is missing after one stage may still be set by a later one.
    let (mut judged, mut missing) = (judge(&tree), None);
    for (said, stage) in [(entries, of_file), staged(variables), staged(sets), staged(own)] {
        if said.is_empty() {
            continue;
        }
        give_way(&mut tree, &said);
        for (section, value) in &said {
            overlay(&mut tree, section, value, u8::MAX, Nulls::TakeBack);
        }
        judged = judge(&tree);
        if let Err(wrong) = &judged {
            let told = blamed(wrong, &stage).unwrap_or_else(|| format!("{source}: {wrong}"));
            if !wrong.problem().starts_with("is missing") {
                return Err(told);
            }
            missing.get_or_insert(told);
        }
        items.extend(stage);
    }
    let (server, patch) = judged.map_err(|wrong| missing.unwrap_or_else(|| wrong.to_string()))?;
    let settings = Settings::default().with(&patch).map_err(|wrong| wrong.to_string())?;
    let keys = |name: &String| settings.models.values().any(|model| model.key_env.as_ref() == Some(name));
    if let Some(unknown) = unknown.iter().find(|name| !keys(name)) {
        return Err(env::refuse(unknown));
    }
    let loaded = Loaded { patch, settings, db: Place::Sqlite(PathBuf::new()), server, file: path, items };
    loaded.check_models()?;
    Ok(loaded)
}

impl Loaded {
    /// Returns the source that set a key, in its own or its other form, as a part of a table or through a part of it.
    pub(crate) fn source(&self, key: &str) -> Source {
        let forms = [Some(key.to_owned()), other_form(key)].into_iter().flatten();
        let paths: Vec<Vec<String>> = forms.filter_map(|key| keys::path(&key)).collect();
        let sets = |item: &&Item| {
            paths.iter().any(|path| path.starts_with(&item.path) || item.path.starts_with(path))
        };
        let set = self.items.iter().rev().find(sets);
        set.map_or(Source::Default, |item| item.source.clone())
    }

    /// Returns the workspace if a flag of the command names it; none if a file or the environment does.
    pub(crate) fn typed_workspace(&self) -> Option<&str> {
        let typed = matches!(self.source("server.workspace"), Source::Flag(_) | Source::Set);
        typed.then_some(self.server.workspace.as_str())
    }

    /// Returns every source that set something, each once.
    pub(crate) fn sources(&self) -> Vec<String> {
        let mut told: Vec<String> = Vec::new();
        for item in &self.items {
            let source = match &item.source {
                Source::Set => format!("--set {}", keys::name(&item.path)),
                other => other.to_string(),
            };
            if !told.contains(&source) {
                told.push(source);
            }
        }
        // Lists the file that was read even if it sets nothing.
        if let Some(file) = self.file.as_ref().map(|file| file.display().to_string())
            && !told.contains(&file)
        {
            told.insert(0, file);
        }
        told
    }

    /// Returns the settings that differ from their defaults.
    pub(crate) fn differences(&self) -> Vec<Difference> {
        let defaults = leaves(&tree_of(Server::default(), &Settings::default()));
        let defaults: HashMap<Vec<String>, Value> = defaults.into_iter().collect();
        let ours = leaves(&tree_of(self.server.clone(), &self.settings)).into_iter();
        let differs = |(path, value): (Vec<String>, Value)| {
            let default = defaults.get(&path).cloned().unwrap_or_default();
            let key = keys::name(&path);
            let source = self.source(&key);
            // Database and workspace are shown separately, the first without its password. Values derived for a configured
            // model have no source.
            let apart = ["server.db", "server.workspace"].contains(&key.as_str());
            let differs = default != value && source != Source::Default && !apart;
            differs.then(|| Difference { key, value, default, source: source.to_string() })
        };
        ours.filter_map(differs).collect()
    }

    /// Refuses the names of models that are not configured.
    fn check_models(&self) -> Result<(), String> {
        let own = &self.settings.models;
        let is_known = |name: &str| name == "local" || own.contains_key(name);
        let Some((key, unknown)) = self.settings.unknown_model(is_known) else { return Ok(()) };
        let same = Some(CondenseSettings::SAME).filter(|_| key == "condense.model");
        let known: Vec<&str> = own.keys().map(String::as_str).chain(["local"]).chain(same).collect();
        let source = self.source(key.split('[').next().unwrap_or(&key));
        Err(format!(
            "{source}: {key}: no model named `{unknown}`; define [models.{unknown}], or use one of: {}",
            known.join(", ")
        ))
    }

    /// Returns where the database is.
    fn database(&self, set: Option<&str>, world: &World) -> Result<Place, String> {
        let source = self.source("server.db");
        let Some(set) = set else {
            let folder = world
                .data_folder()
                .ok_or("--db: required, because the user's data folder cannot be determined")?;
            return Ok(Place::Sqlite(folder.join("epitome.db")));
        };
        // A path in a settings file starts at the file's folder, so it does not depend on the current folder.
        let base = match &source {
            Source::File(file) => world.here.join(file).parent().map(Path::to_owned),
            _ => None,
        };
        // A path of the current folder is shown as it was typed.
        let base = base.filter(|base| *base != world.here).unwrap_or_default();
        place::read(set, world, &base).map_err(|problem| format!("{source}: {problem}"))
    }
}

/// Returns all settings as the content of a settings file.
fn tree_of(server: Server, settings: &Settings) -> Map<String, Value> {
    let Value::Object(engine) = settings.to_value() else { return Map::new() };
    let sections = Sections { proxy: server.proxy.clone(), server, engine };
    match serde_json::to_value(sections) {
        Ok(Value::Object(all)) => all,
        _ => Map::new(),
    }
}

/// Returns the content of a settings file with these items, and the items.
fn staged(items: Vec<Item>) -> (Map<String, Value>, Vec<Item>) {
    let mut said = Map::new();
    for Item { path, value, .. } in &items {
        let Some((section, below)) = path.split_first() else { continue };
        let value = below.iter().rev().fold(value.clone(), |value, key| json!({ key: value }));
        overlay(&mut said, section, &value, u8::MAX, Nulls::TakeBack);
    }
    (said, items)
}

fn from_flags(given: &Given) -> Result<Vec<Item>, String> {
    let mut items = Vec::new();
    for set in &given.set {
        let (name, text) = set
            .split_once('=')
            .ok_or_else(|| format!("--set {set}: expected KEY=VALUE, as in context.max_tokens=50000"))?;
        let path = keys::path(name).ok_or_else(|| format!("--set {set}: invalid name of a setting"))?;
        let value = keys::value(keys::kind_of(&path), text)
            .map_err(|problem| format!("--set {}: {problem}", keys::name(&path)))?;
        items.push(Item { source: Source::Set, path, value });
    }
    let db = given.db.iter().map(|db| ("--db", "server.db", db.as_str().into()));
    let workspace =
        given.workspace.iter().map(|name| ("--workspace", "server.workspace", name.as_str().into()));
    for (flag, key, value) in db.chain(workspace).chain(given.own.clone()) {
        let path = key.split('.').map(str::to_owned).collect();
        items.push(Item { source: Source::Flag(flag), path, value });
    }
    Ok(items)
}

/// Returns every key that has a value itself. A list is one value.
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
fn judge(tree: &Map<String, Value>) -> Result<(Server, Patch), SettingsError> {
    // Skips building the schema if nothing is set: it takes longer than the rest of a short command's start.
    let Sections { server, proxy, engine } = match tree.is_empty() {
        true => Sections::default(),
        false => read(Value::Object(tree.clone()), &keys::SCHEMA)?,
    };
    let mut server = Server { proxy, ..server };
    server.settle()?;
    Ok((server, Patch::from_value(Value::Object(engine))?))
}

/// Names the source of an error: the item of this stage that set the key, or the one nearest to it.
fn blamed(wrong: &SettingsError, stage: &[Item]) -> Option<String> {
    let key: Vec<String> = keys::path(wrong.key())
        .unwrap_or_default()
        .into_iter()
        .map(|part| part.split('[').next().unwrap_or_default().to_owned())
        .collect();
    let common = |item: &&Item| item.path.iter().zip(&key).take_while(|(one, other)| one == other).count();
    let item = stage.iter().max_by_key(common)?;
    let own = keys::name(&item.path) == wrong.key();
    Some(match &item.source {
        Source::Set if own => format!("--set {wrong}"),
        Source::Set => format!("--set {}: {wrong}", keys::name(&item.path)),
        Source::Variable(_) | Source::Flag(_) if own => format!("{}: {}", item.source, wrong.problem()),
        source => format!("{source}: {wrong}"),
    })
}

#[cfg(test)]
mod tests;
