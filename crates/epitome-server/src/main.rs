//! The binary `epitome`. All code is in the library of this crate.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    epitome_server::run()
}
