//! How each Redis is reached: the reference's names, and a few of our own.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use super::collect::Mistake;
use crate::{
    go_values::{self, Malformed},
    secret::Secret,
    store::redis::{Config, Hostname, Kind, SocketType, Tls},
};

/// The Redis of all counters, or of those that have none of their own.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Redis")]
pub struct RedisArgs {
    /// Redis: host:port, a socket's path, or redis://user:password@host:port/db, rediss:// with TLS. For SENTINEL the
    /// primary's name and the sentinels, with commas between; for CLUSTER some nodes. Empty: counters live in this
    /// process.
    #[arg(long, env = "REDIS_URL", default_value = "", value_parser = go_values::secret, hide_env_values = true)]
    pub redis_url: Secret,
    /// SINGLE, SENTINEL or CLUSTER.
    #[arg(long, env = "REDIS_TYPE", default_value = "SINGLE", value_parser = kind)]
    pub redis_type: Kind,
    /// tcp or unix: what a REDIS_URL without a scheme is; what begins with / is a socket's path either way.
    #[arg(long, env = "REDIS_SOCKET_TYPE", default_value = "tcp", value_parser = socket_type)]
    pub redis_socket_type: SocketType,
    /// Password, or user:password; split at the first colon.
    #[arg(long, env = "REDIS_AUTH", default_value = "", value_parser = go_values::secret, hide_env_values = true)]
    pub redis_auth: Secret,
    /// User; wins over REDIS_AUTH.
    #[arg(long, env = "REDIS_USER", default_value = "")]
    pub redis_user: String,
    /// Password as it is, colons and all; wins over REDIS_AUTH.
    #[arg(long, env = "REDIS_PASSWORD", default_value = "", value_parser = go_values::secret, hide_env_values = true)]
    pub redis_password: Secret,
    /// File with the password; wins over all others, and is read again when Redis does not accept it.
    #[arg(long, env = "REDIS_PASSWORD_FILE", default_value = "", value_parser = path)]
    pub redis_password_file: PathBuf,
    /// Most connections to Redis; in a cluster, to each node.
    #[arg(long, env = "REDIS_POOL_SIZE", default_value = "10", value_parser = go_values::count)]
    pub redis_pool_size: usize,
    /// Longest time to wait for a connection while REDIS_POOL_SIZE of them are in use, a part of STORE_TIMEOUT.
    #[arg(long, env = "REDIS_POOL_TIMEOUT", default_value = "10ms", value_parser = go_values::patience)]
    pub redis_pool_timeout: Duration,
    /// Longest time to connect to Redis.
    #[arg(long, env = "REDIS_TIMEOUT", default_value = "1s", value_parser = connect_time)]
    pub redis_timeout: Duration,
    /// Connect by TLS.
    #[arg(long, env = "REDIS_TLS", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub redis_tls: bool,
    /// PEM file with the authorities to trust. Empty: the system's.
    #[arg(long, env = "REDIS_TLS_CACERT", default_value = "", value_parser = path)]
    pub redis_tls_cacert: PathBuf,
    /// PEM file with our certificate and its chain.
    #[arg(long, env = "REDIS_TLS_CLIENT_CERT", default_value = "", value_parser = path)]
    pub redis_tls_client_cert: PathBuf,
    /// PEM file with the key of our certificate.
    #[arg(long, env = "REDIS_TLS_CLIENT_KEY", default_value = "", value_parser = path)]
    pub redis_tls_client_key: PathBuf,
    /// Accept a certificate for another name. Its chain is checked all the same.
    #[arg(long, env = "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub redis_tls_skip_hostname_verification: bool,
    /// Name to ask for and to find in the certificate, instead of the address's.
    #[arg(long, env = "REDIS_TLS_SERVER_NAME", default_value = "")]
    pub redis_tls_server_name: String,
    /// Password, or user:password, of the sentinels.
    #[arg(long, env = "REDIS_SENTINEL_AUTH", default_value = "", value_parser = go_values::secret, hide_env_values = true)]
    pub redis_sentinel_auth: Secret,
    /// Connect to the sentinels by TLS. What is not said here for the sentinels is as for Redis.
    #[arg(long, env = "REDIS_SENTINEL_TLS", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub redis_sentinel_tls: bool,
    /// PEM file with the authorities to trust for sentinels. Empty: as REDIS_TLS_CACERT.
    #[arg(long, env = "REDIS_SENTINEL_TLS_CACERT", default_value = "", value_parser = path)]
    pub redis_sentinel_tls_cacert: PathBuf,
    /// PEM file with our certificate for sentinels. Empty, and the key too: as REDIS_TLS_CLIENT_CERT.
    #[arg(long, env = "REDIS_SENTINEL_TLS_CLIENT_CERT", default_value = "", value_parser = path)]
    pub redis_sentinel_tls_client_cert: PathBuf,
    /// PEM file with the key of our certificate for sentinels.
    #[arg(long, env = "REDIS_SENTINEL_TLS_CLIENT_KEY", default_value = "", value_parser = path)]
    pub redis_sentinel_tls_client_key: PathBuf,
    /// Accept a sentinel's certificate for another name. [default: as REDIS_TLS_SKIP_HOSTNAME_VERIFICATION]
    #[arg(long, env = "REDIS_SENTINEL_TLS_SKIP_HOSTNAME_VERIFICATION", value_parser = go_values::boolean,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub redis_sentinel_tls_skip_hostname_verification: Option<bool>,
    /// Name to find in a sentinel's certificate. Empty: as REDIS_TLS_SERVER_NAME.
    #[arg(long, env = "REDIS_SENTINEL_TLS_SERVER_NAME", default_value = "")]
    pub redis_sentinel_tls_server_name: String,
    /// How many groups the keys of a cluster are spread over, at most 16384. Keys of one group share a slot and go
    /// together in a call. It is part of each key: changing it starts all counters anew.
    #[arg(long, env = "REDIS_CLUSTER_PARTITIONS", default_value = "24", value_parser = partitions)]
    pub redis_cluster_partitions: u16,
    /// Entry whose value alone says where in a cluster a descriptor's counter lives, such as tenant: counters of one
    /// tenant share a slot, and can be charged all or nothing for good.
    #[arg(long, env = "REDIS_CLUSTER_TAG_ENTRY", default_value = "")]
    pub redis_cluster_tag_entry: String,
    /// Most calls in flight at once for each worker and Redis node.
    #[arg(long, env = "REDIS_CALLS_IN_FLIGHT", default_value = "1", value_parser = go_values::count)]
    pub redis_calls_in_flight: usize,
}

