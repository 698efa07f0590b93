//! The integration suite: one binary for all of it.

mod rules_check;
mod rules_fuzz;
mod rules_watch;
mod server_grpc;
mod server_harness;
mod server_http;
mod server_life;
