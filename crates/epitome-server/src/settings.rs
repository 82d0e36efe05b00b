//! Flags over environment over `epitome.toml` over defaults.
//!
//! What is given comes in as values ([`Given`], [`World`]), is laid over each other, judged by the engine
//! ([`epitome::settings`]), and goes out as [`Loaded`]: typed and right. An error names the key and where it
//! came from, so that nobody has to look for it in four places.
//!
//! Two sections are ours: `[server]`, the database, the workspace and how `serve` listens, and `[proxy]`, where it passes
//! requests on to. All others are the engine's.

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

/// What the command line says about settings.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "For every command")]
pub(crate) struct Given {
    /// The settings (./epitome.toml, else the user's) [env: EPITOME_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The database (epitome.db in the data folder) [env: EPITOME_DB]
    #[arg(long, global = true, value_name = "PATH|URL")]
    pub(crate) db: Option<String>,
    /// Whose sessions (default) [env: EPITOME_WORKSPACE]
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) workspace: Option<String>,
    /// Sets any key of the settings; may be given again
    #[arg(long, global = true, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Flags of the command itself that are settings.
    #[arg(skip)]
    pub(crate) own: Vec<OwnFlag>,
}

/// A flag that is a setting: the flag, its key, what it says.
pub(crate) type OwnFlag = (&'static str, &'static str, Value);

/// The settings that hold.
#[derive(Debug, Clone)]
pub(crate) struct Loaded {
    /// The engine's, as a patch over the defaults: what an engine is built with.
    pub(crate) patch: Patch,
    /// The same, complete.
    pub(crate) settings: Settings,
    /// Where the database is.
    pub(crate) db: Place,
    /// Our own section.
    pub(crate) server: Server,
    /// The settings file that was read.
    pub(crate) file: Option<PathBuf>,
    /// What was set, those that hold last.
    items: Vec<Item>,
}

/// Where a setting came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Nobody set it.
    Default,
    /// A file.
    File(PathBuf),
    /// A variable of the environment.
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

/// A setting that is not as it is by default.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Difference {
    /// Its full name.
    pub(crate) key: String,
    /// Its value.
    pub(crate) value: Value,
    /// What it would be.
    pub(crate) default: Value,
    /// Who set it.
    pub(crate) source: String,
}

/// Reads it all.
pub(crate) fn load(given: &Given, world: &World) -> Result<Loaded, String> {
    let loaded = load_without_database(given, world)?;
    let db = loaded.database(loaded.server.db.as_deref(), world)?;
    Ok(Loaded { db, ..loaded })
}

