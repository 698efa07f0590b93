//! Palang decides whether a request may go through: rate limits for Envoy and everything that can ask over gRPC or
//! HTTP.

pub mod go_values;
pub mod request;
pub mod secret;
pub mod shown;
pub mod unit;

pub mod algorithm;
pub mod counter;
pub mod explain;
pub mod limiter;
pub mod rules;
pub mod store;
pub mod verdict;

pub mod server;

pub mod app;
pub mod cli;
pub mod settings;
pub mod shutdown;

pub mod telemetry;
pub mod time;

pub mod proto;
