//! The files of a connection with TLS, looked at before there is one.

use std::fs;

use rustls::{
    ClientConfig, RootCertStore, crypto,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};

use super::Args;

const AUTHORITIES: &str = "CONFIG_GRPC_XDS_SERVER_TLS_CACERT";
const CERTIFICATE: &str = "CONFIG_GRPC_XDS_CLIENT_TLS_CERT";
const KEY: &str = "CONFIG_GRPC_XDS_CLIENT_TLS_KEY";
const PAIR: &str = "CONFIG_GRPC_XDS_CLIENT_TLS_CERT, CONFIG_GRPC_XDS_CLIENT_TLS_KEY";

/// Why a file cannot be used. Never says what is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {reason}")]
pub struct FileError {
    /// The setting that names it; two where they do not go together.
    pub setting: &'static str,
    /// What is wrong.
    pub reason: String,
}

impl Args {
    /// Everything that is wrong with the files, where TLS is asked for.
    pub fn check_files(&self) -> Vec<FileError> {
        if !self.xds_server_use_tls {
            return Vec::new();
        }
        [authorities(&self.xds_server_tls_cacert).err()]
            .into_iter()
            .flatten()
            .chain(identity(
                &self.xds_client_tls_cert,
                &self.xds_client_tls_key,
            ))
            .collect()
    }
}

fn authorities(path: &str) -> Result<(), FileError> {
    if path.is_empty() {
        return Ok(());
    }
    let certificates = certificates(AUTHORITIES, path)?;
    // One among them that cannot be used is passed over by the connection too.
    let (used, _) = RootCertStore::empty().add_parsable_certificates(certificates);
    if used == 0 {
        return Err(wrong(
            AUTHORITIES,
            format_args!("{path}: no authority that can be used"),
        ));
    }
    Ok(())
}

fn identity(certificate: &str, key: &str) -> Vec<FileError> {
    let half = |missing| {
        vec![wrong(
            missing,
            "is not set: a certificate and its key go together",
        )]
    };
    match (certificate.is_empty(), key.is_empty()) {
        (true, true) => return Vec::new(),
        (true, false) => return half(CERTIFICATE),
        (false, true) => return half(KEY),
        (false, false) => {}
    }
    let (chain, key) = match (certificates(CERTIFICATE, certificate), private_key(key)) {
        (Ok(chain), Ok(key)) => (chain, key),
        (chain, key) => return chain.err().into_iter().chain(key.err()).collect(),
    };
    // They do not belong together, or are of a kind that is not allowed.
    ClientConfig::builder_with_provider(crypto::ring::default_provider().into())
        .with_safe_default_protocol_versions()
        .and_then(|builder| {
            builder
                .with_root_certificates(RootCertStore::empty())
                .with_client_auth_cert(chain, key)
        })
        .err()
        .map(|cause| wrong(PAIR, cause))
        .into_iter()
        .collect()
}

fn certificates(
    setting: &'static str,
    path: &str,
) -> Result<Vec<CertificateDer<'static>>, FileError> {
    let pem = read(setting, path)?;
    CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .ok()
        .filter(|all| !all.is_empty())
        .ok_or_else(|| wrong(setting, format_args!("{path}: no certificate in PEM form")))
}

fn private_key(path: &str) -> Result<PrivateKeyDer<'static>, FileError> {
    PrivateKeyDer::from_pem_slice(&read(KEY, path)?)
        .map_err(|_| wrong(KEY, format_args!("{path}: no private key in PEM form")))
}

fn read(setting: &'static str, path: &str) -> Result<Vec<u8>, FileError> {
    fs::read(path).map_err(|cause| wrong(setting, format_args!("{path}: {cause}")))
}

fn wrong(setting: &'static str, reason: impl std::fmt::Display) -> FileError {
    FileError {
        setting,
        reason: reason.to_string(),
    }
}
