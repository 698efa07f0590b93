//! Where counters live.

use std::time::Duration;

use super::servers::{PerSecondArgs, RedisArgs};
use crate::{
    go_values,
    store::{memory, redis::Config},
    time::Clock,
};

/// Some 30,000 refused keys.
const REMEMBERED: u64 = 8 << 20;

/// Where counters live.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Store")]
pub struct StoreArgs {
    /// The Redis of all counters, or of those that have none of their own.
    #[command(flatten)]
    pub redis: RedisArgs,
    /// The Redis of limits of seconds.
    #[command(flatten)]
    pub seconds: PerSecondArgs,
    /// Longest time one decision may wait for the store. Envoy itself waits 20 ms by default.
    #[arg(long, env = "STORE_TIMEOUT", default_value = "15ms", value_parser = go_values::patience)]
    pub store_timeout: Duration,
    /// Put in front of every key in Redis.
    #[arg(long, env = "CACHE_KEY_PREFIX", default_value = "")]
    pub cache_key_prefix: String,
    /// Most counters kept in this process.
    #[arg(long, env = "MEMORY_MAX_KEYS", default_value = "1000000", value_parser = go_values::count)]
    pub memory_max_keys: usize,
    /// Accepted for the reference's sake: counters need no jitter here.
    #[arg(long, env = "EXPIRATION_JITTER_MAX_SECONDS", default_value = "300", value_parser = go_values::integer)]
    pub expiration_jitter_max_seconds: u64,
    /// Bytes of refused keys remembered in this process, so that Redis is not asked for them again; 0 remembers none.
    /// [default: 8 MiB in front of Redis, none where counters live in this process]
    #[arg(long, env = "LOCAL_CACHE_SIZE_IN_BYTES", value_parser = go_values::integer)]
    pub local_cache_size_in_bytes: Option<u64>,
}

impl StoreArgs {
    /// How the memory store is bounded.
    pub fn memory(&self) -> memory::Config {
        memory::Config {
            max_keys: self.memory_max_keys,
            ..memory::Config::default()
        }
    }

    /// How much of what was refused is remembered, bytes.
    pub fn remembered(&self) -> u64 {
        let default = if self.redis.redis_url.is_empty() {
            0
        } else {
            REMEMBERED
        };
        self.local_cache_size_in_bytes.unwrap_or(default)
    }

    /// How Redis is reached; `None` when counters live in this process.
    pub fn redis(&self, clock: &Clock) -> Option<Config> {
        self.redis.config(self.shared(clock))
    }

    /// How the Redis for limits of seconds is reached; `None` when they have none of their own.
    pub fn per_second(&self, clock: &Clock) -> Option<Config> {
        self.seconds.config(&self.redis, self.shared(clock))
    }

    fn shared(&self, clock: &Clock) -> Config {
        Config {
            timeout: self.store_timeout,
            prefix: self.cache_key_prefix.clone(),
            clock: clock.clone(),
            ..Config::default()
        }
    }
}
