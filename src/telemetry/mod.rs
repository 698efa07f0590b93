//! What the operator sees: logs and metrics. Steers nothing.

mod catalogue;
mod exposition;
pub mod logs;
pub mod metrics;
mod names;
mod process;
mod series;
mod sources;
pub mod statsd;
mod store;
pub mod throttle;

pub use series::NearRatio;
