//! TLS on the gRPC port, with client certificates if they are asked for. What the files hold is taken up while the
//! service runs; what cannot be used is passed over loudly, and the last good one stays.

mod clients;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::time::{sleep, timeout};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, RootCertStore, ServerConfig, crypto,
        pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _},
        server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    },
    server::TlsStream,
};

use super::socket::Socket;
use crate::{
    go_values::{self, Malformed},
    telemetry::metrics::Metrics,
};

/// Time a client has for its part of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// How often the files are looked at. They are small, and a swap of links or a file system without events is seen too.
const LOOK: Duration = Duration::from_secs(1);

/// TLS on the gRPC port.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "TLS")]
pub struct TlsArgs {
    /// Serve gRPC over TLS.
    #[arg(long, env = "GRPC_SERVER_USE_TLS", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub grpc_server_use_tls: bool,
    /// File with the server's certificate and those between it and its authority, PEM.
    #[arg(long, env = "GRPC_SERVER_TLS_CERT", default_value = "")]
    pub grpc_server_tls_cert: PathText,
    /// File with the certificate's key, PEM: PKCS#8, PKCS#1 or SEC1.
    #[arg(long, env = "GRPC_SERVER_TLS_KEY", default_value = "")]
    pub grpc_server_tls_key: PathText,
    /// File with the authorities of clients, PEM. With it a client needs a certificate of one of them.
    #[arg(long, env = "GRPC_CLIENT_TLS_CACERT", default_value = "")]
    pub grpc_client_tls_cacert: PathText,
    /// Names, separated by commas, of which a client's certificate has to have one. Empty: any name.
    #[arg(long, env = "GRPC_CLIENT_TLS_SAN", default_value = "", value_parser = names)]
    pub grpc_client_tls_san: Names,
}

/// A path, or none.
type PathText = String;

/// Names that a client's certificate may have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Vec<ServerName<'static>>);

fn names(text: &str) -> Result<Names, Malformed> {
    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|name| ServerName::try_from(name.to_owned()))
        .collect::<Result<_, _>>()
        .map(Names)
        .map_err(|_| Malformed::new("expected DNS names or IP addresses, separated by commas"))
}

