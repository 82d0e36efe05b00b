//! Reads conversations from files, one at a time.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::recording::{FilePosition, REQUEST, Recording, RecordingItem};
use epitome::dialect::Dialect;
use epitome::rules::message::Message;
use epitome_terminal::failure::Failure;
use serde_json::{Map, Value};

use crate::evaluation::Question;
use crate::play::Conversation;

/// Returns the files in `paths`, and the recordings in the folders in `paths`.
pub(super) fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in paths {
        let failed =
            |error: std::io::Error| Failure::Input(format!("{} cannot be read: {error}", path.display()));
        if !std::fs::metadata(path).map_err(failed)?.is_dir() {
            files.push(path.clone());
            continue;
        }
        let is_recording =
            |path: &PathBuf| path.extension().is_some_and(|end| end == "jsonl" || end == "json");
        let mut inside: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed)? {
            inside.extend(Some(entry.map_err(failed)?.path()).filter(is_recording));
        }
        if inside.is_empty() {
            return Err(Failure::Input(format!("{}: no .jsonl or .json file in it", path.display())));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

/// Returns a title for the tables of each file. The title is the file's name, or its path if two files have the same
/// name.
pub(super) fn sets(files: &[PathBuf]) -> Vec<Arc<str>> {
    let names: Vec<Arc<str>> = files.iter().map(|file| set_of(file)).collect();
    let is_unique = |name: &Arc<str>| names.iter().filter(|other| *other == name).count() == 1;
    let title = |(name, file): (&Arc<str>, &PathBuf)| match is_unique(name) {
        true => Arc::clone(name),
        false => file.display().to_string().into(),
    };
    names.iter().zip(files).map(title).collect()
}

/// Returns the file name without `.jsonl` or `.json`.
fn set_of(path: &Path) -> Arc<str> {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = [".jsonl", ".json"].iter().find_map(|end| name.strip_suffix(end));
    stem.unwrap_or(&name).into()
}

/// Options for reading conversations.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReadOptions {
    pub(super) dialect: Option<Dialect>,
    pub(super) pinned: Option<usize>,
}

/// Calls `on_conversation` with each conversation of a file, until `on_conversation` returns false. If an entry cannot
/// be read, returns an error with the entry's file and line.
pub(super) fn each(
    path: &Path,
    options: ReadOptions,
    bytes: &Arc<AtomicU64>,
    mut on_conversation: impl FnMut(Conversation) -> bool,
) -> Result<(), Failure> {
    let shown = path.display().to_string();
    let failed = |error: std::io::Error| Failure::Input(format!("{shown} cannot be read: {error}"));
    let recording = Recording::open(path, &shown, None, options.dialect, bytes).map_err(failed)?;
    let mut open: Option<OpenConversation> = None;
    for item in recording {
        match item.map_err(failed)? {
            RecordingItem::Session { name, metadata, at } => {
                let next = OpenConversation::new(name, metadata, at)?;
                if let Some(before) = open.replace(next)
                    && !on_conversation(before.end(options)?)
                {
                    return Ok(());
                }
            }
            RecordingItem::Message { message, .. } => {
                if let Some(conversation) = &mut open {
                    conversation.messages.push(*message);
                }
            }
            RecordingItem::Bad { problem, at } => return Err(Failure::Input(format!("{at}: {problem}"))),
        }
    }
    if let Some(last) = open {
        on_conversation(last.end(options)?);
    }
    Ok(())
}

/// A conversation that is still being read.
struct OpenConversation {
    name: String,
    at: FilePosition,
    pinned: Option<usize>,
    /// Whether the recording has its system prompt in a separate field, and not in the message list. If so, `pinned`
    /// and the positions in `qa` do not count the system prompt.
    system_is_field: bool,
    questions: Vec<Question>,
    messages: Vec<Message>,
}

impl OpenConversation {
    fn new(name: String, mut metadata: Map<String, Value>, at: FilePosition) -> Result<Self, Failure> {
        let wrong = |problem: String| Failure::Input(format!("{at}: {problem}"));
        let mut fields = metadata.remove(REQUEST).unwrap_or_default();
        let pinned = match fields.get("pinned") {
            None | Some(Value::Null) => None,
            Some(value) => {
                let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
                Some(count.ok_or_else(|| wrong("pinned: expected a whole number from 0".to_owned()))?)
            }
        };
        let questions = match fields.get_mut("qa").map(Value::take) {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => {
                let read = |(nth, one): (usize, Value)| {
                    // The error does not contain the wrong value, because the value may contain message text.
                    let rule = "expected a question, its answer, and as evidence the positions of messages, counted from 0";
                    serde_json::from_value(one).map_err(|_| wrong(format!("qa[{nth}]: {rule}")))
                };
                list.into_iter().enumerate().map(read).collect::<Result<_, _>>()?
            }
            Some(_) => return Err(wrong("qa: expected a list of {question, answer, evidence}".to_owned())),
        };
        let system_is_field =
            ["system", "instructions"].iter().any(|key| fields.get(key) == Some(&Value::Null));
        Ok(Self { name, at, pinned, system_is_field, questions, messages: Vec::new() })
    }

    /// Returns the complete conversation. The recording or the flag `--pinned` sets how many messages always stay.
    /// Without both, the leading system messages always stay.
    fn end(mut self, options: ReadOptions) -> Result<Conversation, Failure> {
        let wrong = |problem: String| Failure::Input(format!("{}: {problem}", self.at));
        let leading = self.messages.iter().take_while(|message| message.role.is_system()).count();
        let before = usize::from(self.system_is_field && leading > 0);
        let count = self.messages.len().saturating_sub(before);
        if let Some(pinned) = self.pinned.filter(|pinned| *pinned > count) {
            return Err(wrong(format!("pinned: {pinned} messages, but the conversation has {count}")));
        }
        for (nth, question) in self.questions.iter_mut().enumerate() {
            if let Some(missing) = question.evidence.iter().find(|place| **place >= count) {
                let last = count.saturating_sub(1);
                let problem = format!("there is no message {missing}; allowed are 0 to {last}");
                return Err(wrong(format!("qa[{nth}].evidence: {problem}")));
            }
            question.evidence.iter_mut().for_each(|place| *place += before);
        }
        let pinned = self.pinned.or(options.pinned).map_or(leading, |pinned| pinned + before);
        Ok(Conversation {
            name: self.name,
            pinned: pinned.min(self.messages.len()),
            messages: self.messages,
            questions: self.questions,
        })
    }
}
