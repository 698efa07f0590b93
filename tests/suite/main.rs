//! One integration binary: the rooms together, over real sockets.

mod server_grpc;
mod server_harness;
mod server_http;
mod server_life;