/// Why certificates cannot be used. Never says what is in a file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A setting that has to be there.
    #[error("{0} is not set")]
    Missing(&'static str),
    /// A file that cannot be read.
    #[error("{setting}: {}: {cause}", path.display())]
    Unreadable {
        /// The setting.
        setting: &'static str,
        /// The file it names.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// A file without what should be in it.
    #[error("{setting}: {}: no {what} in PEM form", path.display())]
    Empty {
        /// The setting.
        setting: &'static str,
        /// The file it names.
        path: PathBuf,
        /// What is missed.
        what: &'static str,
    },
    /// A certificate and a key that do not belong together, or something that is not allowed.
    #[error("GRPC_SERVER_TLS_CERT, GRPC_SERVER_TLS_KEY: {0}")]
    Pair(rustls::Error),
    /// Authorities that are none.
    #[error("GRPC_CLIENT_TLS_CACERT: {0}")]
    Authorities(String),
}

/// What the gRPC port shows its clients, and asks of them.
#[derive(Debug)]
pub struct Tls {
    args: TlsArgs,
    config: ArcSwap<ServerConfig>,
    /// The files as they were when they were last looked at, good or bad.
    seen: Mutex<Files>,
    /// What was last said to be wrong with them: once is enough.
    told: Mutex<String>,
    metrics: Arc<Metrics>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
    authorities: Option<Vec<u8>>,
}

impl Tls {
    /// Reads the files; `None` where TLS is not asked for.
    ///
    /// # Errors
    /// What keeps them from being used.
    pub fn load(args: &TlsArgs, metrics: Arc<Metrics>) -> Result<Option<Arc<Self>>, TlsError> {
        if !args.grpc_server_use_tls {
            if !args.grpc_server_tls_cert.is_empty() || !args.grpc_client_tls_cacert.is_empty() {
                tracing::warn!("gRPC is served without TLS: GRPC_SERVER_USE_TLS is not set");
            }
            return Ok(None);
        }
        if args.grpc_client_tls_cacert.is_empty() && !args.grpc_client_tls_san.0.is_empty() {
            tracing::warn!(
                "GRPC_CLIENT_TLS_SAN checks nobody without GRPC_CLIENT_TLS_CACERT: clients need no certificate"
            );
        }
        let files = Files::read(args)?;
        let config = config(args, &files)?;
        Ok(Some(Arc::new(Self {
            args: args.clone(),
            config: ArcSwap::new(config),
            seen: Mutex::new(files),
            told: Mutex::default(),
            metrics,
        })))
    }

    /// Takes up what the files hold now, if it is something new.
    pub fn reload(&self) {
        let read = Files::read(&self.args);
        let loaded = match read {
            Ok(files) => {
                let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
                if *seen == files {
                    return;
                }
                let loaded = config(&self.args, &files);
                *seen = files;
                loaded
            }
            Err(cause) => Err(cause),
        };
        match loaded {
            Ok(config) => {
                self.config.store(config);
                self.told
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clear();
                self.metrics.tls_reload("taken");
                tracing::info!("new certificates are shown to clients from now on");
            }
            Err(cause) => {
                let text = cause.to_string();
                let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
                if *told == text {
                    return;
                }
                told.clone_from(&text);
                self.metrics.tls_reload("refused");
                tracing::error!(
                    cause = text,
                    "these certificates cannot be used: the last good ones stay"
                );
            }
        }
    }

    /// Looks at the files from time to time. Never ends.
    pub async fn watch(&self) {
        loop {
            sleep(LOOK).await;
            self.reload();
        }
    }

    /// Shakes hands with a client; `None` when it does not come to that.
    pub(super) async fn accept(&self, socket: Socket) -> Option<TlsStream<Socket>> {
        let acceptor = TlsAcceptor::from(self.config.load_full());
        match timeout(HANDSHAKE, acceptor.accept(socket)).await {
            Ok(Ok(stream)) => Some(stream),
            Ok(Err(cause)) => {
                tracing::debug!(%cause, "a handshake failed");
                None
            }
            Err(_) => {
                tracing::debug!("a handshake took too long");
                None
            }
        }
    }
}

impl Files {
    fn read(args: &TlsArgs) -> Result<Self, TlsError> {
        let file = |setting, path: &str| {
            if path.is_empty() {
                return Err(TlsError::Missing(setting));
            }
            fs::read(path).map_err(|cause| TlsError::Unreadable {
                setting,
                path: path.into(),
                cause,
            })
        };
        Ok(Self {
            certificate: file("GRPC_SERVER_TLS_CERT", &args.grpc_server_tls_cert)?,
            key: file("GRPC_SERVER_TLS_KEY", &args.grpc_server_tls_key)?,
            authorities: if args.grpc_client_tls_cacert.is_empty() {
                None
            } else {
                Some(file(
                    "GRPC_CLIENT_TLS_CACERT",
                    &args.grpc_client_tls_cacert,
                )?)
            },
        })
    }
}

fn config(args: &TlsArgs, files: &Files) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(crypto::ring::default_provider());
    let chain = certificates(&files.certificate).ok_or_else(|| TlsError::Empty {
        setting: "GRPC_SERVER_TLS_CERT",
        path: Path::new(&args.grpc_server_tls_cert).into(),
        what: "certificate",
    })?;
    let key = PrivateKeyDer::from_pem_slice(&files.key).map_err(|_| TlsError::Empty {
        setting: "GRPC_SERVER_TLS_KEY",
        path: Path::new(&args.grpc_server_tls_key).into(),
        what: "private key",
    })?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Pair)?;
    let builder = match &files.authorities {
        None => builder.with_no_client_auth(),
        Some(authorities) => {
            let verifier = clients(args, authorities, provider)?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(TlsError::Pair)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn clients(
    args: &TlsArgs,
    authorities: &[u8],
    provider: Arc<crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let certificates = certificates(authorities).ok_or_else(|| TlsError::Empty {
        setting: "GRPC_CLIENT_TLS_CACERT",
        path: Path::new(&args.grpc_client_tls_cacert).into(),
        what: "certificate",
    })?;
    let refused = |cause: &dyn std::fmt::Display| TlsError::Authorities(cause.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        roots.add(certificate).map_err(|cause| refused(&cause))?;
    }
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|cause| refused(&cause))?;
    let names = &args.grpc_client_tls_san.0;
    if names.is_empty() {
        return Ok(verifier);
    }
    Ok(Arc::new(clients::Named::new(verifier, names.clone())))
}

/// Every certificate of a file; `None` when there is none, or one of them is broken.
fn certificates(pem: &[u8]) -> Option<Vec<CertificateDer<'static>>> {
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok().filter(|all| !all.is_empty())
}
