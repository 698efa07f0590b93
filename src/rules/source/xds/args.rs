//! The settings of the control plane's client, with envoyproxy/ratelimit's names and defaults.

use std::{path::PathBuf, time::Duration};

use http::{HeaderMap, HeaderName, HeaderValue};
use tonic::metadata::{Binary, MetadataValue};

use super::{Backoff, Node, Options, Server, Tls};
use crate::{
    go_values::{self, Malformed},
    rules::compile,
    secret::Secret,
};

/// Above the 4 MiB that gRPC allows by itself: a gateway with a few thousand rules pushes more.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

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

/// Names and what they stand for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pairs(pub Vec<(String, String)>);

/// `CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS` is no list of headers. Does not quote it: it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS: entry {entry} {reason}")]
pub struct HeadersError {
    /// Which of the pairs, from 1.
    pub entry: usize,
    /// What is wrong with it.
    pub reason: &'static str,
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
        if identity.is_none()
            && (!self.xds_client_tls_cert.is_empty() || !self.xds_client_tls_key.is_empty())
        {
            tracing::warn!(
                "CONFIG_GRPC_XDS_CLIENT_TLS_CERT and CONFIG_GRPC_XDS_CLIENT_TLS_KEY mean something together only: no \
                 client certificate is sent"
            );
        }
        Tls {
            ca: path(&self.xds_server_tls_cacert),
            identity,
            server_name: Some(self.xds_server_tls_san.clone()).filter(|name| !name.is_empty()),
        }
    }
}

fn pairs(text: &str) -> Result<Pairs, String> {
    text.split(',')
        .filter(|pair| !pair.trim().is_empty())
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => {
                Ok((name.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err(format!("'{pair}' is no name=text pair")),
        })
        .collect::<Result<_, _>>()
        .map(Pairs)
}

fn headers(text: &str) -> Result<HeaderMap, HeadersError> {
    let mut headers = HeaderMap::new();
    let entries = text.split(',').filter(|pair| !pair.trim().is_empty());
    for (entry, pair) in (1..).zip(entries) {
        let wrong = |reason| HeadersError { entry, reason };
        let (name, value) = pair.split_once(':').ok_or(wrong("is no name:text pair"))?;
        let name: HeaderName = name
            .trim()
            .parse()
            .map_err(|_| wrong("has a name that no header can have"))?;
        let value = value.trim();
        let value = if name.as_str().ends_with("-bin") {
            // What a header cannot hold as it is: gRPC encodes the values of names that end so.
            let encoded = MetadataValue::<Binary>::from_bytes(value.as_bytes());
            HeaderValue::from_bytes(encoded.as_encoded_bytes())
        } else {
            HeaderValue::from_str(value)
        };
        let mut value = value.map_err(|_| wrong("has a text that no header can have"))?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

/// `host:port`, as Go's gRPC takes it: a `dns:///` before it says nothing new, and the port may be left out.
fn authority(text: &str) -> Result<String, String> {
    const SHAPE: &str = "the control plane is named as host:port, such as envoy-gateway:18001";
    if text.contains("://") && !text.starts_with("dns:///") {
        return Err(format!(
            "{SHAPE}, without '{}'; for TLS set CONFIG_GRPC_XDS_SERVER_USE_TLS=true",
            text.split_inclusive("://").next().unwrap_or_default()
        ));
    }
    let text = text.strip_prefix("dns:///").unwrap_or(text);
    let authority: http::uri::Authority = text.parse().map_err(|_| SHAPE.to_owned())?;
    if authority.host().is_empty() || text.contains('@') {
        return Err(SHAPE.to_owned());
    }
    match text.strip_prefix(authority.host()) {
        Some("") => Ok(format!("{text}:443")),
        Some(port) if port[1..].parse::<u16>().is_ok() => Ok(text.to_owned()),
        _ => Err(SHAPE.to_owned()),
    }
}

fn factor(text: &str) -> Result<f64, &'static str> {
    match text.parse::<f64>() {
        Ok(factor) if factor.is_finite() && factor >= 0.0 => Ok(factor),
        _ => Err("a factor is a number from 0 on, such as 0.5"),
    }
}

/// 0 is Go's way to leave it to the library.
fn bytes(text: &str) -> Result<usize, Malformed> {
    match text {
        "0" => Ok(MAX_MESSAGE_BYTES),
        _ => go_values::count(text),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::Parser;

    use super::{Args, MAX_MESSAGE_BYTES, authority, headers, pairs};
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
    fn addresses_are_those_that_go_takes() {
        for (text, expected) in [
            ("envoy-gateway:18001", "envoy-gateway:18001"),
            ("dns:///a.b:1", "a.b:1"),
            ("[::1]:18000", "[::1]:18000"),
            ("host", "host:443"),
        ] {
            assert_eq!(authority(text).as_deref(), Ok(expected), "{text}");
        }
        for text in [
            "",
            ":18000",
            "http://a:1",
            "a:",
            "a:99999",
            "u@a:1",
            "a b:1",
            "a:1/x",
        ] {
            assert!(authority(text).is_err(), "{text}");
        }
    }

    #[test]
    fn pairs_are_split_at_their_first_sign() {
        let metadata = pairs("a=b, c = d=e,").expect("good");
        assert_eq!(
            metadata.0,
            [
                ("a".to_owned(), "b".to_owned()),
                ("c".to_owned(), "d=e".to_owned())
            ]
        );
        assert!(pairs("a:b").is_err());
        let headers = headers("Authorization:Bearer a:b,x-Team-bin:hi").expect("good");
        assert_eq!(headers["authorization"], "Bearer a:b");
        assert_eq!(headers["x-team-bin"], "aGk");
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
