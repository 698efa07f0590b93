//! How commands reach a running service.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::Context as _;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::go_values;

/// How a command speaks TLS. The names are those of the reference's client.
#[derive(Clone, Debug, Default, clap::Args)]
#[group(skip)]
pub(super) struct Tls {
    /// Speak TLS; an address with https:// does too
    #[arg(long, default_value = "false", value_parser = go_values::boolean, action = clap::ArgAction::Set,
          num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    grpc_use_tls: bool,
    /// Authorities that vouch for the service, PEM. Without it: the system's
    #[arg(long, value_name = "FILE")]
    grpc_server_ca_file: Option<PathBuf>,
    /// Our certificate, PEM
    #[arg(long, value_name = "FILE", requires = "grpc_key_file")]
    grpc_cert_file: Option<PathBuf>,
    /// Its key, PEM
    #[arg(long, value_name = "FILE", requires = "grpc_cert_file")]
    grpc_key_file: Option<PathBuf>,
}

impl Tls {
    /// Speak TLS to every address?
    pub(super) const fn is_asked_for(&self) -> bool {
        self.grpc_use_tls
    }

    fn config(&self) -> anyhow::Result<ClientTlsConfig> {
        let read = |path: &PathBuf| {
            fs::read(path).with_context(|| format!("cannot read {}", path.display()))
        };
        let mut config = ClientTlsConfig::new();
        config = match &self.grpc_server_ca_file {
            Some(authorities) => config.ca_certificate(Certificate::from_pem(read(authorities)?)),
            None => config.with_native_roots(),
        };
        if let (Some(certificate), Some(key)) = (&self.grpc_cert_file, &self.grpc_key_file) {
            config = config.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        Ok(config)
    }
}

/// Connects to `address`, `host:port` or a URL.
pub(super) async fn connect(
    address: &str,
    timeout: Duration,
    tls: &Tls,
) -> anyhow::Result<Channel> {
    let url = if address.contains("://") {
        address.to_owned()
    } else if tls.grpc_use_tls {
        format!("https://{address}")
    } else {
        format!("http://{address}")
    };
    let encrypted = url.starts_with("https://");
    let mut endpoint = Endpoint::from_shared(url)
        .with_context(|| format!("{address} is no address: expected host:port"))?
        .connect_timeout(timeout)
        .timeout(timeout);
    if encrypted {
        endpoint = endpoint
            .tls_config(tls.config()?)
            .context("these certificates cannot be used")?;
    }
    endpoint
        .connect()
        .await
        .with_context(|| format!("cannot reach {address}"))
}

/// Runs `command` to its end on a small runtime.
pub(super) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?
        .block_on(command)
}
