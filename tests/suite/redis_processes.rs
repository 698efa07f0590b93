//! The real binary on Redis in its several shapes, by its settings; and killed under load.

use std::time::Duration;

use palang::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_response::Code,
        rate_limit_service_client::RateLimitServiceClient,
    },
};
use tonic::transport::Channel;

use crate::support::{
    certificates::Authority,
    cluster::{Cluster, Port},
    eventually,
    process::Process,
    redis::RedisServer,
    service::channel,
};

const RULES: &str = "
domain: d
descriptors:
  - key: second
    rate_limit: {unit: second, requests_per_unit: 1000000}
  - key: day
    rate_limit: {unit: day, requests_per_unit: 3, algorithm: token_bucket}
  - key: hour
    rate_limit: {unit: hour, requests_per_unit: 1000000, algorithm: sliding_window}
  - key: log
    rate_limit: {unit: minute, requests_per_unit: 10000, algorithm: sliding_log}
";

struct Palang {
    process: Process,
    client: RateLimitServiceClient<Channel>,
    _rules: tempfile::TempDir,
}

async fn palang(env: &[(&str, &str)]) -> Palang {
    let home = tempfile::tempdir().expect("a temporary directory");
    let rules = home.path().join("rules.yaml");
    std::fs::write(&rules, RULES).expect("the rules are written");
    let mut all = vec![("STORE_TIMEOUT", "5s")];
    all.extend_from_slice(env);
    let process = Process::start(
        &["serve", "--rules", rules.to_str().expect("a UTF-8 path")],
        &all,
    );
    let client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
    Palang {
        process,
        client,
        _rules: home,
    }
}

fn request(descriptors: &[(&str, &str)]) -> RateLimitRequest {
    RateLimitRequest {
        domain: "d".to_owned(),
        descriptors: descriptors
            .iter()
            .map(|(key, value)| RateLimitDescriptor {
                entries: vec![Entry {
                    key: (*key).to_owned(),
                    value: (*value).to_owned(),
                }],
                ..RateLimitDescriptor::default()
            })
            .collect(),
        hits_addend: 0,
    }
}

impl Palang {
    async fn ask(&self, descriptors: &[(&str, &str)]) -> Result<RateLimitResponse, tonic::Status> {
        self.client
            .clone()
            .should_rate_limit(request(descriptors))
            .await
            .map(tonic::Response::into_inner)
    }

