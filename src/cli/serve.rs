//! `palang serve`.

use std::process::ExitCode;

use crate::{
    app,
    settings::{Given, Mistake, Settings, Unsupported},
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

impl Args {
    /// Everything that keeps a start by these from what they ask for, but for values that were refused.
    pub(super) fn mistakes(&self, given: &Given) -> Vec<Mistake> {
        let mut mistakes = Unsupported::in_environment().fatal;
        mistakes.extend(self.settings.mistakes(given));
        mistakes
    }
}

pub(super) fn run(args: Args) -> ExitCode {
    let unsupported = Unsupported::in_environment();
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
