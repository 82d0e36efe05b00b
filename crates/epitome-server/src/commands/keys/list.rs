//! `epitome keys list`: the keys there are.

use epitome::key::Key;
use epitome::rules::message::Timestamp;
use serde::Serialize;

use super::super::prelude::*;

const EXAMPLES: &str = "\
Examples:
  epitome keys list
  epitome keys list --workspace team-a          only those of one workspace
  epitome keys list --json | jq -r 'select(.state == \"good\") | .id'

Oldest first, of all workspaces unless --workspace names one. With --json each line is a key: id,
workspace (null for an admin key), rights, label, created, expires, revoked (milliseconds since
1970) and state: good, expired or revoked. No secret is kept, so none is shown.";

/// The keys there are, revoked ones too
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {}

/// So many are read at a time.
const AT_ONCE: usize = 1_000;

/// A line of JSON.
#[derive(Serialize)]
struct Listed<'a> {
    #[serde(flatten)]
    key: &'a Key,
    state: &'static str,
}

pub(super) async fn run(
    workspace: Option<&str>,
    database: &Database,
    show: &mut Show,
) -> Result<(), Failure> {
    let mut keys: Vec<Key> = Vec::new();
    loop {
        let after = keys.last().map(|key| key.id.as_str());
        let page = database.engine.keys().list(workspace, after, AT_ONCE).await?;
        let last = page.len() < AT_ONCE;
        keys.extend(page);
        if last {
            break;
        }
    }
    // Their ids are random.
    keys.sort_by(|one, other| (one.created, &one.id).cmp(&(other.created, &other.id)));
    let mut table = Table::new(&["id", "workspace", "rights", "label", "created", "expires", "state"]);
    for key in &keys {
        let state = state(key, show.now);
        if show.json {
            show.json(&Listed { key, state })?;
            continue;
        }
        table.row([
            key.id.clone(),
            key.workspace.as_deref().map_or("(all)".to_owned(), tame),
            key.rights.to_string(),
            tame(&key.label),
            ago(show.now, key.created),
            key.expires.map_or("never".to_owned(), utc),
            state.to_owned(),
        ]);
    }
    if show.json {
        return Ok(());
    }
    if !keys.is_empty() {
        return show.table(&table);
    }
    let whose = workspace.map_or(String::new(), |name| format!(" for the workspace \"{}\"", tame(name)));
    show.note(format!("no keys{whose} in {}", database.place()))
}

/// Whether it opens anything, and if not why.
fn state(key: &Key, now: Timestamp) -> &'static str {
    match key.revoked {
        Some(_) => "revoked",
        None if key.is_good_at(now) => "good",
        None => "expired",
    }
}
