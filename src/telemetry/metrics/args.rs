//! Settings of the metrics.

use crate::{
    go_values::{self, Malformed},
    telemetry::series::NearRatio,
};

/// Settings of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Metrics")]
pub struct Args {
    /// Share of a limit from which on hits count as near it, 0 to 1.
    #[arg(long, env = "NEAR_LIMIT_RATIO", default_value = "0.8", value_parser = near_ratio)]
    pub near_limit_ratio: NearRatio,
    /// Most metric series that text of requests makes in one domain; what comes after is counted as `other`.
    #[arg(long, env = "METRICS_MAX_SERIES", default_value = "10000", value_parser = go_values::count)]
    pub metrics_max_series: usize,
    /// Keys of each domain whose hits and refusals are followed, to show which are most (/top on the debug port), 10000 at
    /// most; 0 is off.
    #[arg(long, env = "TOP_KEYS", default_value = "100", value_parser = top_keys)]
    pub top_keys: u64,
    /// Show the text of those keys in metrics, too. Each key that comes and goes then makes a series in Prometheus.
    #[arg(long, env = "TOP_KEYS_IN_METRICS", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub top_keys_in_metrics: bool,
    /// Most refusals that are written to the log in a second, with rule and key; 0 is off.
    #[arg(long, env = "DENY_LOG_PER_SECOND", default_value = "0", value_parser = go_values::integer)]
    pub deny_log_per_second: u64,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            near_limit_ratio: NearRatio::default(),
            metrics_max_series: 10_000,
            top_keys: 100,
            top_keys_in_metrics: false,
            deny_log_per_second: 0,
        }
    }
}

/// Most keys that are followed in a domain: each worker keeps room for all of them from the start.
const MOST_KEYS: u64 = 10_000;

fn top_keys(text: &str) -> Result<u64, Malformed> {
    go_values::integer(text)
        .ok()
        .filter(|keys| *keys <= MOST_KEYS)
        .ok_or_else(|| Malformed::new(format!("expected a whole number from 0 to {MOST_KEYS}")))
}

fn near_ratio(text: &str) -> Result<NearRatio, Malformed> {
    NearRatio::parse(text).ok_or_else(|| Malformed::new("expected a number from 0 to 1"))
}
