//! Replicas that come and go under load, and connections that grow old: callers that heed GOAWAY lose no call.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use palang::proto::envoy::service::ratelimit::v3::{
    RateLimitRequest, rate_limit_service_client::RateLimitServiceClient,
};
use tokio::{task::JoinSet, time::sleep};

use crate::{
    server_harness::{descriptor, get, request},
    support::{
        eventually,
        h2::{Connection, Fate},
        process::Process,
        redis::RedisServer,
        rules::file,
        service::channel,
    },
};

const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: {unit: year, requests_per_unit: 100000000}
";

/// Calls that arrived at a replica.
const ARRIVED: &str = "ratelimit_service_total_requests{grpc_method=\"ShouldRateLimit\"}";

fn asked() -> RateLimitRequest {
    request(vec![descriptor("k", "v")])
}

/// The addresses a caller may choose from, as a headless service or a mesh would tell it.
#[derive(Clone, Default)]
struct Endpoints(Arc<Mutex<Vec<SocketAddr>>>);

impl Endpoints {
    fn add(&self, at: SocketAddr) {
        self.0.lock().expect("no panic while held").push(at);
    }

    fn remove(&self, at: SocketAddr) {
        let mut all = self.0.lock().expect("no panic while held");
        all.retain(|other| *other != at);
    }

    fn choose(&self, number: usize) -> SocketAddr {
        let all = self.0.lock().expect("no panic while held");
        all[number % all.len()]
    }
}

/// What one caller saw.
#[derive(Debug, Default)]
struct Tally {
    answered: usize,
    failed: Vec<Fate>,
}

/// How many hits the counter holds, this one included.
async fn charged(process: &Process) -> u64 {
    let channel = channel(process.address("grpc").await).await;
    let answer = RateLimitServiceClient::new(channel)
        .should_rate_limit(asked())
        .await
        .expect("decided");
    100_000_000 - u64::from(answer.into_inner().statuses[0].limit_remaining)
}

/// Calls one after the other, and takes another connection where one is gone, as a proxy does.
async fn call_on(endpoints: Endpoints, caller: usize, stop: Arc<AtomicBool>) -> Tally {
    let mut tally = Tally::default();
    let mut tried = caller;
    let mut connection = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(open) = &mut connection else {
            tried += 1;
            connection = Connection::open(endpoints.choose(tried)).await;
            continue;
        };
        match open.call(&asked(), None).await {
            Fate::Answered(0) => tally.answered += 1,
            // The same call goes on another connection.
            Fate::NeverSent => connection = None,
            fate => tally.failed.push(fate),
        }
        sleep(Duration::from_millis(2)).await;
    }
    tally
}

async fn replica(redis: &RedisServer, rules: &str) -> Process {
    let url = redis.url();
    let process = Process::start(
        &["serve", "--rules", rules],
        &[
            ("REDIS_SOCKET_TYPE", "unix"),
            ("REDIS_URL", &url),
            ("STORE_TIMEOUT", "2s"),
            ("WORKERS", "2"),
            ("SHUTDOWN_DELAY", "300ms"),
        ],
    );
    process.ready().await;
    process
}

/// Waits until some hundred calls arrived at these.
async fn are_called(replicas: &[Process]) {
    eventually("they are called", async || {
        let mut sum = 0;
        for process in replicas {
            sum += process.metric(ARRIVED).await;
        }
        (sum > 400).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rolling_restart_loses_no_call() {
    let (redis, rules) = (RedisServer::start(), file(RULES));
    let rules = rules.path().display().to_string();
    let endpoints = Endpoints::default();
    let mut replicas = Vec::new();
    for _ in 0..2 {
        let process = replica(&redis, &rules).await;
        endpoints.add(process.address("grpc").await);
        replicas.push(process);
    }
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for caller in 0..16 {
        callers.spawn(call_on(endpoints.clone(), caller, Arc::clone(&stop)));
    }
    are_called(&replicas).await;
    let mut replaced = Vec::new();
    for mut old in replicas {
        let new = replica(&redis, &rules).await;
        endpoints.add(new.address("grpc").await);
        let (grpc, http) = (old.address("grpc").await, old.address("http").await);
        old.signal("TERM");
        eventually("it is not ready", async || {
            let answer = get(http, "/readyz").await;
            (answer.status == 503).then_some(())
        })
        .await;
        endpoints.remove(grpc);
        let status = old.wait(Duration::from_secs(10)).await;
        assert_eq!(status.code(), Some(0));
        replaced.push(new);
    }
    are_called(&replaced).await;
    stop.store(true, Ordering::Relaxed);
    let mut answered = 0;
    while let Some(tally) = callers.join_next().await {
        let tally = tally.expect("no caller panics");
        assert_eq!(tally.failed, [], "{} were answered", tally.answered);
        answered += tally.answered;
    }
    assert!(answered > 500, "{answered}");
    // None was charged without an answer either.
    assert_eq!(charged(&replaced[1]).await, answered as u64 + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_connections_go_one_by_one_and_lose_no_call() {
    const CONNECTIONS: usize = 60;
    let rules = file(RULES);
    let process = Process::start(
        &["serve", "--rules", &rules.path().display().to_string()],
        &[
            ("GRPC_MAX_CONNECTION_AGE", "2s"),
            ("GRPC_MAX_CONNECTION_AGE_GRACE", "10s"),
            ("WORKERS", "2"),
        ],
    );
    process.ready().await;
    let at = process.address("grpc").await;
    let mut callers = JoinSet::new();
    for _ in 0..CONNECTIONS {
        let mut connection = Connection::open(at).await.expect("accepted");
        let opened = Instant::now();
        callers.spawn(async move {
            let mut answered = 0;
            loop {
                match connection.call(&asked(), None).await {
                    Fate::Answered(0) => answered += 1,
                    Fate::NeverSent => break,
                    fate => panic!("{fate:?} after {answered} calls"),
                }
                sleep(Duration::from_millis(10)).await;
            }
            connection.closed().await;
            (answered, opened.elapsed())
        });
    }
    let mut ages = Vec::new();
    let mut sum = 0;
    while let Some(caller) = callers.join_next().await {
        let (answered, age) = caller.expect("no call was lost");
        assert!(answered > 10, "{answered}");
        sum += answered;
        ages.push(age);
    }
    // Every call that arrived was answered.
    assert_eq!(process.metric(ARRIVED).await, sum);
    ages.sort();
    let (first, last) = (ages[0], ages[CONNECTIONS - 1]);
    assert!(
        first >= Duration::from_millis(1_750) && last < Duration::from_millis(3_000),
        "{first:?} to {last:?}"
    );
    // Give or take 10 %: 400 ms for all of them.
    let half = ages[CONNECTIONS * 3 / 4] - ages[CONNECTIONS / 4];
    assert!(half > Duration::from_millis(60), "{ages:?}");
}