/// The same for whoever opens no database, and need not know where one would be.
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
    // What a flag is there for it says last.
    let (sets, own): (Vec<Item>, Vec<Item>) = flags.into_iter().partition(|item| item.source == Source::Set);

    let (mut tree, mut items) = (Map::new(), Vec::new());
    // What one stage leaves out another may still say.
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
    /// Who set a key, in whatever form; the nearest above it where it was set as a part of something.
    pub(crate) fn source(&self, key: &str) -> Source {
        let forms = [Some(key.to_owned()), other_form(key)].into_iter().flatten();
        let paths: Vec<Vec<String>> = forms.filter_map(|key| keys::path(&key)).collect();
        let sets = |item: &&Item| {
            paths.iter().any(|path| path.starts_with(&item.path) || item.path.starts_with(path))
        };
        let set = self.items.iter().rev().find(sets);
        set.map_or(Source::Default, |item| item.source.clone())
    }

    /// The workspace, where whoever typed the command named it: not where their file or environment does.
    pub(crate) fn typed_workspace(&self) -> Option<&str> {
        let typed = matches!(self.source("server.workspace"), Source::Flag(_) | Source::Set);
        typed.then_some(self.server.workspace.as_str())
    }

    /// Everything that was set from somewhere, told once each.
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
        // A file is read even where it sets nothing.
        if let Some(file) = self.file.as_ref().map(|file| file.display().to_string())
            && !told.contains(&file)
        {
            told.insert(0, file);
        }
        told
    }

    /// What is not as it is by default.
    pub(crate) fn differences(&self) -> Vec<Difference> {
        let defaults = leaves(&tree_of(Server::default(), &Settings::default()));
        let defaults: HashMap<Vec<String>, Value> = defaults.into_iter().collect();
        let ours = leaves(&tree_of(self.server.clone(), &self.settings)).into_iter();
        let differs = |(path, value): (Vec<String>, Value)| {
            let default = defaults.get(&path).cloned().unwrap_or_default();
            let key = keys::name(&path);
            let source = self.source(&key);
            // Database and workspace are shown apart, the first without its password. What was worked out for a model
            // because it was set up at all is nobody's doing.
            let apart = ["server.db", "server.workspace"].contains(&key.as_str());
            let differs = default != value && source != Source::Default && !apart;
            differs.then(|| Difference { key, value, default, source: source.to_string() })
        };
        ours.filter_map(differs).collect()
    }

    /// Refuses the names of models that are not set up.
    fn check_models(&self) -> Result<(), String> {
        let own = &self.settings.models;
        let is_known = |name: &str| name == "local" || own.contains_key(name);
        let Some((key, unknown)) = self.settings.unknown_model(is_known) else { return Ok(()) };
        let same = Some(CondenseSettings::SAME).filter(|_| key == "condense.model");
        let known: Vec<&str> = own.keys().map(String::as_str).chain(["local"]).chain(same).collect();
        let source = self.source(key.split('[').next().unwrap_or(&key));
        Err(format!(
            "{source}: {key}: `{unknown}` is unknown; set it up as models.{unknown}; known here: {}",
            known.join(", ")
        ))
    }

    /// Where the database is.
    fn database(&self, set: Option<&str>, world: &World) -> Result<Place, String> {
        let source = self.source("server.db");
        let Some(set) = set else {
            let folder =
                world.data_folder().ok_or("--db: say where the database is; no data folder is known here")?;
            return Ok(Place::Sqlite(folder.join("epitome.db")));
        };
        // So that one file means the same database wherever one stands.
        let base = match &source {
            Source::File(file) => world.here.join(file).parent().map(Path::to_owned),
            _ => None,
        };
        // A plain path stays as it was typed: that is how people know it.
        let base = base.filter(|base| *base != world.here).unwrap_or_default();
        place::read(set, world, &base).map_err(|problem| format!("{source}: {problem}"))
    }
}

/// All that is set, as a file would say it.
fn tree_of(server: Server, settings: &Settings) -> Map<String, Value> {
    let Value::Object(engine) = settings.to_value() else { return Map::new() };
    let sections = Sections { proxy: server.proxy.clone(), server, engine };
    match serde_json::to_value(sections) {
        Ok(Value::Object(all)) => all,
        _ => Map::new(),
    }
}

/// What these say, as a file would say it.
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
            .ok_or_else(|| format!("--set {set}: say KEY=VALUE, as in context.max_tokens=50000"))?;
        let path = keys::path(name).ok_or_else(|| format!("--set {set}: no setting is called so"))?;
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

/// Every key with a value of its own. A list is one value.
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

/// Our sections and the engine's settings, or the first thing that is wrong.
fn judge(tree: &Map<String, Value>) -> Result<(Server, Patch), SettingsError> {
    // Making the schema takes longer than everything else that a short command does before it begins.
    let Sections { server, proxy, engine } = match tree.is_empty() {
        true => Sections::default(),
        false => read(Value::Object(tree.clone()), &keys::SCHEMA)?,
    };
    let mut server = Server { proxy, ..server };
    server.settle()?;
    Ok((server, Patch::from_value(Value::Object(engine))?))
}

/// What is wrong, with who of these is to blame: whoever set the key, or something next to it.
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