    /// Three of a day, then no more.
    async fn counts_to_three(&self, value: &str) {
        let codes = async || {
            self.ask(&[("day", value)])
                .await
                .map(|answer| answer.overall_code())
        };
        eventually("it answers", async || {
            self.ask(&[("second", value)]).await.ok()
        })
        .await;
        for expected in [Code::Ok, Code::Ok, Code::Ok, Code::OverLimit] {
            assert_eq!(
                codes().await.expect("answered"),
                expected,
                "{:?}",
                self.process.log()
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_by_its_settings() {
    let cluster = Cluster::start();
    let palang = palang(&[("REDIS_TYPE", "cluster"), ("REDIS_URL", &cluster.url())]).await;
    for value in ["a", "{b}", "c}", "{}{"] {
        palang.counts_to_three(value).await;
    }
    let many: Vec<(&str, &str)> = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]
        .into_iter()
        .flat_map(|value| [("hour", value), ("second", value)])
        .collect();
    assert_eq!(
        palang.ask(&many).await.expect("answered").statuses.len(),
        20
    );
    for node in &cluster.nodes {
        node.no_key_without_expiry();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_certificates_and_sockets_by_their_settings() {
    let primary = Port::start(&[]);
    let sentinel = Port::sentinel(primary.port, "");
    let url = format!("main,{}", sentinel.address());
    let one = palang(&[("REDIS_TYPE", "Sentinel"), ("REDIS_URL", &url)]).await;
    one.counts_to_three("sentinel").await;

    let authority = Authority::new();
    authority.issue("server", "DNS:redis.example");
    authority.issue("client", "DNS:limiter");
    let file = |name: &str| authority.path(name);
    let encrypted = Port::encrypted(&[
        "--tls-ca-cert-file",
        &file("ca.crt"),
        "--tls-cert-file",
        &file("server.crt"),
        "--tls-key-file",
        &file("server.key"),
        "--requirepass",
        "p:@/%#",
    ]);
    let two = palang(&[
        ("REDIS_URL", &encrypted.address()),
        ("REDIS_TLS", "true"),
        ("REDIS_TLS_CACERT", &file("ca.crt")),
        ("REDIS_TLS_CLIENT_CERT", &file("client.crt")),
        ("REDIS_TLS_CLIENT_KEY", &file("client.key")),
        ("REDIS_TLS_SERVER_NAME", "redis.example"),
        ("REDIS_PASSWORD", "p:@/%#"),
    ])
    .await;
    two.counts_to_three("tls").await;

    // Sentinels by another authority, with another name, that want another certificate.
    let theirs = Authority::new();
    theirs.issue("server", "DNS:sentinel.example");
    theirs.issue("client", "DNS:limiter");
    let of_theirs = |name: &str| theirs.path(name);
    let sentinel = Port::encrypted_sentinel(
        encrypted.port,
        &format!(
            "tls-ca-cert-file {}\ntls-cert-file {}\ntls-key-file {}",
            of_theirs("ca.crt"),
            of_theirs("server.crt"),
            of_theirs("server.key")
        ),
    );
    let four = palang(&[
        ("REDIS_TYPE", "SENTINEL"),
        ("REDIS_URL", &format!("main,{}", sentinel.address())),
        ("REDIS_TLS", "true"),
        ("REDIS_TLS_CACERT", &file("ca.crt")),
        ("REDIS_TLS_CLIENT_CERT", &file("client.crt")),
        ("REDIS_TLS_CLIENT_KEY", &file("client.key")),
        ("REDIS_TLS_SERVER_NAME", "redis.example"),
        ("REDIS_PASSWORD", "p:@/%#"),
        ("REDIS_SENTINEL_TLS", "true"),
        ("REDIS_SENTINEL_TLS_CACERT", &of_theirs("ca.crt")),
        ("REDIS_SENTINEL_TLS_CLIENT_CERT", &of_theirs("client.crt")),
        ("REDIS_SENTINEL_TLS_CLIENT_KEY", &of_theirs("client.key")),
        ("REDIS_SENTINEL_TLS_SERVER_NAME", "sentinel.example"),
    ])
    .await;
    four.counts_to_three("sentinel by tls").await;

    let socket = RedisServer::start();
    let three = palang(&[("REDIS_SOCKET_TYPE", "unix"), ("REDIS_URL", &socket.url())]).await;
    three.counts_to_three("socket").await;
    socket.no_key_without_expiry();
    for palang in [one, two, three, four] {
        let log = palang.process.log().join("\n");
        assert!(!log.contains("p:@/%#"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_seconds_live_in_a_redis_of_their_own() {
    let (mut seconds, others) = (Port::start(&[]), Port::start(&[]));
    let palang = palang(&[
        ("REDIS_URL", &others.address()),
        ("REDIS_PERSECOND", "true"),
        ("REDIS_PERSECOND_URL", &seconds.address()),
        // Charged all or nothing, over both.
        ("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", "true"),
    ])
    .await;
    let both = [("second", "x"), ("day", "x"), ("hour", "x")];
    let codes = async || palang.ask(&both).await.map(|answer| answer.overall_code());
    eventually("both answer", async || {
        palang.ask(&[("second", "y"), ("hour", "y")]).await.ok()
    })
    .await;
    for expected in [
        Code::Ok,
        Code::Ok,
        Code::Ok,
        Code::OverLimit,
        Code::OverLimit,
    ] {
        assert_eq!(codes().await.expect("answered"), expected);
    }
    // The refused ones were taken back.
    let hour = palang.ask(&[("hour", "x")]).await.expect("answered");
    assert_eq!(hour.statuses[0].limit_remaining, 1_000_000 - 4);
    assert!(seconds.calls_of("evalsha") >= 6 && others.calls_of("evalsha") >= 6);
    // The reference's figures of its connections.
    for pool in ["redis_pool", "redis_per_second_pool"] {
        let figure = async |name: &str| {
            let name = format!("ratelimit_{pool}_cx_{name}");
            palang.process.metric(&name).await
        };
        let (active, total) = (figure("active").await, figure("total").await);
        assert!(
            active >= 1 && total >= active,
            "{pool}: {active} of {total}"
        );
        assert_eq!(figure("local_close").await, total - active, "{pool}");
    }
    // Each is asked by the service itself, too, whether it decides.
    let of_rules = |keys: Vec<String>| -> Vec<String> {
        keys.into_iter()
            .filter(|key| !key.contains("probe"))
            .collect()
    };
    assert!(
        of_rules(seconds.keys())
            .iter()
            .all(|key| key.contains("second"))
    );
    assert!(
        of_rules(others.keys())
            .iter()
            .all(|key| !key.contains("second"))
    );
    assert!(!of_rules(others.keys()).is_empty());
    // With it dead the others go on.
    seconds.kill();
    assert!(palang.ask(&[("hour", "z")]).await.is_ok());
    let answer = palang.ask(&[("second", "z")]).await;
    assert!(answer.is_err(), "{answer:?}");
    eventually("lost connections are counted", async || {
        let name = "ratelimit_redis_per_second_pool_cx_local_close";
        (palang.process.metric(name).await > 0).then_some(())
    })
    .await;
    others.no_key_without_expiry();
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_random_it_leaves_no_key_without_an_expiry() {
    let redis = RedisServer::start();
    for round in 0..6u64 {
        let mut palang = palang(&[
            ("REDIS_SOCKET_TYPE", "unix"),
            ("REDIS_URL", &redis.url()),
            (
                "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
                if round % 2 == 0 { "true" } else { "false" },
            ),
        ])
        .await;
        let tasks: Vec<_> = (0..16u64)
            .map(|task| {
                let mut client = palang.client.clone();
                tokio::spawn(async move {
                    let mut calls = 0u64;
                    loop {
                        let value = format!("{round}-{task}-{calls}");
                        let value = &*value;
                        let all = [
                            ("second", value),
                            ("day", value),
                            ("hour", value),
                            ("log", value),
                        ];
                        if client.should_rate_limit(request(&all)).await.is_err() {
                            return calls;
                        }
                        calls += 1;
                    }
                })
            })
            .collect();
        // Somewhere in the midst of things, elsewhere each time.
        let goal = 400 + round * 137;
        eventually("there is load", async || {
            let mut connection = redis.connection();
            let keys: u64 = redis::cmd("DBSIZE").query(&mut connection).expect("DBSIZE");
            (keys > goal).then_some(())
        })
        .await;
        palang.process.signal("KILL");
        palang.process.wait(Duration::from_secs(5)).await;
        for task in tasks {
            task.await.expect("the load ends");
        }
        redis.no_key_without_expiry();
        redis::cmd("FLUSHALL")
            .query::<()>(&mut redis.connection())
            .expect("flushed");
    }
}
