//! What the process says about itself while its Redis or its rules are missing, and when it stops.

use std::time::Duration;

use palang::proto::{
    envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient,
    grpc::health::v1::{
        HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
    },
};

use crate::{
    server_harness::{descriptor, get, request},
    support::{eventually, process::Process, redis::RedisServer, rules::file, service::channel},
};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: {unit: hour, requests_per_unit: 1000}
";

/// What each of the four says: /livez, /readyz and what is missing, /healthcheck, gRPC health.
#[derive(Debug, PartialEq, Eq)]
struct Said {
    alive: bool,
    ready: bool,
    missing: String,
    healthy: bool,
    serving: bool,
}

impl Said {
    fn ready() -> Self {
        Self {
            alive: true,
            ready: true,
            missing: String::new(),
            healthy: true,
            serving: true,
        }
    }

    fn missing(what: &str) -> Self {
        Self {
            ready: false,
            missing: what.to_owned(),
            healthy: false,
            serving: false,
            ..Self::ready()
        }
    }
}

async fn said(process: &Process) -> Said {
    let http = process.address("http").await;
    let readyz = get(http, "/readyz").await;
    let mut health = HealthClient::new(channel(process.address("grpc").await).await);
    let serving = health
        .check(HealthCheckRequest::default())
        .await
        .expect("health answers")
        .into_inner();
    Said {
        alive: get(http, "/livez").await.status == 200,
        ready: readyz.status == 200,
        missing: if readyz.status == 503 {
            readyz.body.trim_end().replace('\n', ", ")
        } else {
            String::new()
        },
        healthy: get(http, "/healthcheck").await.status == 200,
        serving: serving.status() == ServingStatus::Serving,
    }
}

