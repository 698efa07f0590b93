//! Faults of a real Redis under load, each with rules of all four failure policies at once: what was asked for is what
//! is answered, in time, and the service is whole again soon after.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use palang::proto::envoy::service::ratelimit::v3::{
    RateLimitResponse, rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
};
use tokio::{task::JoinSet, time::sleep};
use tonic::transport::Channel;

use crate::{
    server_harness::{descriptor, request},
    support::{
        process::Process,
        proxy::{Mode, Proxy},
        redis::RedisServer,
        service::channel,
    },
};

const RULES: &str = "
domain: d
descriptors:
  - key: error
    rate_limit: {unit: year, requests_per_unit: 1000000}
  - key: allow
    rate_limit: {unit: year, requests_per_unit: 1000000, on_store_failure: allow}
  - key: deny
    rate_limit: {unit: year, requests_per_unit: 1000000, on_store_failure: deny}
  - key: local
    rate_limit: {unit: year, requests_per_unit: 1000000, on_store_failure: local}
";

/// Above what a debug build on a busy machine takes for a call to a sound Redis.
pub(crate) const BUDGET: Duration = Duration::from_millis(200);

/// What such a machine may add to a time that is kept.
const SLACK: Duration = Duration::from_millis(500);

/// From the end of a fault to full service.
const RECOVERY: Duration = Duration::from_secs(3);

/// Without a failed call for that long, service counts as full.
const QUIET: Duration = Duration::from_millis(400);

pub(crate) const POLICIES: [&str; 4] = ["error", "allow", "deny", "local"];

/// Who answered a call, as the caller sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Store,
    Policy(Code),
    Unavailable,
    Other,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) policy: &'static str,
    pub(crate) at: Instant,
    pub(crate) took: Duration,
    pub(crate) answer: Answer,
}

impl Call {
    /// What its rule says for the time of a fault.
    pub(crate) fn as_asked(&self) -> bool {
        self.answer
            == match self.policy {
                "error" => Answer::Unavailable,
                "deny" => Answer::Policy(Code::OverLimit),
                _ => Answer::Policy(Code::Ok),
            }
    }
}

fn judge(policy: &str, answer: Result<RateLimitResponse, tonic::Status>) -> Answer {
    let response = match answer {
        Ok(response) => response,
        Err(status) if status.code() == tonic::Code::Unavailable => return Answer::Unavailable,
        Err(_) => return Answer::Other,
    };
    let marked = response
        .response_headers_to_add
        .iter()
        .find(|header| header.key == "X-Policy");
    let figures = response.statuses[0].current_limit.is_some();
    match marked {
        None if figures && response.overall_code() == Code::Ok => Answer::Store,
        // Only what was counted has figures.
        Some(marked) if marked.value == policy && figures == (policy == "local") => {
            Answer::Policy(response.overall_code())
        }
        _ => Answer::Other,
    }
}

/// A service on a Redis behind a proxy, and calls to it.
pub(crate) struct Bench {
    pub(crate) redis: RedisServer,
    pub(crate) proxy: Proxy,
    pub(crate) process: Process,
    stop: Arc<AtomicBool>,
    /// When a call was last not answered by the store.
    last_bad: Arc<Mutex<Instant>>,
    warm: Instant,
    callers: JoinSet<Vec<Call>>,
    _rules: tempfile::NamedTempFile,
}

pub(crate) async fn call(
    client: &mut RateLimitServiceClient<Channel>,
    policy: &'static str,
) -> Call {
    let at = Instant::now();
    let answer = client
        .should_rate_limit(request(vec![descriptor(policy, "v")]))
        .await;
    Call {
        policy,
        at,
        took: at.elapsed(),
        answer: judge(policy, answer.map(tonic::Response::into_inner)),
    }
}

impl Bench {
    /// A service with callers.
    async fn start(settings: &[(&str, &str)]) -> Self {
        let mut bench = Self::quiet(settings).await;
        bench.call_on().await;
        bench
    }

    /// A service that nobody calls yet.
    pub(crate) async fn quiet(settings: &[(&str, &str)]) -> Self {
        let redis = RedisServer::start();
        let proxy = Proxy::start(redis.socket()).await;
        let rules = crate::support::rules::file(RULES);
        let url = proxy.at.to_string();
        let budget = format!("{}ms", BUDGET.as_millis());
        let mut env = vec![
            ("REDIS_URL", url.as_str()),
            ("STORE_TIMEOUT", &budget),
            ("POLICY_ANSWER_HEADER", "X-Policy"),
            ("WORKERS", "2"),
        ];
        env.extend_from_slice(settings);
        let path = rules.path().display().to_string();
        let process = Process::start(&["serve", "--rules", &path], &env);
        process.ready().await;
        Self {
            redis,
            proxy,
            process,
            stop: Arc::default(),
            last_bad: Arc::new(Mutex::new(Instant::now())),
            warm: Instant::now(),
            callers: JoinSet::new(),
            _rules: rules,
        }
    }

