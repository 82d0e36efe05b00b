//! Imports recorded conversations into a workspace.
//!
//! The import reads the files twice. The first pass checks all lines and writes nothing, so that an invalid line at the
//! end does not leave a half-finished import. The second pass adds the messages batch by batch. If a session already
//! has messages, the file must begin with the same messages, and only the messages after them are added. The same
//! command can therefore be run again: it resumes an interrupted import, adds the new lines of a file, and never adds a
//! message twice. The import does not store how far it has come.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use epitome::dialect::Dialect;
use epitome::rules::message::{Message, MessageError, Seq};
use epitome::{Batch, Page, Session, Workspace, is_name};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::{Map, Value};
use tokio::runtime::Handle;

use epitome_lab::recording::{FilePosition, REQUEST, Recording, RecordingItem, WireTexts};
use epitome_terminal::failure::Failure;

/// Maximum size of a batch, in messages and in bytes.
const BATCH: u64 = 1_000;
const BATCH_BYTES: u64 = 4 << 20;

/// Maximum size, in bytes, of the fields that a conversation has in addition to its messages. These fields are stored
/// in the session's metadata, which has a limit, so larger fields are not stored.
const MAX_FIELDS_BYTES: usize = 48 << 10;

/// Number of stored messages that are read at a time for the comparison.
const COMPARE_PAGE: usize = 500;

/// Maximum number of problems that are printed. Further problems are only counted.
pub(super) const MAX_PROBLEMS: usize = 20;

/// A file to read, and its name in error messages.
#[derive(Debug, Clone)]
pub(super) struct InputFile {
    pub(super) path: PathBuf,
    pub(super) shown: String,
}

/// What is imported, and how.
pub(super) struct ImportPlan {
    pub(super) files: Vec<InputFile>,
    pub(super) session: Option<String>,
    pub(super) dialect: Option<Dialect>,
    /// Whether to append everything, without comparing it with the session's messages.
    pub(super) append: bool,
    pub(super) limits: epitome::settings::Limits,
}

/// Progress of a pass, read by the progress display.
#[derive(Debug, Default)]
pub(super) struct PassProgress {
    /// Bytes read in this pass.
    pub(super) bytes: Arc<AtomicU64>,
    /// In the first pass, the number of messages checked. In the second pass, the number of messages added or already
    /// stored.
    pub(super) messages: AtomicU64,
}

/// Result of the first pass.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) messages: u64,
    /// Number of messages and lines that cannot be imported. `problems` describes the first [`MAX_PROBLEMS`] of these.
    pub(super) bad: u64,
    pub(super) problems: Vec<String>,
}

impl Checked {
    fn bad(&mut self, at: &FilePosition, problem: &str) {
        self.bad += 1;
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(format!("{at}: {problem}"));
        }
    }
}

/// Result of the import of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Imported {
    pub(super) session: String,
    /// Number of messages added.
    pub(super) added: u64,
    /// Number of the file's messages that the session had before the import.
    pub(super) already_stored: u64,
}

/// Writes `already_stored` under two names: earlier releases called it `known`.
impl Serialize for Imported {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Imported", 4)?;
        fields.serialize_field("session", &self.session)?;
        fields.serialize_field("added", &self.added)?;
        fields.serialize_field("already_stored", &self.already_stored)?;
        fields.serialize_field("known", &self.already_stored)?;
        fields.end()
    }
}

impl Imported {
    /// Number of messages of the file.
    pub(super) fn messages(&self) -> u64 {
        self.added + self.already_stored
    }
}

impl ImportPlan {
    /// Reads and checks all files. This function blocks, so the caller runs it on a thread of its own.
    pub(super) fn check(&self, pass: &PassProgress) -> Result<Checked, Failure> {
        let mut checked = Checked::default();
        let mut sessions: HashMap<String, FilePosition> = HashMap::new();
        for file in &self.files {
            for item in self.open(file, pass)? {
                match item.map_err(|error| read_error(file, &error))? {
                    RecordingItem::Session { name, at, .. } => {
                        if !is_name(&name) {
                            checked.bad(&at, "a session's name has 1 to 512 bytes and no control characters");
                        } else if let Some(before) = sessions.get(&name) {
                            checked.bad(&at, &format!(
                                "the session `{name}` occurs a second time, after {before}; put all messages of \
                                 this session together, or import the two files separately"
                            ));
                        }
                        sessions.insert(name, at);
                    }
                    RecordingItem::Message { message, at, .. } => {
                        match message.check(&self.limits.of_message()) {
                            Ok(()) => {
                                checked.messages += 1;
                                pass.messages.fetch_add(1, Ordering::Relaxed);
                            }
                            Err(error @ MessageError::TooLarge { field, .. }) => {
                                checked.bad(&at, &format!("{error} (limits.{field})"));
                            }
                            Err(error) => checked.bad(&at, &error.to_string()),
                        }
                    }
                    RecordingItem::Bad { problem, at } => checked.bad(&at, &problem),
                }
            }
        }
        Ok(checked)
    }

