//! Our own metrics, the keys with most hits, and the log of refusals, on the running service.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write as _,
    process::{Command, Stdio},
};

use palang::proto::envoy::{
    extensions::common::ratelimit::v3::{
        RateLimitDescriptor,
        rate_limit_descriptor::{Entry, RateLimitOverride},
    },
    service::ratelimit::v3::{
        RateLimitRequest, rate_limit_response::Code,
        rate_limit_service_client::RateLimitServiceClient,
    },
    r#type::v3::RateLimitUnit,
};
use serde_json::{Value, json};

use crate::{
    debug_port::request,
    support::{
        eventually,
        process::Process,
        redis::RedisServer,
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
  - key: quiet
    shadow_mode: true
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: free
    rate_limit: {unlimited: true}
";

async fn start(store: StoreKind, settings: &[(&str, &str)]) -> Service {
    Service::of(RULES, store, settings).await
}

fn redis(server: &RedisServer) -> StoreKind {
    StoreKind::Redis {
        socket: server.url(),
        prefix: "p:".to_owned(),
    }
}

/// A bit of everything: allowed, refused, remembered, in shadow, unlimited, unmatched, with a limit of its own.
async fn traffic(service: &Service) {
    for entry in [
        ("user", "7"),
        ("user", "7"),
        ("user", "7"),
        ("user", "7"),
        ("bucket", "b"),
        ("quiet", "q"),
        ("quiet", "q"),
        ("free", "f"),
        ("nothing", "n"),
    ] {
        let answer = service.should_rate_limit(request("shop", &[&[entry]]));
        answer.await.expect("decided");
    }
    let brought = RateLimitDescriptor {
        limit: Some(RateLimitOverride {
            requests_per_unit: 0,
            unit: RateLimitUnit::Hour.into(),
        }),
        ..request("shop", &[&[("user", "7")]]).descriptors.remove(0)
    };
    let brought = RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: vec![brought],
        hits_addend: 0,
    };
    let answer = service.should_rate_limit(brought).await.expect("decided");
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let bad = service.should_rate_limit(request("", &[])).await;
    bad.expect_err("no domain");
    let unknown = service.should_rate_limit(request("nobody", &[&[("user", "7")]]));
    unknown.await.expect("decided");
}

/// The value of a series, as text.
fn value<'m>(metrics: &'m str, series: &str) -> Option<&'m str> {
    metrics
        .lines()
        .filter_map(|line| line.rsplit_once(' '))
        .find(|(found, _)| *found == series)
        .map(|(_, value)| value)
}

/// Each metric and its type.
fn families(metrics: &str) -> BTreeMap<String, String> {
    metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect()
}