    /// Eight callers, one call after the other each.
    async fn call_on(&mut self) {
        let grpc = self.process.address("grpc").await;
        for caller in 0..8 {
            let mut client = RateLimitServiceClient::new(channel(grpc).await);
            let stop = Arc::clone(&self.stop);
            let last_bad = Arc::clone(&self.last_bad);
            self.callers.spawn(async move {
                let mut calls = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let call = call(&mut client, POLICIES[(caller + calls.len()) % 4]).await;
                    if call.answer != Answer::Store {
                        *last_bad.lock().expect("no panic while held") = call.at;
                    }
                    calls.push(call);
                    sleep(Duration::from_millis(3)).await;
                }
                calls
            });
        }
        // Warm, so that the first calls are no exception.
        let since = Instant::now();
        while since.elapsed() < RECOVERY && self.since_bad() < QUIET {
            sleep(Duration::from_millis(20)).await;
        }
        self.warm = Instant::now();
    }

    async fn calls(&mut self) -> Vec<Call> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        while let Some(calls) = self.callers.join_next().await {
            all.extend(calls.expect("no caller panics"));
        }
        all
    }

    fn since_bad(&self) -> Duration {
        self.last_bad.lock().expect("no panic while held").elapsed()
    }

    async fn metric(&self, name: &str) -> u64 {
        self.process.metric(name).await
    }

    /// The fault begins, lasts, and ends; `kind` is what it is counted under.
    async fn fault(
        mut self,
        kind: &str,
        begin: impl FnOnce(&mut Self),
        end: impl FnOnce(&mut Self),
    ) {
        let memory = self.metric("process_resident_memory_bytes").await;
        let began = Instant::now();
        begin(&mut self);
        let begun = Instant::now();
        sleep(Duration::from_millis(1_200)).await;
        let counted = self
            .metric(&format!(
                "palang_store_errors_total{{store=\"main\",kind=\"{kind}\"}}"
            ))
            .await;
        let ending = Instant::now();
        end(&mut self);
        let ended = Instant::now();
        while ended.elapsed() < RECOVERY && self.since_bad() < QUIET {
            sleep(Duration::from_millis(20)).await;
        }
        let after = self.metric("process_resident_memory_bytes").await;
        let in_flight = self.metric("palang_in_flight").await;
        let calls = self.calls().await;

        assert!(counted > 0, "nothing was counted under {kind}");
        let late: Vec<_> = calls
            .iter()
            .filter(|call| call.took > BUDGET + SLACK)
            .collect();
        assert!(late.is_empty(), "too late: {late:?}");
        let wrong: Vec<_> = calls
            .iter()
            .filter(|call| call.answer != Answer::Store && !call.as_asked())
            .collect();
        assert!(
            wrong.is_empty(),
            "neither the store nor the policy: {wrong:?}"
        );
        // Everything that began after it had begun to show and ended before it was over.
        for policy in POLICIES {
            let during: Vec<_> = calls
                .iter()
                .filter(|call| {
                    call.policy == policy
                        && call.at > begun + Duration::from_millis(300)
                        && call.at + call.took < ending
                })
                .collect();
            assert!(during.len() > 5, "{policy}: only {} calls", during.len());
            let strange: Vec<_> = during.iter().filter(|call| !call.as_asked()).collect();
            assert!(strange.is_empty(), "{policy} during the fault: {strange:?}");
        }
        let before = calls
            .iter()
            .filter(|call| call.at > self.warm && call.at + call.took < began);
        let failed = before.filter(|call| call.answer != Answer::Store);
        assert_eq!(failed.count(), 0, "calls failed before the fault");
        let last = calls
            .iter()
            .filter(|call| call.answer != Answer::Store)
            .map(|call| call.at)
            .max()
            .expect("the fault showed");
        assert!(
            last + QUIET < ended + RECOVERY,
            "still failing {:?} after the end",
            last - ended
        );
        let tail = calls.iter().filter(|call| call.at > last).count();
        assert!(tail > 0, "no full service within {RECOVERY:?}");
        // The callers and the question for the metrics; nothing piles up.
        assert!(in_flight <= 9, "{in_flight} in flight");
        assert!(
            after < memory + 32 * 1024 * 1024,
            "memory grew from {memory} to {after}"
        );
    }

    pub(crate) fn config(&self, name: &str, value: &str) {
        redis::cmd("CONFIG")
            .arg("SET")
            .arg(name)
            .arg(value)
            .query::<()>(&mut self.redis.connection())
            .expect("set");
    }

    pub(crate) fn replica_of(&self, host: &str, port: &str) {
        redis::cmd("REPLICAOF")
            .arg(host)
            .arg(port)
            .query::<()>(&mut self.redis.connection())
            .expect("a role");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_and_started_again() {
    let bench = Bench::start(&[]).await;
    bench
        .fault(
            "unavailable",
            |bench| bench.redis.kill(),
            |bench| bench.redis.restart(),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_paused() {
    let bench = Bench::start(&[]).await;
    bench
        .fault(
            "timeout",
            |bench| bench.redis.signal("STOP"),
            |bench| bench.redis.signal("CONT"),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_refusing_auth() {
    let bench = Bench::start(&[]).await;
    bench
        .fault(
            "auth",
            |bench| {
                bench.config("requirepass", "pw");
                bench.proxy.turn(Mode::Drop);
                bench.proxy.turn(Mode::To(bench.redis.socket()));
                // Who was in before stays in.
                let _: Result<i64, _> = redis::cmd("CLIENT")
                    .arg(&["KILL", "TYPE", "normal"])
                    .query(&mut bench.redis.connection_with("pw"));
            },
            |bench| {
                redis::cmd("CONFIG")
                    .arg(&["SET", "requirepass", ""])
                    .query::<()>(&mut bench.redis.connection_with("pw"))
                    .expect("set");
            },
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_full() {
    let bench = Bench::start(&[]).await;
    bench
        .fault(
            "oom",
            |bench| bench.config("maxmemory", "1"),
            |bench| bench.config("maxmemory", "0"),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_a_replica() {
    let bench = Bench::start(&[]).await;
    bench
        .fault(
            "readonly",
            |bench| bench.replica_of("127.0.0.1", "1"),
            |bench| bench.replica_of("NO", "ONE"),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_failed_over_behind_its_name() {
    let bench = Bench::start(&[]).await;
    let new = RedisServer::start();
    let socket = new.socket();
    bench
        .fault(
            "readonly",
            // The old primary is a replica now, and keeps its connections open.
            |bench| bench.replica_of("127.0.0.1", "1"),
            |bench| bench.proxy.turn(Mode::To(socket)),
        )
        .await;
    assert!(new.calls_of("evalsha") > 0, "the new primary is asked");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_drops_connections() {
    let bench = Bench::start(&[]).await;
    bench
        .fault(
            "unavailable",
            |bench| bench.proxy.turn(Mode::Drop),
            |bench| bench.proxy.turn(Mode::To(bench.redis.socket())),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_silent() {
    let bench = Bench::start(&[]).await;
    bench
        .fault(
            "timeout",
            |bench| bench.proxy.turn(Mode::Silent),
            |bench| bench.proxy.turn(Mode::To(bench.redis.socket())),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_silent_while_logging_in() {
    let bench = Bench::start(&[("REDIS_AUTH", "default:any")]).await;
    bench
        .fault(
            "timeout",
            |bench| bench.proxy.turn(Mode::Silent),
            |bench| bench.proxy.turn(Mode::To(bench.redis.socket())),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_slow() {
    let bench = Bench::start(&[]).await;
    bench
        .fault(
            "timeout",
            |bench| {
                let late = Mode::Late(bench.redis.socket(), 4 * BUDGET);
                bench.proxy.turn(late);
            },
            |bench| bench.proxy.turn(Mode::To(bench.redis.socket())),
        )
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_connections_are_made_while_redis_is_in_trouble() {
    let mut bench = Bench::start(&[]).await;
    let made = |bench: &Bench| -> u64 {
        let info: String = redis::cmd("INFO")
            .arg("stats")
            .query(&mut bench.redis.connection())
            .expect("INFO answers");
        info.lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"))
            .and_then(|number| number.trim().parse().ok())
            .expect("a number")
    };
    bench.replica_of("127.0.0.1", "1");
    let before = made(&bench);
    sleep(Duration::from_secs(2)).await;
    let dials = made(&bench) - before;
    let calls = bench.calls().await.len();
    assert!(calls > 500, "{calls}");
    assert!(dials < 30, "{dials} connections for {calls} calls in 2 s");
    assert!(
        bench
            .metric("palang_store_breaker{store=\"main\",state=\"closed\"}")
            .await
            == 0
    );
}
