//! Faults of a real Redis under load, each with rules of all four failure policies at once: what was asked for is what
//! is answered, in time, and the service is whole again soon after. The table of faults is in `support::faults`.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tokio::{
    task::{JoinSet, block_in_place},
    time::sleep,
};

use crate::support::{
    PATIENCE,
    faults::{Answer, Call, Fault, POLICIES, Stage},
    process::{Process, Usage},
    service::channel,
};

/// Above what a debug build on a busy machine takes for a call to a sound Redis.
pub(crate) const BUDGET: Duration = Duration::from_millis(200);

/// What such a machine may add to a time that is kept. `tests/budget` holds the default budget to 5 ms.
const SLACK: Duration = Duration::from_millis(500);

/// From the end of a fault to full service.
const RECOVERY: Duration = Duration::from_secs(3);

/// Without a failed call for that long, service counts as full.
const QUIET: Duration = Duration::from_millis(400);

/// The settings of these tests.
pub(crate) const SETTINGS: (&str, &str) = ("STORE_TIMEOUT", "200ms");

/// A service on a Redis that things are done to, and calls to it.
struct Bench {
    stage: Stage,
    process: Process,
    stop: Arc<AtomicBool>,
    /// When a call was last not answered by the store.
    last_bad: Arc<Mutex<Instant>>,
    warm: Instant,
    callers: JoinSet<Vec<Call>>,
}

impl Bench {
    /// A service with eight callers, one call after the other each.
    async fn start(settings: &[(&str, &str)]) -> Self {
        let stage = Stage::start(BUDGET).await;
        let mut all = vec![SETTINGS];
        all.extend_from_slice(settings);
        let process = stage.serve(&all).await;
        let mut bench = Self {
            stage,
            process,
            stop: Arc::default(),
            last_bad: Arc::new(Mutex::new(Instant::now())),
            warm: Instant::now(),
            callers: JoinSet::new(),
        };
        let grpc = bench.process.address("grpc").await;
        for caller in 0..8 {
            let mut client = RateLimitServiceClient::new(channel(grpc).await);
            let stop = Arc::clone(&bench.stop);
            let last_bad = Arc::clone(&bench.last_bad);
            bench.callers.spawn(async move {
                let mut calls = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let policy = POLICIES[(caller + calls.len()) % 4];
                    let call = Call::make(&mut client, policy).await;
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
        bench.quiet().await;
        bench.warm = Instant::now();
        bench
    }

    /// Waits for full service, as long as that may take.
    async fn quiet(&self) {
        let since = Instant::now();
        while since.elapsed() < RECOVERY && self.since_bad() < QUIET {
            sleep(Duration::from_millis(20)).await;
        }
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

    /// The fault begins, lasts, and ends.
    async fn suffer(mut self, fault: Fault) {
        let kind = format!(
            "palang_store_errors_total{{store=\"main\",kind=\"{}\"}}",
            fault.kind()
        );
        let before = self.process.usage();
        let began = Instant::now();
        block_in_place(|| fault.begin(&mut self.stage));
        let begun = Instant::now();
        // It lasts; how it shows is looked at afterwards.
        sleep(Duration::from_millis(1_200)).await;
        let counted = self.metric(&kind).await;
        let ending = Instant::now();
        block_in_place(|| fault.end(&mut self.stage));
        let ended = Instant::now();
        self.quiet().await;
        let in_flight = self.metric("palang_in_flight").await;
        let calls = self.calls().await;
        let asked = self.stage.redis().calls_of("evalsha");

        assert!(asked > 0, "the primary of now is asked");
        assert!(counted > 0, "nothing was counted under {}", fault.kind());
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
        for policy in POLICIES {
            // Everything that began after it had begun to show and ended before it was over.
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
            assert!(
                strange.is_empty() || !fault.is_total(),
                "{policy} during the fault: {strange:?}"
            );
        }
        let early = calls
            .iter()
            .filter(|call| call.at > self.warm && call.at + call.took < began);
        let failed = early.filter(|call| call.answer != Answer::Store);
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
        self.has_let_go(&before).await;
    }

    /// What the process holds is what it held before, but for the few connections of a pool.
    async fn has_let_go(&self, before: &Usage) {
        let within = |now: &Usage| {
            now.threads == before.threads
                && now.descriptors <= before.descriptors + 8
                && now.memory < before.memory + 32 * 1024 * 1024
        };
        let since = Instant::now();
        loop {
            let now = self.process.usage();
            if within(&now) {
                return;
            }
            assert!(since.elapsed() < PATIENCE, "{before:?}, then {now:?}");
            sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_and_started_again() {
    Bench::start(&[]).await.suffer(Fault::Killed).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_restarted_again_and_again() {
    Bench::start(&[]).await.suffer(Fault::Restarted).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_paused() {
    Bench::start(&[]).await.suffer(Fault::Paused).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_slow() {
    Bench::start(&[]).await.suffer(Fault::Slow).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_refusing_auth() {
    Bench::start(&[]).await.suffer(Fault::RefusingAuth).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_full() {
    Bench::start(&[]).await.suffer(Fault::Full).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_a_replica() {
    Bench::start(&[]).await.suffer(Fault::Replica).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_failed_over_behind_its_name() {
    Bench::start(&[]).await.suffer(Fault::FailedOver).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_drops_connections() {
    Bench::start(&[]).await.suffer(Fault::Dropping).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_silent() {
    Bench::start(&[]).await.suffer(Fault::Silent).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_silent_while_logging_in() {
    Bench::start(&[("REDIS_AUTH", "default:any")])
        .await
        .suffer(Fault::Silent)
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_network_that_is_slow() {
    Bench::start(&[]).await.suffer(Fault::Late).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_connections_are_made_while_redis_is_in_trouble() {
    let mut bench = Bench::start(&[]).await;
    let made = |bench: &mut Bench| -> u64 {
        let info: String = redis::cmd("INFO")
            .arg("stats")
            .query(&mut bench.stage.redis().connection())
            .expect("INFO answers");
        info.lines()
            .find_map(|line| line.strip_prefix("total_connections_received:"))
            .and_then(|number| number.trim().parse().ok())
            .expect("a number")
    };
    Fault::Replica.begin(&mut bench.stage);
    let before = made(&mut bench);
    sleep(Duration::from_secs(2)).await;
    let dials = made(&mut bench) - before;
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
