//! Where Redis is, and a bounded number of connections to it. Connects when a connection is first wanted, not before:
//! a service starts, and says that it is not ready, while its Redis is absent.

use std::{path::PathBuf, time::Duration};

use deadpool_redis::{
    Connection, Manager, Pool, Runtime,
    redis::{
        AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _,
        RedisConnectionInfo, io::tcp::TcpSettings,
    },
};

use crate::{secret::Secret, store::StoreError, time::Clock};

use super::script::store_error;

/// How to reach a Redis and how much to ask of it.
#[derive(Clone, Debug)]
pub struct Config {
    /// `host:port`, the path of a Unix socket, or `redis://[user[:password]@]host[:port][/db]`.
    pub url: String,
    /// What a `url` without a scheme names.
    pub socket_type: SocketType,
    /// `password` or `user:password`; wins over what the url says. Never logged.
    pub auth: Option<Secret>,
    /// Most connections, at least 1. Where there are no more lanes than that, each keeps one to itself.
    pub pool_size: usize,
    /// The longest a caller waits, connecting and the lane's queue included.
    pub timeout: Duration,
    /// The longest the making of a connection may take. May be more than a caller waits: the first ones then fail, and
    /// later ones find it made.
    pub connect_timeout: Duration,
    /// Goes before every key.
    pub prefix: String,
    /// Most counters in one script call. A single request with more still goes, alone.
    pub max_batch: usize,
    /// Most requests that wait in one lane; the next is answered [`StoreError::Full`].
    pub queue: usize,
    /// Decides by this clock instead of Redis's own when it is a manual one. For tests; expiries get a day on top.
    pub clock: Clock,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: "localhost:6379".to_owned(),
            socket_type: SocketType::Tcp,
            auth: None,
            pool_size: 10,
            timeout: Duration::from_millis(20),
            connect_timeout: Duration::from_secs(1),
            prefix: String::new(),
            max_batch: 256,
            queue: 4096,
            clock: Clock::system(),
        }
    }
}

/// What a url without a scheme names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    /// `host:port`.
    Tcp,
    /// A path.
    Unix,
}

/// Why a [`Config`] cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Encrypted connections are not there yet.
    #[error("TLS to Redis (rediss://) is not supported: use redis:// or a Unix socket")]
    Tls,
    /// The address cannot be read. Does not repeat it, as it may hold a password.
    #[error("the Redis address is not host:port, a socket's path or a redis:// url: {0}")]
    Address(&'static str),
    /// A size that has to be at least 1.
    #[error("{0} has to be at least 1")]
    Zero(&'static str),
}

/// Connections, at most `pool_size` of them.
pub(super) fn open(config: &Config) -> Result<Pool, ConfigError> {
    for (size, name) in [
        (config.pool_size, "pool_size"),
        (config.max_batch, "max_batch"),
        (config.queue, "queue"),
        (config.timeout.as_micros() as usize, "timeout"),
        (
            config.connect_timeout.as_micros() as usize,
            "connect_timeout",
        ),
    ] {
        if size == 0 {
            return Err(ConfigError::Zero(name));
        }
    }
    let connection = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(config.connect_timeout))
        // A lane times its calls itself, and drops the connection of one that took too long.
        .set_response_timeout(None);
    let manager = Manager::new_with_config(address(config)?, connection)
        .map_err(|_| ConfigError::Address("it cannot be parsed"))?;
    Pool::builder(manager)
        .max_size(config.pool_size)
        // An idle connection that does not answer is dropped for the next, or a new one.
        .recycle_timeout(Some(config.timeout))
        .runtime(Runtime::Tokio1)
        .build()
        .map_err(|_| ConfigError::Address("no pool can be made of it"))
}

/// A connection that answered a PING just now, or is new.
pub(super) async fn checkout(pool: &Pool) -> Result<Connection, StoreError> {
    use deadpool_redis::PoolError;
    pool.get().await.map_err(|error| match error {
        PoolError::Backend(error) => store_error(&error),
        PoolError::Timeout(_) => StoreError::Timeout,
        other => StoreError::Unavailable(other.to_string().into()),
    })
}

