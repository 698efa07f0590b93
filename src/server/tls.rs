//! TLS on the gRPC port, with client certificates if they are asked for. What the files hold is taken up while the
//! service runs; what cannot be used is passed over loudly, and the last good one stays.

mod clients;

use std::{
    fs,
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

/// Why a file cannot be used. Never says what is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {reason}")]
pub struct TlsError {
    /// The setting that names it; two where they do not go together.
    pub setting: &'static str,
    /// What is wrong.
    pub reason: String,
}

/// Why certificates cannot be used: everything that is wrong with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsErrors(pub Vec<TlsError>);

impl std::error::Error for TlsErrors {}

impl std::fmt::Display for TlsErrors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, error) in self.0.iter().enumerate() {
            let before = if number == 0 { "" } else { "; " };
            write!(f, "{before}{error}")?;
        }
        Ok(())
    }
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
    certificate: Read,
    key: Read,
    authorities: Option<Read>,
}

type Read = Result<Vec<u8>, TlsError>;

impl TlsArgs {
    /// Everything that is wrong with the files, where TLS is asked for.
    pub fn check(&self) -> Vec<TlsError> {
        if !self.grpc_server_use_tls {
            return Vec::new();
        }
        match config(self, &Files::read(self)) {
            Ok(_) => Vec::new(),
            Err(TlsErrors(wrong)) => wrong,
        }
    }
}

impl Tls {
    /// Reads the files; `None` where TLS is not asked for.
    ///
    /// # Errors
    /// What keeps them from being used.
    pub fn load(args: &TlsArgs, metrics: Arc<Metrics>) -> Result<Option<Arc<Self>>, TlsErrors> {
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
        let files = Files::read(args);
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
        let files = Files::read(&self.args);
        let loaded = {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if *seen == files {
                return;
            }
            let loaded = config(&self.args, &files);
            *seen = files;
            loaded
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
    fn read(args: &TlsArgs) -> Self {
        let file = |setting, path: &str| {
            if path.is_empty() {
                return Err(wrong(setting, "is not set, and GRPC_SERVER_USE_TLS is"));
            }
            fs::read(path).map_err(|cause| wrong(setting, format_args!("{path}: {cause}")))
        };
        let authorities = &args.grpc_client_tls_cacert;
        Self {
            certificate: file(CERTIFICATE, &args.grpc_server_tls_cert),
            key: file(KEY, &args.grpc_server_tls_key),
            authorities: (!authorities.is_empty()).then(|| file(AUTHORITIES, authorities)),
        }
    }
}

const CERTIFICATE: &str = "GRPC_SERVER_TLS_CERT";
const KEY: &str = "GRPC_SERVER_TLS_KEY";
const AUTHORITIES: &str = "GRPC_CLIENT_TLS_CACERT";

fn wrong(setting: &'static str, reason: impl std::fmt::Display) -> TlsError {
    TlsError {
        setting,
        reason: reason.to_string(),
    }
}

fn config(args: &TlsArgs, files: &Files) -> Result<Arc<ServerConfig>, TlsErrors> {
    let provider = Arc::new(crypto::ring::default_provider());
    let chain = chain(&files.certificate, CERTIFICATE, &args.grpc_server_tls_cert);
    let key = files.key.clone().and_then(|pem| {
        PrivateKeyDer::from_pem_slice(&pem).map_err(|_| {
            let path = &args.grpc_server_tls_key;
            wrong(KEY, format_args!("{path}: no private key in PEM form"))
        })
    });
    let verifier = files
        .authorities
        .as_ref()
        .map(|authorities| clients(args, authorities, Arc::clone(&provider)))
        .transpose();
    let (chain, key, verifier) = match (chain, key, verifier) {
        (Ok(chain), Ok(key), Ok(verifier)) => (chain, key, verifier),
        (chain, key, verifier) => {
            let all = [chain.err(), key.err(), verifier.err()];
            return Err(TlsErrors(all.into_iter().flatten().collect()));
        }
    };
    // Certificate and key do not belong together, or are of a kind that is not allowed.
    let pair = |cause: rustls::Error| {
        TlsErrors(vec![wrong(
            "GRPC_SERVER_TLS_CERT, GRPC_SERVER_TLS_KEY",
            cause,
        )])
    };
    let builder = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(pair)?;
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut config = builder.with_single_cert(chain, key).map_err(pair)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(Arc::new(config))
}

fn clients(
    args: &TlsArgs,
    authorities: &Read,
    provider: Arc<crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let certificates = chain(authorities, AUTHORITIES, &args.grpc_client_tls_cacert)?;
    let refused = |cause: &dyn std::fmt::Display| wrong(AUTHORITIES, cause);
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

/// Every certificate of the file at `path`, which is all certificates.
fn chain(
    read: &Read,
    setting: &'static str,
    path: &str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let pem = read.as_ref().map_err(Clone::clone)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    all.ok()
        .filter(|all| !all.is_empty())
        .ok_or_else(|| wrong(setting, format_args!("{path}: no certificate in PEM form")))
}
