//! Certificates and keys, read and checked once at the start: a wrong file is told then, by its name.

use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject as _},
    sign::{CertifiedKey, SingleCertAndKey},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::config::{ConfigError, Hostname, Tls, TlsPart};

/// Where systems keep the authorities they trust.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// A [`Tls`] with its files read.
#[derive(Clone, Debug)]
pub(super) struct Trust {
    config: Arc<ClientConfig>,
    server_name: Option<Arc<str>>,
}

impl Trust {
    /// Reads the files; else everything that is wrong with them, which is something.
    pub(super) fn read(tls: &Tls) -> Result<Self, Vec<ConfigError>> {
        let provider = Arc::new(ring::default_provider());
        let client = match &tls.client {
            Some((certificate, key)) => pair(certificate, key, &provider).map(Some),
            None => Ok(None),
        };
        let verifier = verifier(tls, Arc::clone(&provider));
        let (verifier, client) = match (verifier, client) {
            (Ok(verifier), Ok(client)) => (verifier, client),
            (verifier, client) => {
                let mut wrong: Vec<_> = verifier.err().into_iter().collect();
                wrong.extend(client.err().unwrap_or_default());
                return Err(wrong);
            }
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("the provider has the suites of the default versions")
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match client {
            Some(client) => builder.with_client_cert_resolver(client),
            None => builder.with_no_client_auth(),
        };
        Ok(Self {
            config: Arc::new(config),
            server_name: tls.server_name.as_deref().map(Arc::from),
        })
    }

    /// Shakes hands with the server at `host`.
    pub(super) async fn shake_hands(
        &self,
        host: &str,
        socket: TcpStream,
    ) -> io::Result<TlsStream<TcpStream>> {
        let name = self.server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(name).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::clone(&self.config));
        connector.connect(name, socket).await
    }
}

/// Checks a server's certificate, with or without its name.
fn verifier(
    tls: &Tls,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, ConfigError> {
    let roots = match &tls.ca {
        Some(path) => bundle(path)?,
        None => system_bundle().unwrap_or_else(|| RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        }),
    };
    let checked = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| {
            let path = tls.ca.as_deref().unwrap_or(Path::new("the system's"));
            wrong(path, TlsPart::Authorities, error)
        })?;
    Ok(match tls.hostname {
        Hostname::Checked => checked,
        Hostname::Ignored => Arc::new(AnyName(checked)),
    })
}

/// Checks all of a certificate but whose it is. The name is the last thing that is held against a certificate whose
/// chain is sound.
#[derive(Debug)]
struct AnyName(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self
            .0
            .verify_server_cert(certificate, chain, name, ocsp, now)
        {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.0
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

fn pair(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
) -> Result<Arc<SingleCertAndKey>, Vec<ConfigError>> {
    let chain = file(certificate, TlsPart::Certificate).and_then(|text| {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| wrong(certificate, TlsPart::Certificate, error))?;
        if chain.is_empty() {
            let reason = "holds no certificate";
            return Err(wrong(certificate, TlsPart::Certificate, reason));
        }
        Ok(chain)
    });
    let private = file(key, TlsPart::Key).and_then(|text| {
        PrivateKeyDer::from_pem_slice(&text).map_err(|error| wrong(key, TlsPart::Key, error))
    });
    let (chain, private) = match (chain, private) {
        (Ok(chain), Ok(private)) => (chain, private),
        (chain, private) => {
            return Err([chain.err(), private.err()].into_iter().flatten().collect());
        }
    };
    CertifiedKey::from_der(chain, private, provider)
        .map(|pair| Arc::new(SingleCertAndKey::from(pair)))
        .map_err(|error| vec![wrong(key, TlsPart::Key, error)])
}

fn bundle(path: &Path) -> Result<RootCertStore, ConfigError> {
    let text = file(path, TlsPart::Authorities)?;
    authorities(&text).map_err(|reason| wrong(path, TlsPart::Authorities, reason))
}

fn authorities(text: &[u8]) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text) {
        store
            .add(certificate.map_err(|error| error.to_string())?)
            .map_err(|error| error.to_string())?;
    }
    if store.is_empty() {
        return Err("holds no certificate".to_owned());
    }
    Ok(store)
}

fn system_bundle() -> Option<RootCertStore> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    named
        .into_iter()
        .chain(BUNDLES.iter().map(PathBuf::from))
        .filter_map(|path| std::fs::read(path).ok())
        .find_map(|text| authorities(&text).ok())
}

fn file(path: &Path, part: TlsPart) -> Result<Vec<u8>, ConfigError> {
    std::fs::read(path).map_err(|error| wrong(path, part, error))
}

fn wrong(path: &Path, part: TlsPart, reason: impl std::fmt::Display) -> ConfigError {
    ConfigError::Tls {
        part,
        file: path.display().to_string(),
        reason: reason.to_string(),
    }
}
