//! What a Redis is configured with.

use std::{path::PathBuf, time::Duration};

use crate::{secret::Secret, time::Clock};

/// How to reach a Redis and how much to ask of it.
#[derive(Clone, Debug)]
pub struct Config {
    /// One server, one behind sentinels, or a cluster.
    pub kind: Kind,
    /// `host:port`, the path of a Unix socket, or `redis://[user[:password]@]host[:port][/db]`, `rediss://` with TLS.
    /// Behind sentinels the primary's name and the sentinels, separated by commas; for a cluster some of its nodes.
    pub url: String,
    /// What a `url` without a scheme names.
    pub socket_type: SocketType,
    /// `password` or `user:password`, split at the first colon; wins over what the url says. Never logged.
    pub auth: Option<Secret>,
    /// User; wins over `auth`.
    pub user: Option<String>,
    /// Password as it is, colons and all; wins over `auth`.
    pub password: Option<Secret>,
    /// A file with the password; wins over all others, and is read again when Redis does not accept it.
    pub password_file: Option<PathBuf>,
    /// Encrypted connections. A `rediss://` url has them too.
    pub tls: Option<Tls>,
    /// `password` or `user:password` of the sentinels.
    pub sentinel_auth: Option<Secret>,
    /// Encrypted connections to the sentinels.
    pub sentinel_tls: Option<Tls>,
    /// Most connections, at least 1; in a cluster, to each node. Where there are no more lanes than that, each keeps
    /// one to itself.
    pub pool_size: usize,
    /// The longest a caller waits, connecting and the lane's queue included.
    pub timeout: Duration,
    /// The longest the making of a connection may take. May be more than a caller waits: the first ones then fail, and
    /// later ones find it made.
    pub connect_timeout: Duration,
    /// The longest a lane waits for one of the pool's connections while others use them all.
    pub slot_timeout: Duration,
    /// Goes before every key.
    pub prefix: String,
    /// Most counters in one script call. A single request with more still goes, alone.
    pub max_batch: usize,
    /// Most requests that wait in one lane; the next is answered [`crate::store::StoreError::Full`].
    pub queue: usize,
    /// Most calls of one lane that are in flight at once.
    pub depth: usize,
    /// How many groups the keys of a cluster are spread over, 1 to 16,384. Keys of one group share a slot, and go
    /// together in a call. Part of each key: another number starts all counters anew.
    pub partitions: u16,
    /// Name of the entry whose value alone says to which group a counter belongs, where its descriptor has one.
    pub tag_entry: Option<String>,
    /// Decides by this clock instead of Redis's own when it is a manual one. For tests; expiries get a day on top.
    pub clock: Clock,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            kind: Kind::Single,
            url: "localhost:6379".to_owned(),
            socket_type: SocketType::Tcp,
            auth: None,
            user: None,
            password: None,
            password_file: None,
            tls: None,
            sentinel_auth: None,
            sentinel_tls: None,
            pool_size: 10,
            timeout: Duration::from_millis(20),
            connect_timeout: Duration::from_secs(1),
            slot_timeout: Duration::from_millis(10),
            prefix: String::new(),
            max_batch: 256,
            queue: 4096,
            depth: 1,
            partitions: 24,
            tag_entry: None,
            clock: Clock::system(),
        }
    }
}

/// How the servers hang together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One server.
    Single,
    /// A primary that sentinels know the address of.
    Sentinel,
    /// A cluster.
    Cluster,
}

/// What a url without a scheme names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    /// `host:port`.
    Tcp,
    /// A path.
    Unix,
}

/// How connections are encrypted, and who is trusted. Files are PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Certificates of the authorities to trust; the system's when absent.
    pub ca: Option<PathBuf>,
    /// Our certificate (its chain in the same file) and its key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// Whether the server's name is held against its certificate. Its chain always is.
    pub hostname: Hostname,
    /// The name to ask for, and to find in the certificate, instead of the address's.
    pub server_name: Option<String>,
}

/// What is made of a name that is not in the server's certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hostname {
    /// No connection.
    #[default]
    Checked,
    /// Nothing.
    Ignored,
}

/// What a file of a [`Tls`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsPart {
    /// The authorities to trust.
    Authorities,
    /// Our certificate.
    Certificate,
    /// Its key.
    Key,
}

/// Why a [`Config`] cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The address cannot be read. Does not repeat it, as it may hold a password.
    #[error(
        "the Redis address is not host:port, a socket's path, a redis:// or a rediss:// url: {0}"
    )]
    Address(&'static str),
    /// A list of addresses that names too few or the wrong kind.
    #[error("the list of Redis addresses cannot be used: {0}")]
    List(&'static str),
    /// A size that has to be at least 1.
    #[error("{0} has to be at least 1")]
    Zero(&'static str),
    /// A certificate or key cannot be used.
    #[error("{file}: {reason}")]
    Tls {
        /// What it was to be.
        part: TlsPart,
        /// The file.
        file: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Encryption was asked for where there is none.
    #[error("a Unix socket has no TLS")]
    TlsOnSocket,
    /// More partitions than slots.
    #[error("a cluster has 16384 slots, and no more partitions than that")]
    Partitions,
    /// A brace would choose the slot of every key.
    #[error("the key prefix of a cluster must not hold a brace")]
    Prefix,
}

impl Config {
    /// Sizes and texts that can never work.
    pub(super) fn check(&self) -> Vec<ConfigError> {
        let mut wrong: Vec<ConfigError> = [
            (self.pool_size, "pool_size"),
            (self.max_batch, "max_batch"),
            (self.queue, "queue"),
            (self.depth, "depth"),
            (usize::from(self.partitions), "partitions"),
            (self.timeout.as_micros() as usize, "timeout"),
            (self.connect_timeout.as_micros() as usize, "connect_timeout"),
            (self.slot_timeout.as_micros() as usize, "slot_timeout"),
        ]
        .into_iter()
        .filter(|(size, _)| *size == 0)
        .map(|(_, name)| ConfigError::Zero(name))
        .collect();
        if self.kind == Kind::Cluster {
            if self.partitions > 16_384 {
                wrong.push(ConfigError::Partitions);
            }
            if self.prefix.contains(['{', '}']) {
                wrong.push(ConfigError::Prefix);
            }
        }
        wrong
    }
}
