//! The integration suite: one binary for all of it, over real servers.

mod all_or_nothing;
mod bench_command;
mod conformance;
mod envoy;
mod foreign_data;
mod model;
mod redis_failures;
mod replicas;
mod rooms;
mod rules_check;
mod rules_fuzz;
mod rules_stale;
mod rules_watch;
mod server_frames;
mod server_grpc;
mod server_harness;
mod server_http;
mod server_life;
mod server_process;
mod store_contract;
mod support;
mod xds;
