//! `palang decide`.

use std::{process::ExitCode, time::Duration};

use anyhow::Context as _;

use super::client;
use crate::{
    go_values::{self, Malformed},
    proto::envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
        service::ratelimit::v3::{
            RateLimitRequest, RateLimitResponse,
            rate_limit_response::{Code, DescriptorStatus},
            rate_limit_service_client::RateLimitServiceClient,
        },
    },
    server::json_response,
};

/// Exit code when the request is over its limit.
const OVER: u8 = 1;
/// Exit code when there is no answer.
const FAILED: u8 = 2;

/// Arguments of `palang decide`.
#[derive(Debug, clap::Args)]
#[group(skip)]
#[command(after_help = "\
Exit code: 0 allowed, 1 over the limit, 2 no answer.

Examples:
  palang decide --domain mongo --descriptor database=users
  palang decide --domain api --descriptor route=draw,user=42 --descriptor ip=10.0.0.7 --hits 0
  palang decide --address limits:8081 --domain api --descriptor user=42 --json
  palang decide --address limits:8081 --grpc-use-tls --grpc-server-ca-file ca.crt --domain api --descriptor user=42

Called as ratelimit_client it takes the flags of envoyproxy/ratelimit's client: -dial_string, -domain, -descriptors,
-grpc-use-tls, -grpc-server-ca-file, -grpc-cert-file, -grpc-key-file.")]
pub(super) struct Args {
    /// Address of the gRPC port; also unix:///path and https://host:port
    #[arg(
        long,
        alias = "dial_string",
        default_value = "localhost:8081",
        value_name = "HOST:PORT"
    )]
    address: String,
    /// Domain to ask for
    #[arg(long)]
    domain: String,
    /// Entries of one descriptor, outermost first; once for each descriptor. A comma in a value is written \,
    #[arg(long = "descriptor", alias = "descriptors", required = true, value_name = "KEY=VALUE,...", value_parser = descriptor)]
    descriptors: Vec<RateLimitDescriptor>,
    /// Hits to take; 0 looks without counting, a negative number gives back [default: 1]
    #[arg(long, allow_hyphen_values = true, value_parser = hits)]
    hits: Option<i64>,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    /// Longest time to wait
    #[arg(long, default_value = "1s", value_parser = go_values::duration)]
    timeout: Duration,
    #[command(flatten)]
    tls: client::Tls,
    /// Accepted for the reference's sake: nothing is traced from here
    #[arg(long, hide = true, value_name = "PROTOCOL")]
    oltp_protocol: Option<String>,
}

pub(super) fn run(args: Args) -> ExitCode {
    let json = args.json;
    let asked: Vec<String> = args.descriptors.iter().map(shown).collect();
    let printed = client::block_on(ask(args)).and_then(|answer| {
        let text = if json {
            String::from_utf8(json_response(&answer)?).context("the answer is no text")?
        } else {
            text(&asked, &answer)
        };
        Ok((answer.overall_code(), text))
    });
    match printed {
        Ok((code, text)) => {
            let code = match code {
                Code::Ok => ExitCode::SUCCESS,
                Code::OverLimit => ExitCode::from(OVER),
                Code::Unknown => ExitCode::from(FAILED),
            };
            let text = format!("{}\n", text.trim_end());
            super::printed(&text, code, ExitCode::from(FAILED))
        }
        Err(cause) => {
            eprintln!("palang: {cause:#}");
            ExitCode::from(FAILED)
        }
    }
}

async fn ask(args: Args) -> anyhow::Result<RateLimitResponse> {
    let channel = client::connect(&args.address, args.timeout, &args.tls).await?;
    let descriptors = args
        .descriptors
        .into_iter()
        .map(|descriptor| RateLimitDescriptor {
            hits_addend: args.hits.map(i64::unsigned_abs),
            is_negative_hits: args.hits.is_some_and(|hits| hits < 0),
            ..descriptor
        });
    let request = RateLimitRequest {
        domain: args.domain,
        descriptors: descriptors.collect(),
        hits_addend: 0,
    };
    match RateLimitServiceClient::new(channel)
        .should_rate_limit(request)
        .await
    {
        Ok(answer) => Ok(answer.into_inner()),
        Err(status) => anyhow::bail!("no answer: {} ({:?})", status.message(), status.code()),
    }
}

fn descriptor(text: &str) -> Result<RateLimitDescriptor, Malformed> {
    let entries: Vec<Entry> = pieces(text)
        .into_iter()
        .map(|entry| {
            let (key, value) = entry.split_once('=').unwrap_or((&entry, ""));
            Entry {
                key: key.to_owned(),
                value: value.to_owned(),
            }
        })
        .collect();
    if entries.iter().any(|entry| entry.key.is_empty()) {
        return Err(Malformed::new(
            "expected key=value, or several separated by commas",
        ));
    }
    Ok(RateLimitDescriptor {
        entries,
        ..RateLimitDescriptor::default()
    })
}

