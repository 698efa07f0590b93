//! One integration binary: the rooms together, against real servers.

mod all_or_nothing;
mod foreign_data;
mod model;
mod redis_failures;
mod store_contract;
mod support;
