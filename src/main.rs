//! The `palang` program.

use std::process::ExitCode;

/// See Cargo.toml for why.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    palang::cli::run(std::env::args_os())
}