/// A second Redis for limits whose window is under a minute. TLS files, server name, cluster settings and REDIS_POOL_TIMEOUT
/// are those of the first.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Redis for limits of seconds")]
pub struct PerSecondArgs {
    /// Keep limits of seconds in a Redis of their own.
    #[arg(long, env = "REDIS_PERSECOND", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub redis_persecond: bool,
    /// As REDIS_URL.
    #[arg(long, env = "REDIS_PERSECOND_URL", default_value = "", value_parser = go_values::secret, hide_env_values = true)]
    pub redis_persecond_url: Secret,
    /// As REDIS_TYPE.
    #[arg(long, env = "REDIS_PERSECOND_TYPE", default_value = "SINGLE", value_parser = kind)]
    pub redis_persecond_type: Kind,
    /// As REDIS_SOCKET_TYPE.
    #[arg(long, env = "REDIS_PERSECOND_SOCKET_TYPE", default_value = "tcp", value_parser = socket_type)]
    pub redis_persecond_socket_type: SocketType,
    /// As REDIS_AUTH.
    #[arg(long, env = "REDIS_PERSECOND_AUTH", default_value = "", value_parser = go_values::secret, hide_env_values = true)]
    pub redis_persecond_auth: Secret,
    /// As REDIS_USER.
    #[arg(long, env = "REDIS_PERSECOND_USER", default_value = "")]
    pub redis_persecond_user: String,
    /// As REDIS_PASSWORD.
    #[arg(long, env = "REDIS_PERSECOND_PASSWORD", default_value = "", value_parser = go_values::secret, hide_env_values = true)]
    pub redis_persecond_password: Secret,
    /// As REDIS_PASSWORD_FILE.
    #[arg(long, env = "REDIS_PERSECOND_PASSWORD_FILE", default_value = "", value_parser = path)]
    pub redis_persecond_password_file: PathBuf,
    /// As REDIS_POOL_SIZE.
    #[arg(long, env = "REDIS_PERSECOND_POOL_SIZE", default_value = "10", value_parser = go_values::count)]
    pub redis_persecond_pool_size: usize,
    /// As REDIS_TIMEOUT.
    #[arg(long, env = "REDIS_PERSECOND_TIMEOUT", default_value = "1s", value_parser = connect_time)]
    pub redis_persecond_timeout: Duration,
    /// As REDIS_TLS.
    #[arg(long, env = "REDIS_PERSECOND_TLS", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub redis_persecond_tls: bool,
    /// As REDIS_SENTINEL_AUTH.
    #[arg(long, env = "REDIS_PERSECOND_SENTINEL_AUTH", default_value = "", value_parser = go_values::secret, hide_env_values = true)]
    pub redis_persecond_sentinel_auth: Secret,
}

