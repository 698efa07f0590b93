//! What the debug port tells and does: explanations, how counters stand, resets.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use palang::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{RateLimitRequest, rate_limit_response::Code},
};
use serde_json::{Value, json};

use crate::support::{
    eventually, http,
    process::Process,
    redis::RedisServer,
    service::{Service, StoreKind},
    within,
};

const RULES: &str = "\
domain: shop
descriptors:
  - key: route
    value: draw
    descriptors:
      - key: user
        rate_limit: {unit: hour, requests_per_unit: 3, name: draws}
  - key: route
    value: d*
    rate_limit: {unit: hour, requests_per_unit: 100}
  - key: route
    rate_limit: {unit: hour, requests_per_unit: 1000}
  - key: bucket
    rate_limit: {unit: hour, requests_per_unit: 2, algorithm: token_bucket}
";

const TOKEN: &[(&str, &str)] = &[("authorization", "Bearer sesame")];

pub(crate) fn request(domain: &str, descriptors: &[&[(&str, &str)]]) -> RateLimitRequest {
    let descriptor = |entries: &&[(&str, &str)]| RateLimitDescriptor {
        entries: entries
            .iter()
            .map(|(key, value)| Entry {
                key: (*key).to_owned(),
                value: (*value).to_owned(),
            })
            .collect(),
        ..RateLimitDescriptor::default()
    };
    RateLimitRequest {
        domain: domain.to_owned(),
        descriptors: descriptors.iter().map(descriptor).collect(),
        hits_addend: 0,
    }
}

async fn start(store: StoreKind, settings: &[(&str, &str)]) -> Service {
    Service::of(RULES, store, settings).await
}

/// Runs a test on each store, with the token set and refusals remembered.
async fn both(test: impl AsyncFn(&Service)) {
    let settings = [
        ("ADMIN_TOKEN", "sesame"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "100000"),
    ];
    test(&start(StoreKind::Memory, &settings).await).await;
    let redis = RedisServer::start();
    let store = StoreKind::Redis {
        socket: redis.url(),
        prefix: "p*:".to_owned(),
    };
    test(&start(store, &settings).await).await;
    redis.no_key_without_expiry();
}

async fn code(service: &Service, entries: &[(&str, &str)]) -> Code {
    service
        .should_rate_limit(request("shop", &[entries]))
        .await
        .expect("decided")
        .overall_code()
}

async fn explain(service: &Service, query: &str) -> Value {
    let path = format!("/explain?domain=shop&format=json&{query}");
    let answer = service.debug("GET", &path, &[]).await;
    assert_eq!(
        (answer.status, &*answer.content_type),
        (200, "application/json")
    );
    serde_json::from_str(&answer.body).expect("JSON")
}

#[tokio::test]
async fn an_explanation_shows_the_way_the_limit_and_the_counter() {
    both(async |service| {
        let found = explain(service, "descriptor=route=draw,user=7").await;
        let row = &found["descriptors"][0];
        assert_eq!(
            row["walk"]["levels"][0]["tried"],
            json!([
                {"node": "route=draw", "taken": true, "why": "taken: the exact value"},
                {"node": "route=d*", "taken": false, "why": "fits too, hidden by the better match"},
                {"node": "route", "taken": false, "why": "fits too, hidden by the better match"},
                {"node": "bucket", "taken": false, "why": "another key"},
            ])
        );
        assert_eq!(row["rule"]["path"], "shop.route_draw.user");
        let place = row["rule"]["place"].as_str().expect("a text");
        assert!(place.ends_with("shop.yaml:6:9"), "{place}");
        assert_eq!(row["limit"]["algorithm"], "fixed_window");
        assert_eq!(
            row["counter"],
            "1f3600000000|4:shop|5:route=4:draw|4:user=1:7"
        );
        assert_eq!(
            (&found["code"], &found["binding"]),
            (&json!("OK"), &json!(0))
        );

        for (query, end) in [
            ("descriptor=route=draw", "no limit at this depth"),
            (
                "descriptor=route=draw,user=7,x=y",
                "the rules do not go as deep",
            ),
            ("descriptor=nothing", "no rule fits the last entry"),
        ] {
            let found = explain(service, query).await;
            let said = found["descriptors"][0]["walk"]["end"]
                .as_str()
                .expect("a text");
            assert!(said.starts_with(end), "{query}: {said}");
            assert_eq!(found["descriptors"][0]["result"], "unmatched");
        }
    })
    .await;
}

