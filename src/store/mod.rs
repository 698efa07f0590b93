//! Where counters live. Knows no rule and no wire.

mod contract;
mod group;

pub use contract::{Atomicity, Store, StoreError};
