//! One integration binary: the rooms together, against real servers.

mod model;
mod redis_failures;
mod store_contract;
mod support;
