//! The command line: one file for each command.

mod bench;
pub mod check;
mod client;
mod decide;
mod explain;
mod healthcheck;
mod quickstart;
mod reference;
mod serve;

use std::{
    ffi::OsString,
    io::{self, Write as _},
    process::ExitCode,
};

use clap::{CommandFactory as _, Parser};

use crate::settings::{self, Checked, Mistakes, check};

/// Exit code for a command line or settings that make no sense (EX_USAGE).
const USAGE: u8 = 64;

/// Decides whether requests may go through: rate limits for Envoy, and for everything that can ask over gRPC or HTTP.
#[derive(Debug, Parser)]
#[command(
    name = "palang",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  palang quickstart
  palang serve --rules examples/quickstart
  palang check examples/quickstart
  palang decide --domain mongo --descriptor database=users
  palang explain --rules examples/quickstart --domain quickstart --descriptor user=7
  palang bench --domain mongo --descriptor database=%
  palang healthcheck"
)]
struct Palang {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Answer requests
    Serve(Box<serve::Args>),
    /// Answer requests by the example rules, with counters in memory: `serve --rules examples/quickstart`
    Quickstart,
    Check(check::Args),
    /// Ask a running service, as a proxy would, and show what it says
    Decide(decide::Args),
    /// Show which rule a request meets, and what was tried on the way
    Explain(explain::Args),
    /// Put load on a running service, and show how fast and how right its answers are
    Bench(Box<bench::Args>),
    /// Ask a running service whether it is ready
    Healthcheck(healthcheck::Args),
    /// Print every setting as docs/settings.md
    #[command(hide = true)]
    Settings,
}

/// Runs the command that `arguments` ask for.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments = reference::as_ours(arguments.into_iter().collect());
    let command = settings::without_empty(Palang::command());
    let (palang, mistakes) = match check::<Palang>(command, &arguments) {
        Checked::Parsed {
            parsed,
            given,
            refused: mut mistakes,
        } => {
            if let Command::Serve(args) = &parsed.command {
                mistakes.extend(args.mistakes(&given));
            }
            (Some(parsed), mistakes)
        }
        Checked::Refused(mistakes) => (None, mistakes),
        Checked::Other(error) => {
            // Where it cannot be printed there is nobody to read it.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { USAGE } else { 0 });
        }
    };
    match palang {
        Some(palang) if mistakes.is_empty() => palang.run(),
        _ => {
            let mistakes = Mistakes(mistakes);
            eprint!("palang: these settings cannot be used:\n{mistakes}");
            ExitCode::from(USAGE)
        }
    }
}

impl Palang {
    fn run(self) -> ExitCode {
        match self.command {
            Command::Serve(args) => serve::run(*args),
            Command::Quickstart => quickstart::run(),
            Command::Check(args) => check::run(&args, &mut io::stdout()).unwrap_or_else(|cause| {
                eprintln!("palang: cannot write what was found: {cause}");
                ExitCode::FAILURE
            }),
            Command::Decide(args) => decide::run(args),
            Command::Explain(args) => explain::run(args),
            Command::Bench(args) => bench::run(*args),
            Command::Healthcheck(args) => healthcheck::run(&args),
            Command::Settings => {
                printed(&settings::document(), ExitCode::SUCCESS, ExitCode::FAILURE)
            }
        }
    }
}

/// Writes `text` to standard output and ends with `done`, or with `failed`. Who closes it early, as `head` does, has read
/// enough.
fn printed(text: &str, done: ExitCode, failed: ExitCode) -> ExitCode {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(cause) if cause.kind() != io::ErrorKind::BrokenPipe => {
            eprintln!("palang: cannot write what was found: {cause}");
            failed
        }
        _ => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Palang::command().debug_assert();
    }
}
