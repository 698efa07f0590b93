//! Settings of OTLP, under OpenTelemetry's own names: general ones, and for each signal one that goes before it.

use std::{path::PathBuf, time::Duration};

use super::collector::{Collector, Identity, NotStarted, Signal, Tls};
use crate::{
    go_values::{self, Malformed},
    secret::Secret,
    telemetry::traces,
};

/// Settings of OTLP.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "OpenTelemetry")]
pub struct Args {
    /// Where metrics are sent: none, or otlp. Prometheus can read them either way.
    #[arg(long, env = "OTEL_METRICS_EXPORTER", default_value = "none", value_parser = exporters)]
    pub otel_metrics_exporter: Exporters,
    /// Milliseconds between two exports of metrics.
    #[arg(long, env = "OTEL_METRIC_EXPORT_INTERVAL", default_value = "60000", value_parser = interval)]
    pub otel_metric_export_interval: Interval,
    /// The collector. Empty: http://localhost:4318 or, over gRPC, http://localhost:4317. With https it is spoken to
    /// over TLS. No user or password stands in it: OTEL_EXPORTER_OTLP_HEADERS is for them.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", default_value = "", value_parser = endpoint,
          hide_env_values = true)]
    pub otel_exporter_otlp_endpoint: String,
    /// The collector of traces; over HTTP the whole address, path included.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", default_value = "", value_parser = endpoint,
          hide_env_values = true)]
    pub otel_exporter_otlp_traces_endpoint: String,
    /// The collector of metrics; over HTTP the whole address, path included.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", default_value = "", value_parser = endpoint,
          hide_env_values = true)]
    pub otel_exporter_otlp_metrics_endpoint: String,
    /// How metrics are sent: http/protobuf or grpc. Empty: as traces are (TRACING_EXPORTER_PROTOCOL).
    #[arg(long, env = "OTEL_EXPORTER_OTLP_PROTOCOL", default_value = "", value_parser = maybe_protocol)]
    pub otel_exporter_otlp_protocol: Choice,
    /// How traces are sent. Empty: by TRACING_EXPORTER_PROTOCOL.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", default_value = "", value_parser = maybe_protocol)]
    pub otel_exporter_otlp_traces_protocol: Choice,
    /// How metrics are sent. Empty: by OTEL_EXPORTER_OTLP_PROTOCOL.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", default_value = "", value_parser = maybe_protocol)]
    pub otel_exporter_otlp_metrics_protocol: Choice,
    /// Headers for the collector: key=value,key=value, with what is special in a value percent-encoded.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_HEADERS", default_value = "", value_parser = go_values::secret,
          hide_env_values = true)]
    pub otel_exporter_otlp_headers: Secret,
    /// Headers for the collector of traces.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_HEADERS", default_value = "", value_parser = go_values::secret,
          hide_env_values = true)]
    pub otel_exporter_otlp_traces_headers: Secret,
    /// Headers for the collector of metrics.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_METRICS_HEADERS", default_value = "", value_parser = go_values::secret,
          hide_env_values = true)]
    pub otel_exporter_otlp_metrics_headers: Secret,
    /// File with the authorities that may vouch for the collector, PEM. Empty: the system's.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_CERTIFICATE", default_value = "")]
    pub otel_exporter_otlp_certificate: String,
    /// The same for the collector of traces.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
        default_value = ""
    )]
    pub otel_exporter_otlp_traces_certificate: String,
    /// The same for the collector of metrics.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE",
        default_value = ""
    )]
    pub otel_exporter_otlp_metrics_certificate: String,
    /// File with our certificate for a collector that asks for one, PEM.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE",
        default_value = ""
    )]
    pub otel_exporter_otlp_client_certificate: String,
    /// The same for the collector of traces.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
        default_value = ""
    )]
    pub otel_exporter_otlp_traces_client_certificate: String,
    /// The same for the collector of metrics.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_METRICS_CLIENT_CERTIFICATE",
        default_value = ""
    )]
    pub otel_exporter_otlp_metrics_client_certificate: String,
    /// File with the key of our certificate, PEM.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_CLIENT_KEY", default_value = "")]
    pub otel_exporter_otlp_client_key: String,
    /// The same for the collector of traces.
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", default_value = "")]
    pub otel_exporter_otlp_traces_client_key: String,
    /// The same for the collector of metrics.
    #[arg(
        long,
        env = "OTEL_EXPORTER_OTLP_METRICS_CLIENT_KEY",
        default_value = ""
    )]
    pub otel_exporter_otlp_metrics_client_key: String,
}

