//! Where counters live. Knows no rule and no wire.

mod apart;
mod contract;
pub mod deny_cache;
mod group;
pub mod memory;
mod per_second;
pub mod redis;

use std::sync::Arc;

pub use self::redis::{Lane, Redis};
pub use contract::{Store, StoreError};
pub use deny_cache::DenyCache;
pub use memory::Memory;
pub use per_second::PerSecond;

use crate::{
    algorithm::Outcome,
    counter::{Atomicity, Counter},
};

/// The store of one worker: its lane to the process's Redis, or the process's memory.
#[derive(Debug)]
pub enum Backend {
    /// Counters in this process, shared by its workers.
    Memory(Arc<Memory>),
    /// Counters in Redis.
    Redis(Lane),
    /// Counters in two Redis, those of seconds in one of their own.
    PerSecond(PerSecond),
}

impl Store for Backend {
    async fn take(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
    ) -> Vec<Result<Outcome, StoreError>> {
        match self {
            Self::Memory(memory) => memory.take(counters, atomicity).await,
            Self::Redis(lane) => lane.take(counters, atomicity).await,
            Self::PerSecond(two) => two.take(counters, atomicity).await,
        }
    }
}
