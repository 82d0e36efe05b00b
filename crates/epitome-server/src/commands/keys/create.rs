//! `epitome keys create`: a key, whose secret is shown once.

use epitome::key::{Key, NewKey, Rights};
use epitome::rules::message::Timestamp;

use super::super::prelude::*;
use super::expiry::Expiry;

const EXAMPLES: &str = "\
Examples:
  epitome keys create --admin
  epitome keys create --workspace team-a --rights write --label \"ann's agent\"
  epitome keys create --workspace team-a --rights read --expires 2027-01-01
  KEY=$(epitome keys create --rights write)     for the workspace `default`

The secret alone goes to standard output; what is kept of it is its hash. A read key reads one
workspace, a write key also writes it. An admin key makes and revokes keys, reads /metrics, and
reads and writes the workspace that the header x-epitome-workspace names.";

/// Makes a key and shows its secret, this once
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// What it may do in its workspace: read or write
    #[arg(long, value_name = "RIGHTS", required_unless_present = "admin", value_parser = rights)]
    rights: Option<Rights>,
    /// A key for whoever runs the server, for all workspaces
    #[arg(long, conflicts_with = "rights")]
    admin: bool,
    /// What to call it in the list
    #[arg(long, value_name = "LABEL", default_value = "", hide_default_value = true)]
    label: String,
    /// When it ends: after a time (12h, 30d), or on a day (2027-01-01, UTC)
    #[arg(long, value_name = "WHEN")]
    expires: Option<Expiry>,
}

fn rights(text: &str) -> Result<Rights, String> {
    match text {
        "read" => Ok(Rights::Read),
        "write" => Ok(Rights::Write),
        _ => Err("say read or write; for an admin key, --admin in place of --rights".to_owned()),
    }
}

impl Args {
    /// The key that is wanted.
    pub(super) fn new_key(&self, loaded: &Loaded, now: Timestamp) -> Result<NewKey, Failure> {
        if self.admin && loaded.typed_workspace().is_some() {
            let problem = "an admin key is for all workspaces: leave --workspace out, or say --rights";
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

pub(super) async fn run(new: NewKey, database: &Database, show: &mut Show) -> Result<(), Failure> {
    let created = database.engine.keys().create(new).await?;
    if show.json {
        return show.object(&created);
    }
    show.line(&created.secret)?;
    show.note(remark(&created.key))
}

/// What goes with a secret.
fn remark(key: &Key) -> String {
    let whose = match &key.workspace {
        Some(workspace) => format!("for the workspace \"{}\"", tame(workspace)),
        None => "for all workspaces".to_owned(),
    };
    let until = key.expires.map_or(String::new(), |at| format!(", until {}", utc(at)));
    format!("{} key {} {whose}{until}; its secret is not shown again", key.rights, key.id)
}
