//! Several processes on one Redis: a limit is one limit.

use palang::proto::envoy::{
    extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    service::ratelimit::v3::{
        RateLimitRequest, rate_limit_response::Code,
        rate_limit_service_client::RateLimitServiceClient,
    },
};
use tonic::transport::Channel;

use crate::support::{process::Process, redis::RedisServer, service::channel};

/// One rule for each algorithm, each 100 in a stretch of time that outlasts the test.
const RULES: &str = "
domain: d
descriptors:
  - key: fixed_window
    rate_limit: {unit: year, requests_per_unit: 100}
  - key: sliding_window
    rate_limit: {unit: year, requests_per_unit: 100, algorithm: sliding_window}
  - key: sliding_log
    rate_limit: {unit: year, requests_per_unit: 100, algorithm: sliding_log}
  - key: token_bucket
    rate_limit: {unit: year, requests_per_unit: 100, algorithm: token_bucket}
  - key: leaky_bucket
    rate_limit: {unit: year, requests_per_unit: 100, algorithm: leaky_bucket}
  - key: queue
    # One slot each 87.6 hours, 100 of them within the longest wait.
    rate_limit: {unit: year, requests_per_unit: 100, algorithm: leaky_bucket, max_delay: 8700h}
";

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_share_one_limit_exactly() {
    let redis = RedisServer::start();
    let home = tempfile::tempdir().expect("a temporary directory");
    let rules = home.path().join("rules.yaml");
    std::fs::write(&rules, RULES).expect("the rules are written");
    let url = redis.url();
    let replicas: Vec<Process> = (0..3)
        .map(|_| {
            Process::start(
                &["serve", "--rules", rules.to_str().expect("a UTF-8 path")],
                &[
                    ("REDIS_SOCKET_TYPE", "unix"),
                    ("REDIS_URL", &url),
                    // 500 calls at once on a debug build: the count is under test here, not the time.
                    ("STORE_TIMEOUT", "10s"),
                ],
            )
        })
        .collect();
    let mut clients = Vec::new();
    for replica in &replicas {
        clients.push(RateLimitServiceClient::new(
            channel(replica.address("grpc").await).await,
        ));
    }
    for algorithm in [
        "fixed_window",
        "sliding_window",
        "sliding_log",
        "token_bucket",
        "leaky_bucket",
        "queue",
    ] {
        let calls: Vec<_> = (0..500)
            .map(|call| tokio::spawn(ask(clients[call % clients.len()].clone(), algorithm)))
            .collect();
        let mut admitted = 0;
        for call in calls {
            if call.await.expect("the call ends") == Code::Ok {
                admitted += 1;
            }
        }
        assert_eq!(admitted, 100, "{algorithm}");
    }
    redis.no_key_without_expiry();
}

async fn ask(mut client: RateLimitServiceClient<Channel>, key: &str) -> Code {
    let request = RateLimitRequest {
        domain: "d".to_owned(),
        descriptors: vec![RateLimitDescriptor {
            entries: vec![Entry {
                key: key.to_owned(),
                value: "same".to_owned(),
            }],
            ..RateLimitDescriptor::default()
        }],
        hits_addend: 0,
    };
    client
        .should_rate_limit(request)
        .await
        .expect("the service answers")
        .into_inner()
        .overall_code()
}