#[tokio::test]
async fn an_explanation_says_what_the_answer_would_be_and_charges_nothing() {
    both(async |service| {
        for (entries, query, limit) in [
            (
                &[("route", "draw"), ("user", "7")][..],
                "descriptor=route=draw,user=7",
                3,
            ),
            (&[("bucket", "b")][..], "descriptor=bucket=b", 2),
        ] {
            for taken in 0..limit {
                for _ in 0..3 {
                    let found = explain(service, query).await;
                    let state = &found["descriptors"][0]["state"];
                    assert_eq!(state["used"], taken, "{query}");
                    assert_eq!(
                        (&found["code"], &state["source"]),
                        (&json!("OK"), &json!("store"))
                    );
                }
                let large = explain(service, &format!("{query}&hits={limit}")).await;
                let said = if taken == 0 { "OK" } else { "OVER_LIMIT" };
                assert_eq!(large["code"], said, "{query} after {taken}");
                assert_eq!(code(service, entries).await, Code::Ok);
            }
            let found = explain(service, query).await;
            assert_eq!(found["code"], "OVER_LIMIT");
            assert_eq!(code(service, entries).await, Code::OverLimit);
            let text = service
                .debug("GET", &format!("/explain?domain=shop&{query}"), &[])
                .await;
            assert!(text.body.contains("refuses: "), "{}", text.body);
            assert!(text.body.contains("would admit in "), "{}", text.body);
            assert!(
                text.body
                    .contains("answer   OVER_LIMIT, bound by descriptor 1; nothing was charged")
            );
        }
    })
    .await;
}

#[tokio::test]
async fn counters_are_shown_and_reset_to_who_has_the_token() {
    both(async |service| {
        let mine = [("route", "draw"), ("user", "7")];
        let other = [("route", "draw"), ("user", "70")];
        for entries in [&mine, &mine, &mine, &other, &other, &other] {
            assert_eq!(code(service, entries).await, Code::Ok);
        }
        for entries in [&mine, &other] {
            assert_eq!(code(service, entries).await, Code::OverLimit);
        }
        let query = "domain=shop&descriptor=route=draw,user=7";
        let shown = service
            .debug("GET", &format!("/counter?{query}"), TOKEN)
            .await;
        let key = "1f3600000000|4:shop|5:route=4:draw|4:user=1:7";
        assert_eq!(shown.body, format!("{key}: 4 used, 0 left\n"));

        // One: at once here, deny cache included; its neighbour stays as it is.
        let reset = service
            .debug("POST", &format!("/reset?{query}"), TOKEN)
            .await;
        assert_eq!((reset.status, &*reset.body), (200, "forgotten: 1\n"));
        assert_eq!(code(service, &mine).await, Code::Ok);
        assert_eq!(code(service, &other).await, Code::OverLimit);

        // All below an entry; what is beside it stays.
        assert_eq!(code(service, &[("bucket", "b")]).await, Code::Ok);
        let query = "domain=shop&descriptor=route=draw&prefix=true";
        let reset = service
            .debug("POST", &format!("/reset?{query}"), TOKEN)
            .await;
        assert_eq!(reset.body, "forgotten: 2\n");
        assert_eq!(code(service, &other).await, Code::Ok);
        let bucket = service
            .debug("GET", "/counter?domain=shop&descriptor=bucket=b", TOKEN)
            .await;
        assert!(
            bucket.body.ends_with(": 1 used, 1 left\n"),
            "{}",
            bucket.body
        );
    })
    .await;
}

#[tokio::test]
async fn a_mistyped_question_is_refused_and_resets_nothing() {
    both(async |service| {
        assert_eq!(code(service, &[("bucket", "b")]).await, Code::Ok);
        let used = async || {
            let path = "/counter?domain=shop&descriptor=bucket=b";
            service.debug("GET", path, TOKEN).await.body
        };
        let before = used().await;
        let many = format!("domain=shop{}", "&descriptor=bucket=b".repeat(101));
        for (query, said) in [
            ("domain=shop&prefix=true&descriptr=route=draw", "descriptor"),
            ("domain=shop&prefix=true&all=true&user=7", "there are: "),
            ("domain=shop&prefix=yes&descriptor=bucket=b", "prefix=: "),
            ("domain=shop&prefix=true&all=1", "all=: "),
            ("domain=shop&prefix=true", "all=true"),
            ("domain=shop&all=true", "all=true"),
            (
                "domain=shop&prefix=true&all=true&descriptor=bucket=b",
                "all=true",
            ),
            (&many, "100"),
        ] {
            let path = format!("/reset?{query}");
            let answer = service.debug("POST", &path, TOKEN).await;
            assert_eq!(answer.status, 400, "{query}");
            assert!(answer.body.contains(said), "{query}: {}", answer.body);
            assert_eq!(used().await, before, "{query}");
        }
        for path in [
            "/counter?domain=shop&descriptor=bucket=b&prefix=true",
            "/explain?domain=shop&descriptor=bucket=b&hit=2",
            "/top?domian=shop",
        ] {
            let answer = service.debug("GET", path, TOKEN).await;
            assert_eq!(answer.status, 400, "{path}");
            assert!(answer.body.contains("there are: domain, "), "{path}");
        }
        let path = "/reset?domain=shop&prefix=true&all=true";
        let reset = service.debug("POST", path, TOKEN).await;
        assert_eq!((reset.status, &*reset.body), (200, "forgotten: 1\n"));
    })
    .await;
}

