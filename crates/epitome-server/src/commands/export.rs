//! `epitome export`: sessions as they came in.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use epitome::dialect::Dialect;
use epitome::{Page, Session, SessionInfo};
use serde_json::{Map, Value, json};

use super::SessionArgs;
use crate::database::Database;
use crate::failure::Failure;
use crate::leftovers::{self, Leftover};
use crate::settings::Loaded;
use crate::show::{Show, count};
use epitome::dialect::recording::{HEADER, REQUEST, spoken};

const EXAMPLES: &str = "\
Examples:
  epitome export ann > ann.jsonl                   everything that is known of each message
  epitome export ann --format openai -o ann.jsonl  as it came from OpenAI's format
  epitome export --all -o everything.jsonl         all sessions of the workspace
  epitome import everything.jsonl --db other.db    and in again

One message a line. What came in a format goes out in it as it came, unknown fields and all; what
came in another is spelled plainly. --all with a foreign format is one conversation a line.";

/// Sessions as they came in
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionArgs,
    /// All sessions of the workspace
    #[arg(long, conflicts_with_all = ["named", "session"])]
    all: bool,
    /// openai, responses, anthropic or epitome
    #[arg(long, value_name = "FORMAT", default_value_t = Dialect::OURS)]
    format: Dialect,
    /// The file (-, standard output); one that is there is not replaced
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// So many messages are read at once.
const PAGE: usize = 500;

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    let named = if args.all { None } else { Some(args.session.name()?) };
    let database = Database::existing(loaded).await?;
    let mut to = match &args.output {
        Some(path) if path.as_os_str() != "-" => Target::File(Whole::new(path)?),
        _ => Target::Out,
    };
    let mut written = (0, 0);
    if let Some(name) = named {
        let (session, info) = database.session(name).await?;
        written = (1, write(args, &session, &info, &mut to, show).await?);
    } else {
        let mut after: Option<String> = None;
        loop {
            let page = database.workspace.sessions(after.as_deref(), 100).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.name.to_string());
            for info in &page {
                let session = database.workspace.session(info.name.as_ref());
                written.0 += 1;
                written.1 += write(args, &session, info, &mut to, show).await?;
            }
        }
    }
    to.finish()?;
    if let Some(path) = args.output.as_ref().filter(|path| path.as_os_str() != "-") {
        let (sessions, messages) = (count(written.0, "session"), count(written.1, "message"));
        show.note(format!("{sessions} with {messages} written to {}", path.display()))?;
    }
    database.close().await;
    Ok(())
}

/// One session. Tells how many messages it has.
async fn write(
    args: &Args,
    session: &Session,
    info: &SessionInfo,
    to: &mut Target,
    show: &mut Show,
) -> Result<u64, Failure> {
    let gathered = args.all && !args.format.format().about().is_native;
    let mut frame = None;
    if args.format.format().about().is_native {
        let mut header = Map::new();
        header.insert("session".to_owned(), json!(info.name));
        header.insert("created".to_owned(), json!(info.created));
        if !info.metadata.is_empty() {
            header.insert("metadata".to_owned(), json!(info.metadata));
        }
        to.put(show, format!("{}\n", json!({ HEADER: header })).as_bytes())?;
    }
    let (mut after, mut messages, mut first) = (0, 0, true);
    // Up to where it stood: whoever appends meanwhile could keep us here for ever.
    while after < info.messages {
        let before = Some(info.messages.saturating_add(1));
        let page =
            session.messages(Page { after: Some(after), before, limit: PAGE, ..Page::default() }).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        messages += page.len() as u64;
        let mut wires = args.format.restore_text(&page);
        let mut text = String::new();
        if gathered && frame.is_none() {
            let (opening, closing, spoken) = around(args.format, info, wires.first());
            if spoken {
                wires.remove(0);
            }
            if let [only] = wires.as_slice()
                && is_bare(only)
                && after == info.messages
            {
                // It was no list.
                let opening = opening.strip_suffix('[').unwrap_or(&opening);
                let closing = closing.strip_prefix(']').unwrap_or(&closing);
                to.put(show, format!("{opening}{only}{closing}").as_bytes())?;
                return Ok(messages);
            }
            text.push_str(&opening);
            frame = Some(closing);
        }
        for wire in wires {
            if gathered && !std::mem::take(&mut first) {
                text.push(',');
            }
            if is_bare(&wire) {
                text.push_str(&format!("{{\"role\":\"user\",\"content\":{wire}}}"));
            } else {
                text.push_str(&wire);
            }
            if !gathered {
                text.push('\n');
            }
        }
        to.put(show, text.as_bytes())?;
    }
    if gathered {
        let empty = || {
            let (opening, closing, _) = around(args.format, info, None);
            opening + &closing
        };
        to.put(show, frame.unwrap_or_else(empty).as_bytes())?;
    }
    Ok(messages)
}

