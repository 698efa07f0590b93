//! The command line.

use std::{env, process::ExitCode};

fn main() -> ExitCode {
    palang::cli::run(env::args_os())
}
