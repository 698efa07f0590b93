//! Settings of the process: each room's own, put together. Flags and environment variables have the reference's names.

mod collect;
mod document;
mod failure;
mod reference;
mod rules;
mod servers;
mod stop;
mod store;
mod together;
mod unsupported;

pub use collect::{Checked, Given, Mistake, Mistakes, check, without_empty};
pub use document::document;
pub use failure::FailureArgs;
pub use rules::RulesArgs;
pub use servers::{PerSecondArgs, RedisArgs};
pub use stop::StopArgs;
pub use store::StoreArgs;
pub use unsupported::Unsupported;

use crate::{
    counter::OnFailure,
    go_values,
    rules::Modes,
    server,
    telemetry::{logs, metrics, otlp, statsd, traces},
};

/// Settings of the process.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Settings {
    /// The ports.
    #[command(flatten)]
    pub server: server::Args,
    /// The rules.
    #[command(flatten)]
    pub rules: RulesArgs,
    /// The store.
    #[command(flatten)]
    pub store: StoreArgs,
    /// What happens when the store fails.
    #[command(flatten)]
    pub failure: FailureArgs,
    /// What rules mean.
    #[command(flatten)]
    pub modes: ModeArgs,
    /// The metrics.
    #[command(flatten)]
    pub metrics: metrics::Args,
    /// The traces.
    #[command(flatten)]
    pub traces: traces::Args,
    /// The collectors.
    #[command(flatten)]
    pub otlp: otlp::Args,
    /// The statsd receiver.
    #[command(flatten)]
    pub statsd: statsd::Args,
    /// The log.
    #[command(flatten)]
    pub log: logs::Args,
    /// The end.
    #[command(flatten)]
    pub stop: StopArgs,
}

/// Switches that change what all rules mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Modes")]
pub struct ModeArgs {
    /// Refuse nothing; decide and count all the same.
    #[arg(long, env = "SHADOW_MODE", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub shadow_mode: bool,
    /// Take every limit for one of several buckets, of which any may let the request pass.
    #[arg(long, env = "QUOTA_MODE", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub quota_mode: bool,
    /// Charge each request all or nothing: a refused one is counted nowhere.
    #[arg(long, env = "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub stop_cache_key_increment_when_overlimit: bool,
}

impl ModeArgs {
    /// As the rules take them.
    pub const fn modes(self, on_store_failure: OnFailure) -> Modes {
        Modes {
            shadow: self.shadow_mode,
            quota: self.quota_mode,
            all_or_nothing: self.stop_cache_key_increment_when_overlimit,
            on_store_failure,
        }
    }
}

impl Settings {
    /// Whether there is a metrics port. As in the reference DISABLE_STATS wins over everything else.
    pub fn scraped(&self) -> bool {
        self.server.use_prometheus.unwrap_or(true) && !self.statsd.disable_stats
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        settings: Settings,
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let Command { settings } = Command::parse_from(["palang"]);
        assert_eq!(settings.server.bounds, server::Bounds::default());
        assert_eq!(settings.metrics, metrics::Args::default());
        let modes = settings.modes.modes(settings.failure.failure_mode);
        assert_eq!(modes, Modes::default());
        assert_eq!(settings.server.debug_host, "127.0.0.1");
        assert!(settings.store.redis.redis_url.is_empty());
    }

    #[test]
    fn flags_read_like_their_variables() {
        let Command { settings } = Command::parse_from([
            "palang",
            "--shadow-mode",
            "--quota-mode=T",
            "--grpc-host=::",
            "--prometheus-addr=:19001",
            "--store-timeout=150us",
        ]);
        let modes = settings.modes.modes(settings.failure.failure_mode);
        assert!(modes.shadow && modes.quota);
        assert_eq!(settings.server.grpc_host, "::");
        assert_eq!(settings.server.prometheus_addr.port, 19_001);
        assert_eq!(settings.store.store_timeout.as_micros(), 150);
    }

    #[test]
    fn secrets_do_not_show() {
        let Command { settings } = Command::parse_from([
            "palang",
            "--redis-url=rediss://user:hunter2@host:6379",
            "--redis-auth=swordfish",
        ]);
        let shown = format!("{settings:?}");
        assert!(
            !shown.contains("hunter2") && !shown.contains("swordfish"),
            "{shown}"
        );
    }
}
