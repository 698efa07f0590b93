//! The integration suite: one binary for all of it, over real servers.

mod all_or_nothing;
mod conformance;
mod deny_cache;
mod envoy;
mod foreign_data;
mod lanes;
mod model;
mod redis_access;
mod redis_cluster;
mod redis_failures;
mod redis_processes;
mod redis_sentinel;
mod replicas;
mod rooms;
mod rules_check;
mod rules_fuzz;
mod rules_watch;
mod server_grpc;
mod server_harness;
mod server_http;
mod server_life;
mod server_process;
mod store_contract;
mod support;