/// How OTLP is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// OTLP over HTTP.
    Http,
    /// OTLP over gRPC.
    Grpc,
}

/// A protocol, or none in particular.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice(Option<Protocol>);

/// Where metrics are sent, beside the port that Prometheus reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exporters {
    /// To a collector.
    pub otlp: bool,
}

/// Time between two exports, 100 ms to a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval(pub Duration);

impl Args {
    /// What would keep us from sending what is asked for: files and headers, not connections.
    pub fn check(&self, traces: &traces::Args) -> Vec<NotStarted> {
        let protocol = traces.tracing_exporter_protocol;
        let asked = [
            traces.tracing_enabled.then(|| self.of_traces(protocol)),
            self.otel_metrics_exporter
                .otlp
                .then(|| self.of_metrics(protocol)),
        ];
        let collectors = asked.iter().flatten();
        collectors
            .filter_map(|collector| collector.check().err())
            .collect()
    }

    /// The collector of traces; `protocol` where no setting of OpenTelemetry's says.
    pub(in crate::telemetry) fn of_traces(&self, protocol: Protocol) -> Collector {
        let own = &self.otel_exporter_otlp_traces_protocol;
        self.collector(
            Signal::Traces,
            own.0.unwrap_or(protocol),
            &self.otel_exporter_otlp_traces_endpoint,
            &self.otel_exporter_otlp_traces_headers,
            [
                &self.otel_exporter_otlp_traces_certificate,
                &self.otel_exporter_otlp_traces_client_certificate,
                &self.otel_exporter_otlp_traces_client_key,
            ],
        )
    }

    /// The collector of metrics; `protocol` where no setting of OpenTelemetry's says.
    pub(in crate::telemetry) fn of_metrics(&self, protocol: Protocol) -> Collector {
        let own = &self.otel_exporter_otlp_metrics_protocol;
        let chosen = own.0.or(self.otel_exporter_otlp_protocol.0);
        self.collector(
            Signal::Metrics,
            chosen.unwrap_or(protocol),
            &self.otel_exporter_otlp_metrics_endpoint,
            &self.otel_exporter_otlp_metrics_headers,
            [
                &self.otel_exporter_otlp_metrics_certificate,
                &self.otel_exporter_otlp_metrics_client_certificate,
                &self.otel_exporter_otlp_metrics_client_key,
            ],
        )
    }

    fn collector(
        &self,
        signal: Signal,
        protocol: Protocol,
        endpoint: &str,
        headers: &Secret,
        [ca, certificate, key]: [&str; 3],
    ) -> Collector {
        let either = |own: &str, general: &str| {
            let mut files = [own, general].into_iter();
            files.find(|file| !file.is_empty()).map(PathBuf::from)
        };
        let headers = if headers.is_empty() {
            &self.otel_exporter_otlp_headers
        } else {
            headers
        };
        let certificate = either(certificate, &self.otel_exporter_otlp_client_certificate);
        let key = either(key, &self.otel_exporter_otlp_client_key);
        Collector::new(
            signal,
            protocol,
            endpoint,
            &self.otel_exporter_otlp_endpoint,
            headers.expose(),
            Tls {
                ca: either(ca, &self.otel_exporter_otlp_certificate),
                identity: Identity::new(certificate, key),
            },
        )
    }
}

fn endpoint(text: &str) -> Result<String, Malformed> {
    // Up to the first slash, whatever else stands there: passwords are not always written as an address wants them.
    let place = text.split_once("://").map_or(text, |(_, place)| place);
    if place
        .split('/')
        .next()
        .is_some_and(|place| place.contains('@'))
    {
        return Err(Malformed::new(
            "a user or password before an @ is not sent: OTEL_EXPORTER_OTLP_HEADERS takes an authorization header",
        ));
    }
    let url = text.parse::<http::Uri>().ok().filter(|url| {
        let scheme = url.scheme_str().map(str::to_ascii_lowercase);
        matches!(scheme.as_deref(), Some("http" | "https"))
    });
    if text.is_empty() || url.is_some() {
        Ok(text.to_owned())
    } else {
        Err(Malformed::new(
            "expected a URL such as http://collector:4318",
        ))
    }
}

/// Reads a protocol by its name.
pub(in crate::telemetry) fn protocol(text: &str) -> Result<Protocol, Malformed> {
    match text.to_ascii_lowercase().as_str() {
        "http" | "http/protobuf" => Ok(Protocol::Http),
        "grpc" => Ok(Protocol::Grpc),
        _ => Err(Malformed::new("expected http or grpc")),
    }
}

