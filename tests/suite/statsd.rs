//! Statistics for statsd and DogStatsD, with a receiver that reads them.

use std::time::Duration;

use crate::{
    server_harness::{get, post},
    support::{process::Process, statsd::Receiver},
};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    value: v
    rate_limit: {unit: hour, requests_per_unit: 2}
  - key: idle
    rate_limit: {unit: hour, requests_per_unit: 2}
";

const ASK: &[u8] = br#"{"domain":"d","descriptors":[{"entries":[{"key":"k","value":"v"}]}]}"#;

fn rules() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("rules.yaml"), RULES).expect("the rules are written");
    dir
}

/// A service that reports to this receiver every 20 ms.
fn service(dir: &tempfile::TempDir, receiver: &Receiver, env: &[(&str, &str)]) -> Process {
    let port = receiver.address().port().to_string();
    let mut all = vec![
        ("PALANG_RULES", dir.path().to_str().expect("a UTF-8 path")),
        ("STATSD_HOST", "127.0.0.1"),
        ("STATSD_PORT", port.as_str()),
        ("STATS_FLUSH_INTERVAL", "20ms"),
    ];
    all.extend(env);
    Process::start(&["serve"], &all)
}

async fn ask(process: &Process, times: usize) {
    let http = process.address("http").await;
    for _ in 0..times {
        let answer = post(http, "/json", ASK).await;
        assert!(matches!(answer.status, 200 | 429), "{}", answer.status);
    }
}

/// A decision over gRPC, whose time is reported.
async fn ask_over_grpc(process: &Process) {
    let mut client =
        palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient::new(
            crate::server_harness::connect(process.address("grpc").await).await,
        );
    let request = crate::server_harness::request(vec![crate::server_harness::descriptor("k", "v")]);
    client
        .should_rate_limit(request)
        .await
        .expect("the service answers");
}

#[tokio::test]
async fn statsd_over_tcp_is_told_what_was_added() {
    let (dir, receiver) = (rules(), Receiver::tcp());
    let process = service(&dir, &receiver, &[("LOCAL_CACHE_SIZE_IN_BYTES", "1000000")]);
    receiver
        .line("ratelimit.service.config_load_success:1|c")
        .await;
    ask(&process, 2).await;
    ask_over_grpc(&process).await;
    let hits = "ratelimit.service.rate_limit.d.k_v.total_hits";
    crate::support::eventually("three hits", async || {
        (receiver.sum(hits) == 3).then_some(())
    })
    .await;
    assert_eq!(
        receiver.sum("ratelimit.service.rate_limit.d.k_v.over_limit"),
        1
    );
    receiver
        .line("ratelimit_server.ShouldRateLimit.total_requests:1|c")
        .await;
    receiver.line("ratelimit.localcache.entryCount:1|g").await;
    receiver.line("ratelimit.localcache.missCount:3|g").await;
    ask(&process, 1).await;
    receiver.line("ratelimit.localcache.hitCount:1|g").await;
    receiver
        .line("ratelimit.service.rate_limit.d.k_v.over_limit_with_local_cache:1|c")
        .await;
    crate::support::eventually("the time of the call", async || {
        receiver
            .lines()
            .iter()
            .find_map(|line| {
                line.strip_prefix("ratelimit_server.ShouldRateLimit.response_time:")?
                    .strip_suffix("|ms")?
                    .parse::<f64>()
                    .ok()
            })
            .filter(|millis| *millis > 0.0)
    })
    .await;
    let lines = receiver.lines();
    assert!(
        !lines
            .iter()
            .any(|line| line.contains("idle") || line.contains(":0|c")),
        "only what grew is told: {lines:?}"
    );
    let metrics = get(process.address("metrics").await, "/metrics").await;
    assert!(
        metrics
            .body
            .contains("total_hits{domain=\"d\",key1=\"k_v\"} 4"),
        "statsd and Prometheus go together"
    );
}

#[tokio::test]
async fn statsd_over_udp_carries_tags_in_names() {
    let (dir, receiver) = (rules(), Receiver::udp());
    let process = service(
        &dir,
        &receiver,
        &[
            ("STATSD_PROTOCOL", "udp"),
            ("EXTRA_TAGS", "team:ed.ge,env:prod"),
        ],
    );
    ask(&process, 1).await;
    receiver
        .line("ratelimit.service.rate_limit.d.k_v.total_hits.__env=prod.__team=ed_ge:1|c")
        .await;
}

#[tokio::test]
async fn dogstatsd_is_told_tags_and_new_names() {
    let (dir, receiver) = (rules(), Receiver::udp());
    let process = service(
        &dir,
        &receiver,
        &[
            ("USE_STATSD", "false"),
            ("USE_DOG_STATSD", "true"),
            ("USE_DOG_STATSD_MOGRIFIERS", "HITS"),
            (
                "DOG_STATSD_MOGRIFIER_HITS_PATTERN",
                r"^ratelimit\.service\.rate_limit\.(.*)\.(.*)\.(.*)$",
            ),
            (
                "DOG_STATSD_MOGRIFIER_HITS_NAME",
                "ratelimit.service.rate_limit.$3",
            ),
            ("DOG_STATSD_MOGRIFIER_HITS_TAGS", "domain:$1,descriptor:$2"),
            ("EXTRA_TAGS", "env:prod"),
        ],
    );
    ask(&process, 1).await;
    receiver
        .line("ratelimit.service.rate_limit.total_hits:1|c|#env:prod,descriptor:k_v,domain:d")
        .await;
    receiver
        .line("ratelimit.service.config_load_success:1|c|#env:prod")
        .await;
}

#[tokio::test]
async fn a_receiver_that_is_away_costs_one_line_and_no_counts() {
    let (dir, receiver) = (rules(), Receiver::tcp());
    let address = receiver.address();
    let mut process = service(&dir, &receiver, &[]);
    ask(&process, 1).await;
    let hits = "ratelimit.service.rate_limit.d.k_v.total_hits";
    receiver.line(&format!("{hits}:1|c")).await;
    drop(receiver);
    ask(&process, 2).await;
    let away = |process: &Process| {
        process
            .log()
            .iter()
            .filter(|line| line.contains("the statsd receiver cannot be reached"))
            .count()
    };
    crate::support::eventually("it is noticed", async || (away(&process) > 0).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(away(&process), 1, "one line, not one for each report");

    let receiver = Receiver::tcp_at(address);
    receiver.line(&format!("{hits}:2|c")).await;
    ask(&process, 1).await;
    process.signal("TERM");
    process.wait(Duration::from_secs(10)).await;
    assert_eq!(receiver.sum(hits), 3, "the last report comes with the end");
}

#[tokio::test]
async fn without_a_receiver_named_nothing_is_sent() {
    let dir = rules();
    let path = dir.path().to_str().expect("a UTF-8 path");
    let process = Process::start(
        &["serve"],
        &[("PALANG_RULES", path), ("STATS_FLUSH_INTERVAL", "20ms")],
    );
    ask(&process, 1).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!process.log().join("\n").contains("statsd"));

    let receiver = Receiver::tcp();
    let silenced = service(&dir, &receiver, &[("DISABLE_STATS", "true")]);
    ask(&silenced, 1).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(receiver.lines(), [""; 0]);
}
