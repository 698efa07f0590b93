//! Traces, at a real receiver: what is followed, what is told, and what a collector that is gone costs.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind};
use palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tonic::{Request, metadata::MetadataValue};

use crate::{
    debug_port::request,
    support::{
        collector::{Collector, attribute},
        eventually, http,
        process::Process,
        prometheus::Prometheus,
        redis::RedisServer,
        service::{Service, StoreKind, channel},
    },
};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: many
    rate_limit: {unit: hour, requests_per_unit: 100000}
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
            assert_eq!(inner[0].kind(), SpanKind::Internal);
            assert!(span.start_time_unix_nano <= inner[0].start_time_unix_nano);
            assert!(span.end_time_unix_nano >= inner[0].end_time_unix_nano);
        }
        let resource = collector.resource().expect("a resource").attributes;
        assert_eq!(
            attribute(&resource, "service.name").as_deref(),
            Some("limits")
        );
        assert!(attribute(&resource, "service.instance.id").is_some());
        eventually("the count of spans", async || {
            let metrics = service.metrics().await;
            metrics
                .contains("palang_spans_total{result=\"exported\"} 4")
                .then_some(())
        })
        .await;
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
    let spans = collector.spans();
    assert_eq!(spans.len(), 2);
    assert!(spans.iter().all(|span| hex(&span.trace_id) == TRACE));
    assert!(spans.iter().any(|span| hex(&span.parent_span_id) == SPAN));
}

#[tokio::test]
async fn a_share_of_the_calls_that_say_nothing_is_followed() {
    const CALLS: usize = 400;
    let (collector, address) = Collector::grpc().await;
    let settings = [
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"),
        ("TRACING_SAMPLING_RATE", "0.25"),
    ];
    let service = start(address, &settings).await;
    for _ in 0..CALLS {
        let asked = service.should_rate_limit(request("shop", &[&[("many", "7")]]));
        asked.await.expect("decided");
    }
    service.stop().await;
    let traces: BTreeSet<_> = collector
        .spans()
        .into_iter()
        .map(|span| span.trace_id)
        .collect();
    // A hundred are expected; the bounds are seven standard deviations away.
    assert!((40..=160).contains(&traces.len()), "{}", traces.len());
}

