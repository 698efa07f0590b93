//! The sockets: bound first, served last.

use std::net::SocketAddr;

use crate::{go_values::Address, server::Listener, settings::Settings};

/// The sockets.
#[derive(Debug)]
pub(super) struct Ports {
    pub(super) grpc: Listener,
    pub(super) http: Listener,
    pub(super) metrics: Option<Listener>,
    pub(super) debug: Listener,
}

impl Ports {
    /// Binds all of them.
    ///
    /// # Errors
    /// The first that cannot be bound, with the settings that ask for it.
    pub(super) fn bind(settings: &Settings) -> anyhow::Result<Self> {
        let server = &settings.server;
        Ok(Self {
            grpc: if server.grpc_uds.is_empty() {
                Listener::bind(&server.grpc_host, server.grpc_port, "GRPC_HOST, GRPC_PORT")?
            } else {
                Listener::bind_path(&server.grpc_uds, "GRPC_UDS")?
            },
            http: Listener::bind(&server.host, server.port, "HOST, PORT")?,
            metrics: settings
                .scraped()
                .then(|| {
                    let Address { host, port } = &server.prometheus_addr;
                    Listener::bind(host, *port, "PROMETHEUS_ADDR")
                })
                .transpose()?,
            debug: Listener::bind(
                &server.debug_host,
                server.debug_port,
                "DEBUG_HOST, DEBUG_PORT",
            )?,
        })
    }

    pub(super) fn addresses(&self) -> Addresses {
        Addresses {
            grpc: self.grpc.address(),
            http: self.http.address(),
            metrics: self.metrics.as_ref().map(Listener::address),
            debug: self.debug.address(),
        }
    }

    /// Each port's name and where it is.
    pub(super) fn shown(&self) -> Vec<(&'static str, String)> {
        [
            ("grpc", Some(&self.grpc)),
            ("http", Some(&self.http)),
            ("metrics", self.metrics.as_ref()),
            ("debug", Some(&self.debug)),
        ]
        .into_iter()
        .filter_map(|(port, listener)| Some((port, listener?.shown())))
        .collect()
    }
}

/// Where the process listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Decisions, health and reflection over gRPC; port 0 when that is at a Unix socket.
    pub grpc: SocketAddr,
    /// `/json` and `/healthcheck`.
    pub http: SocketAddr,
    /// Prometheus; `None` where it is not asked for.
    pub metrics: Option<SocketAddr>,
    /// What is in force.
    pub debug: SocketAddr,
}