impl RedisArgs {
    /// `base` with what is said here; `None` when no Redis is named.
    pub(super) fn config(&self, base: Config) -> Option<Config> {
        if self.redis_url.is_empty() {
            return None;
        }
        let tls = self.tls();
        let by_url = self.redis_url.expose().contains("rediss://");
        let sentinel = self.redis_type == Kind::Sentinel;
        Some(Config {
            kind: self.redis_type,
            url: self.redis_url.expose().to_owned(),
            socket_type: self.redis_socket_type,
            auth: secret(&self.redis_auth),
            user: text(&self.redis_user),
            password: secret(&self.redis_password),
            password_file: file(&self.redis_password_file),
            tls: (self.redis_tls || (!sentinel && by_url)).then(|| tls.clone()),
            sentinel_auth: secret(&self.redis_sentinel_auth),
            sentinel_tls: (self.redis_sentinel_tls || (sentinel && by_url))
                .then(|| self.sentinel_tls(tls)),
            pool_size: self.redis_pool_size,
            slot_timeout: self.redis_pool_timeout,
            connect_timeout: self.redis_timeout,
            partitions: self.redis_cluster_partitions,
            tag_entry: text(&self.redis_cluster_tag_entry),
            depth: self.redis_calls_in_flight,
            ..base
        })
    }

    /// What is wrong with settings that are right one by one.
    pub(super) fn check(&self) -> impl Iterator<Item = Mistake> {
        [
            (
                &self.redis_tls_client_cert,
                &self.redis_tls_client_key,
                "REDIS_TLS_CLIENT_CERT, REDIS_TLS_CLIENT_KEY",
            ),
            (
                &self.redis_sentinel_tls_client_cert,
                &self.redis_sentinel_tls_client_key,
                "REDIS_SENTINEL_TLS_CLIENT_CERT, REDIS_SENTINEL_TLS_CLIENT_KEY",
            ),
        ]
        .into_iter()
        .filter(|(certificate, key, _)| file(certificate).is_some() != file(key).is_some())
        .map(|(_, _, names)| {
            let reason = "a certificate and its key go together: set both or none";
            Mistake::of(names, reason)
        })
    }

    /// Was that file named for the sentinels alone?
    pub(super) fn is_of_sentinels(&self, file: &str) -> bool {
        [
            &self.redis_sentinel_tls_cacert,
            &self.redis_sentinel_tls_client_cert,
            &self.redis_sentinel_tls_client_key,
        ]
        .into_iter()
        .any(|own| own == Path::new(file))
    }

    fn tls(&self) -> Tls {
        let (certificate, key) = (
            file(&self.redis_tls_client_cert),
            file(&self.redis_tls_client_key),
        );
        Tls {
            ca: file(&self.redis_tls_cacert),
            client: certificate.zip(key),
            hostname: hostname(self.redis_tls_skip_hostname_verification),
            server_name: text(&self.redis_tls_server_name),
        }
    }

