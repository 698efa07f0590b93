//! Every call is answered within its budget and 5 ms more, whatever happens to Redis: each fault, each policy, with the
//! default `STORE_TIMEOUT`, at the caller. A binary of its own, because cargo runs binaries one after the other: what
//! is measured here shares the machine with no other test.
//!
//! What the machine itself does is taken out, so that a busy one fails no test: see `control`.

mod control;
#[path = "../suite/support/mod.rs"]
#[expect(dead_code, reason = "the suite's, which uses all of it")]
mod support;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tokio::{
    sync::Mutex,
    task::{JoinSet, block_in_place},
    time::{MissedTickBehavior, interval, sleep},
};
use tonic::transport::Channel;

use control::{Ends, Timed};
use support::{
    faults::{Answer, Call, Fault, POLICIES, Stage, asked},
    h2::{Connection, Fate},
    process::Process,
    service::channel,
};

/// The default of `STORE_TIMEOUT`.
const BUDGET: Duration = Duration::from_millis(15);

/// What a call may take beyond its budget.
const BEYOND: Duration = Duration::from_millis(5);

/// Time between two calls of a caller.
const RATE: Duration = Duration::from_millis(8);

/// The breaker of one service never opens, so that every call of it meets the fault itself.
const NO_BREAKER: [(&str, &str); 2] = [("BREAKER_FAILURES", "1000000"), ("BREAKER_WINDOW", "1us")];

/// One at a time.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Callers of a service, one for each policy, at a steady rate.
struct Callers {
    /// The `grpc-timeout` they send, where they do.
    patience: Option<Duration>,
    stop: Arc<AtomicBool>,
    tasks: JoinSet<Vec<Timed>>,
}

impl Callers {
    fn new(patience: Option<Duration>) -> Self {
        Self {
            patience,
            stop: Arc::default(),
            tasks: JoinSet::new(),
        }
    }

    async fn call(&mut self, process: &Process) {
        let grpc = process.address("grpc").await;
        for policy in POLICIES {
            let mut caller = Caller::new(grpc, policy, self.patience).await;
            // Its first call is an exception.
            caller.call().await;
            let (stop, ends) = (Arc::clone(&self.stop), Ends::of(process));
            let budget = self.patience.unwrap_or(BUDGET);
            self.tasks.spawn(async move {
                let mut calls = Vec::new();
                let mut beat = interval(RATE);
                beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
                while !stop.load(Ordering::Relaxed) {
                    beat.tick().await;
                    calls.push(ends.time(caller.call(), budget).await);
                }
                calls
            });
        }
    }

    async fn calls(mut self) -> Vec<Timed> {
        self.stop.store(true, Ordering::Relaxed);
        let mut all = Vec::new();
        while let Some(calls) = self.tasks.join_next().await {
            all.extend(calls.expect("no caller panics"));
        }
        all
    }
}

/// One that calls by the rule of one policy.
struct Caller {
    policy: &'static str,
    client: Client,
}

enum Client {
    /// One that sees who answered.
    Whole(RateLimitServiceClient<Channel>),
    /// One that sends a `grpc-timeout`, and does not stop waiting by itself. It sees the status only.
    Bare(Connection, Duration),
}

impl Caller {
    async fn new(at: SocketAddr, policy: &'static str, patience: Option<Duration>) -> Self {
        let client = match patience {
            None => Client::Whole(RateLimitServiceClient::new(channel(at).await)),
            Some(patience) => {
                let connection = Connection::open(at).await.expect("accepted");
                Client::Bare(connection, patience)
            }
        };
        Self { policy, client }
    }

    async fn call(&mut self) -> Call {
        let (connection, patience) = match &mut self.client {
            Client::Whole(client) => return Call::make(client, self.policy).await,
            Client::Bare(connection, patience) => (connection, *patience),
        };
        let at = Instant::now();
        let fate = connection.call(&asked(self.policy), Some(patience)).await;
        Call {
            policy: self.policy,
            at,
            took: at.elapsed(),
            answer: match fate {
                Fate::Answered(0) => Answer::Store,
                Fate::Answered(14) => Answer::Unavailable,
                _ => Answer::Other,
            },
        }
    }
}

/// Runs a fault with calls before, during and after it, and holds each call to its time.
async fn hold(fault: Fault, patience: Option<Duration>) {
    let mut stage = Stage::start(BUDGET).await;
    let plain = stage.serve(&[]).await;
    let unprotected = stage.serve(&NO_BREAKER).await;
    let mut callers = Callers::new(patience);
    callers.call(&plain).await;
    callers.call(&unprotected).await;
    sleep(Duration::from_millis(200)).await;
    block_in_place(|| fault.begin(&mut stage));
    sleep(Duration::from_millis(1_200)).await;
    block_in_place(|| fault.end(&mut stage));
    sleep(Duration::from_millis(1_000)).await;
    let calls = callers.calls().await;

    // A caller that says until when it waits is answered by then; there the budget is less.
    let allowed = if patience.is_some() {
        Duration::ZERO
    } else {
        BEYOND
    };
    let mut over = Vec::new();
    for policy in POLICIES {
        let own = calls.iter().filter(|timed| timed.call.policy == policy);
        let (mut count, mut by_policy) = (0, 0);
        let (mut worst, mut beyond) = (Duration::ZERO, Duration::ZERO);
        for timed in own {
            count += 1;
            by_policy += u32::from(timed.call.as_asked());
            worst = worst.max(timed.call.took);
            let excess = timed.call.took.saturating_sub(timed.budget + timed.machine);
            beyond = beyond.max(excess);
            if excess > allowed {
                over.push(timed);
            }
        }
        println!(
            "{:<13} {policy:<6} {count:>4} calls, {by_policy:>4} by the policy, the longest {worst:>10.1?}, beyond the budget {beyond:>9.1?}",
            format!("{fault:?}")
        );
        // The bare client cannot tell the others' from the store's.
        if policy == "error" || patience.is_none() {
            assert!(by_policy > 5, "{fault:?} {policy}: it did not show");
        }
    }
    assert!(over.is_empty(), "{fault:?}: {over:?}");
    let strange = calls.iter().map(|timed| timed.call);
    let strange: Vec<_> = strange
        .filter(|call| call.answer != Answer::Store && !call.as_asked())
        .collect();
    assert!(strange.is_empty(), "{fault:?}: {strange:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn every_call_is_answered_within_its_budget_whatever_happens_to_redis() {
    let _alone = ALONE.lock().await;
    for fault in Fault::ALL {
        hold(fault, None).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_caller_with_less_time_is_answered_within_its_own() {
    let _alone = ALONE.lock().await;
    for fault in [Fault::Paused, Fault::Silent, Fault::Killed] {
        hold(fault, Some(Duration::from_millis(10))).await;
    }
}
