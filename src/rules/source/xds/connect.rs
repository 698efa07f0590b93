//! One connection to the control plane, with what is on disk and in the DNS at that moment.
//!
//! Nothing is kept from one connection to the next: certificates that were rotated, and addresses that moved, are used
//! from the next connection on.

use std::{error::Error, fs, io, path::PathBuf, time::Duration};

use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

/// Longest time for a connection with its handshakes.
const CONNECT: Duration = Duration::from_secs(10);

/// A peer that is gone without a word is noticed after about a minute: the kernel asks after this silence, and then
/// three times more. It does so below HTTP/2, where a server's rules about pings do not apply.
const SILENCE: Duration = Duration::from_secs(30);
const PROBE: Duration = Duration::from_secs(10);
const PROBES: u32 = 3;

/// How long a ping may go unanswered.
const PONG: Duration = Duration::from_secs(20);

/// Where the control plane is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Host, which may be a name of one label, an address, or one in brackets; and port.
    pub authority: String,
    /// How it is spoken to; `None`: in clear text.
    pub tls: Option<Tls>,
    /// Time between two pings, which find a peer that has a living kernel and a dead process.
    ///
    /// Servers in Go hang up on whoever pings more often than every five minutes, unless told otherwise, and control
    /// planes are not told otherwise.
    pub ping: Duration,
}

/// The files of a connection with TLS, read anew for each connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Authorities that may vouch for the server; `None`: the system's.
    pub ca: Option<PathBuf>,
    /// Our certificate and its key, when the server asks who we are.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate has to have; `None`: the host's.
    pub server_name: Option<String>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("{} cannot be read: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("{}", chain(.0))]
    Transport(#[from] tonic::transport::Error),
    #[error("not connected within {CONNECT:?}")]
    Slow,
}

impl Server {
    /// The address as a URI, `None` when it cannot be one.
    pub(super) fn endpoint(&self) -> Option<Endpoint> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Endpoint::from_shared(format!("{scheme}://{}", self.authority)).ok()
    }

    pub(super) async fn connect(&self, endpoint: Endpoint) -> Result<Channel, ConnectError> {
        let mut endpoint = endpoint
            .tcp_nodelay(true)
            .tcp_keepalive(Some(SILENCE))
            .tcp_keepalive_interval(Some(PROBE))
            .tcp_keepalive_retries(Some(PROBES))
            .http2_keep_alive_interval(self.ping)
            .keep_alive_timeout(PONG.min(self.ping))
            .keep_alive_while_idle(true);
        if let Some(tls) = &self.tls {
            endpoint = endpoint.tls_config(tls.read()?)?;
        }
        tokio::time::timeout(CONNECT, endpoint.connect())
            .await
            .map_err(|_| ConnectError::Slow)?
            .map_err(ConnectError::Transport)
    }
}

impl Tls {
    fn read(&self) -> Result<ClientTlsConfig, ConnectError> {
        let mut config = ClientTlsConfig::new();
        config = match &self.ca {
            Some(ca) => config.ca_certificate(Certificate::from_pem(read(ca)?)),
            None => config.with_native_roots(),
        };
        if let Some((certificate, key)) = &self.identity {
            config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name.clone());
        }
        Ok(config)
    }
}

fn read(path: &PathBuf) -> Result<Vec<u8>, ConnectError> {
    fs::read(path).map_err(|error| ConnectError::File {
        path: path.clone(),
        error,
    })
}

/// The whole story: the error at the top only says that something went wrong with the transport.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut story = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let part = inner.to_string();
        // Errors that repeat their cause are common.
        if !story.ends_with(&part) {
            story.push_str(": ");
            story.push_str(&part);
        }
        cause = inner.source();
    }
    story
}
