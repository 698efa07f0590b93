//! Deadlines, overload and this replica's own counts, over real processes and a real Redis.

use std::{
    net::ToSocketAddrs as _,
    time::{Duration, Instant},
};

use palang::proto::envoy::service::ratelimit::v3::{
    RateLimitResponse, rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
};
use tokio::{task::JoinSet, time::sleep};
use tonic::transport::Channel;

use crate::{
    server_harness::{descriptor, get, post, request},
    support::{
        eventually,
        h2::{Connection, Fate},
        process::Process,
        redis::RedisServer,
        rules::file,
        service::channel,
        service::struct_to_json,
    },
};

const RULES: &str = "
domain: d
descriptors:
  - key: error
    rate_limit: {unit: year, requests_per_unit: 100000}
  - key: allow
    rate_limit: {unit: year, requests_per_unit: 100000, on_store_failure: allow}
  - key: local
    rate_limit: {unit: year, requests_per_unit: 10, on_store_failure: local}
  - key: deny
    rate_limit: {unit: year, requests_per_unit: 10, on_store_failure: deny}
";

type Client = RateLimitServiceClient<Channel>;

struct Bench {
    redis: RedisServer,
    process: Process,
    client: Client,
    _rules: tempfile::NamedTempFile,
}

impl Bench {
    async fn start(settings: &[(&str, &str)]) -> Self {
        let (redis, rules) = (RedisServer::start(), file(RULES));
        let url = redis.url();
        let mut env = vec![
            ("REDIS_SOCKET_TYPE", "unix"),
            ("REDIS_URL", url.as_str()),
            ("POLICY_ANSWER_HEADER", "X-Policy"),
            ("RESPONSE_DYNAMIC_METADATA", "true"),
            ("WORKERS", "1"),
        ];
        env.extend_from_slice(settings);
        let path = rules.path().display().to_string();
        let process = Process::start(&["serve", "--rules", &path], &env);
        process.ready().await;
        let client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
        Self {
            redis,
            process,
            client,
            _rules: rules,
        }
    }

    async fn ask(&self, key: &str) -> Result<RateLimitResponse, tonic::Status> {
        let asked = request(vec![descriptor(key, "v")]);
        let answer = self.client.clone().should_rate_limit(asked).await;
        answer.map(tonic::Response::into_inner)
    }

    async fn metric(&self, name: &str) -> u64 {
        self.process.metric(name).await
    }
}

