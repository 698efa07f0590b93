//! A collector, and the connections to it: over HTTP or gRPC, in clear text or over TLS.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, HeaderName};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_otlp::ExporterBuildError;
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject as _},
    },
};
use tonic::{
    metadata::MetadataMap,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

use super::args::Protocol;

/// Longest time a collector may take for a message.
pub(in crate::telemetry) const PATIENCE: Duration = Duration::from_secs(5);

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

/// Where something is sent, and how.
#[derive(Clone, PartialEq, Eq)]
pub(in crate::telemetry) struct Collector {
    endpoint: String,
    protocol: Protocol,
    headers: Vec<(String, String)>,
    tls: Tls,
}

/// The files of a connection with TLS. They are read once, at the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tls {
    /// Authorities that may vouch for the collector; `None`: the system's.
    pub(super) ca: Option<PathBuf>,
    /// Who we are, when the collector asks.
    pub(super) identity: Identity,
}

/// Our certificate and its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Identity {
    #[default]
    None,
    Whole {
        certificate: PathBuf,
        key: PathBuf,
    },
    /// One without the other.
    Half(PathBuf),
}

impl Identity {
    pub(super) fn new(certificate: Option<PathBuf>, key: Option<PathBuf>) -> Self {
        match (certificate, key) {
            (None, None) => Self::None,
            (Some(certificate), Some(key)) => Self::Whole { certificate, key },
            (Some(half), None) | (None, Some(half)) => Self::Half(half),
        }
    }
}

/// Why nothing can be sent to a collector.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// The address makes no sense, or the TLS of a connection over gRPC.
    #[error("the collector {endpoint} cannot be used: {}", chain(.error))]
    Transport {
        /// The address, without its query.
        endpoint: String,
        /// What is wrong with it.
        error: tonic::transport::Error,
    },
    /// The exporter of spans cannot be made.
    #[error("the collector cannot be used: {0}")]
    Exporter(#[from] ExporterBuildError),
    /// A file of the settings cannot be read.
    #[error("{} cannot be read: {error}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file of the settings is not what it should be.
    #[error("{} has no certificate or key that can be used: {error}", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// Why.
        error: pem::Error,
    },
    /// A certificate without its key, or a key without its certificate.
    #[error("{} is one half of who we are: a certificate and its key go together", path.display())]
    Half {
        /// The file that is there.
        path: PathBuf,
    },
    /// A header that cannot be one.
    #[error("the header {name:?} for the collector has a name or a value that no header can have")]
    Header {
        /// Its name.
        name: String,
    },
    /// Certificates that do not do, or none on this system.
    #[error("no TLS to the collector: {0}")]
    Tls(#[from] rustls::Error),
    /// The system's authorities cannot be read.
    #[error(
        "no TLS to the collector: {0}; OTEL_EXPORTER_OTLP_CERTIFICATE names a file of authorities"
    )]
    Roots(#[source] io::Error),
}

impl NotStarted {
    /// The setting to look at, in its general form.
    pub const fn setting(&self) -> &'static str {
        match self {
            Self::Transport { .. } | Self::Exporter(_) => "OTEL_EXPORTER_OTLP_ENDPOINT",
            Self::Header { .. } => "OTEL_EXPORTER_OTLP_HEADERS",
            Self::Half { .. } => "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
            Self::File { .. } | Self::Pem { .. } | Self::Tls(_) | Self::Roots(_) => {
                "OTEL_EXPORTER_OTLP_CERTIFICATE"
            }
        }
    }
}

impl Collector {
    /// Looks at what the settings name, without a connection.
    ///
    /// # Errors
    /// What would keep us from sending.
    pub(super) fn check(&self) -> Result<(), NotStarted> {
        self.header_map()?;
        if self.is_secure() {
            self.tls.rustls()?;
        }
        Ok(())
    }

    pub(super) fn new(
        signal: Signal,
        protocol: Protocol,
        own: &str,
        general: &str,
        headers: &str,
        tls: Tls,
    ) -> Self {
        let path = match (protocol, signal) {
            (Protocol::Grpc, _) => "",
            (Protocol::Http, Signal::Traces) => "/v1/traces",
            (Protocol::Http, Signal::Metrics) => "/v1/metrics",
        };
        let local = match protocol {
            Protocol::Grpc => "http://localhost:4317",
            Protocol::Http => "http://localhost:4318",
        };
        let endpoint = match (own, general) {
            ("", "") => format!("{local}{path}"),
            ("", general) if path.is_empty() => general.to_owned(),
            ("", general) => {
                let (base, query) = general.split_at(general.find('?').unwrap_or(general.len()));
                format!("{}{path}{query}", base.trim_end_matches('/'))
            }
            (own, _) => own.to_owned(),
        };
        let headers = headers.split(',').filter_map(|pair| {
            let (name, value) = pair.trim().split_once('=')?;
            Some((name.trim().to_ascii_lowercase(), decoded(value.trim())))
        });
        Self {
            endpoint,
            protocol,
            headers: headers.collect(),
            tls,
        }
    }

    pub(in crate::telemetry) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The address as it may be seen: a query may hold a key.
    pub(super) fn shown(&self) -> &str {
        self.endpoint.split('?').next().unwrap_or_default()
    }

