//! Where counters live.

use std::time::Duration;

use crate::{
    go_values::{self, Malformed},
    secret::Secret,
    store::{
        memory,
        redis::{Config, SocketType},
    },
    time::Clock,
};

/// Where counters live.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Store")]
pub struct StoreArgs {
    /// Redis: host:port, a socket's path, or redis://user:password@host:port/db. Empty: counters live in this process.
    #[arg(long, env = "REDIS_URL", default_value = "", value_parser = go_values::secret, hide_env_values = true)]
    pub redis_url: Secret,
    /// tcp or unix: what a REDIS_URL without a scheme is.
    #[arg(long, env = "REDIS_SOCKET_TYPE", default_value = "tcp", value_parser = socket_type)]
    pub redis_socket_type: SocketType,
    /// Password, or user:password.
    #[arg(long, env = "REDIS_AUTH", default_value = "", value_parser = go_values::secret, hide_env_values = true)]
    pub redis_auth: Secret,
    /// Most connections to Redis.
    #[arg(long, env = "REDIS_POOL_SIZE", default_value = "10", value_parser = go_values::count)]
    pub redis_pool_size: usize,
    /// Longest time to connect to Redis.
    #[arg(long, env = "REDIS_TIMEOUT", default_value = "1s", value_parser = go_values::duration)]
    pub redis_timeout: Duration,
    /// Longest time one decision may wait for the store. Envoy itself waits 20 ms by default.
    #[arg(long, env = "STORE_TIMEOUT", default_value = "15ms", value_parser = go_values::duration)]
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
    /// Bytes of refused keys remembered in this process; 0 remembers none.
    #[arg(long, env = "LOCAL_CACHE_SIZE_IN_BYTES", default_value = "0", value_parser = go_values::integer)]
    pub local_cache_size_in_bytes: u64,
}

impl StoreArgs {
    /// How the memory store is bounded.
    pub fn memory(&self) -> memory::Config {
        memory::Config {
            max_keys: self.memory_max_keys,
            ..memory::Config::default()
        }
    }

    /// How Redis is reached; `None` when counters live in this process.
    pub fn redis(&self, clock: &Clock) -> Option<Config> {
        if self.redis_url.is_empty() {
            return None;
        }
        Some(Config {
            url: self.redis_url.expose().to_owned(),
            socket_type: self.redis_socket_type,
            auth: (!self.redis_auth.is_empty()).then(|| self.redis_auth.clone()),
            pool_size: self.redis_pool_size,
            timeout: self.store_timeout,
            connect_timeout: self.redis_timeout,
            prefix: self.cache_key_prefix.clone(),
            clock: clock.clone(),
            ..Config::default()
        })
    }
}

fn socket_type(text: &str) -> Result<SocketType, Malformed> {
    match text.to_ascii_lowercase().as_str() {
        "tcp" => Ok(SocketType::Tcp),
        "unix" => Ok(SocketType::Unix),
        _ => Err(Malformed::new("expected tcp or unix")),
    }
}
