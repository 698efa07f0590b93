//! Where counters live. Knows no rule and no wire.

mod contract;
mod group;
pub mod memory;
pub mod redis;

pub use contract::{Atomicity, Store, StoreError};
pub use memory::Memory;
pub use redis::Redis;