#[tokio::test]
async fn who_sends_is_told_as_the_settings_and_the_environment_say() {
    let (collector, address) = Collector::http().await;
    let endpoint = format!("http://{address}/v1/traces");
    let rules = tempfile::tempdir().expect("a directory for the rules");
    std::fs::write(rules.path().join("shop.yaml"), RULES).expect("the rules are written");
    let path = rules.path().display().to_string();
    let env = [
        ("PALANG_RULES", &*path),
        ("TRACING_ENABLED", "true"),
        ("TRACING_SERVICE_NAME", "limits"),
        ("TRACING_SERVICE_NAMESPACE", "edge"),
        ("TRACING_SERVICE_INSTANCE_ID", "one"),
        (
            "OTEL_RESOURCE_ATTRIBUTES",
            "deployment.environment.name=test",
        ),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", &*endpoint),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "api-key=a%20b"),
    ];
    let process = Process::start(&["serve"], &env);
    let mut client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
    let asked = client.should_rate_limit(request("shop", &[&[("user", "7")]]));
    asked.await.expect("decided");
    let resource = eventually("a trace", async || collector.resource()).await;
    for (name, value) in [
        ("service.name", "limits"),
        ("service.namespace", "edge"),
        ("service.instance.id", "one"),
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("deployment.environment.name", "test"),
    ] {
        assert_eq!(
            attribute(&resource.attributes, name).as_deref(),
            Some(value),
            "{name}"
        );
    }
    let headers = collector.headers().pop().expect("headers");
    assert_eq!(headers["api-key"], "a b");
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

#[tokio::test]
async fn a_round_trip_is_told_once_and_links_to_all_it_carried() {
    const CALLS: usize = 200;
    let redis = RedisServer::start();
    let (collector, address) = Collector::grpc().await;
    let endpoint = format!("http://{address}");
    let settings = [
        ("TRACING_ENABLED", "true"),
        ("TRACING_EXPORTER_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
    ];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let service = Service::builder()
        .rules(&[("shop.yaml".to_owned(), RULES.to_owned())])
        .store(StoreKind::Redis {
            socket: redis.url(),
            prefix: "p:".to_owned(),
        })
        .settings(&settings.into())
        .start()
        .await;
    let client = RateLimitServiceClient::new(channel(service.grpc()).await);
    let calls: Vec<_> = (0..CALLS)
        .map(|_| {
            let mut client = client.clone();
            tokio::spawn(async move {
                let asked = client.should_rate_limit(request("shop", &[&[("many", "7")]]));
                asked.await.expect("decided");
            })
        })
        .collect();
    for call in calls {
        call.await.expect("no panic");
    }
    service.stop().await;
    let spans = collector.spans();
    let named =
        |name: &str| -> Vec<&Span> { spans.iter().filter(|span| span.name == name).collect() };
    let (waits, trips) = (named("take counters"), named("EVALSHA"));
    assert_eq!(waits.len(), CALLS);
    assert!(
        !trips.is_empty() && trips.len() < CALLS,
        "{} trips",
        trips.len()
    );
    let mut linked = BTreeSet::new();
    for trip in &trips {
        let requests = trip.links.len().to_string();
        for (name, value) in [
            ("db.system.name", "redis"),
            ("db.operation.name", "EVALSHA"),
            ("palang.requests", &requests),
        ] {
            assert_eq!(told(trip, name).as_deref(), Some(value), "{name}");
        }
        assert_eq!(trip.parent_span_id, trip.links[0].span_id);
        for link in &trip.links {
            assert!(
                linked.insert(link.span_id.clone()),
                "no call is in two round trips"
            );
        }
    }
    let ids: BTreeSet<_> = waits.iter().map(|span| span.span_id.clone()).collect();
    assert_eq!(linked, ids);
}

/// The same rule under the same name in all that an operator sees of a refusal.
#[tokio::test]
async fn a_refused_call_is_followed_from_the_metric_to_the_rule() {
    let rules = tempfile::tempdir().expect("a directory for the rules");
    std::fs::write(rules.path().join("shop.yaml"), RULES).expect("the rules are written");
    let path = rules.path().display().to_string();
    let (collector, address) = Collector::http().await;
    let endpoint = format!("http://{address}");
    let env = [
        ("PALANG_RULES", &*path),
        ("TRACING_ENABLED", "true"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", &endpoint),
        ("DENY_LOG_PER_SECOND", "10"),
    ];
    let process = Process::start(&["serve"], &env);
    let mut client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
    for _ in 0..2 {
        let asked = client.should_rate_limit(request("shop", &[&[("user", "7")]]));
        asked.await.expect("decided");
    }
    let (metrics, debug) = (
        process.address("metrics").await,
        process.address("debug").await,
    );
    let accept = [("accept", "application/openmetrics-text")];
    let shown = http::get(metrics, "/metrics", &accept)
        .await
        .expect("an answer")
        .body;
    let line = shown
        .lines()
        .find(|line| {
            line.starts_with("palang_rate_limit_exceeded_total{") && line.contains("trace_id")
        })
        .expect("a refusal with its trace");
    assert!(line.contains("rule=\"shop.user\""), "{line}");
    let id = line
        .split("trace_id=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let id = id.expect("an id");

    let span = eventually("the trace", async || {
        let mut spans = collector.spans().into_iter();
        spans.find(|span| hex(&span.trace_id) == id && span.kind() == SpanKind::Server)
    })
    .await;
    assert_eq!(told(&span, "palang.rule").as_deref(), Some("shop.user"));
    let record = eventually("the line of the log", async || {
        let mut records = process.records().into_iter();
        records.find(|record| record["trace_id"] == id)
    })
    .await;
    assert_eq!(
        (&record["rule"], &record["key"]),
        (&"shop.user".into(), &"user=7".into())
    );
    let why = http::get(debug, "/explain?domain=shop&descriptor=user=7", &[]).await;
    let why = why.expect("an answer").body;
    assert!(why.contains("  rule    shop.user at "), "{why}");
    assert!(why.contains("answer   OVER_LIMIT"), "{why}");
    let place = record["place"].as_str().expect("a place");
    assert!(why.contains(place), "{place} in {why}");
}

#[tokio::test]
async fn a_real_prometheus_reads_everything_and_keeps_the_trace() {
    let (_collector, address) = Collector::grpc().await;
    let service = start(address, &[("TRACING_EXPORTER_PROTOCOL", "grpc")]).await;
    let prometheus = Prometheus::start(service.metrics_address());
    eventually("a scrape", async || {
        let targets = prometheus.api("/api/v1/targets").await?;
        (targets["activeTargets"][0]["health"] == "up").then_some(())
    })
    .await;
    for _ in 0..2 {
        call(
            &service,
            &[("traceparent", &format!("00-{TRACE}-{SPAN}-01"))],
        )
        .await;
    }
    for (query, expected) in [
        ("sum(palang_rate_limit_exceeded_total)", "1"),
        ("palang_decision_duration_seconds_count", "2"),
        ("min(palang_configured_limit)", "1"),
        ("sum(ratelimit_service_rate_limit_over_limit)", "1"),
        ("up", "1"),
    ] {
        eventually(query, async || {
            let found = prometheus
                .api(&format!("/api/v1/query?query={query}"))
                .await?;
            (found["result"][0]["value"][1] == expected).then_some(())
        })
        .await;
    }
    for name in [
        "palang_rate_limit_exceeded_total",
        "palang_decision_duration_seconds_bucket",
        "palang_store_duration_seconds_bucket",
    ] {
        eventually("the exemplar", async || {
            let path = format!("/api/v1/query_exemplars?query={name}&start=0&end=99999999999");
            let found = prometheus.api(&path).await?;
            (found[0]["exemplars"][0]["labels"]["trace_id"] == TRACE).then_some(())
        })
        .await;
    }
}
