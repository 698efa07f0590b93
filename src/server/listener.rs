//! Sockets: bound early, so that a mistake shows at start, and accepted from late.

use std::{
    fmt, fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs as _},
    os::unix::{self, fs::FileTypeExt as _},
    path::PathBuf,
    time::Duration,
};

use socket2::{Domain, Protocol, Type};
use tokio::time::sleep;

use super::socket::Socket;
use crate::telemetry::throttle::Throttle;

/// Connections the system holds for us until they are accepted.
const BACKLOG: i32 = 4_096;

/// The address of what has none.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    socket: Bound,
    address: SocketAddr,
}

#[derive(Debug)]
enum Bound {
    Tcp(TcpListener),
    Unix(Path),
}

/// A Unix socket and its file, which goes with it.
#[derive(Debug)]
struct Path {
    listener: unix::net::UnixListener,
    path: PathBuf,
}

impl Drop for Path {
    fn drop(&mut self) {
        // Already gone is as good.
        let _ = fs::remove_file(&self.path);
    }
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
                Ok(Self {
                    socket: Bound::Tcp(socket),
                    address,
                })
            })
            .map_err(|cause| BindError {
                settings,
                address: Shown { host, port }.to_string(),
                cause,
            })
    }

    /// Listens on a Unix socket. A file that an ended process left behind is removed.
    ///
    /// # Errors
    /// When somebody else listens there, the file is something else, or the system refuses. It names `settings`.
    pub fn bind_path(path: &str, settings: &'static str) -> Result<Self, BindError> {
        listen_at(path.as_ref())
            .map(|listener| Self {
                socket: Bound::Unix(Path {
                    listener,
                    path: path.into(),
                }),
                address: NOWHERE,
            })
            .map_err(|cause| BindError {
                settings,
                address: path.to_owned(),
                cause,
            })
    }

    /// Where it listens; port 0 when that is a Unix socket.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it listens, in words.
    pub fn shown(&self) -> String {
        match &self.socket {
            Bound::Tcp(_) => self.address.to_string(),
            Bound::Unix(path) => path.path.display().to_string(),
        }
    }

    /// Hands each connection to `take`. Never ends.
    ///
    /// # Errors
    /// When the socket cannot be watched; a connection that fails while it is accepted is only logged.
    pub async fn accept(self, failures: &Throttle, mut take: impl FnMut(Socket)) -> io::Result<()> {
        let listener = Accepting::new(&self.socket)?;
        loop {
            match listener.accept().await {
                Ok(socket) => take(socket),
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

enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

impl Accepting {
    fn new(bound: &Bound) -> io::Result<Self> {
        Ok(match bound {
            Bound::Tcp(listener) => {
                Self::Tcp(tokio::net::TcpListener::from_std(listener.try_clone()?)?)
            }
            Bound::Unix(path) => Self::Unix(tokio::net::UnixListener::from_std(
                path.listener.try_clone()?,
            )?),
        })
    }

    async fn accept(&self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(listener) => Socket::Tcp(listener.accept().await?.0),
            Self::Unix(listener) => Socket::Unix(listener.accept().await?.0),
        })
    }
}

fn listen_at(path: &std::path::Path) -> io::Result<unix::net::UnixListener> {
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is a file that is no socket",
            ));
        }
        if unix::net::UnixStream::connect(path).is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        fs::remove_file(path)?;
    }
    let listener = unix::net::UnixListener::bind(path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
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
    let socket = socket2::Socket::new(
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
    fn a_stale_unix_socket_is_replaced_and_nothing_else() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("grpc.sock");
        let name = path.to_str().unwrap();
        let first = Listener::bind_path(name, "GRPC_UDS").unwrap();
        assert_eq!(first.shown(), name);
        let taken = Listener::bind_path(name, "GRPC_UDS").unwrap_err();
        assert!(taken.to_string().contains("(GRPC_UDS)"), "{taken}");
        drop(first);
        assert!(!path.exists(), "the file goes with the listener");
        // As a killed process leaves it.
        drop(unix::net::UnixListener::bind(&path).unwrap());
        Listener::bind_path(name, "GRPC_UDS").unwrap();
        fs::write(&path, "something else").unwrap();
        Listener::bind_path(name, "GRPC_UDS").unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"something else");
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
