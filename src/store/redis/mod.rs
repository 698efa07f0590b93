//! Counters in Redis: the only room that knows redis and deadpool.
//!
//! [`Redis`] is what a process shares: the pool and the script. A [`Lane`] is what a runtime takes decisions through.

mod batch;
mod dials;
mod pool;
mod script;

use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

use super::StoreError;
use crate::time::Clock;

pub use batch::Lane;
pub use pool::{Config, ConfigError, SocketType};

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
    /// Of these, idle in the pool. One that a lane keeps to itself is not.
    pub idle: usize,
    /// Lanes that wait for a connection now.
    pub waiting: usize,
}

impl Redis {
    /// Takes a configuration. Connects to nothing yet, so an absent Redis is no error here.
    ///
    /// # Errors
    /// A configuration that can never work.
    pub fn connect(config: Config) -> Result<Self, ConfigError> {
        Ok(Self(Arc::new(Shared {
            pool: pool::open(&config)?,
            script: script::Script::new(),
            // The store's clock may be a test's, which stands still.
            dials: dials::Dials::new(config.pool_size, Clock::system()),
            config,
            lanes: AtomicUsize::new(0),
            calls: AtomicU64::new(0),
            requests: AtomicU64::new(0),
        })))
    }

    /// Starts a lane on the current tokio runtime, which has to live as long as the lane is used.
    pub fn lane(&self) -> Lane {
        Lane::start(self.0.clone())
    }

    /// Figures for metrics.
    pub fn figures(&self) -> Figures {
        let status = self.0.pool.status();
        Figures {
            calls: self.0.calls.load(Ordering::Relaxed),
            requests: self.0.requests.load(Ordering::Relaxed),
            script_loads: self.0.script.loads(),
            connections: status.size,
            idle: status.available,
            waiting: status.waiting,
        }
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
    pool: deadpool_redis::Pool,
    script: script::Script,
    dials: dials::Dials,
    lanes: AtomicUsize,
    calls: AtomicU64,
    requests: AtomicU64,
}

impl Shared {
    fn lane_started(&self) {
        self.lanes.fetch_add(1, Ordering::Relaxed);
    }

    fn lane_ended(&self) {
        self.lanes.fetch_sub(1, Ordering::Relaxed);
    }

    /// May each lane keep a connection between calls? Else a lane could wait for ever for one that idles elsewhere.
    fn may_hold(&self) -> bool {
        self.lanes.load(Ordering::Relaxed) <= self.config.pool_size
    }

    /// A connection for the next call, which answered a PING just now or is new. Of new ones there are few each second.
    async fn connection(&self) -> Result<deadpool_redis::Connection, StoreError> {
        // With more lanes than connections the wait may be for one that is there already.
        let made = self.may_hold() && self.pool.status().available == 0;
        if made && !self.dials.pass() {
            return Err(StoreError::Unavailable(
                "too many connections were made just now".into(),
            ));
        }
        pool::checkout(&self.pool).await
    }

    /// What idles in the pool leads to the same server, which is not the right one any more.
    fn moved(&self) {
        self.pool.retain(|_, _| false);
    }

    fn called(&self, requests: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(requests, Ordering::Relaxed);
    }
}
