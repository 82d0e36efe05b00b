//! `epitome export`: writes stored messages in Epitome's or a provider's format.

use epitome::SessionInfo;
use epitome_lab::recording::{HEADER, REQUEST, system_prompt_field};
use serde_json::Map;

use super::prelude::*;
use crate::format::parse_flag;

const EXAMPLES: &str = "\
Examples:
  epitome export ann > ann.jsonl                   with all stored data of each message
  epitome export ann --format openai -o ann.jsonl  in OpenAI's format
  epitome export --all -o everything.jsonl         all sessions of the workspace
  epitome import everything.jsonl --db other.db    import the file into another database

Writes one message per line. If a message was added in the chosen format, it is written as it was
added, including unrecognised fields. Messages in other formats are converted. --all with a
provider's format writes one conversation per line.";

/// Exports the messages of one session or of all sessions
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) session: SessionArgs,
    /// Exports all sessions of the workspace
    #[arg(long, conflicts_with_all = ["positional", "session"])]
    pub(super) all: bool,
    #[arg(long, value_name = "FORMAT", value_parser = format, default_value_t = Dialect::EPITOME)]
    #[arg(help = format!("Output format: {}", Dialect::names(&Dialect::all())))]
    format: Dialect,
    /// New file to write; must not exist yet [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn format(name: &str) -> Result<Dialect, String> {
    parse_flag(name, &Dialect::all())
}

/// Number of messages per query to the store.
const PAGE: usize = 500;

pub(super) async fn run(args: &Args, database: &Database, show: &mut Show) -> Result<(), Failure> {
    let name = if args.all { None } else { Some(args.session.name()?) };
    let mut to = match &args.output {
        Some(path) if path.as_os_str() != "-" => Some(Output::create(path)?),
        _ => None,
    };
    let mut written = (0, 0);
    if let Some(name) = name {
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
    if let Some(file) = to {
        let (sessions, messages) = (count(written.0, "session"), count(written.1, "message"));
        let remark = format!("{sessions} with {messages} written to {}", file.path().display());
        file.finish()?;
        show.note(remark)?;
    }
    Ok(())
}

/// Writes one session. Returns its number of messages.
async fn write(
    args: &Args,
    session: &Session,
    info: &SessionInfo,
    to: &mut Option<Output>,
    show: &mut Show,
) -> Result<u64, Failure> {
    let native = args.format.format().about().is_native;
    if native {
        let mut header = Map::new();
        header.insert("session".to_owned(), json!(info.name));
        header.insert("created".to_owned(), json!(info.created));
        if !info.metadata.is_empty() {
            header.insert("metadata".to_owned(), json!(info.metadata));
        }
        put(to, show, &format!("{}\n", json!({ HEADER: header })))?;
    }
    // A conversation on one line also has the request's other fields, before and after the messages.
    let (one_line, mut closing) = (args.all && !native, None);
    let (mut after, mut messages) = (0, 0);
    // Stops at the message that was the newest when the export started. Otherwise the loop would not end while a client
    // appends messages faster than they are exported.
    while after < info.messages {
        let before = Some(info.messages.saturating_add(1));
        let page =
            session.messages(Page { after: Some(after), before, limit: PAGE, ..Page::default() }).await?;
        let Some(last) = page.last() else { break };
        after = last.seq;
        messages += page.len() as u64;
        let mut wires = args.format.restore_text(&page);
        let mut text = String::new();
        if one_line && closing.is_none() {
            let (opening, end, has_first) = envelope(args.format, info, wires.first());
            if has_first {
                wires.remove(0);
            }
            if let [only] = wires.as_slice()
                && is_bare(only)
                && after == info.messages
            {
                // The `input` of the original request was a plain text and not a list, so it is written as a text
                // again.
                let opening = opening.strip_suffix('[').unwrap_or(&opening);
                let end = end.strip_prefix(']').unwrap_or(&end);
                put(to, show, &format!("{opening}{only}{end}"))?;
                return Ok(messages);
            }
            text.push_str(&opening);
            closing = Some(end);
        } else if one_line && !wires.is_empty() {
            text.push(',');
        }
        let wires: Vec<String> = wires.into_iter().map(as_list_item).collect();
        text.push_str(&wires.join(if one_line { "," } else { "\n" }));
        if !one_line {
            text.push('\n');
        }
        put(to, show, &text)?;
    }
    if one_line {
        let empty = || {
            let (opening, end, _) = envelope(args.format, info, None);
            opening + &end
        };
        put(to, show, &closing.unwrap_or_else(empty))?;
    }
    Ok(messages)
}

/// Returns a message in the form that a list requires: a plain text becomes a user message.
fn as_list_item(wire: String) -> String {
    if is_bare(&wire) { format!("{{\"role\":\"user\",\"content\":{wire}}}") } else { wire }
}

/// Whether a message is a plain text. The input of a request may be a plain text, but an item of a list may not be a
/// plain text.
fn is_bare(wire: &str) -> bool {
    wire.starts_with('"')
}

/// Returns the JSON before and after the messages of a conversation on one line: the other fields of the original
/// request, in their order. The flag is true if one of these fields, such as `system`, contains the first message.
fn envelope(format: Dialect, info: &SessionInfo, first: Option<&String>) -> (String, String, bool) {
    let list = format.format().about().list_field;
    let only_id = || {
        let id = [("id".to_owned(), json!(info.name)), (list.to_owned(), Value::Null)];
        id.into_iter().collect::<Map<String, Value>>()
    };
    let mut fields = info.metadata.get(REQUEST).and_then(Value::as_object).cloned().unwrap_or_else(only_id);
    if !fields.contains_key(list) {
        // The conversation was imported in another format.
        fields.insert(list.to_owned(), Value::Null);
    }
    let first: Value = first.and_then(|first| serde_json::from_str(first).ok()).unwrap_or_default();
    let own = format.format().about().system_field;
    let all = Dialect::all();
    let is_another = |name: &str| {
        all.iter().any(|other| {
            other.format().about().list_field == name || system_prompt_field(*other) == Some(name)
        }) && own.is_none_or(|own| own.name != name)
    };
    let mut has_first = false;
    let (mut before, mut after, mut seen) = (Vec::new(), Vec::new(), false);
    for (name, value) in fields {
        if name == list {
            seen = true;
            continue;
        }
        let value = match name.as_str() {
            _ if !value.is_null() => value,
            name if own.is_some_and(|own| own.name == name && own.represents(&first)) => {
                has_first = true;
                own.and_then(|own| first.get(own.message_field)).cloned().unwrap_or_default()
            }
            // Leaves out a field that another format uses for its messages or its system prompt.
            name if is_another(name) => continue,
            _ => value,
        };
        let field = format!("{}:{value}", json!(name));
        if seen { after.push(field) } else { before.push(field) }
    }
    before.push(format!("{}:[", json!(list)));
    let after: String = after.into_iter().map(|field| format!(",{field}")).collect();
    (format!("{{{}", before.join(",")), format!("]{after}}}\n"), has_first)
}

/// Writes to the file or, if there is none, to standard output.
fn put(to: &mut Option<Output>, show: &mut Show, text: &str) -> Result<(), Failure> {
    if let Some(file) = to {
        return file.put(text.as_bytes());
    }
    show.raw(text.as_bytes())?;
    show.flush()
}
