//! `palang serve`.

use std::process::ExitCode;

use crate::{
    app,
    settings::{Mistake, Mistakes, Settings, Unsupported},
    telemetry::logs,
};

/// Settings of `palang serve`.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(after_help = "\
Every setting is a flag or an environment variable; the variables have the names that envoyproxy/ratelimit gives them.

Examples:
  palang serve --rules examples/quickstart
  REDIS_URL=redis:6379 palang serve --rules /etc/palang/rules
  RUNTIME_ROOT=/data RUNTIME_SUBDIRECTORY=ratelimit palang serve")]
pub(super) struct Args {
    #[command(flatten)]
    settings: Settings,
}

pub(super) fn run(args: Args) -> ExitCode {
    let unsupported = Unsupported::in_environment();
    if !unsupported.fatal.is_empty() {
        let mistakes = Mistakes(unsupported.fatal);
        eprint!("palang: these settings cannot be used:\n{mistakes}");
        return ExitCode::from(super::USAGE);
    }
    if let Err(cause) = logs::start(args.settings.log) {
        eprintln!("palang: cannot start the log: {cause}");
        return ExitCode::FAILURE;
    }
    for Mistake {
        setting, allowed, ..
    } in unsupported.told
    {
        tracing::warn!(setting, "this setting has no effect: {allowed}");
    }
    for Mistake {
        setting, allowed, ..
    } in unsupported.needless
    {
        tracing::info!(setting, "this setting is not needed here: {allowed}");
    }
    match app::serve(args.settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            tracing::error!(cause = format!("{cause:#}"), "cannot go on");
            ExitCode::FAILURE
        }
    }
}