/// Whether a message is a text by itself, as the input of a request may be; in a list it is none.
fn is_bare(wire: &str) -> bool {
    wire.starts_with('"')
}

/// What stands before and after the messages of a conversation on one line: the fields it came with, in their order.
/// True where the first message is told by one of them.
fn around(format: Dialect, info: &SessionInfo, first: Option<&String>) -> (String, String, bool) {
    let list = format.format().about().list;
    let named = || {
        let id = [("id".to_owned(), json!(info.name)), (list.to_owned(), Value::Null)];
        id.into_iter().collect::<Map<String, Value>>()
    };
    let mut fields = info.metadata.get(REQUEST).and_then(Value::as_object).cloned().unwrap_or_else(named);
    if !fields.contains_key(list) {
        // It came in another format.
        fields.insert(list.to_owned(), Value::Null);
    }
    let first: Value = first.and_then(|first| serde_json::from_str(first).ok()).unwrap_or_default();
    let own = format.format().about().head;
    let all = Dialect::all();
    let is_another = |name: &str| {
        all.iter().any(|other| other.format().about().list == name || spoken(*other) == Some(name))
            && own.is_none_or(|own| own.field != name)
    };
    let mut told = false;
    let (mut before, mut behind, mut seen) = (Vec::new(), Vec::new(), false);
    for (name, value) in fields {
        if name == list {
            seen = true;
            continue;
        }
        let value = match name.as_str() {
            _ if !value.is_null() => value,
            name if own.is_some_and(|own| own.field == name && own.stands_for(&first)) => {
                told = true;
                own.and_then(|own| first.get(own.inner)).cloned().unwrap_or_default()
            }
            // Another format's place for what is a message here.
            name if is_another(name) => continue,
            _ => value,
        };
        let field = format!("{}:{value}", json!(name));
        if seen { behind.push(field) } else { before.push(field) }
    }
    before.push(format!("{}:[", json!(list)));
    let behind: String = behind.into_iter().map(|field| format!(",{field}")).collect();
    (format!("{{{}", before.join(",")), format!("]{behind}}}\n"), told)
}

/// Where it goes.
enum Target {
    Out,
    File(Whole),
}

impl Target {
    fn put(&mut self, show: &mut Show, text: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Out => {
                show.raw(text)?;
                show.flush()
            }
            Self::File(file) => {
                let written = file.to.write_all(text);
                written.map_err(|error| unwritten(&file.path, &error))
            }
        }
    }

    fn finish(self) -> Result<(), Failure> {
        match self {
            Self::Out => Ok(()),
            Self::File(file) => file.finish(),
        }
    }
}

/// A file that is there when it is whole or not at all: it is written beside its place, and moved there.
struct Whole {
    path: PathBuf,
    partial: PathBuf,
    to: BufWriter<File>,
    _half: Leftover,
}

impl Whole {
    fn new(path: &Path) -> Result<Self, Failure> {
        if path.symlink_metadata().is_ok() {
            return Err(taken(path));
        }
        let ending = format!(".partial-{}", leftovers::unforeseen());
        let half = leftovers::note_beside(path, &ending);
        let mut partial = path.as_os_str().to_owned();
        partial.push(ending);
        let partial = PathBuf::from(partial);
        let file = File::create_new(&partial).map_err(|error| unwritten(path, &error))?;
        Ok(Self { path: path.to_owned(), partial, to: BufWriter::new(file), _half: half })
    }

    fn finish(mut self) -> Result<(), Failure> {
        let written = self.to.flush().and_then(|()| self.to.get_ref().sync_all());
        written.map_err(|error| unwritten(&self.path, &error))?;
        // A link is refused where somebody has put a file meanwhile; a file system without links has only moving.
        match std::fs::hard_link(&self.partial, &self.path) {
            Ok(()) => Ok(()),
            Err(_) if self.path.symlink_metadata().is_ok() => Err(taken(&self.path)),
            Err(_) => {
                std::fs::rename(&self.partial, &self.path).map_err(|error| unwritten(&self.path, &error))
            }
        }
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        // By now it is in its place, or nothing that anybody wants.
        let _ = std::fs::remove_file(&self.partial);
    }
}

fn taken(path: &Path) -> Failure {
    Failure::Failed(format!(
        "{}: there is a file already, which is not replaced; name another",
        path.display()
    ))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("{} cannot be written: {error}", path.display()))
}
