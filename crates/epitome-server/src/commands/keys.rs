//! `epitome keys`: who may use the HTTP API.
//!
//! They are in the database, where a running server looks them up at every request: what is made or revoked here holds
//! there at once. What a key may do is `epitome::key`'s to say; which routes ask for it, `http/gate.rs`'s.

use super::prelude::*;

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
    let Some(what) = &args.what else {
        return Err(Failure::Misused("say what to do with keys: create, list or revoke".to_owned()));
    };
    let (database, done);
    match what {
        What::Create(args) => {
            let new = args.new_key(loaded, show.now)?;
            database = Database::created(loaded).await?;
            done = create::run(new, &database, show).await;
        }
        What::List(_) => {
            database = Database::existing(loaded).await?;
            done = list::run(loaded.typed_workspace(), &database, show).await;
        }
        What::Revoke(args) => {
            database = Database::existing(loaded).await?;
            done = revoke::run(args, loaded.typed_workspace(), &database, show).await;
        }
    }
    database.close().await;
    done
}
