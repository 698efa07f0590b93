//! The real Envoy in front of a backend: what its clients see.

use serde_json::{Value, json};

use crate::support::{
    envoy::{Envoy, FailureMode},
    http,
    service::Service,
};

const RULES: &str = "
domain: edge
descriptors:
  - key: user
    value: vip
    rate_limit: {unit: hour, requests_per_unit: 5, name: vip}
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 2, name: per-user}
  - key: cost
    value: big
    rate_limit: {unit: hour, requests_per_unit: 10}
  - key: plan
    value: gold
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: bucket
    rate_limit: {unit: hour, requests_per_unit: 60, algorithm: token_bucket, burst: 2}
";

/// 2023-11-15T00:00:00Z: the start of a minute, an hour and a day.
const MIDNIGHT: u64 = 1_700_006_400;

#[tokio::test(flavor = "multi_thread")]
async fn envoy_lets_pass_then_refuses_with_the_right_headers() {
    let (service, envoy) = start(FailureMode::Deny).await;
    for remaining in ["1", "0"] {
        let answer = envoy.get("/header", &[("x-user", "ann")]).await;
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.header("x-ratelimit-limit"),
            Some("2, 2;w=3600;name=\"per-user\"")
        );
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(remaining));
        assert_eq!(answer.header("x-ratelimit-reset"), Some("3600"));
        assert_eq!(answer.header("retry-after"), None);
    }
    service.advance_seconds(600);
    let answer = envoy.get("/header", &[("x-user", "ann")]).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(answer.header("x-ratelimit-reset"), Some("3000"));
    assert_eq!(answer.header("retry-after"), Some("3000"));

    // Each value of the header has a counter of its own, and a named value its own limit.
    assert_eq!(envoy.get("/header", &[("x-user", "bob")]).await.status, 200);
    for _ in 0..5 {
        assert_eq!(envoy.get("/header", &[("x-user", "vip")]).await.status, 200);
    }
    assert_eq!(envoy.get("/header", &[("x-user", "vip")]).await.status, 429);
    // Without the header Envoy sends no descriptor.
    assert_eq!(envoy.get("/header", &[]).await.status, 200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_brings_its_own_hits_and_its_own_limit() {
    let (service, envoy) = start(FailureMode::Deny).await;
    for (status, remaining) in [(200, "6"), (200, "2"), (429, "0")] {
        let answer = envoy.get("/cost", &[]).await;
        assert_eq!(answer.status, status);
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(remaining));
    }
    // The rule says 1 an hour, the route 2.
    for status in [200, 200, 429] {
        let answer = envoy.get("/override", &[]).await;
        assert_eq!(answer.status, status);
        assert_eq!(
            answer.header("x-ratelimit-limit"),
            Some("2, 2;w=3600"),
            "the limit is the one the route brought"
        );
    }
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shadow_rule_refuses_nothing_and_is_counted() {
    let (service, envoy) = start(FailureMode::Deny).await;
    for _ in 0..4 {
        assert_eq!(
            envoy.get("/watched", &[("x-user", "ann")]).await.status,
            200
        );
    }
    let stats = service.stats().await;
    assert_eq!(
        stats.get("ratelimit.service.rate_limit.edge.watched.shadow_mode"),
        Some(&3)
    );
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_bucket_tells_envoy_when_the_next_token_comes() {
    let (service, envoy) = start(FailureMode::Deny).await;
    for _ in 0..2 {
        assert_eq!(envoy.get("/bucket", &[("x-user", "ann")]).await.status, 200);
    }
    service.advance_seconds(20);
    let answer = envoy.get("/bucket", &[("x-user", "ann")]).await;
    assert_eq!(answer.status, 429);
    assert_eq!(answer.header("retry-after"), Some("40"));
    service.advance_seconds(39);
    assert_eq!(envoy.get("/bucket", &[("x-user", "ann")]).await.status, 429);
    service.advance_seconds(1);
    assert_eq!(envoy.get("/bucket", &[("x-user", "ann")]).await.status, 200);
    service.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_service_envoys_failure_mode_decides() {
    for (mode, status) in [(FailureMode::Allow, 200), (FailureMode::Deny, 500)] {
        let (service, envoy) = start(mode).await;
        assert_eq!(envoy.get("/header", &[("x-user", "ann")]).await.status, 200);
        service.stop().await;
        for _ in 0..3 {
            assert_eq!(
                envoy.get("/header", &[("x-user", "ann")]).await.status,
                status,
                "{mode:?}"
            );
        }
    }
}

async fn start(failure_mode: FailureMode) -> (Service, Envoy) {
    let service = Service::builder()
        .rules(&[("rules.yaml".to_owned(), RULES.to_owned())])
        .clock_at(MIDNIGHT)
        .start()
        .await;
    let backend = http::backend().await;
    let envoy = Envoy::start(service.grpc(), backend, failure_mode, routes()).await;
    (service, envoy)
}

fn routes() -> Value {
    let user = |path: &str, key: &str| {
        json!({
            "match": {"path": path},
            "route": {"cluster": "backend", "rate_limits": [{"actions": [
                {"request_headers": {"header_name": "x-user", "descriptor_key": key}}
            ]}]}
        })
    };
    json!([
        user("/header", "user"),
        user("/watched", "watched"),
        user("/bucket", "bucket"),
        per_route(
            "/cost",
            json!({
                "actions": [generic("cost", "big")],
                "hits_addend": {"number": 4}
            })
        ),
        per_route(
            "/override",
            json!({
                "actions": [generic("plan", "gold")],
                "limit": {"rate_limit": {"requests_per_unit": 2, "unit": "HOUR"}}
            })
        ),
    ])
}

fn generic(key: &str, value: &str) -> Value {
    json!({"generic_key": {"descriptor_key": key, "descriptor_value": value}})
}

/// Envoy honours hits and limits of a route only in its `typed_per_filter_config`.
fn per_route(path: &str, rate_limit: Value) -> Value {
    json!({
        "match": {"path": path},
        "route": {"cluster": "backend"},
        "typed_per_filter_config": {
            "envoy.filters.http.ratelimit": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute",
                "rate_limits": [rate_limit]
            }
        }
    })
}
