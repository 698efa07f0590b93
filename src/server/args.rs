//! Settings of the ports and of what goes over them.

use std::time::Duration;

use super::{
    bounds::Bounds,
    debug::AdminArgs,
    headers::{Headers, Style, Triple},
    tls::TlsArgs,
};
use crate::go_values::{self, Address, Malformed};

/// Settings of the ports and of what goes over them.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Ports")]
pub struct Args {
    /// Host of the HTTP port (/json, /healthcheck).
    #[arg(long, env = "HOST", default_value = "0.0.0.0", value_parser = go_values::host)]
    pub host: String,
    /// HTTP port; 0 lets the system choose.
    #[arg(long, env = "PORT", default_value = "8080", value_parser = go_values::port)]
    pub port: u16,
    /// Host of the gRPC port.
    #[arg(long, env = "GRPC_HOST", default_value = "0.0.0.0", value_parser = go_values::host)]
    pub grpc_host: String,
    /// gRPC port; 0 lets the system choose.
    #[arg(long, env = "GRPC_PORT", default_value = "8081", value_parser = go_values::port)]
    pub grpc_port: u16,
    /// Path of a Unix socket for gRPC, in place of GRPC_HOST and GRPC_PORT.
    #[arg(long, env = "GRPC_UDS", default_value = "")]
    pub grpc_uds: String,
    /// Host of the debug port (/ lists what is there). It shows rules, so it is not open to the network by itself.
    #[arg(long, env = "DEBUG_HOST", default_value = "127.0.0.1", value_parser = go_values::host)]
    pub debug_host: String,
    /// Debug port; 0 lets the system choose.
    #[arg(long, env = "DEBUG_PORT", default_value = "6070", value_parser = go_values::port)]
    pub debug_port: u16,
    /// Have a metrics port; false opens none. Without it there is one, beside statsd too, but not with DISABLE_STATS
    #[arg(long, env = "USE_PROMETHEUS", value_parser = go_values::boolean, num_args = 0..=1, require_equals = true,
          default_missing_value = "true")]
    pub use_prometheus: Option<bool>,
    /// Address of the metrics port.
    #[arg(long, env = "PROMETHEUS_ADDR", default_value = ":9090", value_parser = go_values::address)]
    pub prometheus_addr: Address,
    /// Path of the metrics.
    #[arg(long, env = "PROMETHEUS_PATH", default_value = "/metrics", value_parser = path)]
    pub prometheus_path: String,
    /// Worker threads; each has its own connections and store lane. [default: one for each core]
    #[arg(long, env = "WORKERS", value_parser = workers)]
    pub workers: Option<usize>,
    /// Most open connections of a port; one more is closed at once.
    #[arg(long, env = "MAX_CONNECTIONS", default_value = "10000", value_parser = go_values::count)]
    pub max_connections: usize,
    /// Age at which a gRPC connection is asked to go (give or take 10 %), so that clients spread over new replicas; 0
    /// asks none.
    #[arg(long, env = "GRPC_MAX_CONNECTION_AGE", default_value = "30m", value_parser = go_values::bound)]
    pub grpc_max_connection_age: Duration,
    /// Time such a connection then has to finish its calls.
    #[arg(long, env = "GRPC_MAX_CONNECTION_AGE_GRACE", default_value = "1m", value_parser = go_values::bound)]
    pub grpc_max_connection_age_grace: Duration,
    /// Time between two pings of a connection, that find peers which vanished without a word; 0 sends none.
    #[arg(long, env = "KEEPALIVE_INTERVAL", default_value = "1m", value_parser = go_values::bound)]
    pub keepalive_interval: Duration,
    /// Time a peer has to answer one.
    #[arg(long, env = "KEEPALIVE_TIMEOUT", default_value = "20s", value_parser = go_values::bound)]
    pub keepalive_timeout: Duration,
    /// What operators may change.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// TLS on the gRPC port.
    #[command(flatten)]
    pub tls: TlsArgs,
    /// How large a request may be.
    #[command(flatten)]
    pub bounds: Bounds,
    /// What an answer carries.
    #[command(flatten)]
    pub answers: AnswerArgs,
}

