//! Traces, at a real receiver: what is followed, what is told, and what a collector that is gone costs.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tonic::{Request, metadata::MetadataValue};

use crate::{
    debug_port::request,
    support::{
        collector::{Collector, attribute},
        eventually, http,
        process::Process,
        service::{Service, channel},
    },
};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1}
";

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const SPAN: &str = "00f067aa0ba902b7";

async fn start(collector: SocketAddr, settings: &[(&str, &str)]) -> Service {
    let endpoint = format!("http://{collector}");
    let settings: BTreeMap<String, String> = [
        ("TRACING_ENABLED", "true"),
        ("TRACING_SERVICE_NAME", "limits"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
    ]
    .iter()
    .chain(settings)
    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
    .collect();
    Service::builder()
        .rules(&[("shop.yaml".to_owned(), RULES.to_owned())])
        .settings(&settings)
        .start()
        .await
}

async fn call(service: &Service, headers: &[(&'static str, &str)]) {
    let mut client = RateLimitServiceClient::new(channel(service.grpc()).await);
    let mut call = Request::new(request("shop", &[&[("user", "7")]]));
    for (name, value) in headers {
        let value = MetadataValue::try_from(*value).expect("ASCII");
        call.metadata_mut().insert(*name, value);
    }
    client.should_rate_limit(call).await.expect("decided");
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn told(span: &Span, name: &str) -> Option<String> {
    attribute(&span.attributes, name)
}

#[tokio::test]
async fn a_call_and_its_store_are_told_of_over_both_protocols() {
    for protocol in ["grpc", "http"] {
        let (collector, address) = match protocol {
            "grpc" => Collector::grpc().await,
            _ => Collector::http().await,
        };
        let service = start(address, &[("TRACING_EXPORTER_PROTOCOL", protocol)]).await;
        let parent = format!("00-{TRACE}-{SPAN}-01");
        call(&service, &[("traceparent", &parent)]).await;
        call(&service, &[("b3", &format!("{TRACE}-{SPAN}-1"))]).await;
        eventually("the spans", async || {
            (collector.spans().len() == 4).then_some(())
        })
        .await;

        let spans = collector.spans();
        assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE));
        let (calls, stores): (Vec<&Span>, Vec<&Span>) = spans
            .iter()
            .partition(|span| span.kind() == SpanKind::Server);
        assert_eq!((calls.len(), stores.len()), (2, 2));
        for (span, code) in calls.iter().zip(["OK", "OVER_LIMIT"]) {
            let method = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";
            assert_eq!(span.name, method);
            assert_eq!(hex(&span.parent_span_id), SPAN);
            for (name, value) in [
                ("rpc.system.name", "grpc"),
                ("rpc.method", method),
                ("rpc.response.status_code", "OK"),
                ("palang.domain", "shop"),
                ("palang.code", code),
                ("palang.rule", "shop.user"),
            ] {
                assert_eq!(told(span, name).as_deref(), Some(value), "{name}");
            }
            assert!(
                !format!("{span:?}").contains("\"7\""),
                "no text of requests in spans"
            );
            let inner: Vec<_> = stores
                .iter()
                .filter(|store| store.parent_span_id == span.span_id)
                .collect();
            assert_eq!(inner.len(), 1);
            assert_eq!(inner[0].kind(), SpanKind::Client);
            assert!(span.start_time_unix_nano <= inner[0].start_time_unix_nano);
            assert!(span.end_time_unix_nano >= inner[0].end_time_unix_nano);
        }
        assert_eq!(
            collector.resource("service.name").as_deref(),
            Some("limits")
        );
        assert!(collector.resource("service.instance.id").is_some());
        let metrics = service.metrics().await;
        assert!(
            metrics.contains("palang_spans_total{result=\"exported\"} 4"),
            "{metrics}"
        );
    }
}

#[tokio::test]
async fn the_parent_decides_what_is_followed_and_else_the_rate() {
    let (collector, address) = Collector::grpc().await;
    let settings = [
        ("TRACING_EXPORTER_PROTOCOL", "grpc"),
        ("TRACING_SAMPLING_RATE", "0"),
    ];
    let service = start(address, &settings).await;
    call(&service, &[]).await;
    call(
        &service,
        &[("traceparent", &format!("00-{TRACE}-{SPAN}-00"))],
    )
    .await;
    call(&service, &[("b3", "0")]).await;
    call(
        &service,
        &[
            ("x-b3-traceid", TRACE),
            ("x-b3-spanid", SPAN),
            ("x-b3-sampled", "1"),
        ],
    )
    .await;
    // The end sends what waits.
    service.stop().await;
    assert_eq!(collector.spans().len(), 2);
}

#[tokio::test]
async fn a_refused_call_can_be_followed_from_the_metric() {
    let (_collector, address) = Collector::grpc().await;
    let service = start(address, &[("TRACING_EXPORTER_PROTOCOL", "grpc")]).await;
    for _ in 0..2 {
        call(
            &service,
            &[("traceparent", &format!("00-{TRACE}-{SPAN}-01"))],
        )
        .await;
    }
    let plain = service.metrics().await;
    assert!(
        !plain.contains(TRACE),
        "the plain format has no room for it"
    );
    let accept = [("accept", "application/openmetrics-text; version=1.0.0")];
    let answer = http::get(service.metrics_address(), "/metrics", &accept)
        .await
        .expect("the metrics port answers");
    let kind = answer.header("content-type").unwrap_or_default();
    assert!(
        kind.starts_with("application/openmetrics-text; version=1.0.0"),
        "{kind}"
    );
    let line = format!(
        "palang_rate_limit_exceeded_total{{domain=\"shop\",rule=\"shop.user\"}} 1 # {{trace_id=\"{TRACE}\"}} "
    );
    assert!(answer.body.contains(&line), "{}", answer.body);
    assert!(answer.body.ends_with("# EOF\n"));
    assert!(!answer.body.contains("within_limit counter"));
}

#[tokio::test]
async fn a_dead_collector_costs_one_line_and_no_call() {
    let rules = tempfile::tempdir().expect("a directory for the rules");
    std::fs::write(rules.path().join("shop.yaml"), RULES).expect("the rules are written");
    let path = rules.path().display().to_string();
    for protocol in ["grpc", "http"] {
        let env = [
            ("PALANG_RULES", &*path),
            ("TRACING_ENABLED", "true"),
            ("TRACING_EXPORTER_PROTOCOL", protocol),
            // Nobody listens there.
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
        ];
        let mut process = Process::start(&["serve"], &env);
        let grpc = process.address("grpc").await;
        let metrics = process.address("metrics").await;
        let mut client = RateLimitServiceClient::new(channel(grpc).await);
        let lost = async || {
            let answer = http::get(metrics, "/metrics", &[]).await.ok()?.body;
            let line = answer
                .lines()
                .find_map(|line| line.strip_prefix("palang_spans_total{result=\"failed\"} "));
            line?.parse::<u64>().ok()
        };
        for round in 1..=3 {
            for _ in 0..100 {
                let asked = client.should_rate_limit(request("shop", &[&[("user", "7")]]));
                asked.await.expect("decided");
            }
            eventually("the spans are given up", async || {
                (lost().await? >= round * 200).then_some(())
            })
            .await;
        }
        let complaints = || {
            let mut records = process.records();
            records.retain(|record| record["level"] != "info");
            records
        };
        assert_eq!(complaints().len(), 1, "{:?}", complaints());
        process.signal("TERM");
        assert!(process.wait(Duration::from_secs(10)).await.success());
    }
}
