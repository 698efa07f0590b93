//! What the tests share: real parts, started for one test and gone with it.

pub(crate) mod certificates;
pub(crate) mod cluster;
pub(crate) mod collector;
pub(crate) mod container;
pub(crate) mod envoy;
pub(crate) mod faults;
pub(crate) mod h2;
pub(crate) mod http;
pub(crate) mod pki;
pub(crate) mod process;
pub(crate) mod prometheus;
pub(crate) mod proxy;
pub(crate) mod quotas;
pub(crate) mod redis;
pub(crate) mod rules;
pub(crate) mod service;
pub(crate) mod statsd;
pub(crate) mod stores;
pub(crate) mod xds;

use std::time::Duration;

/// How long a condition may take on a busy machine before the test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until `condition` gives a value.
pub(crate) async fn eventually<T>(what: &str, condition: impl AsyncFn() -> Option<T>) -> T {
    within(PATIENCE, what, condition).await
}

/// Waits until `condition` gives a value, `patience` at most.
pub(crate) async fn within<T>(
    patience: Duration,
    what: &str,
    condition: impl AsyncFn() -> Option<T>,
) -> T {
    let deadline = tokio::time::Instant::now() + patience;
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "not within {patience:?}: {what}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
