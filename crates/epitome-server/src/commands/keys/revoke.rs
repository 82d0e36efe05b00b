//! `epitome keys revoke`: a key opens nothing from now on.

use super::super::prelude::*;

const EXAMPLES: &str = "\
Examples:
  epitome keys revoke 5b1f09c2d4e8a637          by its id, from `epitome keys list`

It cannot be taken back: make a new key instead. Requests with it are refused from now on, and event
streams that were opened with it end. Where all that is left of a key is its secret, that will do.";

/// Has a key open nothing from now on
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The key's id
    #[arg(value_name = "ID")]
    id: String,
}

pub(super) async fn run(
    args: &Args,
    workspace: Option<&str>,
    database: &Database,
    show: &mut Show,
) -> Result<(), Failure> {
    // Whoever finds a secret where it should not be has nothing else of the key.
    let id = match args.id.strip_prefix("epk_") {
        Some(rest) => rest.split('_').next().unwrap_or_default(),
        None => &args.id,
    };
    if !database.engine.keys().revoke(id, workspace).await? {
        let hint = "`epitome keys list` shows those there are";
        return Err(Failure::Failed(format!("there is no key {id:?}; {hint}")));
    }
    match show.json {
        true => show.object(&json!({"revoked": id})),
        false => show.line(format_args!("key {id} is revoked")),
    }
}
