//! Palang decides whether a request may go through: rate limits for Envoy and everything that can ask over gRPC or
//! HTTP.

pub mod algorithm;
pub mod counter;
pub mod proto;
pub mod request;
pub mod store;
pub mod time;
pub mod unit;