fn address(config: &Config) -> Result<ConnectionInfo, ConfigError> {
    let url = config.url.trim();
    let info = if url.starts_with("rediss://") || url.starts_with("valkeys://") {
        return Err(ConfigError::Tls);
    } else if url.contains("://") {
        url.into_connection_info()
            .map_err(|_| ConfigError::Address("the url cannot be parsed"))?
    } else if config.socket_type == SocketType::Unix || url.starts_with('/') {
        plain(ConnectionAddr::Unix(PathBuf::from(url)))?
    } else {
        let (host, port) = url.rsplit_once(':').unwrap_or((url, "6379"));
        let port = port
            .parse()
            .map_err(|_| ConfigError::Address("the port is not a number up to 65535"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(ConfigError::Address("there is no host"));
        }
        plain(ConnectionAddr::Tcp(host.to_owned(), port))?
    };

    // No greeting beyond what is needed: not every proxy and ACL lets it pass.
    let mut redis: RedisConnectionInfo = info.redis_settings().clone().set_skip_set_lib_name();
    if let Some(auth) = &config.auth {
        redis = match auth.expose().split_once(':') {
            Some((user, password)) if !user.is_empty() => {
                redis.set_username(user).set_password(password)
            }
            Some((_, password)) => redis.set_password(password),
            None => redis.set_password(auth.expose()),
        };
    }
    Ok(info
        .set_redis_settings(redis)
        // A batch is one write: nothing is gained by waiting for more.
        .set_tcp_settings(TcpSettings::default().set_nodelay(true)))
}

fn plain(address: ConnectionAddr) -> Result<ConnectionInfo, ConfigError> {
    address
        .into_connection_info()
        .map_err(|_| ConfigError::Address("it cannot be parsed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(url: &str) -> Config {
        Config {
            url: url.to_owned(),
            ..Config::default()
        }
    }

    #[test]
    fn addresses_are_read_in_all_their_forms() {
        let tcp = |host: &str, port| ConnectionAddr::Tcp(host.to_owned(), port);
        for (url, expected) in [
            ("localhost:6379", tcp("localhost", 6379)),
            ("redis", tcp("redis", 6379)),
            ("[::1]:7000", tcp("::1", 7000)),
            ("redis://h:1/2", tcp("h", 1)),
            (
                "/run/redis.sock",
                ConnectionAddr::Unix("/run/redis.sock".into()),
            ),
            (
                "unix:///run/redis.sock",
                ConnectionAddr::Unix("/run/redis.sock".into()),
            ),
        ] {
            assert_eq!(address(&config(url)).expect(url).addr(), &expected);
        }
        let info = address(&config("redis://u:p@h:1/2")).expect("parses");
        assert_eq!(info.redis_settings().username(), Some("u"));
        assert_eq!(info.redis_settings().password(), Some("p"));
        assert_eq!(info.redis_settings().db(), 2);
    }

    #[test]
    fn auth_is_a_password_or_a_user_and_a_password() {
        for (auth, user, password) in [
            ("secret", None, "secret"),
            ("user:se:cret", Some("user"), "se:cret"),
            (":secret", None, "secret"),
        ] {
            let config = Config {
                auth: Some(Secret::from(auth)),
                ..config("h:1")
            };
            let info = address(&config).expect("parses");
            assert_eq!(info.redis_settings().username(), user);
            assert_eq!(info.redis_settings().password(), Some(password));
            assert!(!format!("{config:?}").contains("secret"));
        }
    }

    #[test]
    fn what_cannot_be_used_is_refused_without_repeating_it() {
        assert_eq!(open(&config("rediss://h:1")).err(), Some(ConfigError::Tls));
        for url in ["h:99999", ":1", "http://h:1", "redis://"] {
            let error = open(&config(url)).err();
            assert!(
                matches!(error, Some(ConfigError::Address(_))),
                "{url}: {error:?}"
            );
        }
        let none = Config {
            pool_size: 0,
            ..config("h:1")
        };
        assert_eq!(open(&none).err(), Some(ConfigError::Zero("pool_size")));
    }
}
