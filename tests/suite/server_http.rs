//! The HTTP ports: `/json`, `/healthcheck`, metrics and debug.

#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot unwrap hides what it found"
)]

use palang::{
    rules::{CompileError, source::Reload},
    store::StoreError,
};
use proptest::{collection::vec, prelude::any, strategy::Strategy as _, test_runner};
use serde_json::{Value, json};

use crate::server_harness::{Answer, Server, get, post, send};

const GOOD: &str = r#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;

fn parsed(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap()
}

#[tokio::test]
async fn json_answers_by_status() {
    let server = Server::start(&["--limit-response-headers-enabled"]);
    let at = server.at.http;

    let ok = post(at, "/json", GOOD.as_bytes()).await;
    assert_eq!(ok.status, 200);
    assert_eq!(ok.header("content-type"), Some("application/json"));
    assert_eq!(ok.header("ratelimit-remaining"), Some("9"));
    let body = parsed(&ok);
    assert_eq!(body["overallCode"], "OK");
    assert_eq!(
        body["statuses"],
        json!([{
            "code": "OK",
            "currentLimit": {"requestsPerUnit": 10, "unit": "HOUR"},
            "limitRemaining": 9,
            "durationUntilReset": "3600s",
        }])
    );

    let over = GOOD.replace("\"d\",", "\"d\",\"hitsAddend\":10,");
    let over = post(at, "/json", over.as_bytes()).await;
    assert_eq!(over.status, 429);
    assert_eq!(parsed(&over)["overallCode"], "OVER_LIMIT");
    assert_eq!(over.header("ratelimit-limit"), Some("10"));

    let unknown = GOOD.replace("\"d\"", "\"nobody\"");
    let unknown = post(at, "/json", unknown.as_bytes()).await;
    assert_eq!(
        (unknown.status, unknown.header("ratelimit-limit")),
        (200, None)
    );

    for (body, wrong) in [
        ("", "EOF while parsing"),
        ("}", "expected value"),
        ("{}", "rate limit domain must not be empty"),
        (
            r#"{"domain":"d"}"#,
            "rate limit descriptor list must not be empty",
        ),
        (r#"{"domain":"d","bogus":1}"#, "unknown field `bogus`"),
    ] {
        let bad = post(at, "/json", body.as_bytes()).await;
        assert_eq!(
            (bad.status, bad.body.as_str()),
            (400, "Bad Request\n"),
            "{body}"
        );
        assert_eq!(
            bad.header("content-type"),
            Some("text/plain; charset=utf-8")
        );
        let told = bad.header("x-palang-error").unwrap();
        assert!(told.starts_with(wrong), "{told}");
        assert_eq!(
            bad.header("ratelimit-limit"),
            None,
            "not counted, no figures"
        );
    }
    for method in ["GET", "PUT", "DELETE", "HEAD"] {
        assert_eq!(send(at, method, "/json", b"").await.status, 405, "{method}");
    }
    for path in ["/", "/jso", "/json/", "/metrics"] {
        assert_eq!(get(at, path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn a_body_over_the_bound_is_refused() {
    let server = Server::start(&["--max-message-size=1000"]);
    let body = format!("{}{}", GOOD, " ".repeat(1_000 - GOOD.len()));
    assert_eq!(
        post(server.at.http, "/json", body.as_bytes()).await.status,
        200
    );
    let body = format!("{body} ");
    let large = post(server.at.http, "/json", body.as_bytes()).await;
    assert_eq!(large.status, 413);
    assert_eq!(
        large.header("x-palang-error"),
        Some("body: longer than 1000 bytes")
    );
    let counted = "palang_bad_requests_total{bound=\"message_size\"}";
    assert_eq!(server.metric(counted).await, 1);
    assert_eq!(server.store.calls(), 1);
}

#[tokio::test]
async fn what_cannot_be_decided_is_503() {
    let server = Server::without_rules(&[]);
    let none = post(server.at.http, "/json", GOOD.as_bytes()).await;
    assert_eq!(none.status, 503);
    assert_eq!(
        none.header("x-palang-error"),
        Some("no rate limit configuration loaded")
    );
    let error = "ratelimit.service.call.should_rate_limit.service_error";
    assert_eq!(server.stat(error).await, 1);

    server.intake.accept(crate::server_harness::ten_an_hour());
    let secret = "redis://user:hunter2@10.0.0.1:6379 said no to key 1f36|d|k";
    server
        .store
        .fail(Some(StoreError::Unavailable(secret.into())));
    let down = post(server.at.http, "/json", GOOD.as_bytes()).await;
    assert_eq!(down.status, 503);
    assert_eq!(
        down.header("x-palang-error"),
        Some("the store is unavailable")
    );
    assert!(!down.head.contains("hunter2") && !down.body.contains("hunter2"));
    let error = "ratelimit.service.call.should_rate_limit.redis_error";
    assert_eq!(server.stat(error).await, 1);
}

#[tokio::test]
async fn healthcheck_follows_readiness() {
    let server = Server::without_rules(&["--shutdown-delay=1s", "--shutdown-timeout=5s"]);
    let at = server.at.http;
    let starting = get(at, "/healthcheck").await;
    assert_eq!((starting.status, starting.body.as_str()), (500, ""));
    server.intake.accept(crate::server_harness::ten_an_hour());
    let ready = get(at, "/healthcheck").await;
    assert_eq!((ready.status, ready.body.as_str()), (200, "OK"));
    server.intake.take(Reload::Failed(CompileError {
        mistakes: Vec::new(),
        warnings: Vec::new(),
    }));
    assert_eq!(get(at, "/healthcheck").await.status, 200, "old rules go on");
    server.stop();
    crate::server_harness::eventually("not ready", async || {
        get(at, "/healthcheck").await.status == 500
    })
    .await;
    // Not ready, and still answering: callers need time to notice.
    assert_eq!(post(at, "/json", GOOD.as_bytes()).await.status, 200);
}

#[tokio::test]
async fn operators_see_what_is_in_force() {
    let server = Server::without_rules(&["--prometheus-path=/prom"]);
    let debug = server.at.debug;
    assert_eq!(get(debug, "/rlconfig").await.body, "no config\n");
    server.intake.accept(crate::server_harness::ten_an_hour());
    let dump = get(debug, "/rlconfig").await.body;
    assert!(
        dump.starts_with("d.k: unit=HOUR requests_per_unit=10, "),
        "{dump}"
    );
    let index = get(debug, "/").await.body;
    for path in ["/: ", "/rlconfig: ", "/stats: "] {
        assert!(index.lines().any(|line| line.starts_with(path)), "{index}");
    }

    // A rule's series are there from the start, at zero.
    let metrics = get(server.at.metrics.expect("a metrics port"), "/prom").await;
    assert_eq!(
        metrics.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    for line in [
        "ratelimit_service_rate_limit_total_hits{domain=\"d\",key1=\"k\"} 0",
        "ratelimit_service_rate_limit_over_limit{domain=\"d\",key1=\"k\"} 0",
        "ratelimit_service_should_rate_limit_error{err_type=\"redis_error\"} 0",
        "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"} 0",
        "ratelimit_service_config_load_success 1",
        "# TYPE ratelimit_service_response_time_seconds histogram",
    ] {
        assert!(
            metrics.body.lines().any(|found| found == line),
            "{line} in\n{}",
            metrics.body
        );
    }
    let names: Vec<_> = metrics
        .body
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "))
        .map(|line| line.split(' ').next().unwrap())
        .collect();
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(names.len(), once.len(), "a family is introduced once");

    let over = GOOD.replace("\"d\",", "\"d\",\"hitsAddend\":12,");
    post(server.at.http, "/json", over.as_bytes()).await;
    let name = |counter| format!("ratelimit.service.rate_limit.d.k.{counter}");
    assert_eq!(server.stat(&name("total_hits")).await, 12);
    assert_eq!(server.stat(&name("over_limit")).await, 2);
    assert_eq!(server.stat(&name("near_limit")).await, 2);
}

#[tokio::test]
async fn unknown_domains_are_counted_and_bounded() {
    let server = Server::start(&[]);
    let ask = async |domain: &str| {
        let body = GOOD.replace("\"d\"", &format!("\"{domain}\""));
        assert_eq!(
            post(server.at.http, "/json", body.as_bytes()).await.status,
            200
        );
    };
    ask("nope").await;
    let name = "ratelimit.service.rate_limit.nope.domain_not_found";
    assert_eq!(server.stat(name).await, 1);
    for number in 0..120 {
        ask(&format!("d{number}")).await;
    }
    assert_eq!(
        server
            .stat("ratelimit.service.rate_limit.other.domain_not_found")
            .await,
        21
    );
    assert_eq!(
        server.metric("ratelimit_service_domain_not_found").await,
        121
    );
}

#[test]
fn no_body_brings_it_down() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = Server::start(&[]);
    let mut runner = test_runner::TestRunner::new(test_runner::Config {
        cases: 200,
        failure_persistence: None,
        ..test_runner::Config::default()
    });
    let bytes = vec(any::<u8>(), 0..200);
    let text = proptest::string::string_regex(r#"[{}\[\]":,domainescrptk0-9.eE \\u-]{0,80}"#)
        .unwrap()
        .prop_map(String::into_bytes);
    let bodies = proptest::prop_oneof![bytes, text];
    runner
        .run(&bodies, |body| {
            let answer = runtime.block_on(post(server.at.http, "/json", &body));
            proptest::prop_assert!([200, 400, 429].contains(&answer.status), "{answer:?}");
            Ok(())
        })
        .unwrap();
    let answer = runtime.block_on(post(server.at.http, "/json", GOOD.as_bytes()));
    assert_eq!(answer.status, 200);
}
