//! Where counters live. Knows no rule and no wire.

mod apart;
mod contract;
pub mod deny_cache;
pub mod follow;
mod group;
pub mod guard;
pub mod memory;
mod per_second;
pub mod redis;
mod trouble;

pub use self::redis::{Lane, Redis};
pub use contract::{Store, StoreError, in_time};
pub use deny_cache::DenyCache;
pub use guard::Guard;
pub use memory::Memory;
pub use per_second::PerSecond;
pub use trouble::{Kind, Trouble};
