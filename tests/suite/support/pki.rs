//! Certificates as Envoy Gateway makes them: its own authority, RSA keys of 2048 bits in PKCS#1, names of one label.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use tempfile::TempDir;
use tokio_rustls::rustls::{
    RootCertStore, ServerConfig, crypto,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
    version::TLS13,
};

/// How a key is written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyKind {
    Pkcs1,
    Pkcs8,
    Ec,
}

/// An authority with a certificate for the control plane and one for its client, in files.
pub(crate) struct Pki {
    dir: TempDir,
}

impl Pki {
    /// Makes all of them anew.
    pub(crate) fn new() -> Self {
        let pki = Self {
            dir: tempfile::tempdir().expect("a directory"),
        };
        let dir = pki.dir.path();
        key(dir, "ca.key");
        openssl(
            dir,
            "req -x509 -new -key ca.key -subj /CN=envoy-gateway -days 1825 -out ca.crt",
        );
        let server =
            "DNS:envoy-gateway,DNS:envoy-gateway.ns,DNS:envoy-gateway.ns.svc,DNS:localhost";
        certificate(dir, "server", "envoy-gateway", server);
        certificate(dir, "tls", "envoy-ratelimit", "DNS:*.ns");
        pki
    }

    /// Makes a certificate of this authority, and its key, in the files `name.crt` and `name.key`.
    pub(crate) fn issue(&self, name: &str, names: &str, kind: KeyKind) {
        let dir = self.dir.path();
        match kind {
            KeyKind::Pkcs1 => key(dir, &format!("{name}.key")),
            KeyKind::Pkcs8 => openssl(
                dir,
                &format!("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out {name}.key"),
            ),
            KeyKind::Ec => openssl(
                dir,
                &format!("ecparam -name prime256v1 -genkey -noout -out {name}.key"),
            ),
        }
        sign(dir, name, name, names);
    }

    /// One of `ca.crt`, `tls.crt`, `tls.key`, `server.crt`, `server.key`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Copies the client's files to where a client reads them, as a rotation does.
    pub(crate) fn install(&self, dir: &Path) {
        for name in ["ca.crt", "tls.crt", "tls.key"] {
            fs::copy(self.file(name), dir.join(name)).expect("copied");
        }
    }

    /// TLS 1.3 alone, and a client certificate of this authority.
    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(self.file("ca.crt")).expect("a certificate");
        roots.add(authority).expect("an authority");
        let provider = Arc::new(crypto::ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
                .build()
                .expect("a verifier");
        let certificate =
            CertificateDer::from_pem_file(self.file("server.crt")).expect("a certificate");
        let key = PrivateKeyDer::from_pem_file(self.file("server.key")).expect("a key");
        assert!(matches!(key, PrivateKeyDer::Pkcs1(_)), "as Envoy Gateway's");
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect("known to the provider")
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![certificate], key)
            .expect("a certificate and its key");
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    }
}

fn key(dir: &Path, name: &str) {
    openssl(dir, &format!("genrsa -traditional -out {name} 2048"));
}

fn certificate(dir: &Path, name: &str, subject: &str, names: &str) {
    key(dir, &format!("{name}.key"));
    sign(dir, name, subject, names);
}

fn sign(dir: &Path, name: &str, subject: &str, names: &str) {
    let usage = "keyUsage=digitalSignature,keyEncipherment,dataEncipherment,nonRepudiation";
    let extensions = format!("subjectAltName={names}\n{usage}\n");
    fs::write(dir.join("extensions"), extensions).expect("written");
    openssl(
        dir,
        &format!("req -new -key {name}.key -subj /CN={subject} -out request"),
    );
    openssl(
        dir,
        &format!(
            "x509 -req -in request -CA ca.crt -CAkey ca.key -CAcreateserial -days 1825 -extfile extensions -out \
             {name}.crt"
        ),
    );
}

fn openssl(dir: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split_whitespace())
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs");
    assert!(
        output.status.success(),
        "openssl {arguments}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}
