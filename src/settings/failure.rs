//! What happens when the store fails.

use std::time::Duration;

use crate::{
    counter::OnFailure,
    go_values::{self, Malformed},
    store::guard::{BreakerConfig, Config, Replicas},
    time::Clock,
};

use super::StoreArgs;

/// What happens when the store fails, or when there is more to do than it can answer.
#[derive(Clone, Debug, PartialEq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Failure")]
pub struct FailureArgs {
    /// What is answered when the store cannot decide: error, allow, deny or local. A rule's on_store_failure wins.
    #[arg(long, env = "FAILURE_MODE", default_value = "error", value_parser = policy)]
    pub failure_mode: OnFailure,
    /// Replicas that share a limit while each counts by itself (local).
    #[arg(long, env = "REPLICAS", default_value = "1", value_parser = go_values::count)]
    pub replicas: usize,
    /// Name with one address for each replica, such as that of a headless service. Wins over REPLICAS once it resolves.
    #[arg(long, env = "REPLICAS_DNS", default_value = "")]
    pub replicas_dns: String,
    /// Time between two looks at REPLICAS_DNS.
    #[arg(long, env = "REPLICAS_DNS_INTERVAL", default_value = "10s", value_parser = positive)]
    pub replicas_dns_interval: Duration,
    /// Most calls of one worker that wait for the store; one more is answered by policy at once.
    #[arg(long, env = "MAX_IN_FLIGHT", default_value = "2048", value_parser = go_values::count)]
    pub max_in_flight: usize,
    /// Part of a caller's grpc-timeout that is left to bring it the answer.
    #[arg(long, env = "DEADLINE_MARGIN", default_value = "2ms", value_parser = go_values::duration)]
    pub deadline_margin: Duration,
    /// Failures in a row after which the store is left alone for a while.
    #[arg(long, env = "BREAKER_FAILURES", default_value = "5", value_parser = go_values::count)]
    pub breaker_failures: usize,
    /// Share of failed calls (of 20 or more in BREAKER_WINDOW) from which on it is, too.
    #[arg(long, env = "BREAKER_RATIO", default_value = "0.5", value_parser = ratio)]
    pub breaker_ratio: f64,
    /// Time over which that share is counted.
    #[arg(long, env = "BREAKER_WINDOW", default_value = "5s", value_parser = positive)]
    pub breaker_window: Duration,
    /// Longest time between two tries to reach the store again.
    #[arg(long, env = "BREAKER_MAX_BACKOFF", default_value = "1s", value_parser = positive)]
    pub breaker_max_backoff: Duration,
    /// Be not ready while the store is left alone. Without it the store has to have answered once.
    #[arg(long, env = "READY_NEEDS_STORE", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub ready_needs_store: bool,
    /// The same, by the reference's name
    #[arg(long, env = "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub redis_health_check_active_connection: bool,
}

impl FailureArgs {
    /// Whether the process is ready only while the store can be asked.
    pub const fn needs_store(&self) -> bool {
        self.ready_needs_store || self.redis_health_check_active_connection
    }

    /// How the store is guarded.
    pub fn guard(&self, store: &StoreArgs, replicas: Replicas, clock: &Clock) -> Config {
        let backoff_max = self.breaker_max_backoff;
        let default = BreakerConfig::default();
        Config {
            timeout: store.store_timeout,
            margin: self.deadline_margin,
            max_in_flight: self.max_in_flight,
            breaker: BreakerConfig {
                failures: u32::try_from(self.breaker_failures).unwrap_or(u32::MAX),
                // One stall fails all calls in flight at once. The second wave of failures comes a timeout later.
                spread: store.store_timeout,
                ratio: self.breaker_ratio,
                window: self.breaker_window,
                backoff: default.backoff.min(backoff_max),
                backoff_max,
                ..default
            },
            replicas,
            local: store.memory(),
            clock: clock.clone(),
        }
    }
}

fn policy(text: &str) -> Result<OnFailure, Malformed> {
    OnFailure::from_name(&text.to_ascii_lowercase())
        .ok_or_else(|| Malformed::new("expected error, allow, deny or local"))
}

fn positive(text: &str) -> Result<Duration, Malformed> {
    go_values::duration(text)
        .ok()
        .filter(|time| !time.is_zero())
        .ok_or_else(|| Malformed::new("expected a duration of more than 0, such as 1s"))
}

fn ratio(text: &str) -> Result<f64, Malformed> {
    text.parse()
        .ok()
        .filter(|ratio| *ratio > 0.0 && *ratio <= 1.0)
        .ok_or_else(|| Malformed::new("expected a number above 0, up to 1"))
}
