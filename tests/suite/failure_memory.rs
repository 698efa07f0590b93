//! Memory while callers bring a million keys and limits of their own, and Redis stands still under them.

use palang::proto::envoy::{
    extensions::common::ratelimit::v3::{
        RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride,
    },
    service::ratelimit::v3::{RateLimitRequest, rate_limit_service_client::RateLimitServiceClient},
    r#type::v3::RateLimitUnit,
};
use tokio::task::JoinSet;

use crate::{
    server_harness::descriptor,
    support::{process::Process, redis::RedisServer, rules::file, service::channel},
};

const RULES: &str = "
domain: d
descriptors:
  - key: local
    rate_limit: {unit: hour, requests_per_unit: 100, on_store_failure: local}
  - key: allow
    rate_limit: {unit: hour, requests_per_unit: 100, on_store_failure: allow}
  - key: nothing
    rate_limit: {unit: hour, requests_per_unit: 1, cost: 1, on_store_failure: local}
";

/// Descriptors of one request.
const EACH: u64 = 100;

/// Most counters, and what is known of counters, that the service may keep.
const BOUND: &str = "20000";

/// What may come and go, in bytes: pools, queues, what an allocator keeps.
const FLAT: u64 = 24 * 1024 * 1024;

/// The request of that number: half of its keys by rules, half with limits that no other request has, every tenth in a
/// domain of its own.
fn strange(number: u64) -> RateLimitRequest {
    let descriptors = (0..EACH).map(|place| {
        let value = (number * EACH + place).to_string();
        let key = ["local", "allow", "nothing", "local"][place as usize % 4];
        let limit = (place % 2 == 0).then(|| RateLimitOverride {
            requests_per_unit: u32::try_from(number % 1_000_000).expect("small") + 1,
            unit: RateLimitUnit::Hour.into(),
        });
        RateLimitDescriptor {
            limit,
            // Some are refused, and remembered as such.
            hits_addend: (key == "nothing").then_some(2),
            ..descriptor(key, &value)
        }
    });
    RateLimitRequest {
        domain: if number.is_multiple_of(10) {
            format!("d{number}")
        } else {
            "d".to_owned()
        },
        descriptors: descriptors.collect(),
        hits_addend: 0,
    }
}

/// Makes the requests of these numbers, a few at a time.
async fn load(process: &Process, numbers: std::ops::Range<u64>) {
    let at = process.address("grpc").await;
    let mut callers = JoinSet::new();
    for caller in 0..4 {
        let mut client = RateLimitServiceClient::new(channel(at).await);
        let own = numbers.clone().skip(caller).step_by(4);
        callers.spawn(async move {
            for number in own {
                // With a rule of the default policy it would fail: there is none.
                client
                    .should_rate_limit(strange(number))
                    .await
                    .expect("answered");
            }
        });
    }
    while let Some(done) = callers.join_next().await {
        done.expect("no caller panics");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_keys_and_a_redis_that_stands_still_leave_memory_flat() {
    let (redis, rules) = (RedisServer::start(), file(RULES));
    let url = redis.url();
    let process = Process::start(
        &["serve", "--rules", &rules.path().display().to_string()],
        &[
            ("REDIS_SOCKET_TYPE", "unix"),
            ("REDIS_URL", &url),
            ("FAILURE_MODE", "allow"),
            ("MEMORY_MAX_KEYS", BOUND),
            ("WORKERS", "2"),
        ],
    );
    process.ready().await;
    // Every map is at its bound after that.
    load(&process, 0..1_000).await;
    redis.signal("STOP");
    load(&process, 1_000..2_000).await;
    redis.signal("CONT");
    let warm = process.usage();
    load(&process, 2_000..3_500).await;
    let sound = process.usage();
    redis.signal("STOP");
    load(&process, 3_500..10_000).await;
    let paused = process.usage();
    let kept = process.metric("palang_local_keys{store=\"main\"}").await;
    println!("{warm:?}, {sound:?}, {paused:?}, {kept} counted here");
    for after in [sound, paused] {
        assert!(after.memory < warm.memory + FLAT, "{warm:?}, {after:?}");
        assert_eq!(after.threads, warm.threads);
        assert!(
            after.descriptors < warm.descriptors + 16,
            "{warm:?}, {after:?}"
        );
    }
    assert!((1_000..=20_000).contains(&kept), "{kept} counted here");
}
