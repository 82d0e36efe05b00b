//! Imports recorded conversations into a workspace.
//!
//! Reads the files twice. The first pass checks everything and writes nothing, so that a wrong line at the end leaves no
//! half-finished import. The second pass adds the messages batch by batch. If a session already has messages, the file
//! must begin with the same messages, and only the new ones are added. So the same command resumes an interrupted
//! import, adds what a file has grown by, and never adds a message twice. No cursor is stored that could become wrong.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use epitome::dialect::Dialect;
use epitome::rules::message::{Message, MessageError, Seq};
use epitome::{Batch, Page, Session, Workspace, is_name};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::runtime::Handle;

use epitome_lab::recording::{Item, Pieces, Place, REQUEST, Recording};
use epitome_terminal::failure::Failure;

/// Maximum size of a batch, in messages and in bytes.
const BATCH: u64 = 1_000;
const BATCH_BYTES: u64 = 4 << 20;

/// Maximum size in bytes of a conversation's other fields. Larger ones are dropped, because a session's metadata is
/// limited.
const MOST_FIELDS: usize = 48 << 10;

/// Number of stored messages that are read at a time for the comparison.
const COMPARED: usize = 500;

/// Maximum number of problems that are reported one by one.
pub(super) const TOLD: usize = 20;

/// A file to read, and its name in error messages.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) path: PathBuf,
    pub(super) shown: String,
}

/// What is imported, and how.
pub(super) struct Feed {
    pub(super) sources: Vec<Source>,
    pub(super) session: Option<String>,
    pub(super) dialect: Option<Dialect>,
    /// Whether to append everything, without comparing it with the session's messages.
    pub(super) append: bool,
    pub(super) limits: epitome::settings::Limits,
}

/// Progress of a pass, read by the progress display.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// Bytes read in this pass.
    pub(super) bytes: Arc<AtomicU64>,
    /// Messages checked in the first pass; messages added or already stored in the second.
    pub(super) messages: AtomicU64,
}

/// Result of the first pass.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) messages: u64,
    /// Number of pieces that cannot be read. `told` describes the first of them.
    pub(super) bad: u64,
    pub(super) told: Vec<String>,
}

impl Checked {
    fn bad(&mut self, at: &Place, problem: &str) {
        self.bad += 1;
        if self.told.len() < TOLD {
            self.told.push(format!("{at}: {problem}"));
        }
    }
}

/// Result of the import of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Imported {
    pub(super) session: String,
    /// Number of messages added.
    pub(super) added: u64,
    /// Number of the file's messages that the session had before.
    pub(super) known: u64,
}

impl Imported {
    /// Number of messages of the file.
    pub(super) fn messages(&self) -> u64 {
        self.added + self.known
    }
}

impl Feed {
    /// Reads and checks everything. Blocks: run it on its own thread.
    pub(super) fn check(&self, gauge: &Gauge) -> Result<Checked, Failure> {
        let mut checked = Checked::default();
        let mut sessions: HashMap<String, Place> = HashMap::new();
        for source in &self.sources {
            for item in self.open(source, gauge)? {
                match item.map_err(|error| unread(source, &error))? {
                    Item::Session { name, at, .. } => {
                        if !is_name(&name) {
                            checked.bad(&at, "a session's name has 1 to 512 bytes and no control characters");
                        } else if let Some(before) = sessions.get(&name) {
                            checked.bad(&at, &format!(
                                "session `{name}` again; it began at {before}; import them separately, or in one file"
                            ));
                        }
                        sessions.insert(name, at);
                    }
                    Item::Message { message, at, .. } => match message.check(&self.limits.of_message()) {
                        Ok(()) => {
                            checked.messages += 1;
                            gauge.messages.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(error @ MessageError::TooLarge { field, .. }) => {
                            checked.bad(&at, &format!("{error} (limits.{field})"));
                        }
                        Err(error) => checked.bad(&at, &error.to_string()),
                    },
                    Item::Bad { problem, at } => checked.bad(&at, &problem),
                }
            }
        }
        Ok(checked)
    }

    fn open(&self, source: &Source, gauge: &Gauge) -> Result<Recording, Failure> {
        let session = self.session.as_deref();
        Recording::open(&source.path, &source.shown, session, self.dialect, &gauge.bytes)
            .map_err(|error| unread(source, &error))
    }

    /// Adds everything to the workspace and returns the result of each session, also after a failure. Skips what cannot be
    /// read: [`Feed::check`] reported it and counted `left_out` pieces. Blocks, as that does.
    pub(super) fn import(
        &self,
        workspace: &Workspace,
        left_out: u64,
        gauge: &Gauge,
    ) -> (Vec<Imported>, Result<(), Failure>) {
        let (mut done, mut filled) = (Vec::new(), None);
        let result = self.fill(workspace, left_out, gauge, &mut done, &mut filled);
        done.extend(filled.map(|ended| ended.imported));
        (done, result)
    }

    fn fill(
        &self,
        workspace: &Workspace,
        mut left_out: u64,
        gauge: &Gauge,
        done: &mut Vec<Imported>,
        filled: &mut Option<UnderWay>,
    ) -> Result<(), Failure> {
        let limits = self.limits.of_message();
        // `check` has reported a session that begins a second time.
        let mut begun: HashSet<String> = HashSet::new();
        for source in &self.sources {
            for item in self.open(source, gauge)? {
                match item.map_err(|error| unread(source, &error))? {
                    Item::Session { name, mut metadata, .. } => {
                        metadata
                            .retain(|key, fields| key != REQUEST || fields.to_string().len() <= MOST_FIELDS);
                        filled.as_mut().map_or(Ok(()), |ended| ended.flush(gauge))?;
                        done.extend(filled.take().map(|ended| ended.imported));
                        if is_name(&name) && begun.insert(name.clone()) {
                            *filled = Some(UnderWay::begin(self, workspace.session(name), metadata)?);
                        }
                    }
                    Item::Message { message, at, pieces } if message.check(&limits).is_ok() => {
                        if let Some(session) = filled {
                            session.add(New { message: *message, at, pieces }, self, gauge)?;
                        }
                    }
                    Item::Message { at, .. } | Item::Bad { at, .. } => {
                        let changed = || {
                            Failure::Failed(format!(
                                "{at}: the file changed during the import; run the same command when the file is complete"
                            ))
                        };
                        left_out = left_out.checked_sub(1).ok_or_else(changed)?;
                    }
                }
            }
            filled.as_mut().map_or(Ok(()), |session| session.flush(gauge))?;
        }
        Ok(())
    }
}

fn unread(source: &Source, error: &io::Error) -> Failure {
    Failure::Failed(format!("{} cannot be read: {error}", source.shown))
}

/// A message to add.
struct New {
    message: Message,
    at: Place,
    pieces: Pieces,
}

impl New {
    /// Returns the rest of the message, if it begins with the stored message `held`.
    fn without(&self, held: &Message) -> Option<Self> {
        let read = |pieces: &[String]| Dialect::RESPONSES.read_text(&format!("[{}]", pieces.join(","))).ok();
        (1..self.pieces.len()).find_map(|at| {
            let (first, rest) = self.pieces.split_at_checked(at)?;
            let [first] = <[Message; 1]>::try_from(read(first)?).ok()?;
            let [message] = <[Message; 1]>::try_from(read(rest)?).ok()?;
            let pieces = if rest.len() > 1 { rest.to_vec() } else { Pieces::new() };
            is_same(held, &first).then(|| Self { message, at: self.at.clone(), pieces })
        })
    }
}

/// A session into which messages are being imported.
struct UnderWay {
    session: Session,
    imported: Imported,
    /// Messages that the session had before and that are not compared yet; read page by page.
    held: VecDeque<Message>,
    read: Seq,
    /// The session's newest message, as last read.
    head: Seq,
    append: bool,
    /// The next batch to add. `bytes` is its size.
    batch: Vec<New>,
    bytes: u64,
}

impl UnderWay {
    fn begin(feed: &Feed, session: Session, metadata: Map<String, Value>) -> Result<Self, Failure> {
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
        let read = if feed.append { head } else { 0 };
        let imported = Imported { session: session.name().to_owned(), added: 0, known: 0 };
        let (held, append) = (VecDeque::new(), feed.append);
        Ok(Self { session, imported, held, read, head, append, batch: Vec::new(), bytes: 0 })
    }

