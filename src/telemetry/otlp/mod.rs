//! OTLP: the collectors, and the metrics that are sent to one.
//!
//! Metrics are sent as the page for Prometheus shows them, so that there is one set of instruments and no second place
//! where one could be missing. The SDK's own data cannot be made from outside it, and its histograms cannot be filled
//! from counts that are kept elsewhere; hence the messages are built here.

mod args;
mod collector;
mod messages;
mod page;
mod push;
mod resource;

pub(super) use args::protocol;
pub use args::{Args, Choice, Exporters, Interval, Protocol};
pub use collector::NotStarted;
pub(super) use collector::{Collector, PATIENCE};
pub use push::Pushing;
pub(super) use push::{ExportCounts, Exports};
pub use resource::Sender;
