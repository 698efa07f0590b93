//! The debug port where counters are in Redis: a cluster, few connections, keys of any length.

use std::time::{Duration, Instant};

use bytes::Bytes;
use palang::proto::envoy::service::ratelimit::v3::{
    rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
};
use tonic::transport::Channel;

use crate::{
    debug_port::request,
    support::{
        cluster::Cluster,
        http,
        process::Process,
        redis::RedisServer,
        rules::file,
        service::{Service, StoreKind, channel},
        within,
    },
};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: year, requests_per_unit: 2}
    descriptors:
      - key: path
        rate_limit: {unit: year, requests_per_unit: 2}
        descriptors:
          - key: agent
            rate_limit: {unit: year, requests_per_unit: 2}
            descriptors:
              - key: token
                rate_limit: {unit: year, requests_per_unit: 2}
";

const TOKEN: &[(&str, &str)] = &[("authorization", "Bearer sesame")];

struct Replica {
    process: Process,
    client: RateLimitServiceClient<Channel>,
}

impl Replica {
    async fn start(rules: &str, settings: &[(&str, &str)]) -> Self {
        let mut env = vec![
            ("ADMIN_TOKEN", "sesame"),
            ("LOCAL_CACHE_SIZE_IN_BYTES", "1000000"),
            ("STORE_TIMEOUT", "5s"),
        ];
        env.extend_from_slice(settings);
        let process = Process::start(&["serve", "--rules", rules], &env);
        process.ready().await;
        let client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
        Self { process, client }
    }

    async fn code(&self, entries: &[(&str, &str)]) -> Code {
        let asked = request("shop", &[entries]);
        let answer = self.client.clone().should_rate_limit(asked).await;
        answer.expect("decided").into_inner().overall_code()
    }

