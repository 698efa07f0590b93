//! How commands reach a running service.

use std::time::Duration;

use anyhow::Context as _;
use tonic::transport::{Channel, Endpoint};

/// Connects to `address`, `host:port` or a URL.
pub(super) async fn connect(address: &str, timeout: Duration) -> anyhow::Result<Channel> {
    let url = if address.contains("://") {
        address.to_owned()
    } else {
        format!("http://{address}")
    };
    Endpoint::from_shared(url)
        .with_context(|| format!("{address} is no address: expected host:port"))?
        .connect_timeout(timeout)
        .timeout(timeout)
        .connect()
        .await
        .with_context(|| format!("cannot reach {address}"))
}

/// Runs `command` to its end on a small runtime.
pub(super) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?
        .block_on(command)
}
