//! Where the rules are, and what happens before there are any.

use crate::{go_values, rules::source, server::ReadyWhen};

/// Where the rules are, and what happens before there are any.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Rules")]
pub struct RulesArgs {
    /// Accepted for the reference's sake: every change is seen, whichever way the files are swapped.
    #[arg(long, env = "RUNTIME_WATCH_ROOT", default_value = "true", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub runtime_watch_root: bool,
    /// Accepted for the reference's sake: files whose names start with a dot are never read.
    #[arg(long, env = "RUNTIME_IGNOREDOTFILES", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub runtime_ignoredotfiles: bool,
    /// Be ready before any rules have been loaded.
    #[arg(long, env = "FORCE_START_WITHOUT_INITIAL_CONFIG", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub force_start_without_initial_config: bool,
    /// Be ready only while rules of at least one domain are in force.
    #[arg(long, env = "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub healthy_with_at_least_one_config_loaded: bool,
    /// Where the rules are. Last: it ends under a heading of its own.
    #[command(flatten)]
    pub source: source::Args,
}

impl RulesArgs {
    /// When the process is ready. The demand for rules is the stronger one.
    pub const fn ready_when(&self) -> ReadyWhen {
        if self.healthy_with_at_least_one_config_loaded {
            ReadyWhen::SomeDomain
        } else if self.force_start_without_initial_config {
            ReadyWhen::Started
        } else {
            ReadyWhen::RulesLoaded
        }
    }
}
