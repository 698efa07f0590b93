//! The settings of the control plane's client, with envoyproxy/ratelimit's names and defaults.

use std::{path::PathBuf, time::Duration};

use super::{
    Backoff, Node, Options, Server, Tls,
    values::{HeadersError, MAX_MESSAGE_BYTES, Pairs, authority, bytes, factor, headers, pairs},
};
use crate::{go_values, rules::compile, secret::Secret};

/// How rules come from a control plane.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Rules from a control plane (CONFIG_TYPE=GRPC_XDS_SOTW)")]
pub struct Args {
    /// Who we are to the control plane: it may pick the rules by it
    #[arg(
        long,
        env = "CONFIG_GRPC_XDS_NODE_ID",
        value_name = "ID",
        default_value = "default"
    )]
    pub xds_node_id: String,

    /// More about us, as name=text pairs with commas between
    #[arg(
        long,
        env = "CONFIG_GRPC_XDS_NODE_METADATA",
        value_name = "PAIRS",
        default_value = "",
        value_parser = pairs
    )]
    pub xds_node_metadata: Pairs,

    /// The control plane, as host:port
    #[arg(
        long,
        env = "CONFIG_GRPC_XDS_SERVER_URL",
        value_name = "ADDRESS",
        default_value = "localhost:18000",
        value_parser = authority
    )]
    pub xds_server_url: String,

    /// First wait after the control plane could not be reached; each further one is longer
    #[arg(
        long,
        env = "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        value_name = "DURATION",
        default_value = "3s",
        value_parser = go_values::duration
    )]
    pub xds_server_connect_retry_interval: Duration,

    /// Headers sent to the control plane, as name:text pairs with commas between. Kept out of the log
    #[arg(
        long,
        env = "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        value_name = "PAIRS",
        default_value = "",
        value_parser = go_values::secret,
        hide_env_values = true
    )]
    pub xds_client_additional_headers: Secret,

    /// Speak TLS to the control plane
    #[arg(long, env = "CONFIG_GRPC_XDS_SERVER_USE_TLS", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub xds_server_use_tls: bool,

    /// Our certificate, PEM. Read for each connection, as the other files are
    #[arg(
        long,
        env = "CONFIG_GRPC_XDS_CLIENT_TLS_CERT",
        value_name = "FILE",
        default_value = ""
    )]
    pub xds_client_tls_cert: String,

    /// Its key, PEM
    #[arg(
        long,
        env = "CONFIG_GRPC_XDS_CLIENT_TLS_KEY",
        value_name = "FILE",
        default_value = ""
    )]
    pub xds_client_tls_key: String,

    /// Authorities that vouch for the control plane, PEM. Without it: the system's
    #[arg(
        long,
        env = "CONFIG_GRPC_XDS_SERVER_TLS_CACERT",
        value_name = "FILE",
        default_value = ""
    )]
    pub xds_server_tls_cacert: String,

    /// Name that the control plane's certificate has to have. Without it: the host of its address
    #[arg(
        long,
        env = "CONFIG_GRPC_XDS_SERVER_TLS_SAN",
        value_name = "NAME",
        default_value = ""
    )]
    pub xds_server_tls_san: String,

    /// First wait after the stream of the control plane broke; each further one is longer
    #[arg(
        long,
        env = "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
        value_name = "DURATION",
        default_value = "10s",
        value_parser = go_values::duration
    )]
    pub xds_client_backoff_initial_interval: Duration,

    /// Longest of these waits
    #[arg(
        long,
        env = "XDS_CLIENT_BACKOFF_MAX_INTERVAL",
        value_name = "DURATION",
        default_value = "60s",
        value_parser = go_values::duration
    )]
    pub xds_client_backoff_max_interval: Duration,

    /// Up to 1: the part of a wait that chance may take away, and waits double. Above 1: waits grow by this factor
    #[arg(
        long,
        env = "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
        value_name = "FACTOR",
        default_value = "0.5",
        value_parser = factor
    )]
    pub xds_client_backoff_random_factor: f64,

    /// Whether chance shortens the waits
    #[arg(long, env = "XDS_CLIENT_BACKOFF_JITTER", default_value = "true", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub xds_client_backoff_jitter: bool,

    /// Largest push that is read, in bytes
    #[arg(
        long,
        env = "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
        value_name = "BYTES",
        default_value_t = MAX_MESSAGE_BYTES,
        value_parser = bytes
    )]
    pub xds_client_max_msg_size_in_bytes: usize,
}

