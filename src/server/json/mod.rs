//! Envoy's messages as protobuf's JSON: what `/json` takes and gives.

mod read;
mod write;

pub(super) use read::request;
pub use write::response;
