//! Counters in Redis: the only room that knows redis and deadpool.
//!
//! [`Redis`] is what a process shares: servers, their pools and the script. A [`Lane`] is what a runtime takes
//! decisions through. Downwards: `lane` (to which node) - `batch` (a line to it) - `call` (one round trip) - `node`
//! (where it is) - `pool` (how it lets us in) - `dial` and `wire` (a connection); `cluster` and `sentinel` know who has
//! what.

mod address;
mod batch;
mod call;
mod cluster;
mod config;
mod dial;
mod dials;
mod forget;
mod held;
mod lane;
mod node;
mod pack;
mod pool;
mod reply;
mod script;
mod sentinel;
mod tally;
mod tls;
mod wire;

use std::sync::Arc;

pub use config::{Config, ConfigError, Hostname, Kind, SocketType, Tls, TlsPart};
pub use lane::Lane;
pub use tally::BATCHES;

use address::Sites;
use cluster::Cluster;
use node::{Node, Whereabouts};
use pool::Access;
use sentinel::Sentinels;

/// One Redis, as a process sees it.
#[derive(Clone)]
pub struct Redis(Arc<Shared>);

/// What a [`Redis`] has done so far, and what it holds now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Script calls, failed ones included.
    pub calls: u64,
    /// Requests in those calls.
    pub requests: u64,
    /// Times the script was put into Redis.
    pub script_loads: u64,
    /// Connections open now.
    pub connections: usize,
    /// Connections made.
    pub opened: u64,
    /// Connections that are no more.
    pub closed: u64,
    /// Of the open ones, idle in the pool. One that a lane keeps to itself is not.
    pub idle: usize,
    /// Lanes that wait for a connection now.
    pub waiting: usize,
    /// Times a cluster was asked for its layout.
    pub layouts: u64,
    /// Round trips by their requests: up to each bound of [`BATCHES`], and above the last.
    pub batches: [u64; BATCHES.len() + 1],
    /// Answers that came after their caller had gone.
    pub late: u64,
    /// Requests in round trips that are not answered yet.
    pub in_flight: u64,
    /// Requests that wait for the next round trip.
    pub queued: u64,
}

impl Redis {
    /// Everything in a configuration that can never work. Reads the files it names, and connects to nothing.
    pub fn check(config: &Config) -> Vec<ConfigError> {
        let mut wrong = config.check();
        match Sites::read(config) {
            Ok(sites) if sites.encrypted_sockets(config) => wrong.push(ConfigError::TlsOnSocket),
            Ok(_) => {}
            Err(error) => wrong.push(error),
        }
        for tls in [&config.tls, &config.sentinel_tls].into_iter().flatten() {
            wrong.extend(tls::Trust::read(tls).err().unwrap_or_default());
        }
        // Sentinels may have the files of the others.
        wrong.dedup();
        wrong
    }

    /// Takes a configuration. Connects to nothing yet, so an absent Redis is no error here.
    ///
    /// # Errors
    /// A configuration that can never work: the first of [`Self::check`].
    pub fn connect(config: Config) -> Result<Self, ConfigError> {
        if let Some(error) = config.check().into_iter().next() {
            return Err(error);
        }
        let servers = match Sites::read(&config)? {
            Sites::Single(site) => {
                let access = Access::to_data(&config, &site)?;
                Servers::One(Arc::new(Node::new(
                    Whereabouts::Fixed(site.address),
                    access,
                )))
            }
            Sites::Sentinel { primary, sentinels } => {
                // The primary is let in to as the settings say; what the sentinels' urls say is theirs alone.
                let plain = address::Site {
                    encrypted: false,
                    user: None,
                    password: None,
                    ..sentinels[0].clone()
                };
                let access = Access::to_data(&config, &plain)?;
                let sentinels = Sentinels::new(&config, primary, &sentinels)?;
                Servers::One(Arc::new(Node::new(
                    Whereabouts::Sentinels(sentinels),
                    access,
                )))
            }
            Sites::Cluster(seeds) => Servers::Cluster(Arc::new(Cluster::new(&config, &seeds)?)),
        };
        Ok(Self(Arc::new(Shared {
            config,
            servers,
            tally: Arc::default(),
        })))
    }

    /// Starts a lane on the current tokio runtime, which has to live as long as the lane is used.
    pub fn lane(&self) -> Lane {
        Lane::start(self.0.clone())
    }

    /// Figures for metrics.
    pub fn figures(&self) -> Figures {
        let (in_flight, queued) = self.0.tally.pending();
        let mut figures = Figures {
            batches: self.0.tally.batches(),
            late: self.0.tally.lates(),
            in_flight,
            queued,
            ..Figures::default()
        };
        match &self.0.servers {
            Servers::One(node) => node.add_to(&mut figures),
            Servers::Cluster(cluster) => {
                for node in cluster.nodes() {
                    node.add_to(&mut figures);
                }
                figures.layouts = cluster.refreshes();
            }
        }
        figures
    }
}

impl std::fmt::Debug for Redis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Redis")
            .field("figures", &self.figures())
            .finish_non_exhaustive()
    }
}

/// What lanes share.
struct Shared {
    config: Config,
    servers: Servers,
    tally: Arc<tally::Tally>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

enum Servers {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}