fn maybe_protocol(text: &str) -> Result<Choice, Malformed> {
    if text.is_empty() {
        return Ok(Choice(None));
    }
    protocol(text)
        .map(|protocol| Choice(Some(protocol)))
        .map_err(|_| Malformed::new("expected http/protobuf or grpc"))
}

fn exporters(text: &str) -> Result<Exporters, Malformed> {
    let mut otlp = false;
    for name in text.split(',').map(str::trim) {
        match name {
            "otlp" => otlp = true,
            "none" | "prometheus" | "" => {}
            _ => return Err(Malformed::new("expected none, otlp or prometheus")),
        }
    }
    Ok(Exporters { otlp })
}

fn interval(text: &str) -> Result<Interval, Malformed> {
    text.parse()
        .ok()
        .filter(|millis| (100..=86_400_000).contains(millis))
        .map(|millis| Interval(Duration::from_millis(millis)))
        .ok_or_else(|| Malformed::new("expected milliseconds, from 100 to a day's"))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &[&str]) -> Args {
        Command::parse_from(["palang"].iter().chain(words)).args
    }

    #[test]
    fn a_setting_of_the_signal_goes_before_the_general_one() {
        let args = args(&[
            "--otel-exporter-otlp-endpoint=https://general:4318/base/",
            "--otel-exporter-otlp-metrics-endpoint=http://own/path",
            "--otel-exporter-otlp-headers=a=1",
            "--otel-exporter-otlp-traces-headers=b=2%20c,no",
            "--otel-exporter-otlp-metrics-protocol=http/protobuf",
            "--otel-exporter-otlp-protocol=grpc",
        ]);
        let traces = args.of_traces(Protocol::Http);
        assert_eq!(traces.endpoint(), "https://general:4318/base/v1/traces");
        assert_eq!(traces.headers(), [("b".to_owned(), "2 c".to_owned())]);
        let metrics = args.of_metrics(Protocol::Grpc);
        assert_eq!(metrics.endpoint(), "http://own/path");
        assert_eq!(metrics.headers(), [("a".to_owned(), "1".to_owned())]);
        assert_eq!(metrics.protocol(), Protocol::Http);
    }

    #[test]
    fn a_query_stays_at_the_end_and_out_of_sight() {
        let args = args(&["--otel-exporter-otlp-endpoint=https://h:4318/base/?key=hunter2"]);
        let metrics = args.of_metrics(Protocol::Http);
        assert_eq!(
            metrics.endpoint(),
            "https://h:4318/base/v1/metrics?key=hunter2"
        );
        assert_eq!(metrics.shown(), "https://h:4318/base/v1/metrics");
        let grpc = args.of_traces(Protocol::Grpc);
        assert_eq!(grpc.endpoint(), "https://h:4318/base/?key=hunter2");
        for shown in [format!("{metrics:?}"), format!("{grpc:?}")] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
    }

    #[test]
    fn without_settings_the_collector_is_on_this_machine() {
        let args = args(&[]);
        assert!(!args.otel_metrics_exporter.otlp);
        for (protocol, traces, metrics) in [
            (
                Protocol::Http,
                "http://localhost:4318/v1/traces",
                "http://localhost:4318/v1/metrics",
            ),
            (
                Protocol::Grpc,
                "http://localhost:4317",
                "http://localhost:4317",
            ),
        ] {
            assert_eq!(args.of_traces(protocol).endpoint(), traces);
            assert_eq!(args.of_metrics(protocol).endpoint(), metrics);
        }
    }

    #[test]
    fn values_are_checked() {
        assert_eq!(protocol("GRPC"), Ok(Protocol::Grpc));
        assert!(protocol("zipkin").is_err() && maybe_protocol("http/json").is_err());
        assert_eq!(exporters("prometheus,otlp"), Ok(Exporters { otlp: true }));
        assert!(exporters("console").is_err());
        for url in ["", "http://h:1", "https://h/path", "HTTP://h"] {
            assert!(endpoint(url).is_ok(), "{url}");
        }
        for url in [
            "http://u:hunter2@h:1",
            "u:hunter2@h:1",
            "http://u:hunter2#@h/",
        ] {
            let refused = endpoint(url).expect_err("a password").to_string();
            assert!(refused.contains("OTEL_EXPORTER_OTLP_HEADERS"), "{refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
        }
        for url in ["h:1", "grpc://h:1", "http://", "http://a b"] {
            assert!(endpoint(url).is_err(), "{url}");
        }
        for nonsense in ["", "0", "99", "1s", "86400001"] {
            assert!(interval(nonsense).is_err(), "{nonsense}");
        }
    }
}
