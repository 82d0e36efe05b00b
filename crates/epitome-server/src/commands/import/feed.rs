//! Puts recorded conversations into a workspace.
//!
//! Twice through the files: first everything is read and judged and nothing written, so that a wrong line at the end
//! leaves nothing half done; then it is added, batch by batch. Where a session already holds messages, those of the
//! file must begin with the same ones, and only what is new is added. So an import that was interrupted goes on when
//! it is started again, a file that has grown is imported anew, and nothing is ever there twice. No cursor is kept
//! anywhere that could be wrong.

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

/// A batch is added when it holds so many messages, or so many bytes.
const BATCH: u64 = 1_000;
const BATCH_BYTES: u64 = 4 << 20;

/// More than this is not kept of a conversation's other fields: notes on a session have a limit.
const MOST_FIELDS: usize = 48 << 10;

/// So many stored messages are compared at a time.
const COMPARED: usize = 500;

/// So many problems are told one by one.
pub(super) const TOLD: usize = 20;

/// A file to be read, and what it is called in messages.
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
    /// Add to what a session holds, whatever that is.
    pub(super) append: bool,
    pub(super) limits: epitome::settings::Limits,
}

/// How far it is; read by whoever shows it.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    /// Bytes read in this pass.
    pub(super) bytes: Arc<AtomicU64>,
    /// Messages checked, then messages added or found to be there.
    pub(super) messages: AtomicU64,
}

/// What the first pass found.
#[derive(Debug, Default)]
pub(super) struct Checked {
    pub(super) messages: u64,
    /// How many pieces cannot be read, and the first of them.
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

/// What became of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Imported {
    pub(super) session: String,
    /// Messages that were added.
    pub(super) added: u64,
    /// Messages of the file that were there before.
    pub(super) known: u64,
}

impl Imported {
    /// Messages of the file.
    pub(super) fn messages(&self) -> u64 {
        self.added + self.known
    }
}

impl Feed {
    /// Reads everything and judges it. Blocks: to be run on a thread of its own.
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
                                "session `{name}` again; it began at {before} already; import the two apart, or in one file"
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

    /// Adds everything to the workspace, and tells what became of each session, also where it fails. What cannot be read was
    /// told by [`Feed::check`]: so many pieces are left out. Blocks, as that does.
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
        // A session that begins a second time was told as wrong.
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
                                "{at}: was changed while it was imported; run the same command again when it is at rest"
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

/// A message to be added.
struct New {
    message: Message,
    at: Place,
    pieces: Pieces,
}

impl New {
    /// What is left of it when it begins with what is held.
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

/// A session that is being filled.
struct UnderWay {
    session: Session,
    imported: Imported,
    /// What it held before, as far as it was not compared yet: read a page at a time.
    held: VecDeque<Message>,
    read: Seq,
    /// Where it ends, as far as is known.
    head: Seq,
    append: bool,
    /// What is to be added next, and its bytes.
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

    /// One more; those before it go to the store where they would be too many.
    fn add(&mut self, new: New, feed: &Feed, gauge: &Gauge) -> Result<(), Failure> {
        let size = new.message.bytes();
        // A message is a little larger in the log than its words.
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
                // Somebody else added to it, perhaps the same: what is there now is compared as well.
                Err(epitome::Error::Conflict(_)) => self.head = self.session.info().await?.messages,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Takes away what the session holds already.
    async fn compare(&mut self, messages: &mut VecDeque<New>) -> Result<(), Failure> {
        while let Some(new) = messages.front() {
            let Some(held) = self.next_held().await? else { return Ok(()) };
            if is_same(&held, &new.message) {
                messages.pop_front();
            } else if let Some(rest) = new.without(&held).filter(|_| held.seq == self.head) {
                // The recording was read while this reply was being written.
                messages.pop_front();
                messages.push_front(rest);
            } else {
                let (at, session, seq) = (&new.at, &self.imported.session, held.seq);
                return Err(Failure::Failed(format!(
                    "{at}: session \"{session}\" holds another message {seq}; import it as --session NAME, or add it \
                     all to what is there with --append"
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

/// Whether it is the same message. When it came and how it was flagged since is another matter.
fn is_same(held: &Message, new: &Message) -> bool {
    held.role == new.role
        && held.author == new.author
        && held.parts == new.parts
        && held.metadata == new.metadata
        && held.wire == new.wire
}
