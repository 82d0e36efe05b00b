//! `epitome keys`: creates, lists and revokes keys for the HTTP API.
//!
//! The database contains the keys, and a running server reads the key of every request from the database. The server
//! therefore applies a created or revoked key at once. `epitome::key` defines what a key may do, and
//! `epitome_http::auth` checks the key.

use epitome::key::{Key, NewKey, Rights};
use epitome::rules::message::Timestamp;

use super::prelude::*;
use crate::http::wire::{CreatedKeyOut, KeyOut};
use crate::suggest::similar_names;
use crate::times::Expiry;

const EXAMPLES: &str = "\
Examples:
  epitome keys create --admin                   the first key, for the operator of the server
  epitome keys create --workspace team-a --rights write --expires 90d
  epitome keys list
  epitome keys revoke 5b1f09c2d4e8a637

A client sends its key as `authorization: Bearer KEY`. These commands also work while the server
is running, and the server applies each change at once.";

/// Creates, lists and revokes keys for the HTTP API
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    subcommand: Option<KeysCommand>,
}

#[derive(clap::Subcommand)]
enum KeysCommand {
    /// Creates a key, and shows its secret this one time only
    Create(Create),
    /// Lists all keys, including revoked keys
    List(List),
    /// Revokes a key immediately
    Revoke(Revoke),
}

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    let Some(subcommand) = &args.subcommand else {
        return Err(Failure::Misused("missing subcommand: create, list or revoke".to_owned()));
    };
    let (database, done);
    match subcommand {
        KeysCommand::Create(args) => {
            let new = args.new_key(loaded, show.now)?;
            database = Database::open_or_create(loaded).await?;
            done = create(new, &database, show).await;
        }
        KeysCommand::List(_) => {
            database = Database::open_existing(loaded).await?;
            done = list(loaded.workspace_from_flag(), &database, show).await;
        }
        KeysCommand::Revoke(args) => {
            database = Database::open_existing(loaded).await?;
            done = revoke(args, loaded.workspace_from_flag(), &database, show).await;
        }
    }
    database.close().await;
    done
}

const CREATE_EXAMPLES: &str = "\
Examples:
  epitome keys create --admin
  epitome keys create --workspace team-a --rights write --label \"ann's agent\"
  epitome keys create --workspace team-a --rights read --expires 2027-01-01
  KEY=$(epitome keys create --rights write)     for the workspace `default`

The command prints only the secret to standard output; the database stores only its hash. A read key
can read one workspace; a write key can read and write one workspace. An admin key can create and
revoke keys, read /metrics, and read and write any workspace: the header x-epitome-workspace selects
the workspace.";

/// Creates a key, and shows its secret this one time only
#[derive(clap::Args)]
#[command(after_help = CREATE_EXAMPLES)]
struct Create {
    /// What the key may do in its workspace: read or write
    #[arg(long, value_name = "RIGHTS", required_unless_present = "admin", value_parser = rights)]
    rights: Option<Rights>,
    /// Creates an admin key: for the operator of the server, for all workspaces
    #[arg(long, conflicts_with = "rights")]
    admin: bool,
    /// Label that `keys list` shows
    #[arg(long, value_name = "LABEL", default_value = "", hide_default_value = true)]
    label: String,
    /// When the key expires: a duration (12h, 30d) or a time (2027-01-01, UTC)
    #[arg(long, value_name = "WHEN")]
    expires: Option<Expiry>,
}

fn rights(text: &str) -> Result<Rights, String> {
    match text {
        "read" => Ok(Rights::Read),
        "write" => Ok(Rights::Write),
        other => Err(match similar_names(other, ["read", "write"], 1).first() {
            Some(similar) => format!("no such rights; did you mean {similar}?"),
            None => "use read or write; for an admin key, use --admin instead of --rights".to_owned(),
        }),
    }
}

impl Create {
    /// Returns the key to create.
    fn new_key(&self, loaded: &Loaded, now: Timestamp) -> Result<NewKey, Failure> {
        if self.admin && loaded.workspace_from_flag().is_some() {
            let problem =
                "an admin key is for all workspaces; remove --workspace, or use --rights instead of --admin";
            return Err(Failure::Misused(problem.to_owned()));
        }
        let (workspace, rights) = match self.rights {
            Some(rights) => (Some(loaded.server.workspace.clone()), rights),
            None => (None, Rights::Admin),
        };
        let expires = self.expires.map(|expiry| expiry.from(now));
        Ok(NewKey { workspace, rights, label: self.label.clone(), expires })
    }
}

