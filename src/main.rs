//! The `palang` program.

use std::process::ExitCode;

/// See Cargo.toml for why.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    palang::cli::run(std::env::args_os())
}
