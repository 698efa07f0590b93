//! What the operator sees: logs and metrics.

pub mod metrics;
