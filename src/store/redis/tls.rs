//! Certificates and keys, read and checked once at the start: a wrong file is told then, by its name.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use deadpool_redis::redis::{
    Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, IntoConnectionInfo as _, RedisError,
    RedisFuture, TlsCertificates, io::AsyncDNSResolver,
};
use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

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
    certificates: TlsCertificates,
    hostname: Hostname,
    pub(super) server_name: Option<Arc<str>>,
}

impl Trust {
    /// Reads the files; else everything that is wrong with them, which is something.
    pub(super) fn read(tls: &Tls) -> Result<Self, Vec<ConfigError>> {
        // The first provider stays: another one is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let root_cert = match &tls.ca {
            Some(path) => bundle(path).map(Some).map_err(|error| vec![error]),
            // Without one the library's own list of authorities holds.
            None => Ok(system_bundle()),
        };
        let client_tls = match &tls.client {
            Some((certificate, key)) => pair(certificate, key).map(Some),
            None => Ok(None),
        };
        let (root_cert, client_tls) = match (root_cert, client_tls) {
            (Ok(root_cert), Ok(client_tls)) => (root_cert, client_tls),
            (roots, client) => {
                let wrong = [roots.err(), client.err()];
                return Err(wrong.into_iter().flatten().flatten().collect());
            }
        };
        Ok(Self {
            certificates: TlsCertificates {
                client_tls,
                root_cert,
            },
            hostname: tls.hostname,
            server_name: tls.server_name.as_deref().map(Arc::from),
        })
    }

    /// What to connect to for `host:port`. With a server name the name takes the host's place, and
    /// [`Elsewhere`] says where that is.
    pub(super) fn connection_info(
        &self,
        host: &str,
        port: u16,
    ) -> Result<ConnectionInfo, RedisError> {
        let plain = ConnectionAddr::TcpTls {
            host: self.server_name.as_deref().unwrap_or(host).to_owned(),
            port,
            insecure: false,
            tls_params: None,
        };
        let client =
            Client::build_with_tls(plain.into_connection_info()?, self.certificates.clone())?;
        let info = client.get_connection_info().clone();
        let mut address = info.addr().clone();
        address.set_danger_accept_invalid_hostnames(self.hostname == Hostname::Ignored);
        Ok(info.set_addr(address))
    }
}

/// Finds every name at one host: the name asked for is the certificate's, not the network's.
pub(super) struct Elsewhere(pub(super) String);

impl AsyncDNSResolver for Elsewhere {
    fn resolve<'a, 'b: 'a>(
        &'a self,
        _: &'b str,
        port: u16,
    ) -> RedisFuture<'a, Box<dyn Iterator<Item = SocketAddr> + Send + 'a>> {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((self.0.as_str(), port))
                .await
                .map_err(RedisError::from)?
                .collect();
            Ok(Box::new(found.into_iter()) as Box<dyn Iterator<Item = SocketAddr> + Send>)
        })
    }
}

fn pair(certificate: &Path, key: &Path) -> Result<ClientTlsConfig, Vec<ConfigError>> {
    let chain = file(certificate, TlsPart::Certificate).and_then(|text| {
        let chain: Vec<_> = CertificateDer::pem_slice_iter(&text)
            .collect::<Result<_, _>>()
            .map_err(|error| wrong(certificate, TlsPart::Certificate, error))?;
        if chain.is_empty() {
            let reason = "holds no certificate";
            return Err(wrong(certificate, TlsPart::Certificate, reason));
        }
        Ok((text, chain))
    });
    let private = file(key, TlsPart::Key).and_then(|text| {
        let private = PrivateKeyDer::from_pem_slice(&text)
            .map_err(|error| wrong(key, TlsPart::Key, error))?;
        Ok((text, private))
    });
    let ((client_cert, chain), (client_key, private)) = match (chain, private) {
        (Ok(chain), Ok(private)) => (chain, private),
        (chain, private) => {
            return Err([chain.err(), private.err()].into_iter().flatten().collect());
        }
    };
    ClientConfig::builder()
        .with_root_certificates(RootCertStore::empty())
        .with_client_auth_cert(chain, private)
        .map_err(|error| vec![wrong(key, TlsPart::Key, error)])?;
    Ok(ClientTlsConfig {
        client_cert,
        client_key,
    })
}

fn bundle(path: &Path) -> Result<Vec<u8>, ConfigError> {
    let text = file(path, TlsPart::Authorities)?;
    authorities(&text).map_err(|reason| wrong(path, TlsPart::Authorities, reason))?;
    Ok(text)
}

fn authorities(text: &[u8]) -> Result<(), String> {
    let mut found = 0;
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text) {
        store
            .add(certificate.map_err(|error| error.to_string())?)
            .map_err(|error| error.to_string())?;
        found += 1;
    }
    if found == 0 {
        return Err("holds no certificate".to_owned());
    }
    Ok(())
}

fn system_bundle() -> Option<Vec<u8>> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    named
        .into_iter()
        .chain(BUNDLES.iter().map(PathBuf::from))
        .filter_map(|path| std::fs::read(path).ok())
        .find(|text| authorities(text).is_ok())
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