#[tokio::test]
async fn decisions_are_counted_by_rule_code_and_who_decided() {
    let server = RedisServer::start();
    let remembered = [("LOCAL_CACHE_SIZE_IN_BYTES", "100000")];
    for store in [StoreKind::Memory, redis(&server)] {
        let service = start(store, &remembered).await;
        traffic(&service).await;
        let metrics = service.metrics().await;
        for (series, expected) in [
            (
                r#"palang_decisions_total{domain="shop",rule="shop.user",code="ok",mode="store"}"#,
                "2",
            ),
            (
                r#"palang_decisions_total{domain="shop",rule="shop.user",code="over_limit",mode="store"}"#,
                "1",
            ),
            (
                r#"palang_decisions_total{domain="shop",rule="shop.user",code="over_limit",mode="deny_cache"}"#,
                "1",
            ),
            (
                r#"palang_decisions_total{domain="shop",rule="shop.quiet",code="shadow",mode="store"}"#,
                "1",
            ),
            (
                r#"palang_decisions_total{domain="shop",rule="(request)",code="over_limit",mode="store"}"#,
                "1",
            ),
            (
                r#"palang_rate_limit_exceeded_total{domain="shop",rule="shop.user"}"#,
                "2",
            ),
            (
                r#"palang_rate_limit_exceeded_total{domain="shop",rule="shop.bucket"}"#,
                "0",
            ),
            (
                r#"palang_token_bucket_utilization_ratio_bucket{domain="shop",rule="shop.bucket",le="0.25"}"#,
                "1",
            ),
            (
                r#"palang_configured_limit{domain="shop",rule="shop.user"}"#,
                "2",
            ),
            (
                r#"palang_configured_window_seconds{domain="shop",rule="shop.user"}"#,
                "3600.0",
            ),
            ("palang_deny_cache_hits_total", "1"),
            ("palang_deny_cache_entries", "1"),
            ("palang_unmatched_descriptors_total", "1"),
            ("palang_decision_duration_seconds_count", "11"),
            (
                r#"palang_decision_duration_seconds_bucket{le="+Inf"}"#,
                "11",
            ),
            ("palang_store_duration_seconds_count", "8"),
            (r#"palang_rule_loads_total{result="ok"}"#, "1"),
            ("palang_rules_stale_files", "0"),
            ("palang_rules_generation", "1"),
        ] {
            assert_eq!(
                value(&metrics, series),
                Some(expected),
                "{series} in\n{metrics}"
            );
        }
    }
}

#[tokio::test]
async fn the_page_describes_exactly_what_is_there() {
    let server = RedisServer::start();
    let everything = [
        ("LOCAL_CACHE_SIZE_IN_BYTES", "100000"),
        ("TRACING_ENABLED", "true"),
        ("OTEL_METRICS_EXPORTER", "otlp"),
    ];
    let mut found = BTreeMap::new();
    for store in [StoreKind::Memory, redis(&server)] {
        let service = start(store, &everything).await;
        traffic(&service).await;
        found.extend(families(&service.metrics().await));
    }
    let described: BTreeMap<String, String> = include_str!("../../docs/metrics.md")
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `")?.split(" | ");
            let name = cells.next()?.split(['`', '{']).next()?;
            Some((name.to_owned(), cells.next()?.trim().to_owned()))
        })
        .collect();
    // A control plane and certificates are other tests' matter; what they show is described all the same.
    let is_elsewhere = |name: &str| {
        ["palang_xds_", "palang_tls_", "ratelimit_redis_per_second_"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    let mut described = described;
    described.retain(|name, _| found.contains_key(name) || !is_elsewhere(name));
    assert_eq!(described, found);
}

#[tokio::test]
async fn prometheus_has_nothing_to_complain_of() {
    let server = RedisServer::start();
    for store in [StoreKind::Memory, redis(&server)] {
        let service = start(store, &[("LOCAL_CACHE_SIZE_IN_BYTES", "100000")]).await;
        traffic(&service).await;
        let metrics = service.metrics().await;
        // The reference's own names are what dashboards read, and are not what promtool recommends.
        let own: String = metrics
            .lines()
            .filter(|line| {
                ![
                    "ratelimit_service_",
                    "ratelimit_localcache_",
                    "ratelimit_redis_",
                ]
                .iter()
                .any(|start| line.contains(start))
            })
            .flat_map(|line| [line, "\n"])
            .collect();
        let mut check = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("promtool is installed: scripts/tools.sh");
        let mut input = check.stdin.take().expect("stdin is piped");
        input.write_all(own.as_bytes()).expect("promtool reads");
        drop(input);
        let checked = check.wait_with_output().expect("promtool ends");
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{said}");
    }
}

#[tokio::test]
async fn text_of_requests_makes_no_series() {
    const CALLS: usize = 50_000;
    let service = start(
        StoreKind::Memory,
        &[("METRICS_MAX_SERIES", "100"), ("MEMORY_MAX_KEYS", "1000")],
    )
    .await;
    let client = RateLimitServiceClient::new(channel(service.grpc()).await);
    let ask = async |from: usize, to: usize| {
        let batches: Vec<_> = (0..20)
            .map(|lane| {
                let mut client = client.clone();
                tokio::spawn(async move {
                    for number in (from..to).filter(|number| number % 20 == lane) {
                        let value = format!("v{number}\n\"");
                        let limit = (number % 3 == 0).then(|| RateLimitOverride {
                            requests_per_unit: number as u32,
                            unit: RateLimitUnit::Minute.into(),
                        });
                        let descriptor = |key: &str| RateLimitDescriptor {
                            entries: vec![Entry {
                                key: key.to_owned(),
                                value: value.clone(),
                            }],
                            limit,
                            ..RateLimitDescriptor::default()
                        };
                        let domain = match number % 5 {
                            0 => format!("d{number}"),
                            _ => "shop".to_owned(),
                        };
                        let request = RateLimitRequest {
                            domain,
                            descriptors: vec![descriptor("user"), descriptor(&value)],
                            hits_addend: 0,
                        };
                        client.should_rate_limit(request).await.expect("decided");
                    }
                })
            })
            .collect();
        for batch in batches {
            batch.await.expect("no panic");
        }
    };
    let series = async || {
        let metrics = service.metrics().await;
        let lines: BTreeSet<String> = metrics
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()))
            .collect();
        (lines, metrics)
    };
    ask(0, CALLS / 5).await;
    let (early, _) = series().await;
    ask(CALLS / 5, CALLS).await;
    let (late, metrics) = series().await;
    let is_ranked = |series: &&String| series.starts_with("palang_top_");
    let new = late.difference(&early).filter(|series| !is_ranked(series));
    let new: Vec<_> = new.collect();
    assert!(new.is_empty(), "{new:?}");
    assert!(late.iter().filter(is_ranked).count() <= 10);
    assert!(late.len() < 1_200, "{} series", late.len());
    let number = |series: &str| -> u64 {
        let text = value(&metrics, series).unwrap_or_else(|| panic!("{series} in\n{metrics}"));
        text.parse().expect("a number")
    };
    assert!(number("palang_series_dropped_total") > 1_000);
    assert!(number("palang_memory_keys") <= 1_000);
    assert!(number("palang_memory_evictions_total") > 10_000);
    // The same for what the debug port shows.
    let top = service
        .debug("GET", "/top?most=1000000&format=json", &[])
        .await;
    let top: Value = serde_json::from_str(&top.body).expect("JSON");
    assert_eq!(
        top.as_array().map(Vec::len),
        Some(1),
        "only domains with rules"
    );
    assert!(
        top[0]["asked"]
            .as_array()
            .is_some_and(|keys| keys.len() <= 104)
    );
}

