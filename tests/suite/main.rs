//! The integration suite: one binary for all of it, over real servers.

mod all_or_nothing;
mod conformance;
mod debug_port;
mod envoy;
mod explain_cli;
mod foreign_data;
mod metrics;
mod model;
mod redis_failures;
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
mod store_looks;
mod support;
mod traces;
