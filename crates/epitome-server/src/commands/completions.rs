//! `epitome completions`: prints the script for a shell's command-line completion.

use clap_complete::Shell;

use super::prelude::*;

const EXAMPLES: &str = "\
Examples:
  epitome completions bash > ~/.local/share/bash-completion/completions/epitome
  epitome completions zsh > ~/.zfunc/_epitome
  epitome completions fish > ~/.config/fish/completions/epitome.fish";

/// Prints the script for a shell's command-line completion
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Shell: bash, elvish, fish, powershell or zsh
    #[arg(value_name = "SHELL", hide_possible_values = true)]
    shell: Shell,
}

pub(super) fn run(args: &Args, mut command: clap::Command, show: &mut Show) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "epitome", &mut script);
    show.raw(&script)
}
