//! A million keys, domains and limits that nobody wrote: neither series nor memory grow with them.

use std::collections::BTreeSet;

use palang::proto::envoy::{
    extensions::common::ratelimit::v3::{
        RateLimitDescriptor,
        rate_limit_descriptor::{Entry, RateLimitOverride},
    },
    service::ratelimit::v3::{RateLimitRequest, rate_limit_service_client::RateLimitServiceClient},
    r#type::v3::RateLimitUnit,
};
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::support::{http, process::Process, rules::file, service::channel};

const RULES: &str = "\
domain: shop
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 1}
  - key: detail
    detailed_metric: true
    rate_limit: {unit: hour, requests_per_unit: 1, algorithm: token_bucket}
";

/// Most descriptors of a request.
const AT_ONCE: usize = 100;

/// Requests with so many, and requests for a domain, of each of four parts: a million texts.
const BATCHES: usize = 2_400;
const DOMAINS: usize = 10_000;

/// Calls in flight.
const CALLS: usize = 32;

/// Bytes that the process may grow between the first part and the last: what an allocator keeps, not what is kept for
/// keys. At 100 bytes for each of the 750,000 keys in between it would be 75 MB.
const SLACK: u64 = 12 << 20;

fn descriptor(key: &str, value: String, limit: Option<u32>) -> RateLimitDescriptor {
    RateLimitDescriptor {
        entries: vec![Entry {
            key: key.to_owned(),
            value,
        }],
        limit: limit.map(|requests_per_unit| RateLimitOverride {
            requests_per_unit,
            unit: RateLimitUnit::Minute.into(),
        }),
        ..RateLimitDescriptor::default()
    }
}

/// A request of one part: of a hundred texts some are keys of rules, some of none, some bring a limit; or a domain.
fn request(part: usize, number: usize) -> RateLimitRequest {
    if number >= BATCHES {
        return RateLimitRequest {
            domain: format!("{part}-{number}\n"),
            descriptors: vec![descriptor("user", "7".to_owned(), None)],
            hits_addend: 0,
        };
    }
    let descriptors = (0..AT_ONCE).map(|place| {
        let text = format!("{part} {number} {place} \"\n\u{202e}");
        match place % 5 {
            0 | 1 => descriptor("user", text, None),
            2 => descriptor("detail", text, None),
            3 => descriptor(&text, "v".to_owned(), None),
            _ => descriptor("user", text, Some((number * AT_ONCE + place) as u32)),
        }
    });
    RateLimitRequest {
        domain: "shop".to_owned(),
        descriptors: descriptors.collect(),
        hits_addend: 2,
    }
}

async fn ask(client: &RateLimitServiceClient<Channel>, part: usize) {
    let mut calls = JoinSet::new();
    for lane in 0..CALLS {
        let mut client = client.clone();
        calls.spawn(async move {
            for number in (lane..BATCHES + DOMAINS).step_by(CALLS) {
                let asked = client.should_rate_limit(request(part, number));
                asked.await.expect("decided");
            }
        });
    }
    calls.join_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_texts_of_requests_leave_series_and_memory_flat() {
    let rules = file(RULES);
    let path = rules.path().display().to_string();
    let process = Process::start(
        &["serve", "--rules", &path],
        &[
            ("MEMORY_MAX_KEYS", "20000"),
            ("LOCAL_CACHE_SIZE_IN_BYTES", "1000000"),
            ("METRICS_MAX_SERIES", "200"),
            ("DENY_LOG_PER_SECOND", "10"),
            ("STORE_TIMEOUT", "5s"),
            ("WORKERS", "2"),
        ],
    );
    let client = RateLimitServiceClient::new(channel(process.address("grpc").await).await);
    let metrics = process.address("metrics").await;
    let series = async || -> BTreeSet<String> {
        let page = http::get(metrics, "/metrics", &[])
            .await
            .expect("an answer");
        let lines = page.body.lines().filter(|line| !line.starts_with('#'));
        lines
            .filter_map(|line| line.rsplit_once(' '))
            .map(|(series, _)| series.to_owned())
            .filter(|series| !series.starts_with("palang_top_"))
            .collect()
    };
    // A quarter of it fills whatever is bounded.
    ask(&client, 0).await;
    let (early, before) = (series().await, process.usage().memory);
    for part in 1..4 {
        ask(&client, part).await;
    }
    let (late, after) = (series().await, process.usage().memory);

    let new: Vec<_> = late.difference(&early).collect();
    assert!(new.is_empty(), "{new:?}");
    assert!(late.len() < 2_000, "{} series", late.len());
    assert!(
        after < before + SLACK,
        "grown from {before} to {after} bytes"
    );
    let decided = process
        .metric("palang_decision_duration_seconds_count")
        .await;
    assert_eq!(decided, 4 * (BATCHES + DOMAINS) as u64);
    assert!(process.metric("palang_series_dropped_total").await > 100_000);
    assert!(process.metric("palang_memory_evictions_total").await > 100_000);
    assert!(process.metric("palang_memory_keys").await <= 20_000);
    assert!(process.metric("palang_deny_cache_bytes").await <= 1_000_000);
}
