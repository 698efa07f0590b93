//! Metrics at a real receiver, and collectors over TLS.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::Path,
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::KeyValue,
    metrics::v1::{AggregationTemporality, Metric, metric::Data, number_data_point::Value},
};
use palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;

use crate::{
    debug_port::request,
    support::{
        collector::{Collector, attribute},
        eventually, http,
        pki::Pki,
        process::Process,
        service::{Service, StoreKind, channel},
    },
};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: bucket
    rate_limit: {unit: hour, requests_per_unit: 4, algorithm: token_bucket}
";

async fn start(settings: &[(&str, &str)]) -> Service {
    Service::of(RULES, StoreKind::Memory, settings).await
}

async fn traffic(service: &Service) {
    for entry in [
        ("user", "7"),
        ("user", "7"),
        ("user", "7"),
        ("bucket", "b"),
        ("nothing", "n"),
    ] {
        let answer = service.should_rate_limit(request("shop", &[&[entry]]));
        answer.await.expect("decided");
    }
}

/// A series as the page writes it, with its labels in order of their names.
fn series<'l>(name: &str, labels: impl Iterator<Item = (&'l str, String)>) -> String {
    let labels: BTreeMap<&str, String> = labels.collect();
    format!("{name}{labels:?}")
}

/// What moves by itself from one look to the next.
fn is_restless(name: &str) -> bool {
    ["process_", "palang_metric_exports"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// The numbers of a page. No label in it holds what has to be escaped.
fn shown(page: &str) -> BTreeMap<String, f64> {
    page.lines()
        .filter(|line| !line.starts_with('#') && !is_restless(line))
        .filter_map(|line| line.rsplit_once(' '))
        .map(|(full, value)| {
            let (name, labels) = full.split_once('{').unwrap_or((full, ""));
            let labels = labels.trim_end_matches('}').split("\",");
            let labels = labels.filter_map(|label| {
                let (name, value) = label.split_once("=\"")?;
                let value = value.trim_end_matches('"').to_owned();
                // A bound is a number, however it is written.
                let value = match (name, value.parse::<f64>()) {
                    ("le", Ok(bound)) => bound.to_string(),
                    _ => value,
                };
                Some((name, value))
            });
            (series(name, labels), value.parse().expect("a number"))
        })
        .collect()
}

fn all(message: &ExportMetricsServiceRequest) -> impl Iterator<Item = &Metric> {
    message
        .resource_metrics
        .iter()
        .flat_map(|resource| &resource.scope_metrics)
        .flat_map(|scope| &scope.metrics)
}

fn labels(attributes: &[KeyValue]) -> impl Iterator<Item = (&str, String)> {
    attributes.iter().map(|label| {
        let value = attribute(attributes, &label.key).expect("it is there");
        (label.key.as_str(), value)
    })
}

/// The numbers of a message.
fn told(message: &ExportMetricsServiceRequest) -> BTreeMap<String, f64> {
    let mut found = BTreeMap::new();
    for metric in all(message).filter(|metric| !is_restless(&metric.name)) {
        let name = &metric.name;
        let numbers = match metric.data.as_ref().expect("data") {
            Data::Sum(sum) => &sum.data_points,
            Data::Gauge(gauge) => &gauge.data_points,
            Data::Histogram(histogram) => {
                for point in &histogram.data_points {
                    let of = |name: &str| series(name, labels(&point.attributes));
                    found.insert(of(&format!("{name}_count")), point.count as f64);
                    found.insert(of(&format!("{name}_sum")), point.sum.expect("a sum"));
                    let bounds = point.explicit_bounds.iter().chain([&f64::INFINITY]);
                    let mut below = 0;
                    for (bound, count) in bounds.zip(&point.bucket_counts) {
                        below += count;
                        let bound = [("le", bound.to_string())].into_iter();
                        let labels = labels(&point.attributes).chain(bound);
                        found.insert(series(&format!("{name}_bucket"), labels), below as f64);
                    }
                }
                continue;
            }
            other => panic!("{name}: {other:?}"),
        };
        for point in numbers {
            let value = match point.value.expect("a value") {
                Value::AsInt(whole) => whole as f64,
                Value::AsDouble(number) => number,
            };
            found.insert(series(name, labels(&point.attributes)), value);
        }
    }
    found
}

#[tokio::test]
async fn a_collector_gets_what_the_page_shows() {
    for protocol in ["grpc", "http/protobuf"] {
        let (collector, address) = match protocol {
            "grpc" => Collector::grpc().await,
            _ => Collector::http().await,
        };
        let service = start(&[
            ("OTEL_METRICS_EXPORTER", "otlp"),
            ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &format!("http://{address}")),
            ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=left%20out"),
            (
                "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
                "api-key=a%20b,other=1",
            ),
            ("TRACING_SERVICE_NAME", "limits"),
            ("TRACING_SERVICE_NAMESPACE", "edge"),
            ("TRACING_SERVICE_INSTANCE_ID", "one"),
        ])
        .await;
        traffic(&service).await;
        let message = eventually("the collector and the page say the same", async || {
            let page = service.metrics().await;
            let message = collector.metrics().pop()?;
            (told(&message) == shown(&page)).then_some(message)
        })
        .await;

        let page = service.metrics().await;
        let types: BTreeMap<&str, &str> = page
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
            .collect();
        let names: BTreeSet<&str> = all(&message).map(|metric| metric.name.as_str()).collect();
        assert_eq!(names, types.keys().copied().collect());
        let cumulative = AggregationTemporality::Cumulative as i32;
        for metric in all(&message) {
            let name = metric.name.as_str();
            match (types[name], metric.data.as_ref().expect("data")) {
                ("counter" | "untyped", Data::Sum(sum)) => {
                    assert!(sum.is_monotonic && sum.aggregation_temporality == cumulative);
                    let points = &sum.data_points;
                    assert!(points.iter().all(|point| {
                        point.start_time_unix_nano > 0
                            && point.start_time_unix_nano < point.time_unix_nano
                    }));
                }
                ("gauge", Data::Gauge(_)) => {}
                ("histogram", Data::Histogram(histogram)) => {
                    assert_eq!(histogram.aggregation_temporality, cumulative);
                }
                (kind, data) => panic!("{name}, a {kind}: {data:?}"),
            }
            let help = page
                .lines()
                .find_map(|line| line.strip_prefix(&format!("# HELP {name} ")));
            let help = help.unwrap_or_else(|| panic!("{name} has no help"));
            assert_eq!(metric.description, help.trim_end_matches('.'));
            assert_eq!(metric.unit == "s", name.ends_with("_seconds"), "{name}");
        }
        let resource = message.resource_metrics[0].resource.clone();
        let attributes = resource.expect("a resource").attributes;
        for (name, value) in [
            ("service.name", "limits"),
            ("service.namespace", "edge"),
            ("service.instance.id", "one"),
        ] {
            assert_eq!(attribute(&attributes, name).as_deref(), Some(value));
        }
        let headers = collector.headers().pop().expect("headers");
        assert_eq!(headers["api-key"], "a b");
        assert_eq!(headers["other"], "1");
        let metrics = service.metrics().await;
        assert!(metrics.contains("palang_metric_exports_total{result=\"failed\"} 0"));
    }
}

#[tokio::test]
async fn the_last_metrics_are_sent_at_the_end_and_none_unless_asked() {
    let (collector, address) = Collector::http().await;
    let endpoint = format!("http://{address}/v1/metrics");
    let never = [
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", &*endpoint),
        ("OTEL_METRIC_EXPORT_INTERVAL", "86400000"),
    ];
    let service = start(&never).await;
    traffic(&service).await;
    service.stop().await;
    assert_eq!(collector.metrics().len(), 0, "nobody asked for them");

    let asked = [never[0], never[1], ("OTEL_METRICS_EXPORTER", "otlp")];
    let service = start(&asked).await;
    traffic(&service).await;
    service.stop().await;
    let messages = collector.metrics();
    assert_eq!(messages.len(), 1);
    let refused = series(
        "palang_rate_limit_exceeded_total",
        [("domain", "shop".into()), ("rule", "shop.user".into())].into_iter(),
    );
    assert_eq!(told(&messages[0])[&refused], 1.0);
}

#[tokio::test]
async fn a_dead_collector_of_metrics_costs_one_line_and_no_call() {
    let rules = tempfile::tempdir().expect("a directory for the rules");
    std::fs::write(rules.path().join("shop.yaml"), RULES).expect("the rules are written");
    let path = rules.path().display().to_string();
    for protocol in ["grpc", "http/protobuf"] {
        let env = [
            ("PALANG_RULES", &*path),
            ("OTEL_METRICS_EXPORTER", "otlp"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_METRIC_EXPORT_INTERVAL", "100"),
            // Nobody listens there.
            (
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                "http://127.0.0.1:1/?key=hunter2",
            ),
            ("LOG_LEVEL", "debug"),
        ];
        let mut process = Process::start(&["serve"], &env);
        let client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
        eventually("exports are given up", async || {
            let mut client = client.clone();
            let asked = client.should_rate_limit(request("shop", &[&[("user", "7")]]));
            asked.await.expect("decided");
            let failed = process.metric("palang_metric_exports_total{result=\"failed\"}");
            (failed.await >= 5).then_some(())
        })
        .await;
        let mut complaints = process.records();
        complaints.retain(|record| record["level"] != "info" && record["level"] != "debug");
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        let collector = complaints[0]["collector"].as_str().expect("the address");
        assert!(collector.starts_with("http://127.0.0.1:1/"), "{collector}");
        assert!(!process.log().join("\n").contains("hunter2"));
        process.signal("TERM");
        assert!(process.wait(Duration::from_secs(10)).await.success());
    }
}

fn secure(protocol: &'static str, address: SocketAddr, ca: &Path) -> Vec<(&'static str, String)> {
    vec![
        ("TRACING_ENABLED", "true".to_owned()),
        ("TRACING_EXPORTER_PROTOCOL", protocol.to_owned()),
        ("OTEL_METRICS_EXPORTER", "otlp".to_owned()),
        ("OTEL_METRIC_EXPORT_INTERVAL", "100".to_owned()),
        (
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            format!("https://localhost:{}", address.port()),
        ),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", ca.display().to_string()),
    ]
}

async fn start_secure(settings: &[(&'static str, String)]) -> Service {
    let settings: Vec<(&str, &str)> = settings
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    start(&settings).await
}

#[tokio::test]
async fn collectors_are_reached_over_tls() {
    let pki = Pki::new();
    for protocol in ["grpc", "http"] {
        let (collector, address) = match protocol {
            "grpc" => Collector::grpc_over_tls(&pki).await,
            _ => Collector::http_over_tls(&pki).await,
        };
        let mut settings = secure(protocol, address, &pki.file("ca.crt"));
        for (name, file) in [
            ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "tls.crt"),
            ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "tls.key"),
        ] {
            settings.push((name, pki.file(file).display().to_string()));
        }
        let service = start_secure(&settings).await;
        traffic(&service).await;
        eventually("spans and metrics", async || {
            (!collector.spans().is_empty() && !collector.metrics().is_empty()).then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_collector_nobody_vouches_for_and_one_that_wants_our_name_get_nothing() {
    let (pki, others) = (Pki::new(), Pki::new());
    let own = pki.file("ca.crt");
    for protocol in ["grpc", "http"] {
        let (collector, address) = match protocol {
            "grpc" => Collector::grpc_over_tls(&pki).await,
            _ => Collector::http_over_tls(&pki).await,
        };
        for ca in [others.file("ca.crt"), own.clone()] {
            let service = start_secure(&secure(protocol, address, &ca)).await;
            traffic(&service).await;
            eventually("failures", async || {
                let page = service.metrics().await;
                let failed = |series: &str| {
                    let line = page.lines().find_map(|line| line.strip_prefix(series));
                    line.and_then(|value| value.trim().parse::<u64>().ok()) > Some(0)
                };
                (failed("palang_metric_exports_total{result=\"failed\"}")
                    && failed("palang_spans_total{result=\"failed\"}"))
                .then_some(())
            })
            .await;
        }
        assert!(collector.spans().is_empty() && collector.metrics().is_empty());
    }
}

#[tokio::test]
async fn a_file_that_is_no_certificate_is_named_at_the_start() {
    let rules = tempfile::tempdir().expect("a directory for the rules");
    let nonsense = rules.path().join("ca.pem");
    std::fs::write(&nonsense, "nonsense").expect("written");
    let path = nonsense.display().to_string();
    let env = [
        ("OTEL_METRICS_EXPORTER", "otlp"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://localhost:4318"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", &*path),
    ];
    let mut process = Process::start(&["serve"], &env);
    let status = process.wait(Duration::from_secs(10)).await;
    assert_eq!(status.code(), Some(64));
    eventually("the file is named, and its setting", async || {
        let log = process.log().join("\n");
        (log.contains(&path) && log.contains("OTEL_EXPORTER_OTLP_CERTIFICATE")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn every_line_of_the_page_belongs_to_a_metric() {
    let service = start(&[]).await;
    traffic(&service).await;
    let page = http::get(service.metrics_address(), "/metrics", &[])
        .await
        .expect("the metrics port answers")
        .body;
    let mut last = "";
    for line in page.lines() {
        match line.strip_prefix("# TYPE ") {
            Some(text) => last = text.split(' ').next().unwrap_or_default(),
            None if line.starts_with('#') => {}
            None => assert!(line.starts_with(last), "{line} under {last}"),
        }
    }
}
