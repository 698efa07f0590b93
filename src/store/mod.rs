//! Where counters live. Knows no rule and no wire.

mod contract;

pub use contract::{Atomicity, Store, StoreError};
