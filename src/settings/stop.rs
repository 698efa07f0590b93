//! How the process ends.

use std::time::Duration;

use crate::go_values;

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Stop")]
pub struct StopArgs {
    /// Time to go on answering after the process has called itself not ready, so that callers notice.
    #[arg(long, env = "SHUTDOWN_DELAY", default_value = "0s", value_parser = go_values::duration)]
    pub shutdown_delay: Duration,
    /// Time calls in flight then have to finish.
    #[arg(long, env = "SHUTDOWN_TIMEOUT", default_value = "20s", value_parser = go_values::duration)]
    pub shutdown_timeout: Duration,
}