fn policy(answer: &RateLimitResponse) -> Option<&str> {
    let headers = &answer.response_headers_to_add;
    let found = headers.iter().find(|header| header.key == "X-Policy");
    found.map(|header| header.value.as_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_takes_no_longer_than_its_caller_waits() {
    let bench = Bench::start(&[("STORE_TIMEOUT", "20s"), ("DEADLINE_MARGIN", "300ms")]).await;
    let before = bench.ask("error").await.expect("decided");
    bench.redis.signal("STOP");
    let patience = Duration::from_millis(700);
    let mut calls = JoinSet::new();
    for caller in 0..50 {
        if caller == 1 {
            // The first is on its way, the others wait for it.
            eventually("it is on its way", async || {
                (bench.metric("palang_in_flight").await == 1).then_some(())
            })
            .await;
        }
        let mut client = bench.client.clone();
        calls.spawn(async move {
            let key = ["error", "allow"][caller % 2];
            let mut asked = tonic::Request::new(request(vec![descriptor(key, "v")]));
            asked.set_timeout(patience);
            let since = Instant::now();
            let answer = client.should_rate_limit(asked).await;
            assert!(since.elapsed() < patience, "{:?}", since.elapsed());
            (key, answer.map(tonic::Response::into_inner))
        });
    }
    while let Some(call) = calls.join_next().await {
        let (key, answer) = call.expect("no caller panics");
        if key == "allow" {
            let answer = answer.expect("the policy answers in time");
            assert_eq!(policy(&answer), Some("allow"));
            let metadata = answer.dynamic_metadata.as_ref().map(struct_to_json);
            let metadata = metadata.expect("asked for");
            assert_eq!(metadata["policy_answer"], serde_json::json!(["allow"]));
            assert_eq!(answer.statuses[0].current_limit, None);
            assert_eq!(answer.statuses[0].duration_until_reset, None);
        } else {
            let status = answer.expect_err("nobody decided");
            assert_eq!(status.code(), tonic::Code::Unavailable, "{status:?}");
        }
    }
    bench.redis.signal("CONT");
    // What still waited when its caller went was never sent.
    let after = eventually("Redis decides again", async || {
        bench.ask("error").await.ok()
    })
    .await;
    let left = |answer: &RateLimitResponse| answer.statuses[0].limit_remaining;
    let charged = left(&before) - left(&after) - 1;
    assert!(charged <= 1, "{charged} of 25 calls were charged");
    assert_eq!(bench.metric("palang_late_answers_total").await, 0);
}

#[tokio::test]
async fn late_answers_are_counted() {
    let bench = Bench::start(&[("STORE_TIMEOUT", "5s")]).await;
    let at = bench.process.address("grpc").await;
    // A client that does not stop waiting by itself.
    let mut connection = Connection::open(at).await.expect("accepted");
    let asked = request(vec![descriptor("error", "v")]);
    let fate = connection.call(&asked, Some(Duration::from_nanos(1))).await;
    // UNAVAILABLE: there was no time to ask the store.
    assert_eq!(fate, Fate::Answered(14));
    assert_eq!(bench.metric("palang_late_answers_total").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_much_is_answered_at_once() {
    let bench = Bench::start(&[("STORE_TIMEOUT", "2s"), ("MAX_IN_FLIGHT", "4")]).await;
    bench.redis.signal("STOP");
    let mut calls = JoinSet::new();
    for _ in 0..60 {
        let mut client = bench.client.clone();
        calls.spawn(async move {
            let since = Instant::now();
            let asked = request(vec![descriptor("allow", "v")]);
            let answer = client.should_rate_limit(asked).await.expect("answered");
            assert_eq!(policy(answer.get_ref()), Some("allow"));
            since.elapsed()
        });
    }
    let mut waited = 0;
    while let Some(took) = calls.join_next().await {
        waited += usize::from(took.expect("no caller panics") > Duration::from_secs(1));
    }
    assert_eq!(waited, 4);
    let shed = "palang_store_errors_total{store=\"main\",kind=\"overloaded\"}";
    assert_eq!(bench.metric(shed).await, 56);
    bench.redis.signal("CONT");
    eventually("the store decides again", async || {
        let answer = bench.ask("allow").await.ok()?;
        policy(&answer).is_none().then_some(())
    })
    .await;
}

/// Answers and how many of them were the store's, of so many callers in one second.
async fn load(client: &Client, callers: usize) -> (u64, u64) {
    let end = Instant::now() + Duration::from_secs(1);
    let mut tasks = JoinSet::new();
    for _ in 0..callers {
        let mut client = client.clone();
        tasks.spawn(async move {
            let (mut answered, mut decided) = (0, 0);
            while Instant::now() < end {
                let asked = request(vec![descriptor("allow", "v")]);
                let answer = client.should_rate_limit(asked).await.expect("answered");
                answered += 1;
                decided += u64::from(policy(answer.get_ref()).is_none());
            }
            (answered, decided)
        });
    }
    let mut sum = (0, 0);
    while let Some(counts) = tasks.join_next().await {
        let (answered, decided) = counts.expect("no caller panics");
        sum = (sum.0 + answered, sum.1 + decided);
    }
    sum
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn far_more_callers_than_it_can_serve_do_not_bring_it_down() {
    let bench = Bench::start(&[("STORE_TIMEOUT", "50ms"), ("MAX_IN_FLIGHT", "64")]).await;
    load(&bench.client, 8).await;
    let (few, _) = load(&bench.client, 8).await;
    let (many, _) = load(&bench.client, 512).await;
    assert!(many * 2 > few, "{few} answers a second, then {many}");
    eventually("it recovers", async || {
        let (answered, decided) = load(&bench.client, 8).await;
        (decided * 10 > answered * 9 && answered * 2 > few).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_replica_counts_its_share_from_what_was_left() {
    let mut bench = Bench::start(&[("STORE_TIMEOUT", "2s"), ("REPLICAS", "2")]).await;
    for _ in 0..4 {
        let answer = bench.ask("local").await.expect("decided");
        assert_eq!((answer.overall_code(), policy(&answer)), (Code::Ok, None));
    }
    bench.redis.kill();
    // 6 are left for both replicas.
    let mut admitted = 0;
    for _ in 0..8 {
        let answer = bench.ask("local").await.expect("counted here");
        assert_eq!(policy(&answer), Some("local"));
        assert!(answer.statuses[0].current_limit.is_some(), "it was counted");
        admitted += u32::from(answer.overall_code() == Code::Ok);
    }
    assert_eq!(admitted, 3);
    assert_eq!(
        bench
            .metric("palang_policy_answers_total{policy=\"local\"}")
            .await,
        8
    );
    bench.redis.restart();
    let answer = eventually("the store decides again", async || {
        let answer = bench.ask("local").await.ok()?;
        policy(&answer).is_none().then_some(answer)
    })
    .await;
    assert_eq!(answer.overall_code(), Code::Ok);
}

#[tokio::test]
async fn a_refusal_by_policy_shows_no_figures_of_a_rule_that_passed() {
    let mut bench = Bench::start(&[
        ("LIMIT_RESPONSE_HEADERS_ENABLED", "true"),
        ("RATE_LIMIT_HEADERS", "ietf,x-ratelimit,retry-after"),
    ])
    .await;
    bench.redis.kill();
    let asked = request(vec![descriptor("local", "v"), descriptor("deny", "v")]);
    let answer = bench.client.should_rate_limit(asked).await;
    let answer = answer.expect("answered").into_inner();
    assert_eq!(answer.overall_code(), Code::OverLimit);
    let names: Vec<&str> = answer
        .response_headers_to_add
        .iter()
        .map(|header| header.key.as_str())
        .collect();
    assert_eq!(names, ["X-Policy"]);
    assert_eq!(policy(&answer), Some("deny, local"));
    // Each status has its own figures, or none.
    assert!(answer.statuses[0].current_limit.is_some());
    assert!(answer.statuses[1].current_limit.is_none());
    let entries = |key| format!(r#"{{"entries": [{{"key": "{key}", "value": "v"}}]}}"#);
    let body = format!(
        r#"{{"domain": "d", "descriptors": [{}, {}]}}"#,
        entries("local"),
        entries("deny")
    );
    let http = bench.process.address("http").await;
    let answer = post(http, "/json", body.as_bytes()).await;
    assert_eq!(answer.status, 429);
    let head = answer.head.to_ascii_lowercase();
    assert!(head.contains("x-policy: deny, local"), "{head}");
    assert!(
        !head.contains("ratelimit") && !head.contains("retry-after"),
        "{head}"
    );
}

#[tokio::test]
async fn replicas_are_counted_by_name() {
    let addresses: std::collections::HashSet<_> = ("localhost", 0)
        .to_socket_addrs()
        .expect("localhost resolves")
        .map(|address| address.ip())
        .collect();
    let bench = Bench::start(&[("REPLICAS", "7"), ("REPLICAS_DNS", "localhost")]).await;
    eventually("the name is looked up", async || {
        let counted = bench.metric("palang_replicas").await;
        (counted == addresses.len() as u64).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_that_give_up_together_keep_their_connection() {
    let bench = Bench::start(&[("STORE_TIMEOUT", "1s")]).await;
    for _ in 0..3 {
        bench.redis.signal("STOP");
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(1) {
            let mut calls = JoinSet::new();
            for _ in 0..500 {
                let mut client = bench.client.clone();
                calls.spawn(async move {
                    let asked = request(vec![descriptor("allow", "v")]);
                    let call = client.should_rate_limit(asked);
                    drop(tokio::time::timeout(Duration::from_millis(20), call).await);
                });
            }
            while calls.join_next().await.is_some() {}
            // They come again after a while.
            sleep(Duration::from_millis(100)).await;
        }
        bench.redis.signal("CONT");
    }
    eventually("the store decides", async || bench.ask("error").await.ok()).await;
    // One connection from the start: none was cut off.
    let metrics = get(bench.process.address("metrics").await, "/metrics")
        .await
        .body;
    assert!(
        metrics.contains("palang_connections{port=\"grpc\"} 1"),
        "{metrics}"
    );
}