#[tokio::test]
async fn the_keys_with_most_hits_are_shown() {
    let service = start(StoreKind::Memory, &[]).await;
    for (user, calls) in [("alice\u{1b}[2J", 9), ("bob", 5), ("carol", 1)] {
        for _ in 0..calls {
            let answer = service.should_rate_limit(request("shop", &[&[("user", user)]]));
            answer.await.expect("decided");
        }
    }
    let top = service
        .debug("GET", "/top?format=json&domain=shop", &[])
        .await;
    let top: Value = serde_json::from_str(&top.body).expect("JSON");
    let row =
        |key: &str, hits: u64| json!({"key": key, "rule": "shop.user", "hits": hits, "error": 0});
    assert_eq!(
        top[0]["refused"],
        json!([row("user=alice\\u{1b}[2J", 7), row("user=bob", 3)])
    );
    assert_eq!(top[0]["asked"][2], row("user=carol", 1));
    let text = service.debug("GET", "/top", &[]).await.body;
    assert!(
        text.contains("shop, most refused:\n         7  user=alice\\u{1b}[2J  shop.user\n"),
        "{text}"
    );

    let metrics = service.metrics().await;
    let first = r#"palang_top_refused_hits{domain="shop",rank="1",rule="shop.user"}"#;
    assert_eq!(value(&metrics, first), Some("7"));
    assert!(
        !metrics.contains("alice"),
        "no text of requests unless asked for"
    );
    let service = start(StoreKind::Memory, &[("TOP_KEYS_IN_METRICS", "true")]).await;
    traffic(&service).await;
    let first = r#"palang_top_refused_hits{domain="shop",rank="1",rule="shop.user",key="user=7"}"#;
    assert_eq!(value(&service.metrics().await, first), Some("3"));

    let service = start(StoreKind::Memory, &[("TOP_KEYS", "0")]).await;
    traffic(&service).await;
    let top = service.debug("GET", "/top?format=json", &[]).await;
    assert_eq!(top.body, "[]\n");
}

#[tokio::test]
async fn refusals_are_in_the_log_as_often_as_asked() {
    let rules = tempfile::tempdir().expect("a directory for the rules");
    std::fs::write(rules.path().join("shop.yaml"), RULES).expect("the rules are written");
    let path = rules.path().display().to_string();
    let refused = |process: &Process| -> Vec<Value> {
        let mut records = process.records();
        records.retain(|record| record["@message"] == "refused");
        records
    };
    for (rate, least, most) in [("0", 0, 0), ("2", 2, 40)] {
        let env = [
            ("PALANG_RULES", &*path),
            ("DENY_LOG_PER_SECOND", rate),
            ("WORKERS", "1"),
        ];
        let process = Process::start(&["serve"], &env);
        let mut client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
        for _ in 0..52 {
            let request = request("shop", &[&[("user", "seven")]]);
            client.should_rate_limit(request).await.expect("decided");
        }
        eventually("the lines", async || {
            (refused(&process).len() >= least).then_some(())
        })
        .await;
        let found = refused(&process);
        assert!(found.len() <= most, "{} lines of 50", found.len());
        for record in &found {
            assert_eq!(record["rule"], "shop.user");
            assert_eq!(record["key"], "user=seven");
            assert_eq!((&record["limit"], &record["hits"]), (&json!(2), &json!(1)));
            assert!(
                record["retry_after_ms"]
                    .as_u64()
                    .is_some_and(|retry| retry <= 3_600_000)
            );
            assert!(
                record["place"]
                    .as_str()
                    .is_some_and(|place| place.ends_with("shop.yaml:3:5"))
            );
        }
    }
}
