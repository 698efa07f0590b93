//! The settings of the rule source.

use std::{convert::Infallible, path::PathBuf};

use clap::builder::BoolishValueParser;

use super::{Layout, Options};
use crate::rules::compile::{self, Domains, Warnings};

/// Where the rules are and how they are read.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Rules")]
pub struct Args {
    /// Rule file, or directory with *.yaml and *.yml files. Instead of the three RUNTIME settings
    #[arg(
        long = "rules",
        env = "PALANG_RULES",
        value_name = "PATH",
        value_delimiter = ','
    )]
    pub rules: Vec<PathBuf>,

    /// First part of the rule directory; may be a symbolic link that is swapped
    #[arg(
        long,
        env = "RUNTIME_ROOT",
        value_name = "DIR",
        value_parser = directory,
        default_value = "/srv/runtime_data/current"
    )]
    pub runtime_root: PathBuf,

    /// Second part of the rule directory
    #[arg(
        long,
        env = "RUNTIME_SUBDIRECTORY",
        value_name = "DIR",
        value_parser = directory,
        default_value = ""
    )]
    pub runtime_subdirectory: PathBuf,

    /// Third part of the rule directory
    #[arg(
        long,
        env = "RUNTIME_APPDIRECTORY",
        value_name = "DIR",
        value_parser = directory,
        default_value = "config"
    )]
    pub runtime_appdirectory: PathBuf,

    /// Put descriptors together that several files write for one domain, instead of refusing the second file
    #[arg(
        long = "merge-domains",
        env = "MERGE_DOMAIN_CONFIG",
        num_args = 0..=1,
        default_value = "false",
        default_missing_value = "true",
        value_parser = BoolishValueParser::new(),
        action = clap::ArgAction::Set,
    )]
    pub merge_domains: bool,

    /// Largest rule file that is read, in bytes
    #[arg(long, env = "RULES_MAX_FILE_BYTES", value_name = "BYTES", default_value_t = Options::default().max_file_bytes)]
    pub rules_max_file_bytes: u64,
}

/// A part of a path. May be empty, which clap's own parser for paths refuses.
fn directory(text: &str) -> Result<PathBuf, Infallible> {
    Ok(PathBuf::from(text))
}

impl Args {
    /// The places to read.
    pub fn layout(&self) -> Layout {
        if self.rules.is_empty() {
            Layout::runtime(
                &self.runtime_root,
                &self.runtime_subdirectory,
                &self.runtime_appdirectory,
            )
        } else {
            Layout::paths(self.rules.iter().cloned())
        }
    }

    /// How they are read.
    pub fn options(&self) -> Options {
        Options {
            compile: compile::Options {
                domains: if self.merge_domains {
                    Domains::Merged
                } else {
                    Domains::Distinct
                },
                warnings: Warnings::Told,
            },
            max_file_bytes: self.rules_max_file_bytes,
            ..Options::default()
        }
    }
}