#[tokio::test]
async fn without_the_token_nothing_is_shown_or_reset() {
    let service = start(StoreKind::Memory, &[("ADMIN_TOKEN", "sesame")]).await;
    let wrong: &[&[(&str, &str)]] = &[
        &[],
        &[("authorization", "sesame")],
        &[("authorization", "Bearer sesam")],
        &[("authorization", "Bearer ")],
    ];
    let paths = [
        ("GET", "/counter?domain=shop&descriptor=bucket=b"),
        ("POST", "/reset?domain=shop&prefix=true&all=true"),
    ];
    for (method, path) in paths {
        for headers in wrong {
            assert_eq!(service.debug(method, path, headers).await.status, 401);
        }
    }
    let reset = service.debug("GET", paths[1].1, TOKEN).await;
    assert_eq!(reset.status, 405, "a GET changes nothing");

    let service = start(StoreKind::Memory, &[]).await;
    for (method, path) in paths {
        for headers in [TOKEN, &[("authorization", "Bearer ")]] {
            assert_eq!(service.debug(method, path, headers).await.status, 403);
        }
    }
}

#[tokio::test]
async fn a_reset_reaches_every_replica_within_a_second() {
    let redis = RedisServer::start();
    let store = StoreKind::Redis {
        socket: redis.url(),
        prefix: "p:".to_owned(),
    };
    let settings: BTreeMap<String, String> = [
        ("ADMIN_TOKEN", "sesame"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "100000"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    let replica = async || {
        Service::builder()
            .rules(&[("shop.yaml".to_owned(), RULES.to_owned())])
            .store(store.clone())
            .settings(&settings)
            .system_clock()
            .start()
            .await
    };
    let (here, there) = (replica().await, replica().await);
    let bucket = [("bucket", "b")];
    for service in [&here, &there] {
        for _ in 0..3 {
            code(service, &bucket).await;
        }
        assert_eq!(code(service, &bucket).await, Code::OverLimit);
    }
    let query = "domain=shop&descriptor=bucket=b";
    let reset = here.debug("POST", &format!("/reset?{query}"), TOKEN).await;
    assert_eq!(reset.body, "forgotten: 1\n");
    assert_eq!(code(&here, &bucket).await, Code::Ok);
    // A second, and what a busy machine takes to ask.
    within(
        Duration::from_millis(1_500),
        "the other replica admits",
        async || (code(&there, &bucket).await == Code::Ok).then_some(()),
    )
    .await;
}

#[tokio::test]
async fn the_index_lists_every_path() {
    let service = start(StoreKind::Memory, &[]).await;
    let index = service.debug("GET", "/", &[]).await.body;
    for path in [
        "/counter",
        "/explain",
        "/reset",
        "/rlconfig",
        "/stats",
        "/top",
    ] {
        assert!(index.contains(&format!("\n{path}")), "{path} in {index}");
    }
    for path in [
        "/explain",
        "/explain?domain=shop",
        "/explain?domain=shop&descriptor=%3D",
    ] {
        assert_eq!(service.debug("GET", path, &[]).await.status, 400, "{path}");
    }
    assert_eq!(service.debug("GET", "/nothing", &[]).await.status, 404);
}

#[tokio::test]
async fn a_reset_is_in_the_log_and_the_token_is_not() {
    let rules = tempfile::tempdir().expect("a directory for the rules");
    std::fs::write(rules.path().join("shop.yaml"), RULES).expect("the rules are written");
    let path = rules.path().display().to_string();
    let env = [
        ("PALANG_RULES", &*path),
        ("ADMIN_TOKEN", "sesame"),
        ("LOG_LEVEL", "trace"),
    ];
    let process = Process::start(&["serve"], &env);
    let debug = process.address("debug").await;
    let query = "/reset?domain=shop&descriptor=route=draw&prefix=true";
    for (headers, status) in [(TOKEN, 200), (&[][..], 401)] {
        let answer = http::send(debug, "POST", query, headers, Bytes::new()).await;
        assert_eq!(answer.expect("an answer").status, status);
    }
    let record = eventually("the line of the log", async || {
        let mut records = process.records().into_iter();
        records.find(|record| record["@message"] == "counters reset by an operator")
    })
    .await;
    assert_eq!(record["selected"], "[Under(|4:shop|5:route=4:draw)]");
    assert_eq!(record["forgotten"], 0);
    eventually("the warning", async || {
        let mut records = process.records().into_iter();
        records.find(|record| {
            record["level"] == "warning"
                && record["@message"]
                    .as_str()
                    .is_some_and(|text| text.contains("without the token"))
        })
    })
    .await;
    assert!(!process.log().join("\n").contains("sesame"));
}