    fn open(&self, file: &InputFile, pass: &PassProgress) -> Result<Recording, Failure> {
        let session = self.session.as_deref();
        Recording::open(&file.path, &file.shown, session, self.dialect, &pass.bytes)
            .map_err(|error| read_error(file, &error))
    }

    /// Adds all messages to the workspace. Returns the result of each session, even after a failure. Skips lines that
    /// cannot be imported. `left_out` is the number of such lines, which [`ImportPlan::check`] has counted. This
    /// function blocks, so the caller runs it on a thread of its own.
    pub(super) fn import(
        &self,
        workspace: &Workspace,
        left_out: u64,
        pass: &PassProgress,
    ) -> (Vec<Imported>, Result<(), Failure>) {
        let (mut done, mut current) = (Vec::new(), None);
        let result = self.add_all(workspace, left_out, pass, &mut done, &mut current);
        done.extend(current.map(|ended| ended.imported));
        (done, result)
    }

    fn add_all(
        &self,
        workspace: &Workspace,
        mut left_out: u64,
        pass: &PassProgress,
        done: &mut Vec<Imported>,
        current: &mut Option<SessionImport>,
    ) -> Result<(), Failure> {
        let limits = self.limits.of_message();
        // Skips a session that begins a second time; `check` has reported it.
        let mut begun: HashSet<String> = HashSet::new();
        for file in &self.files {
            for item in self.open(file, pass)? {
                match item.map_err(|error| read_error(file, &error))? {
                    RecordingItem::Session { name, mut metadata, .. } => {
                        metadata.retain(|key, fields| {
                            key != REQUEST || fields.to_string().len() <= MAX_FIELDS_BYTES
                        });
                        current.as_mut().map_or(Ok(()), |ended| ended.flush(pass))?;
                        done.extend(current.take().map(|ended| ended.imported));
                        if is_name(&name) && begun.insert(name.clone()) {
                            *current = Some(SessionImport::begin(self, workspace.session(name), metadata)?);
                        }
                    }
                    RecordingItem::Message { message, at, wire_texts } if message.check(&limits).is_ok() => {
                        if let Some(session) = current {
                            session.add(NewMessage { message: *message, at, wire_texts }, self, pass)?;
                        }
                    }
                    RecordingItem::Message { at, .. } | RecordingItem::Bad { at, .. } => {
                        let changed = || {
                            Failure::Failed(format!(
                                "{at}: the file changed during the import; run the same command when the file \
                                 is complete"
                            ))
                        };
                        left_out = left_out.checked_sub(1).ok_or_else(changed)?;
                    }
                }
            }
            current.as_mut().map_or(Ok(()), |session| session.flush(pass))?;
        }
        Ok(())
    }
}

fn read_error(file: &InputFile, error: &io::Error) -> Failure {
    Failure::Failed(format!("{} cannot be read: {error}", file.shown))
}

/// A message to add.
struct NewMessage {
    message: Message,
    at: FilePosition,
    wire_texts: WireTexts,
}

impl NewMessage {
    /// If the new message begins with the message `stored`, returns the rest of the new message.
    fn without(&self, stored: &Message) -> Option<Self> {
        let read = |pieces: &[String]| Dialect::RESPONSES.read_text(&format!("[{}]", pieces.join(","))).ok();
        (1..self.wire_texts.len()).find_map(|at| {
            let (first, rest) = self.wire_texts.split_at_checked(at)?;
            let [first] = <[Message; 1]>::try_from(read(first)?).ok()?;
            let [message] = <[Message; 1]>::try_from(read(rest)?).ok()?;
            let wire_texts = if rest.len() > 1 { rest.to_vec() } else { WireTexts::new() };
            is_same(stored, &first).then(|| Self { message, at: self.at.clone(), wire_texts })
        })
    }
}