    async fn debug(&self, method: &str, path: &str) -> http::Answer {
        let debug = self.process.address("debug").await;
        http::send(debug, method, path, TOKEN, Bytes::new())
            .await
            .expect("the debug port answers")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_inspected_and_reset_for_every_replica() {
    let cluster = Cluster::start();
    let rules = file(RULES);
    let path = rules.path().display().to_string();
    let url = cluster.url();
    let settings = [("REDIS_TYPE", "CLUSTER"), ("REDIS_URL", url.as_str())];
    let here = Replica::start(&path, &settings).await;
    let there = Replica::start(&path, &settings).await;
    let users: Vec<String> = (0..12).map(|user| format!("u{user}")).collect();
    for user in &users {
        let entries = [("user", user.as_str()), ("path", "/draw")];
        for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
            assert_eq!(here.code(&entries).await, expected);
        }
        assert_eq!(there.code(&entries).await, Code::OverLimit);
    }
    let with_keys = cluster.nodes.iter().filter(|node| !node.keys().is_empty());
    assert!(with_keys.count() > 1, "the counters are on several nodes");
    let remembered = there.process.metric("palang_deny_cache_entries").await;
    assert!(remembered > 0, "the other replica remembers refusals");

    // How they stand, on whichever node they are.
    for user in &users {
        let query = format!("domain=shop&descriptor=user={user},path=/draw");
        let shown = here.debug("GET", &format!("/counter?{query}")).await;
        // A fixed window counts refused hits: one of each replica, which remembers them then.
        assert!(shown.body.ends_with(": 4 used, 0 left\n"), "{}", shown.body);
    }

    // One, and then all that are left.
    let first = format!("/reset?domain=shop&descriptor=user={},path=/draw", users[0]);
    assert_eq!(here.debug("POST", &first).await.body, "forgotten: 1\n");
    let asked = Instant::now();
    admits(&there, &[("user", &users[0]), ("path", "/draw")], asked).await;
    let last = [("user", users[11].as_str()), ("path", "/draw")];
    assert_eq!(
        there.code(&last).await,
        Code::OverLimit,
        "its neighbour stays"
    );
    let all = "/reset?domain=shop&prefix=true&all=true";
    assert_eq!(here.debug("POST", all).await.body, "forgotten: 12\n");
    let asked = Instant::now();
    for user in &users {
        admits(&there, &[("user", user), ("path", "/draw")], asked).await;
        assert_eq!(
            here.code(&[("user", user), ("path", "/draw")]).await,
            Code::Ok
        );
    }
    for node in &cluster.nodes {
        node.no_key_without_expiry();
    }
}

/// Within a second of the reset, and what a busy machine takes to ask.
async fn admits(replica: &Replica, entries: &[(&str, &str)], reset: Instant) {
    let left = Duration::from_millis(1_500).saturating_sub(reset.elapsed());
    within(left, "the other replica admits", async || {
        (replica.code(entries).await == Code::Ok).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_debug_port_is_answered_with_fewer_connections_than_workers() {
    let redis = RedisServer::start();
    let rules = file(RULES);
    let path = rules.path().display().to_string();
    let url = redis.url();
    let settings = [
        ("REDIS_SOCKET_TYPE", "unix"),
        ("REDIS_URL", url.as_str()),
        ("REDIS_POOL_SIZE", "1"),
        ("WORKERS", "3"),
    ];
    let replica = Replica::start(&path, &settings).await;
    for number in 0..20 {
        let user = format!("q{number}");
        let entries = [("user", user.as_str())];
        assert_eq!(replica.code(&entries).await, Code::Ok);
        let query = format!("domain=shop&descriptor=user={user}");
        let why = replica.debug("GET", &format!("/explain?{query}")).await;
        assert!(why.body.contains("1 used"), "{}", why.body);
        assert!(why.body.contains("answer   OK"), "{}", why.body);
        let reset = replica.debug("POST", &format!("/reset?{query}")).await;
        assert_eq!(reset.body, "forgotten: 1\n");
    }
    let open: u64 = {
        let mut open = 0;
        for state in ["idle", "in_use"] {
            let name = format!("palang_redis_connections{{store=\"main\",state=\"{state}\"}}");
            open += replica.process.metric(&name).await;
        }
        open
    };
    assert!(open <= 1, "{open} connections");
}

#[tokio::test]
async fn a_prefix_finds_counters_of_any_length_or_says_that_it_cannot() {
    let redis = RedisServer::start();
    let memory = StoreKind::Memory;
    let stored = StoreKind::Redis {
        socket: redis.url(),
        prefix: "p:".to_owned(),
    };
    let settings = [
        ("ADMIN_TOKEN", "sesame"),
        ("LOCAL_CACHE_SIZE_IN_BYTES", "100000"),
    ];
    for store in [memory, stored] {
        let service = Service::of(RULES, store, &settings).await;
        let (path, agent, token) = ("p".repeat(60), "a".repeat(60), "t".repeat(60));
        let long = [
            ("user", "7"),
            ("path", path.as_str()),
            ("agent", agent.as_str()),
            ("token", token.as_str()),
        ];
        let other = [("user", "8"), long[1], long[2], long[3]];
        let code = async |entries: &[(&str, &str)]| {
            let answer = service.should_rate_limit(request("shop", &[entries])).await;
            answer.expect("decided").overall_code()
        };
        let reset = async |entries: &[(&str, &str)]| {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{key}={value}"))
                .collect();
            let query = format!("domain=shop&prefix=true&descriptor={}", entries.join(","));
            service
                .debug("POST", &format!("/reset?{query}"), TOKEN)
                .await
        };
        for _ in 0..3 {
            code(&long).await;
            code(&other).await;
        }
        for prefix in [&long[..1], &long[..2]] {
            assert_eq!(code(&long).await, Code::OverLimit);
            assert_eq!(reset(prefix).await.body, "forgotten: 1\n", "{prefix:?}");
            for expected in [Code::Ok, Code::Ok, Code::OverLimit] {
                assert_eq!(code(&long).await, expected, "the refusal is forgotten too");
            }
            assert_eq!(code(&other).await, Code::OverLimit, "another user's stays");
        }
        let refused = reset(&long[..4]).await;
        assert_eq!(refused.status, 400);
        assert!(refused.body.contains("too long"), "{}", refused.body);
        assert_eq!(code(&long).await, Code::OverLimit, "nothing is half done");
    }
}