    pub(in crate::telemetry) fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Headers of every message; names in small letters.
    pub(in crate::telemetry) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    /// The same for a request over HTTP.
    ///
    /// # Errors
    /// One that cannot be a header.
    pub(super) fn header_map(&self) -> Result<HeaderMap, NotStarted> {
        let mut map = HeaderMap::new();
        for (name, value) in &self.headers {
            let (Ok(known), Ok(value)) = (name.parse::<HeaderName>(), value.parse()) else {
                return Err(NotStarted::Header { name: name.clone() });
            };
            map.insert(known, value);
        }
        Ok(map)
    }

    /// The same for a call over gRPC.
    ///
    /// # Errors
    /// One that cannot be a header.
    pub(in crate::telemetry) fn metadata(&self) -> Result<MetadataMap, NotStarted> {
        Ok(MetadataMap::from_headers(self.header_map()?))
    }

    fn is_secure(&self) -> bool {
        let scheme = self.endpoint.split("://").next().unwrap_or_default();
        scheme.eq_ignore_ascii_case("https")
    }

    /// A client for OTLP over HTTP.
    ///
    /// # Errors
    /// Certificates that cannot be used.
    pub(in crate::telemetry) fn http(
        &self,
    ) -> Result<HyperClient<HttpsConnector<HttpConnector>>, NotStarted> {
        let tls = if self.is_secure() {
            self.tls.rustls()?
        } else {
            // Nothing is encrypted, and so nobody need be believed.
            builder()?
                .with_root_certificates(RootCertStore::empty())
                .with_no_client_auth()
        };
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        Ok(HyperClient::new(connector, PATIENCE, None))
    }

    /// A channel for OTLP over gRPC, which connects when it is used, and again when it has to.
    ///
    /// # Errors
    /// An address that makes no sense, or certificates that cannot be used.
    pub(in crate::telemetry) fn channel(&self) -> Result<Channel, NotStarted> {
        let wrong = |error| NotStarted::Transport {
            endpoint: self.shown().to_owned(),
            error,
        };
        let mut endpoint = Endpoint::from_shared(self.endpoint.clone())
            .map_err(wrong)?
            .connect_timeout(PATIENCE)
            .timeout(PATIENCE);
        if self.is_secure() {
            endpoint = endpoint.tls_config(self.tls.tonic()?).map_err(wrong)?;
        }
        Ok(endpoint.connect_lazy())
    }
}

impl std::fmt::Debug for Collector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Headers hold credentials, and so may a query.
        f.debug_struct("Collector")
            .field("endpoint", &self.shown())
            .field("protocol", &self.protocol)
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

impl Tls {
    fn rustls(&self) -> Result<ClientConfig, NotStarted> {
        let builder = builder()?;
        let builder = match &self.ca {
            Some(path) => {
                let mut roots = RootCertStore::empty();
                for authority in certificates(path)? {
                    roots.add(authority)?;
                }
                builder.with_root_certificates(roots)
            }
            None => builder.with_native_roots().map_err(NotStarted::Roots)?,
        };
        Ok(match &self.identity {
            Identity::Whole { certificate, key } => {
                let private = PrivateKeyDer::from_pem_file(key).map_err(unread(key))?;
                builder.with_client_auth_cert(certificates(certificate)?, private)?
            }
            Identity::Half(path) => return Err(NotStarted::Half { path: path.clone() }),
            Identity::None => builder.with_no_client_auth(),
        })
    }

    fn tonic(&self) -> Result<ClientTlsConfig, NotStarted> {
        let mut config = ClientTlsConfig::new();
        config = match &self.ca {
            Some(path) => config.ca_certificate(Certificate::from_pem(read(path)?)),
            None => config.with_native_roots(),
        };
        match &self.identity {
            Identity::Whole { certificate, key } => {
                let identity = tonic::transport::Identity::from_pem(read(certificate)?, read(key)?);
                Ok(config.identity(identity))
            }
            Identity::Half(path) => Err(NotStarted::Half { path: path.clone() }),
            Identity::None => Ok(config),
        }
    }
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, rustls::Error> {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, NotStarted> {
    let found = CertificateDer::pem_file_iter(path).map_err(unread(path))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(unread(path))?;
    if found.is_empty() {
        return Err(unread(path)(pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn unread(path: &Path) -> impl Fn(pem::Error) -> NotStarted {
    move |error| NotStarted::Pem {
        path: path.to_owned(),
        error,
    }
}

fn read(path: &Path) -> Result<Vec<u8>, NotStarted> {
    std::fs::read(path).map_err(|error| NotStarted::File {
        path: path.to_owned(),
        error,
    })
}

/// `%41` is `A`; what makes no sense stands for itself.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |digit: &u8| char::from(*digit).to_digit(16);
        match (first, tail) {
            (b'%', [high, low, after @ ..]) if hex(high).is_some() && hex(low).is_some() => {
                let digits = [hex(high), hex(low)].into_iter().flatten();
                bytes.push(digits.fold(0, |byte, digit| byte * 16 + digit) as u8);
                rest = after;
            }
            (other, tail) => {
                bytes.push(*other);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The whole story: the error at the top only says that something went wrong with the transport.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut story = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        story.push_str(": ");
        story.push_str(&inner.to_string());
        cause = inner.source();
    }
    story
}