/// The parts between commas; `\\,` is a comma of the text itself.
fn pieces(text: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let letter = match letter {
            '\\' if letters.next_if_eq(&',').is_some() => ',',
            ',' => {
                pieces.push(String::new());
                continue;
            }
            letter => letter,
        };
        if let Some(piece) = pieces.last_mut() {
            piece.push(letter);
        }
    }
    pieces
}

/// Hits to take, or with a minus to give back.
fn hits(text: &str) -> Result<i64, Malformed> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text),
    };
    let hits = i64::try_from(go_values::integer(digits)?)
        .map_err(|_| Malformed::new("expected a number below 2^63"))?;
    Ok(sign * hits)
}

fn shown(descriptor: &RateLimitDescriptor) -> String {
    let entries: Vec<String> = descriptor
        .entries
        .iter()
        .map(|entry| format!("{}={}", entry.key, entry.value))
        .collect();
    entries.join(", ")
}

/// One line for the whole, and one for each descriptor.
fn text(asked: &[String], answer: &RateLimitResponse) -> String {
    let mut text = match answer.overall_code() {
        Code::Ok => "allowed\n".to_owned(),
        Code::OverLimit => "over limit\n".to_owned(),
        Code::Unknown => "unknown\n".to_owned(),
    };
    for (asked, status) in asked.iter().zip(&answer.statuses) {
        text.push_str(&format!("  {asked}: {}\n", line(status)));
    }
    for header in &answer.response_headers_to_add {
        text.push_str(&format!("  {}: {}\n", header.key, header.value));
    }
    text
}

fn line(status: &DescriptorStatus) -> String {
    let Some(limit) = &status.current_limit else {
        return if status.limit_remaining == u32::MAX {
            "allowed, unlimited".to_owned()
        } else {
            "allowed, no limit applies".to_owned()
        };
    };
    let over = status.code() == Code::OverLimit;
    let per = match limit.unit().as_str_name() {
        "UNKNOWN" => " per window".to_owned(),
        unit => format!(" per {}", unit.to_ascii_lowercase()),
    };
    let name = if limit.name.is_empty() {
        String::new()
    } else {
        format!(" ({})", limit.name)
    };
    let until = status
        .duration_until_reset
        .as_ref()
        .map_or_else(String::new, |until| {
            let verb = if over { "retry" } else { "resets" };
            format!(", {verb} in {}s", until.seconds)
        });
    format!(
        "{}, {} of {}{per} left{name}{until}",
        if over { "over limit" } else { "allowed" },
        status.limit_remaining,
        limit.requests_per_unit,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::service::ratelimit::v3::rate_limit_response::{
        RateLimit, rate_limit::Unit,
    };

    #[test]
    fn a_status_reads_as_a_sentence() {
        let limited = |code: Code, name: &str, unit: Unit| DescriptorStatus {
            code: code.into(),
            current_limit: Some(RateLimit {
                name: name.to_owned(),
                requests_per_unit: 10,
                unit: unit.into(),
            }),
            limit_remaining: 3,
            duration_until_reset: Some(prost_types::Duration {
                seconds: 58,
                nanos: 0,
            }),
            quota: None,
        };
        for (status, sentence) in [
            (
                limited(Code::Ok, "", Unit::Minute),
                "allowed, 3 of 10 per minute left, resets in 58s",
            ),
            (
                limited(Code::OverLimit, "burst", Unit::Unknown),
                "over limit, 3 of 10 per window left (burst), retry in 58s",
            ),
            (DescriptorStatus::default(), "allowed, no limit applies"),
            (
                DescriptorStatus {
                    limit_remaining: u32::MAX,
                    ..DescriptorStatus::default()
                },
                "allowed, unlimited",
            ),
        ] {
            assert_eq!(line(&status), sentence);
        }
    }

    #[test]
    fn descriptors_are_pairs() {
        let two = descriptor("route=draw,user=a=b").unwrap();
        assert_eq!(shown(&two), "route=draw, user=a=b");
        assert_eq!(shown(&descriptor("ip").unwrap()), "ip=");
        assert_eq!(
            shown(&descriptor(r"a=b\,c,d=e\f").unwrap()),
            r"a=b,c, d=e\f"
        );
        assert_eq!((hits("3").unwrap(), hits("-3").unwrap()), (3, -3));
        assert!(hits("--3").is_err() && hits("").is_err());
        assert!(descriptor("=x").is_err());
        assert!(descriptor("").is_err());
    }
}
