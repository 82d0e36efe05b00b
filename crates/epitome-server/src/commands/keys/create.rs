//! `epitome keys create`: a key, whose secret is shown once.

use epitome::key::{Key, NewKey, Rights};

use super::expiry::Expiry;
use super::object;
use crate::database::Database;
use crate::failure::Failure;
use crate::settings::Loaded;
use crate::show::{Show, tame, utc};

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

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    if args.admin && loaded.typed_workspace().is_some() {
        let problem = "an admin key is for all workspaces: leave --workspace out, or say --rights";
        return Err(Failure::Misused(problem.to_owned()));
    }
    let (workspace, rights) = match args.rights {
        Some(rights) => (Some(loaded.server.workspace.clone()), rights),
        None => (None, Rights::Admin),
    };
    let expires = args.expires.map(|expiry| expiry.from(show.now));
    let new = NewKey { workspace, rights, label: args.label.clone(), expires };
    let database = Database::created(loaded).await?;
    let created = database.engine.keys().create(new).await?;
    if show.json {
        let mut told = object(&created.key);
        if let Some(told) = told.as_object_mut() {
            told.insert("secret".to_owned(), created.secret.into());
        }
        show.object(&told)?;
    } else {
        show.line(&created.secret)?;
        show.note(remark(&created.key))?;
    }
    database.close().await;
    Ok(())
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
