//! `palang explain`: what rules say of a request, without a service.

use std::{path::PathBuf, process::ExitCode};

use anyhow::Context as _;

use crate::{
    explain::Explanation,
    go_values::Malformed,
    request::{Descriptor, Request},
    rules::{
        Domains, Modes, compile,
        source::{Layout, Options, load},
    },
};

/// Arguments of `palang explain`.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(after_help = "\
A running service explains with the state of the counters, too: /explain on its debug port.

Exit code: 0 explained, 1 the rules or the request make no sense.

Examples:
  palang explain --rules examples/quickstart --domain quickstart --descriptor user=7
  palang explain --rules rules.yaml --domain api --descriptor route=draw,user=42 --descriptor ip=10.0.0.7 --json")]
pub(super) struct Args {
    /// Rule file, or directory with *.yaml and *.yml files; once for each
    #[arg(long, required = true, value_name = "PATH")]
    rules: Vec<PathBuf>,
    /// Domain to ask for
    #[arg(long)]
    domain: String,
    /// Entries of one descriptor, outermost first; once for each descriptor
    #[arg(long = "descriptor", required = true, value_name = "KEY=VALUE,...", value_parser = descriptor)]
    descriptors: Vec<Descriptor>,
    /// Hits to take
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32))]
    hits: u32,
    /// Allow several files to write rules for one domain, as MERGE_DOMAIN_CONFIG=true does
    #[arg(long)]
    merge_domains: bool,
    /// Print the explanation as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: Args) -> ExitCode {
    match explained(args) {
        Ok(text) => super::printed(&text, ExitCode::SUCCESS, ExitCode::FAILURE),
        Err(cause) => {
            eprintln!("palang: {cause:#}");
            ExitCode::FAILURE
        }
    }
}

fn explained(args: Args) -> anyhow::Result<String> {
    let options = Options {
        compile: compile::Options {
            domains: if args.merge_domains {
                Domains::Merged
            } else {
                Domains::Distinct
            },
            ..compile::Options::default()
        },
        ..Options::default()
    };
    let loaded = load(&Layout::paths(args.rules), &options)
        .context("these rules cannot be used: palang check says why")?;
    let request = Request {
        domain: args.domain,
        descriptors: args
            .descriptors
            .into_iter()
            .map(|descriptor| Descriptor {
                hits: i64::from(args.hits),
                ..descriptor
            })
            .collect(),
    };
    let explanation = Explanation::of(&loaded.rules, request, Modes::default());
    Ok(if args.json {
        format!("{:#}\n", explanation.json())
    } else {
        explanation.to_string()
    })
}

fn descriptor(text: &str) -> Result<Descriptor, Malformed> {
    Descriptor::parse(text, 1)
        .ok_or_else(|| Malformed::new("expected key=value, or several separated by commas"))
}