/// A session into which messages are being imported.
struct SessionImport {
    session: Session,
    imported: Imported,
    /// Messages that the session had before the import and that are not compared yet. The store returns them page by
    /// page.
    stored: VecDeque<Message>,
    /// The last message that was read into `stored`.
    read: Seq,
    /// The session's newest message, as last read.
    head: Seq,
    append: bool,
    /// Messages to add with the next write. `bytes` is the size of these messages.
    batch: Vec<NewMessage>,
    bytes: u64,
}

impl SessionImport {
    fn begin(plan: &ImportPlan, session: Session, metadata: Map<String, Value>) -> Result<Self, Failure> {
        let wait = Handle::current();
        let head = match wait.block_on(session.info()) {
            Ok(info) => info.messages,
            Err(epitome::Error::NotFound { .. }) => {
                if !metadata.is_empty() {
                    wait.block_on(session.set_metadata(metadata))?;
                }
                0
            }
            Err(error) => return Err(error.into()),
        };
        let read = if plan.append { head } else { 0 };
        let imported = Imported { session: session.name().to_owned(), added: 0, already_stored: 0 };
        let (stored, append) = (VecDeque::new(), plan.append);
        Ok(Self { session, imported, stored, read, head, append, batch: Vec::new(), bytes: 0 })
    }

    /// Adds a message to the batch. If the batch would become too large, writes the batch to the store first.
    fn add(&mut self, new: NewMessage, plan: &ImportPlan, pass: &PassProgress) -> Result<(), Failure> {
        let size = new.message.bytes();
        // Half of the limit, because a stored message is a little larger than its content.
        let most_bytes = BATCH_BYTES.min(plan.limits.body / 2);
        if self.batch.len() as u64 >= BATCH.min(plan.limits.batch) || self.bytes + size > most_bytes {
            self.flush(pass)?;
        }
        self.bytes += size;
        self.batch.push(new);
        Ok(())
    }

    fn flush(&mut self, pass: &PassProgress) -> Result<(), Failure> {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        pass.messages.fetch_add(batch.len() as u64, Ordering::Relaxed);
        Handle::current().block_on(self.append_new(batch))
    }

    async fn append_new(&mut self, messages: Vec<NewMessage>) -> Result<(), Failure> {
        let mut messages: VecDeque<NewMessage> = messages.into();
        while !messages.is_empty() {
            self.compare(&mut messages).await?;
            let new: Vec<Message> = messages.iter().map(|new| new.message.clone()).collect();
            let added = new.len() as u64;
            if added == 0 {
                break;
            }
            let batch = Batch::from(new);
            let batch = if self.append { batch } else { batch.after(self.head) };
            match self.session.append(batch).await {
                Ok(appended) => {
                    self.head = appended.span.through;
                    self.read = self.head;
                    self.imported.added += added;
                    break;
                }
                // Another process has appended messages since the last read. These may be the same messages, so they
                // are compared too.
                Err(epitome::Error::Conflict(_)) => self.head = self.session.info().await?.messages,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Removes the messages that the session already has from `messages`.
    async fn compare(&mut self, messages: &mut VecDeque<NewMessage>) -> Result<(), Failure> {
        while let Some(new) = messages.front() {
            let Some(stored) = self.next_stored().await? else { return Ok(()) };
            if is_same(&stored, &new.message) {
                messages.pop_front();
            } else if let Some(rest) = new.without(&stored).filter(|_| stored.seq == self.head) {
                // The session has only the first part of this reply, because an earlier import read the recording
                // before the reply was complete.
                messages.pop_front();
                messages.push_front(rest);
            } else {
                let (at, session, seq) = (&new.at, &self.imported.session, stored.seq);
                return Err(Failure::Failed(format!(
                    "{at}: message {seq} of the session \"{session}\" is different; import the file under another \
                     name with --session NAME, or append all messages of the file with --append"
                )));
            }
            self.imported.already_stored += 1;
        }
        Ok(())
    }

    async fn next_stored(&mut self) -> Result<Option<Message>, Failure> {
        if self.stored.is_empty() && self.read < self.head {
            let page = Page {
                after: Some(self.read),
                before: Some(self.head.saturating_add(1)),
                limit: COMPARE_PAGE,
                ..Page::default()
            };
            self.stored = self.session.messages(page).await?.items.into();
            self.read = self.stored.back().map_or(self.head, |last| last.seq);
        }
        Ok(self.stored.pop_front())
    }
}

/// Whether two messages are the same. Ignores the timestamp and the flags, which can differ.
fn is_same(stored: &Message, new: &Message) -> bool {
    stored.role == new.role
        && stored.author == new.author
        && stored.parts == new.parts
        && stored.metadata == new.metadata
        && stored.wire == new.wire
}
