//! Where the rules are.

use std::path::PathBuf;

use crate::{go_values, server::ReadyWhen};

/// Where the rules are, and what happens before there are any.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Rules")]
pub struct RulesArgs {
    /// File or directory with rules. Takes the place of the RUNTIME settings.
    #[arg(long, env = "PALANG_RULES", value_name = "PATH")]
    pub rules: Option<PathBuf>,
    /// The reference's directory of rules is RUNTIME_ROOT/RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY.
    #[arg(long, env = "RUNTIME_ROOT", value_name = "DIRECTORY")]
    pub runtime_root: Option<PathBuf>,
    /// See RUNTIME_ROOT.
    #[arg(long, env = "RUNTIME_SUBDIRECTORY", default_value = "")]
    pub runtime_subdirectory: String,
    /// See RUNTIME_ROOT.
    #[arg(long, env = "RUNTIME_APPDIRECTORY", default_value = "config")]
    pub runtime_appdirectory: String,
    /// Reload when the symbolic link RUNTIME_ROOT changes, rather than the directory of rules.
    #[arg(long, env = "RUNTIME_WATCH_ROOT", default_value = "true", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub runtime_watch_root: bool,
    /// Accepted: files whose names start with a dot are never read.
    #[arg(long, env = "RUNTIME_IGNOREDOTFILES", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub runtime_ignoredotfiles: bool,
    /// Let several files add rules to one domain.
    #[arg(long, env = "MERGE_DOMAIN_CONFIG", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub merge_domain_config: bool,
    /// Be ready before any rules have been loaded.
    #[arg(long, env = "FORCE_START_WITHOUT_INITIAL_CONFIG", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub force_start_without_initial_config: bool,
    /// Be ready only while rules of at least one domain are in force.
    #[arg(long, env = "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub healthy_with_at_least_one_config_loaded: bool,
}

impl RulesArgs {
    /// The file or directory these settings name, `None` when they name none.
    pub fn path(&self) -> Option<PathBuf> {
        self.rules.clone().or_else(|| {
            let root = self.runtime_root.as_ref()?;
            Some(
                root.join(&self.runtime_subdirectory)
                    .join(&self.runtime_appdirectory),
            )
        })
    }

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