    /// What is said of the sentinels, and for the rest `data`.
    fn sentinel_tls(&self, data: Tls) -> Tls {
        let (certificate, key) = (
            file(&self.redis_sentinel_tls_client_cert),
            file(&self.redis_sentinel_tls_client_key),
        );
        Tls {
            ca: file(&self.redis_sentinel_tls_cacert).or(data.ca),
            client: certificate.zip(key).or(data.client),
            hostname: self
                .redis_sentinel_tls_skip_hostname_verification
                .map_or(data.hostname, hostname),
            server_name: text(&self.redis_sentinel_tls_server_name).or(data.server_name),
        }
    }
}

impl PerSecondArgs {
    /// What is wrong with settings that are right one by one.
    pub(super) fn check(&self) -> Option<Mistake> {
        (self.redis_persecond && self.redis_persecond_url.is_empty()).then(|| {
            Mistake::of(
                "REDIS_PERSECOND_URL",
                "is not set, and REDIS_PERSECOND asks for a second Redis: say where it is",
            )
        })
    }

    /// `base` with what is said here and what `first` says for both; `None` when it is off.
    pub(super) fn config(&self, first: &RedisArgs, base: Config) -> Option<Config> {
        if !self.redis_persecond || self.redis_persecond_url.is_empty() {
            return None;
        }
        let tls = first.tls();
        let by_url = self.redis_persecond_url.expose().contains("rediss://");
        let sentinel = self.redis_persecond_type == Kind::Sentinel;
        Some(Config {
            kind: self.redis_persecond_type,
            url: self.redis_persecond_url.expose().to_owned(),
            socket_type: self.redis_persecond_socket_type,
            auth: secret(&self.redis_persecond_auth),
            user: text(&self.redis_persecond_user),
            password: secret(&self.redis_persecond_password),
            password_file: file(&self.redis_persecond_password_file),
            tls: (self.redis_persecond_tls || (!sentinel && by_url)).then(|| tls.clone()),
            sentinel_auth: secret(&self.redis_persecond_sentinel_auth),
            sentinel_tls: (first.redis_sentinel_tls || (sentinel && by_url))
                .then(|| first.sentinel_tls(tls)),
            pool_size: self.redis_persecond_pool_size,
            slot_timeout: first.redis_pool_timeout,
            connect_timeout: self.redis_persecond_timeout,
            partitions: first.redis_cluster_partitions,
            tag_entry: text(&first.redis_cluster_tag_entry),
            depth: first.redis_calls_in_flight,
            ..base
        })
    }
}

const fn hostname(skip: bool) -> Hostname {
    if skip {
        Hostname::Ignored
    } else {
        Hostname::Checked
    }
}

fn secret(secret: &Secret) -> Option<Secret> {
    (!secret.is_empty()).then(|| secret.clone())
}

fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

fn file(path: &Path) -> Option<PathBuf> {
    (!path.as_os_str().is_empty()).then(|| path.to_owned())
}

/// Clap itself refuses an empty path, which here means none.
fn path(text: &str) -> Result<PathBuf, Malformed> {
    Ok(PathBuf::from(text))
}

fn kind(text: &str) -> Result<Kind, Malformed> {
    match text.to_ascii_lowercase().as_str() {
        "single" => Ok(Kind::Single),
        "sentinel" => Ok(Kind::Sentinel),
        "cluster" => Ok(Kind::Cluster),
        _ => Err(Malformed::new("expected SINGLE, SENTINEL or CLUSTER")),
    }
}

fn partitions(text: &str) -> Result<u16, Malformed> {
    text.parse()
        .ok()
        .filter(|partitions| (1..=16_384).contains(partitions))
        .ok_or(Malformed::new("expected a number from 1 to 16384"))
}

fn socket_type(text: &str) -> Result<SocketType, Malformed> {
    match text.to_ascii_lowercase().as_str() {
        "tcp" => Ok(SocketType::Tcp),
        "unix" => Ok(SocketType::Unix),
        _ => Err(Malformed::new("expected tcp or unix")),
    }
}

/// Time to connect. As in Go, 0 leaves it to the system: Linux gives up after about this time.
fn connect_time(text: &str) -> Result<Duration, Malformed> {
    let time = go_values::duration(text)?;
    Ok(if time.is_zero() {
        Duration::from_secs(127)
    } else {
        time
    })
}