async fn until(process: &Process, expected: Said) {
    let last = std::sync::Mutex::new(None);
    let reached = tokio::time::timeout(Duration::from_secs(10), async {
        loop {
            let now = said(process).await;
            if now == expected {
                return;
            }
            *last.lock().expect("no panic while held") = Some(now);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(reached.is_ok(), "expected {expected:?}, last {last:?}");
}

fn start(redis: &str, settings: &[(&str, &str)], rules: &std::path::Path) -> Process {
    let mut env = vec![
        ("REDIS_SOCKET_TYPE", "unix"),
        ("REDIS_URL", redis),
        ("STORE_TIMEOUT", "200ms"),
    ];
    if redis.is_empty() {
        env.retain(|(name, _)| !name.starts_with("REDIS_"));
    }
    env.retain(|(name, _)| !settings.iter().any(|(other, _)| other == name));
    env.extend_from_slice(settings);
    Process::start(&["serve", "--rules", &rules.display().to_string()], &env)
}

async fn call(process: &Process) -> Result<(), tonic::Code> {
    let channel = channel(process.address("grpc").await).await;
    RateLimitServiceClient::new(channel)
        .should_rate_limit(request(vec![descriptor("k", "v")]))
        .await
        .map(|_| ())
        .map_err(|status| status.code())
}

#[tokio::test]
async fn an_absent_redis_is_waited_for_and_a_lost_one_is_no_reason_to_die() {
    let (mut redis, rules) = (RedisServer::start(), file(RULES));
    redis.kill();
    let process = start(&redis.url(), &[], rules.path());
    until(&process, Said::missing("the store has not answered yet")).await;
    assert_eq!(call(&process).await, Err(tonic::Code::Unavailable));
    redis.restart();
    until(&process, Said::ready()).await;
    eventually("calls are decided", async || call(&process).await.ok()).await;

    redis.kill();
    for _ in 0..30 {
        assert_eq!(call(&process).await, Err(tonic::Code::Unavailable));
        assert_eq!(said(&process).await, Said::ready());
    }
}

#[tokio::test]
async fn readiness_follows_the_store_if_it_is_asked_to() {
    let (mut redis, rules) = (RedisServer::start(), file(RULES));
    let process = start(&redis.url(), &[("READY_NEEDS_STORE", "true")], rules.path());
    until(&process, Said::ready()).await;
    redis.kill();
    let calls = async {
        loop {
            let _ = call(&process).await;
        }
    };
    let failing = Said {
        // A restart would not mend it.
        healthy: true,
        ..Said::missing("the store fails")
    };
    tokio::select! {
        () = calls => {}
        () = until(&process, failing) => {}
    }
    redis.restart();
    // Nobody calls any more: it finds out by itself.
    until(&process, Said::ready()).await;
}

#[tokio::test]
async fn a_wrong_password_is_told_and_waited_for() {
    let (redis, rules) = (RedisServer::start(), file(RULES));
    let password = |from: Option<&str>, to: &str| {
        let mut connection = match from {
            Some(from) => redis.connection_with(from),
            None => redis.connection(),
        };
        redis::cmd("CONFIG")
            .arg(&["SET", "requirepass", to])
            .query::<()>(&mut connection)
            .expect("set");
    };
    password(None, "swordfish");
    let process = start(&redis.url(), &[("REDIS_AUTH", "hunter2")], rules.path());
    until(&process, Said::missing("the store has not answered yet")).await;
    eventually("it says why", async || {
        let log = process.log().join("\n");
        log.contains("WRONGPASS").then_some(())
    })
    .await;
    assert_eq!(call(&process).await, Err(tonic::Code::Unavailable));
    password(Some("swordfish"), "hunter2");
    until(&process, Said::ready()).await;
    let log = process.log().join("\n");
    assert!(
        !log.contains("hunter2") && !log.contains("swordfish"),
        "{log}"
    );
}

#[tokio::test]
async fn a_name_that_does_not_resolve_is_waited_for() {
    let rules = file(RULES);
    let process = start(
        "no-such-host.invalid:6379",
        &[("REDIS_SOCKET_TYPE", "tcp")],
        rules.path(),
    );
    until(&process, Said::missing("the store has not answered yet")).await;
    assert_eq!(call(&process).await, Err(tonic::Code::Unavailable));
}

#[tokio::test]
async fn absent_rules_are_waited_for_as_the_settings_say() {
    let home = tempfile::tempdir().expect("a directory");
    for (settings, expected) in [
        (&[][..], Said::missing("no rules loaded")),
        (
            &[("FORCE_START_WITHOUT_INITIAL_CONFIG", "true")],
            Said::ready(),
        ),
        (
            &[("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", "true")],
            Said::missing("no rules loaded"),
        ),
    ] {
        let rules = home.path().join("rules.yaml");
        // A file that cannot be used: there never was a first load.
        std::fs::write(&rules, "domain: d\nbogus: 1\n").expect("written");
        let process = start("", settings, &rules);
        until(&process, expected).await;
        std::fs::write(&rules, RULES).expect("written");
        process.signal("HUP");
        until(&process, Said::ready()).await;
    }
}

#[tokio::test]
async fn a_process_that_stops_is_alive_and_not_ready() {
    let rules = file(RULES);
    let mut process = start("", &[("SHUTDOWN_DELAY", "1500ms")], rules.path());
    until(&process, Said::ready()).await;
    process.signal("TERM");
    until(&process, Said::missing("stopping")).await;
    assert_eq!(call(&process).await, Ok(()), "it still answers");
    let status = process.wait(Duration::from_secs(5)).await;
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn no_secret_is_ever_told() {
    const SECRET: &str = "sw0rd:fish";
    let (redis, rules) = (RedisServer::start(), file(RULES));
    let port = redis.open_port();
    let url = |form: &str| {
        form.replace("PORT", &port.to_string())
            .replace("SECRET", SECRET)
    };
    for (url, settings) in [
        (url("127.0.0.1:PORT"), &[("REDIS_AUTH", SECRET)][..]),
        (
            url("127.0.0.1:PORT"),
            &[("REDIS_USER", "u"), ("REDIS_PASSWORD", SECRET)],
        ),
        (url("redis://u:SECRET@127.0.0.1:PORT/0"), &[]),
        (url("rediss://u:SECRET@127.0.0.1:PORT"), &[]),
        (
            url("redis://u:SECRET@127.0.0.1:PORT,redis://u:SECRET@127.0.0.1:1"),
            &[("REDIS_TYPE", "CLUSTER")],
        ),
        (
            url("name,redis://u:SECRET@127.0.0.1:PORT"),
            &[("REDIS_TYPE", "SENTINEL")],
        ),
        // These cannot be used, and are named.
        (url("redis://u:SECRET@127.0.0.1:no-port"), &[]),
        (url("redis://u:SECRET@[::/0"), &[]),
        (url("u:SECRET@127.0.0.1:PORT"), &[]),
        (
            url("redis://u:SECRET@127.0.0.1:PORT"),
            &[("REDIS_TYPE", "no-such-type")],
        ),
    ] {
        let mut all = vec![
            ("REDIS_SOCKET_TYPE", "tcp"),
            ("LOG_LEVEL", "trace"),
            ("ADMIN_TOKEN", "sw0rd-of-admins"),
        ];
        all.extend_from_slice(settings);
        let mut process = start(&url, &all, rules.path());
        let mut told = String::new();
        let serves = async {
            let debug = process.address("debug").await;
            let _ = call(&process).await;
            for page in ["/", "/rlconfig", "/stats", "/counters?domain=d"] {
                told += &get(debug, page).await.body;
            }
            told += &get(process.address("metrics").await, "/metrics").await.body;
            told += &get(process.address("http").await, "/readyz").await.body;
        };
        tokio::select! {
            () = serves => process.signal("TERM"),
            // It may have ended for what it was started with.
            () = tokio::time::sleep(Duration::from_secs(3)) => {}
        }
        process.wait(Duration::from_secs(10)).await;
        let log = process.log().join("\n");
        assert!(!log.is_empty());
        for secret in [SECRET, "sw0rd", "fish"] {
            assert!(!log.contains(secret), "{url}: {log}");
            assert!(!told.contains(secret), "{url}: {told}");
        }
    }
}
