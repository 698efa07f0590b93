//! Sockets: bound early, so that a mistake shows at start, and accepted from late.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::{net::TcpStream, time::sleep};

use crate::telemetry::throttle::Throttle;

/// Connections the system holds for us until they are accepted.
const BACKLOG: i32 = 4_096;

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

/// A socket that cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} ({settings}): {cause}")]
pub struct BindError {
    /// The settings that say so.
    pub settings: &'static str,
    /// The address they ask for.
    pub address: String,
    /// What the system says.
    pub cause: io::Error,
}

impl Listener {
    /// Binds `host` (a name, an address, or empty for every interface) and `port` (0: the system chooses).
    ///
    /// `::` takes IPv4 too, and is `0.0.0.0` where the system has no IPv6.
    ///
    /// # Errors
    /// When the name has no address, or the system refuses. It names `settings`.
    pub fn bind(host: &str, port: u16, settings: &'static str) -> Result<Self, BindError> {
        let bound = resolve(host, port).and_then(|addresses| {
            let mut failed = io::Error::from(io::ErrorKind::AddrNotAvailable);
            for address in addresses {
                match listen(address) {
                    Ok(socket) => return Ok(socket),
                    Err(cause) => failed = cause,
                }
            }
            Err(failed)
        });
        bound
            .and_then(|socket| {
                let address = socket.local_addr()?;
                Ok(Self { socket, address })
            })
            .map_err(|cause| BindError {
                settings,
                address: Shown { host, port }.to_string(),
                cause,
            })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Hands each connection to `take`. Never ends.
    ///
    /// # Errors
    /// When the socket cannot be watched; a connection that fails while it is accepted is only logged.
    pub async fn accept(
        self,
        failures: &Throttle,
        mut take: impl FnMut(TcpStream),
    ) -> io::Result<()> {
        let listener = tokio::net::TcpListener::from_std(self.socket)?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => take(stream),
                Err(cause) => {
                    if let Some(held) = failures.pass() {
                        tracing::warn!(%cause, not_shown = held, "cannot accept a connection");
                    }
                    // Mostly it is out of file descriptors: they come back when connections close.
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let everywhere = [
        SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port),
        SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port),
    ];
    match host {
        "" | "::" => Ok(everywhere.to_vec()),
        host => Ok((host, port).to_socket_addrs()?.collect()),
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    // A restart must not wait for the old process' connections to be forgotten.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

struct Shown<'a> {
    host: &'a str,
    port: u16,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_forms_of_an_address_work() {
        for host in ["127.0.0.1", "0.0.0.0", "localhost", "::", ""] {
            let listener = Listener::bind(host, 0, "PORT").unwrap();
            assert_ne!(listener.address().port(), 0, "{host}");
        }
    }

    #[test]
    fn everywhere_takes_ipv4_too() {
        let listener = Listener::bind("::", 0, "PORT").unwrap();
        let port = listener.address().port();
        std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    }

    #[test]
    fn what_cannot_be_bound_names_its_settings() {
        let taken = Listener::bind("127.0.0.1", 0, "PORT").unwrap();
        let port = taken.address().port();
        let refused = Listener::bind("127.0.0.1", port, "GRPC_HOST, GRPC_PORT").unwrap_err();
        let text = refused.to_string();
        assert!(
            text.starts_with(&format!(
                "cannot listen on 127.0.0.1:{port} (GRPC_HOST, GRPC_PORT): "
            )),
            "{text}"
        );
        let unknown = Listener::bind("no-such-host.invalid", 1, "HOST, PORT").unwrap_err();
        assert!(
            unknown
                .to_string()
                .contains("no-such-host.invalid:1 (HOST, PORT)")
        );
    }
}
