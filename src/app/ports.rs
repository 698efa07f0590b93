//! The sockets: bound first, served last.

use std::net::SocketAddr;

use crate::server::{self, Listener};

/// The sockets.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) grpc: Listener,
    pub(super) http: Listener,
    pub(super) metrics: Listener,
    pub(super) debug: Listener,
}

impl Ports {
    /// Binds all of them.
    ///
    /// # Errors
    /// The first that cannot be bound, with the settings that ask for it.
    pub(super) fn bind(server: &server::Args) -> anyhow::Result<Self> {
        Ok(Self {
            grpc: if server.grpc_uds.is_empty() {
                Listener::bind(&server.grpc_host, server.grpc_port, "GRPC_HOST, GRPC_PORT")?
            } else {
                Listener::bind_path(&server.grpc_uds, "GRPC_UDS")?
            },
            http: Listener::bind(&server.host, server.port, "HOST, PORT")?,
            metrics: Listener::bind(
                &server.prometheus_addr.host,
                server.prometheus_addr.port,
                "PROMETHEUS_ADDR",
            )?,
            debug: Listener::bind(
                &server.debug_host,
                server.debug_port,
                "DEBUG_HOST, DEBUG_PORT",
            )?,
        })
    }

    pub(super) const fn addresses(&self) -> Addresses {
        Addresses {
            grpc: self.grpc.address(),
            http: self.http.address(),
            metrics: self.metrics.address(),
            debug: self.debug.address(),
        }
    }

    /// Each port's name and where it is.
    pub(super) fn shown(&self) -> [(&'static str, String); 4] {
        [
            ("grpc", &self.grpc),
            ("http", &self.http),
            ("metrics", &self.metrics),
            ("debug", &self.debug),
        ]
        .map(|(port, listener)| (port, listener.shown()))
    }
}

/// Where the process listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Decisions, health and reflection over gRPC; port 0 when that is at a Unix socket.
    pub grpc: SocketAddr,
    /// `/json` and `/healthcheck`.
    pub http: SocketAddr,
    /// Prometheus.
    pub metrics: SocketAddr,
    /// What is in force.
    pub debug: SocketAddr,
}
