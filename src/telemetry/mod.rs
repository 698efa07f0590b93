//! What the operator sees: logs and metrics. Steers nothing.

mod accounting;
mod buckets;
mod catalogue;
mod decisions;
mod denials;
mod exposition;
mod figures;
pub mod logs;
pub mod metrics;
mod names;
pub mod otlp;
mod own;
mod process;
pub mod profile;
mod series;
mod sources;
pub mod statsd;
mod store;
pub mod throttle;
mod top;
mod top_view;
pub mod traces;

pub use figures::Stores;
pub use series::NearRatio;
