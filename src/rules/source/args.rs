//! The settings of the rule source.

use std::{convert::Infallible, path::PathBuf};

use super::{BadFile, Layout, Options, Source, xds};
use crate::{
    go_values::{self, Malformed},
    rules::compile::{self, Domains, Warnings},
};

/// Where the rules are and how they are read.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Rules")]
pub struct Args {
    /// Where rules come from: FILE, or a control plane with GRPC_XDS_SOTW
    #[arg(
        long,
        env = "CONFIG_TYPE",
        value_name = "KIND",
        value_parser = kind,
        default_value = "FILE"
    )]
    pub config_type: ConfigType,

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
    #[arg(long = "merge-domains", env = "MERGE_DOMAIN_CONFIG", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub merge_domains: bool,

    /// Refuse all rule files when one of them is bad, instead of keeping the bad one as it last was
    #[arg(long, env = "STRICT_FILES", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub strict_files: bool,

    /// Largest rule file that is read, in bytes
    #[arg(long, env = "RULES_MAX_FILE_BYTES", value_name = "BYTES", default_value_t = Options::default().max_file_bytes,
          value_parser = go_values::integer)]
    pub rules_max_file_bytes: u64,

    /// The control plane.
    #[command(flatten)]
    pub xds: xds::Args,
}

/// Where rules come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConfigType {
    /// Rule files.
    #[default]
    File,
    /// A control plane.
    GrpcXdsSotw,
}

fn kind(text: &str) -> Result<ConfigType, Malformed> {
    match text {
        "" | "FILE" => Ok(ConfigType::File),
        "GRPC_XDS_SOTW" => Ok(ConfigType::GrpcXdsSotw),
        _ => Err(Malformed::new("expected FILE or GRPC_XDS_SOTW")),
    }
}

/// A part of a path. May be empty, which clap's own parser for paths refuses.
fn directory(text: &str) -> Result<PathBuf, Infallible> {
    Ok(PathBuf::from(text))
}

impl Args {
    /// Where rules come from, by all of these settings.
    ///
    /// # Errors
    /// When the headers for the control plane are none.
    pub fn source(&self) -> Result<Source, xds::HeadersError> {
        Ok(match self.config_type {
            ConfigType::File => Source::Files(self.layout(), self.options()),
            ConfigType::GrpcXdsSotw => Source::Xds(Box::new(self.xds.options(self.compile())?)),
        })
    }

    /// Everything that is wrong with the files of certificates and keys that are asked for.
    pub fn check_files(&self) -> Vec<xds::FileError> {
        match self.config_type {
            ConfigType::File => Vec::new(),
            ConfigType::GrpcXdsSotw => self.xds.check_files(),
        }
    }

    /// The files to read.
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

    /// How files are read.
    pub fn options(&self) -> Options {
        Options {
            compile: self.compile(),
            max_file_bytes: self.rules_max_file_bytes,
            bad_file: if self.strict_files {
                BadFile::RefusesAll
            } else {
                BadFile::StaysAsItWas
            },
            ..Options::default()
        }
    }

    fn compile(&self) -> compile::Options {
        compile::Options {
            domains: if self.merge_domains {
                Domains::Merged
            } else {
                Domains::Distinct
            },
            warnings: Warnings::Told,
        }
    }
}
