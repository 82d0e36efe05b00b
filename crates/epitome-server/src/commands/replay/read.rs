//! From files to conversations, one at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use epitome::core::measure::Question;
use epitome::core::message::Message;
use epitome::dialect::Dialect;
use epitome::replay::Conversation;
use serde_json::{Map, Value};

use crate::failure::Failure;
use crate::recording::{Item, REQUEST, Recording};

/// The files that were named, and those in the folders that were.
pub(super) fn files(given: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in given {
        let failed =
            |error: std::io::Error| Failure::Input(format!("{} cannot be read: {error}", path.display()));
        if !std::fs::metadata(path).map_err(failed)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        let recorded = |path: &PathBuf| path.extension().is_some_and(|end| end == "jsonl" || end == "json");
        let mut inside: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            inside.extend(Some(entry.map_err(failed)?.path()).filter(recorded));
        }
        if inside.is_empty() {
            return Err(Failure::Input(format!("{}: no .jsonl or .json file in it", path.display())));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

/// What a file is called in tables: its name without its ending.
pub(super) fn set_of(path: &Path) -> Arc<str> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = [".jsonl", ".json"].iter().find_map(|end| name.strip_suffix(end));
    stem.unwrap_or(&name).into()
}

/// How a conversation is read.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct How {
    pub(super) dialect: Option<Dialect>,
    pub(super) pinned: Option<usize>,
}

/// Calls `found` with each conversation of a file until it says that it wants no more. What cannot be read is told with
/// its place.
pub(super) fn each(
    path: &Path,
    how: How,
    bytes: &Arc<AtomicU64>,
    mut found: impl FnMut(Conversation) -> bool,
) -> Result<(), Failure> {
    let shown = path.display().to_string();
    let failed = |error: std::io::Error| Failure::Input(format!("{shown} cannot be read: {error}"));
    let recording = Recording::open(path, &shown, None, how.dialect, bytes).map_err(failed)?;
    let mut under_way: Option<Begun> = None;
    for item in recording {
        match item.map_err(failed)? {
            Item::Session { name, metadata, at } => {
                let begun =
                    Begun::new(name, metadata).map_err(|what| Failure::Input(format!("{at}: {what}")))?;
                if let Some(before) = under_way.replace(begun)
                    && !found(before.end(how))
                {
                    return Ok(());
                }
            }
            Item::Message { message, .. } => {
                if let Some(begun) = &mut under_way {
                    begun.messages.push(*message);
                }
            }
            Item::Bad { problem, at } => return Err(Failure::Input(format!("{at}: {problem}"))),
        }
    }
    if let Some(last) = under_way {
        found(last.end(how));
    }
    Ok(())
}

/// A conversation under way.
struct Begun {
    name: String,
    pinned: Option<usize>,
    questions: Vec<Question>,
    messages: Vec<Message>,
}

impl Begun {
    fn new(name: String, mut metadata: Map<String, Value>) -> Result<Self, String> {
        let mut fields = metadata.remove(REQUEST).unwrap_or_default();
        let pinned = match fields.get("pinned") {
            None | Some(Value::Null) => None,
            Some(told) => {
                let count = told.as_u64().and_then(|count| usize::try_from(count).ok());
                Some(count.ok_or("pinned: give a whole number from 0")?)
            }
        };
        let questions = match fields.get_mut("qa").map(Value::take) {
            None | Some(Value::Null) => Vec::new(),
            Some(told) => serde_json::from_value(told).map_err(|error| format!("qa: {error}"))?,
        };
        Ok(Self { name, pinned, questions, messages: Vec::new() })
    }

    /// Where nobody says what always stays, standing orders do.
    fn end(self, how: How) -> Conversation {
        let leading = self.messages.iter().take_while(|message| message.role.is_system()).count();
        Conversation {
            name: self.name,
            pinned: self.pinned.or(how.pinned).unwrap_or(leading),
            messages: self.messages,
            questions: self.questions,
        }
    }
}
