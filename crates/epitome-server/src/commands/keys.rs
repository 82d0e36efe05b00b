//! `epitome keys`: who may use the HTTP API.
//!
//! They are in the database, where a running server looks them up at every request: what is made or revoked here holds
//! there at once. What a key may do is `epitome::key`'s to say; which routes ask for it, `http/gate.rs`'s.

use epitome::key::Key;
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::settings::Loaded;
use crate::show::Show;

mod create;
mod expiry;
mod list;
mod revoke;

const EXAMPLES: &str = "\
Examples:
  epitome keys create --admin                   the first key, for whoever runs the server
  epitome keys create --workspace team-a --rights write --expires 90d
  epitome keys list
  epitome keys revoke 5b1f09c2d4e8a637

A key is sent as `authorization: Bearer KEY`. All of this may be done beside a running server, which
notices at once.";

/// Who may use the HTTP API
#[derive(clap::Args)]
#[command(after_help = EXAMPLES, disable_help_subcommand = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(clap::Subcommand)]
enum What {
    /// Makes a key and shows its secret, this once
    Create(create::Args),
    /// The keys there are, revoked ones too
    List(list::Args),
    /// Has a key open nothing from now on
    Revoke(revoke::Args),
}

pub(super) async fn run(args: &Args, loaded: &Loaded, show: &mut Show) -> Result<(), Failure> {
    match &args.what {
        Some(What::Create(args)) => create::run(args, loaded, show).await,
        Some(What::List(_)) => list::run(loaded, show).await,
        Some(What::Revoke(args)) => revoke::run(args, loaded, show).await,
        None => Err(Failure::Misused("say what to do with keys: create, list or revoke".to_owned())),
    }
}

/// What a script gets of a key.
fn object(key: &Key) -> Value {
    json!({
        "id": key.id,
        "workspace": key.workspace.as_deref(),
        "rights": key.rights.name(),
        "label": key.label,
        "created": key.created.0,
        "expires": key.expires.map(|at| at.0),
        "revoked": key.revoked.map(|at| at.0),
    })
}
