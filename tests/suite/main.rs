//! The integration suite: one binary for all of it, over real servers.

mod all_or_nothing;
mod conformance;
mod deployments;
mod envoy;
mod foreign_data;
mod model;
mod prometheus;
mod redis_failures;
mod reference_programs;
mod replicas;
mod rooms;
mod rules_check;
mod rules_fuzz;
mod rules_stale;
mod rules_watch;
mod server_grpc;
mod server_harness;
mod server_http;
mod server_life;
mod server_process;
mod settings;
mod statsd;
mod store_contract;
mod support;
mod xds;