    /// Adds a message to the batch. Writes the batch to the store first, if it would become too large.
    fn add(&mut self, new: New, feed: &Feed, gauge: &Gauge) -> Result<(), Failure> {
        let size = new.message.bytes();
        // Half of the limit, because a stored message is a little larger than its content.
        let most_bytes = BATCH_BYTES.min(feed.limits.body / 2);
        if self.batch.len() as u64 >= BATCH.min(feed.limits.batch) || self.bytes + size > most_bytes {
            self.flush(gauge)?;
        }
        self.bytes += size;
        self.batch.push(new);
        Ok(())
    }

    fn flush(&mut self, gauge: &Gauge) -> Result<(), Failure> {
        let batch = std::mem::take(&mut self.batch);
        self.bytes = 0;
        gauge.messages.fetch_add(batch.len() as u64, Ordering::Relaxed);
        Handle::current().block_on(self.take(batch))
    }

    async fn take(&mut self, messages: Vec<New>) -> Result<(), Failure> {
        let mut messages: VecDeque<New> = messages.into();
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
                // Another process appended meanwhile, perhaps the same messages: compares the new ones too.
                Err(epitome::Error::Conflict(_)) => self.head = self.session.info().await?.messages,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Removes the messages that the session already has.
    async fn compare(&mut self, messages: &mut VecDeque<New>) -> Result<(), Failure> {
        while let Some(new) = messages.front() {
            let Some(held) = self.next_held().await? else { return Ok(()) };
            if is_same(&held, &new.message) {
                messages.pop_front();
            } else if let Some(rest) = new.without(&held).filter(|_| held.seq == self.head) {
                // An earlier import read the recording while this reply was being written.
                messages.pop_front();
                messages.push_front(rest);
            } else {
                let (at, session, seq) = (&new.at, &self.imported.session, held.seq);
                return Err(Failure::Failed(format!(
                    "{at}: session \"{session}\" has another message {seq}; import it under another name with \
                     --session NAME, or append all of it with --append"
                )));
            }
            self.imported.known += 1;
        }
        Ok(())
    }

    async fn next_held(&mut self) -> Result<Option<Message>, Failure> {
        if self.held.is_empty() && self.read < self.head {
            let page = Page {
                after: Some(self.read),
                before: Some(self.head.saturating_add(1)),
                limit: COMPARED,
                ..Page::default()
            };
            self.held = self.session.messages(page).await?.items.into();
            self.read = self.held.back().map_or(self.head, |last| last.seq);
        }
        Ok(self.held.pop_front())
    }
}

/// Whether two messages are the same. Ignores the timestamp and the flags, which can differ.
fn is_same(held: &Message, new: &Message) -> bool {
    held.role == new.role
        && held.author == new.author
        && held.parts == new.parts
        && held.metadata == new.metadata
        && held.wire == new.wire
}