impl Args {
    /// How the client works by these settings.
    ///
    /// # Errors
    /// When the headers are none: they are kept from the command line's own errors, which quote what is wrong.
    pub fn options(&self, compile: compile::Options) -> Result<Options, HeadersError> {
        let factor = self.xds_client_backoff_random_factor;
        let defaults = Backoff::default();
        let (growth, jitter) = if factor > 1.0 {
            (factor, defaults.jitter)
        } else {
            (defaults.growth, factor)
        };
        Ok(Options {
            server: Server {
                authority: self.xds_server_url.clone(),
                tls: self.xds_server_use_tls.then(|| self.tls()),
                ..Server::default()
            },
            node: Node {
                id: self.xds_node_id.clone(),
                metadata: self.xds_node_metadata.0.clone(),
            },
            headers: headers(self.xds_client_additional_headers.expose())?,
            backoff: Backoff {
                initial: self.xds_client_backoff_initial_interval,
                unreachable: self.xds_server_connect_retry_interval,
                max: self.xds_client_backoff_max_interval,
                growth,
                jitter: if self.xds_client_backoff_jitter {
                    jitter
                } else {
                    0.0
                },
            },
            max_message_bytes: self.xds_client_max_msg_size_in_bytes,
            compile,
        })
    }

    fn tls(&self) -> Tls {
        let path = |text: &str| (!text.is_empty()).then(|| PathBuf::from(text));
        let identity = path(&self.xds_client_tls_cert).zip(path(&self.xds_client_tls_key));
        Tls {
            ca: path(&self.xds_server_tls_cacert),
            identity,
            server_name: Some(self.xds_server_tls_san.clone()).filter(|name| !name.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::{Args, MAX_MESSAGE_BYTES};
    use crate::rules::compile;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn parse(args: &[&str]) -> Args {
        Command::parse_from([&["test"], args].concat()).args
    }

    #[test]
    fn without_settings_it_is_the_reference() {
        let options = parse(&[])
            .options(compile::Options::default())
            .expect("good");
        assert_eq!(options.node.id, "default");
        assert_eq!(options.server.authority, "localhost:18000");
        assert_eq!(options.server.tls, None);
        assert_eq!(options.backoff.initial, Duration::from_secs(10));
        assert_eq!(options.backoff.max, Duration::from_secs(60));
        assert!((options.backoff.growth - 2.0).abs() < f64::EPSILON);
        assert_eq!(options.max_message_bytes, MAX_MESSAGE_BYTES);
    }

    #[test]
    fn a_factor_above_one_is_the_growth_that_it_is_in_the_reference() {
        let options = |args: &[&str]| {
            parse(args)
                .options(compile::Options::default())
                .expect("good")
                .backoff
        };
        let backoff = options(&["--xds-client-backoff-random-factor", "1.5"]);
        assert!((backoff.growth - 1.5).abs() < f64::EPSILON);
        let backoff = options(&["--xds-client-backoff-jitter=false"]);
        assert!(backoff.jitter.abs() < f64::EPSILON);
    }

    #[test]
    fn what_may_be_a_password_is_not_told() {
        let args = parse(&[
            "--xds-client-additional-headers",
            "authorization:hunter2,b ad:hunter2",
        ]);
        assert!(!format!("{args:?}").contains("hunter2"));
        let error = args
            .options(compile::Options::default())
            .expect_err("a space in a name");
        assert_eq!(error.entry, 2);
        assert!(!error.to_string().contains("hunter2"));
        let good = parse(&["--xds-client-additional-headers", "authorization:hunter2"])
            .options(compile::Options::default())
            .expect("good");
        assert!(!format!("{good:?}").contains("hunter2"));
    }
}