/// What an answer carries besides its statuses.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Answers")]
pub struct AnswerArgs {
    /// Send RateLimit-Limit, RateLimit-Remaining and RateLimit-Reset of the tightest limit.
    #[arg(long, env = "LIMIT_RESPONSE_HEADERS_ENABLED", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub limit_response_headers_enabled: bool,
    /// Name of the header with the limit.
    #[arg(long, env = "LIMIT_LIMIT_HEADER", default_value = "RateLimit-Limit", value_parser = header_name)]
    pub limit_limit_header: String,
    /// Name of the header with what is left.
    #[arg(long, env = "LIMIT_REMAINING_HEADER", default_value = "RateLimit-Remaining", value_parser = header_name)]
    pub limit_remaining_header: String,
    /// Name of the header with the seconds until that changes.
    #[arg(long, env = "LIMIT_RESET_HEADER", default_value = "RateLimit-Reset", value_parser = header_name)]
    pub limit_reset_header: String,
    /// Further styles of headers, separated by commas: ietf, x-ratelimit, retry-after.
    #[arg(long, env = "RATE_LIMIT_HEADERS", default_value = "", value_parser = styles)]
    pub rate_limit_headers: Styles,
    /// Name of the header that says which failure policy answered because the store could not; empty: none is sent.
    #[arg(long, env = "POLICY_ANSWER_HEADER", default_value = "", value_parser = header_name_or_none)]
    pub policy_answer_header: String,
    /// Repeat the request, and the metadata of the rules that let it pass, as dynamic metadata.
    #[arg(long, env = "RESPONSE_DYNAMIC_METADATA", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub response_dynamic_metadata: bool,
}

/// Styles of headers, each at most once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Styles(pub Vec<Style>);

impl AnswerArgs {
    /// The headers these settings ask for.
    pub fn headers(&self) -> Headers {
        Headers {
            triple: self.limit_response_headers_enabled.then(|| Triple {
                limit: self.limit_limit_header.clone(),
                remaining: self.limit_remaining_header.clone(),
                reset: self.limit_reset_header.clone(),
            }),
            styles: self.rate_limit_headers.0.clone(),
            policy: (!self.policy_answer_header.is_empty())
                .then(|| self.policy_answer_header.clone()),
        }
    }
}

/// Each worker is a thread with a runtime: more of them than any machine has cores is a mistake.
fn workers(text: &str) -> Result<usize, Malformed> {
    go_values::count(text)
        .ok()
        .filter(|&workers| workers <= 1_024)
        .ok_or_else(|| Malformed::new("expected a whole number, 1 to 1024"))
}

fn styles(text: &str) -> Result<Styles, Malformed> {
    let mut styles = Vec::new();
    for name in text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
    {
        let style = match name.to_ascii_lowercase().as_str() {
            "ietf" => Style::Ietf,
            "x-ratelimit" => Style::XRateLimit,
            "retry-after" => Style::RetryAfter,
            _ => {
                return Err(Malformed::new(
                    "expected a comma-separated list of ietf, x-ratelimit, retry-after",
                ));
            }
        };
        if !styles.contains(&style) {
            styles.push(style);
        }
    }
    Ok(Styles(styles))
}

fn header_name(text: &str) -> Result<String, Malformed> {
    http::HeaderName::from_bytes(text.as_bytes())
        .map(|_| text.to_owned())
        .map_err(|_| Malformed::new("expected the name of a header"))
}

fn header_name_or_none(text: &str) -> Result<String, Malformed> {
    if text.is_empty() {
        return Ok(String::new());
    }
    header_name(text)
}

fn path(text: &str) -> Result<String, Malformed> {
    if text.starts_with('/') && !text.contains(['{', '}', '*', '?', ' ']) {
        Ok(text.to_owned())
    } else {
        Err(Malformed::new("expected a path such as /metrics"))
    }
}