async fn create(new: NewKey, database: &Database, show: &mut Show) -> Result<(), Failure> {
    let created = database.engine.keys().create(new).await?;
    if show.json {
        return show.object(&CreatedKeyOut::new(created, show.now));
    }
    show.line(&created.secret)?;
    show.note(describe(&created.key))
}

/// Describes a new key in the line that is printed after the key's secret.
fn describe(key: &Key) -> String {
    let whose = match &key.workspace {
        Some(workspace) => format!("for the workspace \"{}\"", printable(workspace)),
        None => "for all workspaces".to_owned(),
    };
    let until = key.expires.map_or(String::new(), |at| format!(", until {}", utc(at)));
    format!("{} key {} {whose}{until}; its secret is not shown again", key.rights, key.id)
}

const LIST_EXAMPLES: &str = "\
Examples:
  epitome keys list
  epitome keys list --workspace team-a          only the keys of one workspace
  epitome keys list --json | jq -r 'select(.state == \"good\") | .id'

Lists the keys of all workspaces, or with --workspace the keys of one workspace. The oldest key
comes first. With --json, each line is one key: id, workspace (null for an admin key), rights,
label, created_at, expires_at, revoked_at, and state (good, expired or revoked). Secrets are not
stored, so they cannot be shown.";

/// Lists all keys, including revoked keys
#[derive(clap::Args)]
#[command(after_help = LIST_EXAMPLES)]
struct List {}

/// Number of keys per page.
const PAGE: usize = 1_000;

async fn list(workspace: Option<&str>, database: &Database, show: &mut Show) -> Result<(), Failure> {
    let mut keys: Vec<Key> = Vec::new();
    // If a page is not full, it is the last page.
    while keys.len().is_multiple_of(PAGE) {
        let after = keys.last().map(|key| key.id.as_str());
        let page = database.engine.keys().list(workspace, after, PAGE).await?;
        if page.is_empty() {
            break;
        }
        keys.extend(page);
    }
    // Pages are ordered by id, and ids are random, so the keys are sorted by their creation here.
    keys.sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
    let mut table = Table::new(&["id", "workspace", "rights", "label", "created", "expires", "state"]);
    for key in &keys {
        let out = KeyOut::new(key.clone(), show.now);
        if show.json {
            show.json(&out)?;
            continue;
        }
        table.row([
            key.id.clone(),
            key.workspace.as_deref().map_or("(all)".to_owned(), printable),
            key.rights.to_string(),
            printable(&key.label),
            ago(show.now, key.created),
            key.expires.map_or("never".to_owned(), utc),
            out.state().to_owned(),
        ]);
    }
    if show.json {
        return Ok(());
    }
    if !keys.is_empty() {
        return show.table(&table);
    }
    let whose = workspace.map_or(String::new(), |name| format!(" for the workspace \"{}\"", printable(name)));
    show.note(format!("no keys{whose} in {}", database.location()))
}

const REVOKE_EXAMPLES: &str = "\
Examples:
  epitome keys revoke 5b1f09c2d4e8a637          the id is shown by `epitome keys list`

The server refuses requests with a revoked key at once, and closes event streams that were opened
with the key. A revoked key cannot be restored; create a new key instead. Instead of the id, you can
pass the key's secret.";

/// Revokes a key immediately
#[derive(clap::Args)]
#[command(after_help = REVOKE_EXAMPLES)]
struct Revoke {
    /// Id of the key, or its secret
    #[arg(value_name = "ID")]
    id: String,
}

async fn revoke(
    args: &Revoke,
    workspace: Option<&str>,
    database: &Database,
    show: &mut Show,
) -> Result<(), Failure> {
    // Accepts a secret in place of the id: if a secret has leaked, the user may not have the id.
    let id = match args.id.strip_prefix("epk_") {
        Some(rest) => rest.split('_').next().unwrap_or_default(),
        None => &args.id,
    };
    if !database.engine.keys().revoke(id, workspace).await? {
        let hint = "`epitome keys list` shows all keys";
        return Err(Failure::Failed(format!("there is no key {id:?}; {hint}")));
    }
    show.answer(&json!({"revoked": id}), format_args!("key {id} is revoked"))
}
