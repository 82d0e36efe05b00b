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
use epitome::rules::message::{Limits, Message, MessageError, Seq};
use epitome::{Batch, Page, Session, Workspace, is_name};
use serde::Serialize;
use serde_json::{Map, Value};

use epitome_lab::recording::{Item, Pieces, Place, REQUEST, Recording};
use epitome_terminal::failure::Failure;

/// A batch is added when it holds so many messages, or so many bytes.
const BATCH: u64 = 1_000;
const BATCH_BYTES: u64 = 4 << 20;

/// So many batches wait to be added while more is read.
const AHEAD: usize = 4;

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

/// What is wanted.
#[derive(Debug, Clone, Default)]
pub(super) struct Options {
    pub(super) session: Option<String>,
    pub(super) dialect: Option<Dialect>,
    /// Add to what a session holds, whatever that is.
    pub(super) append: bool,
    /// So many pieces were found wrong, and are left out.
    pub(super) left_out: u64,
    /// The largest batch that may be added: messages, and bytes.
    pub(super) most: (u64, u64),
}

impl Options {
    /// As large as the settings allow, and no larger than is of use.
    pub(super) fn sized(self, limits: &epitome::settings::Limits) -> Self {
        // A message is a little larger in the log than its words.
        Self { most: (BATCH.min(limits.batch), BATCH_BYTES.min(limits.body / 2)), ..self }
    }
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

/// Reads everything and judges it. Blocks: to be run on a thread of its own.
pub(super) fn check(
    sources: &[Source],
    options: &Options,
    limits: &Limits,
    gauge: &Gauge,
) -> Result<Checked, Failure> {
    let mut checked = Checked::default();
    let mut sessions: HashMap<String, Place> = HashMap::new();
    for source in sources {
        for item in open(source, options, gauge)? {
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
                Item::Message { message, at, .. } => match message.check(limits) {
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

fn open(source: &Source, options: &Options, gauge: &Gauge) -> Result<Recording, Failure> {
    let session = options.session.as_deref();
    Recording::open(&source.path, &source.shown, session, options.dialect, &gauge.bytes)
        .map_err(|error| unread(source, &error))
}

fn unread(source: &Source, error: &io::Error) -> Failure {
    Failure::Failed(format!("{} cannot be read: {error}", source.shown))
}

/// What the reading thread sends.
enum Sent {
    Session { name: String, metadata: Map<String, Value> },
    Messages(Vec<New>),
    Failed(Failure),
}

/// Adds everything to the workspace. What cannot be read was told by [`check`], and is left out.
pub(super) async fn import(
    workspace: &Workspace,
    sources: Vec<Source>,
    options: &Options,
    limits: Limits,
    gauge: Arc<Gauge>,
) -> Result<Vec<Imported>, (Vec<Imported>, Failure)> {
    let (sender, mut batches) = tokio::sync::mpsc::channel(AHEAD);
    let (wanted, reading) = (options.clone(), Arc::clone(&gauge));
    let reader = tokio::task::spawn_blocking(move || {
        // Nobody listens any more: then there is nothing left to do.
        let _ = send_all(&sources, &wanted, &limits, &reading, &sender);
    });
    let mut done: Vec<Imported> = Vec::new();
    let mut under_way: Option<UnderWay> = None;
    let result = loop {
        let Some(sent) = batches.recv().await else { break Ok(()) };
        let step = async {
            match sent {
                Sent::Failed(failure) => return Err(failure),
                Sent::Session { name, metadata } => {
                    let begun = UnderWay::begin(workspace.session(name), metadata, options).await?;
                    done.extend(under_way.replace(begun).map(|ended| ended.imported));
                }
                Sent::Messages(messages) => {
                    if let Some(session) = &mut under_way {
                        gauge.messages.fetch_add(messages.len() as u64, Ordering::Relaxed);
                        session.take(messages).await?;
                    }
                }
            }
            Ok(())
        };
        if let Err(failure) = step.await {
            break Err(failure);
        }
    };
    drop(batches);
    let _ = reader.await;
    done.extend(under_way.map(|ended| ended.imported));
    match result {
        Ok(()) => Ok(done),
        Err(failure) => Err((done, failure)),
    }
}

fn send_all(
    sources: &[Source],
    options: &Options,
    limits: &Limits,
    gauge: &Gauge,
    sender: &tokio::sync::mpsc::Sender<Sent>,
) -> Result<(), ()> {
    let send = |sent| sender.blocking_send(sent).map_err(|_| ());
    let (most, most_bytes) = options.most;
    // A session that begins a second time was told as wrong.
    let mut begun: HashSet<String> = HashSet::new();
    let mut left_out = 0;
    for source in sources {
        let recording = match open(source, options, gauge) {
            Ok(recording) => recording,
            Err(failure) => return send(Sent::Failed(failure)),
        };
        let mut batch: Vec<New> = Vec::new();
        let mut bytes = 0;
        let mut again = false;
        for item in recording {
            match item {
                Err(error) => return send(Sent::Failed(unread(source, &error))),
                Ok(Item::Session { name, mut metadata, .. }) => {
                    metadata.retain(|key, fields| key != REQUEST || fields.to_string().len() <= MOST_FIELDS);
                    send(Sent::Messages(std::mem::take(&mut batch)))?;
                    bytes = 0;
                    again = !is_name(&name) || !begun.insert(name.clone());
                    if !again {
                        send(Sent::Session { name, metadata })?;
                    }
                }
                Ok(Item::Message { message, at, pieces }) if !again && message.check(limits).is_ok() => {
                    let size = message.bytes();
                    if batch.len() as u64 >= most || bytes + size > most_bytes {
                        send(Sent::Messages(std::mem::take(&mut batch)))?;
                        bytes = 0;
                    }
                    bytes += size;
                    batch.push(New { message: *message, at, pieces });
                }
                Ok(Item::Message { .. }) if again => {}
                Ok(Item::Message { at, .. } | Item::Bad { at, .. }) => {
                    left_out += 1;
                    if left_out > options.left_out {
                        return send(Sent::Failed(Failure::Failed(format!(
                            "{at}: was changed while it was imported; run the same command again when it is at rest"
                        ))));
                    }
                }
            }
        }
        send(Sent::Messages(batch))?;
    }
    Ok(())
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
}

impl UnderWay {
    async fn begin(
        session: Session,
        metadata: Map<String, Value>,
        options: &Options,
    ) -> Result<Self, Failure> {
        let head = match session.info().await {
            Ok(info) => info.messages,
            Err(epitome::Error::NotFound { .. }) => {
                if !metadata.is_empty() {
                    session.set_metadata(metadata).await?;
                }
                0
            }
            Err(error) => return Err(error.into()),
        };
        let append = options.append;
        let read = if append { head } else { 0 };
        let imported = Imported { session: session.name().to_owned(), added: 0, known: 0 };
        Ok(Self { session, imported, held: VecDeque::new(), read, head, append })
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
