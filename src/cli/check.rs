//! `palang check`: are these rules all right? The same code as the loader's, without a service.

use std::{
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use crate::{
    go_values,
    rules::{
        Domains, Mistake, Warnings, compile,
        source::{Layout, Options, load},
    },
};

/// Check rule files without starting a service
///
/// Reads the files exactly as the service does and prints every mistake and warning as
///
///   file:line:column: error|warning: what is wrong (rule path)
///
/// Exits with 0 when the service would load the rules, with 1 when it would not.
#[derive(Clone, Debug, clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = "Examples:\n  palang check rules.yaml\n  palang check --strict deploy/rules/\n  palang check \
                  --merge-domains team-a/ team-b/"
)]
pub struct Args {
    /// Rule files, or directories with *.yaml and *.yml files; all of them together are one configuration
    #[arg(required_unless_present = "config_dir", value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// One more of these, by the flag of envoyproxy/ratelimit's checker
    #[arg(long, alias = "config_dir", value_name = "PATH")]
    pub config_dir: Option<PathBuf>,

    /// Treat warnings as mistakes: also refuse what the service loads but ignores
    #[arg(long)]
    pub strict: bool,

    /// Allow several files to write rules for one domain, as MERGE_DOMAIN_CONFIG=true does
    #[arg(long, alias = "merge_domain_configs", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub merge_domains: bool,

    /// Largest file that is read, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = Options::default().max_file_bytes)]
    pub max_file_bytes: u64,
}

/// Runs the command. What it finds goes to `out`.
///
/// # Errors
/// When `out` cannot be written to.
pub fn run(args: &Args, out: &mut impl Write) -> io::Result<ExitCode> {
    let options = Options {
        compile: compile::Options {
            domains: if args.merge_domains {
                Domains::Merged
            } else {
                Domains::Distinct
            },
            warnings: if args.strict {
                Warnings::Refused
            } else {
                Warnings::Told
            },
        },
        max_file_bytes: args.max_file_bytes,
        ..Options::default()
    };
    let paths = args.config_dir.iter().chain(&args.paths).cloned();
    match load(&Layout::paths(paths), &options) {
        Ok(loaded) => {
            for ignored in &loaded.ignored {
                writeln!(
                    out,
                    "{}: note: ignored: {}",
                    ignored.path.display(),
                    ignored.reason
                )?;
            }
            list(out, &[], &loaded.warnings)?;
            if loaded.rules.domains().next().is_none() {
                let label = if args.strict { "error" } else { "warning" };
                writeln!(out, "{label}: no rule file: every request would pass")?;
                if args.strict {
                    return Ok(ExitCode::FAILURE);
                }
            }
            writeln!(
                out,
                "ok: {} in {} of {}, {}, hash {:016x}",
                counted(loaded.rules.rules().len(), "rule"),
                counted(loaded.rules.domains().count(), "domain"),
                counted(loaded.rules.files().len(), "file"),
                counted(Mistake::count(&loaded.warnings), "warning"),
                loaded.rules.hash()
            )?;
            Ok(ExitCode::SUCCESS)
        }
        Err(failed) => {
            list(out, &failed.mistakes, &failed.warnings)?;
            writeln!(
                out,
                "failed: {}, {}",
                counted(Mistake::count(&failed.mistakes), "error"),
                counted(Mistake::count(&failed.warnings), "warning")
            )?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Mistakes and warnings as one list, in order of their place.
fn list(out: &mut impl Write, mistakes: &[Mistake], warnings: &[Mistake]) -> io::Result<()> {
    let mut lines: Vec<(&Mistake, &str)> = mistakes
        .iter()
        .map(|mistake| (mistake, "error"))
        .chain(warnings.iter().map(|warning| (warning, "warning")))
        .collect();
    lines.sort();
    for (mistake, label) in lines {
        writeln!(out, "{}", mistake.labelled(label))?;
    }
    Ok(())
}

fn counted(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
