//! Mixed faults at load: a short while in the suite, ten minutes with `make soak`.

use std::{
    env,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use palang::proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tokio::{task::JoinSet, time::sleep};

use crate::{
    failure_faults::{Answer, BUDGET, Bench, POLICIES, call},
    support::{proxy::Mode, service::channel},
};

/// Callers, one call after the other each.
const CALLERS: usize = 32;

/// What a call may take above the budget before it counts as late: a caller's own time to be woken is in it.
const SLACK: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct Tally {
    store: u64,
    policy: [u64; 4],
    late: u64,
    lost: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.store += other.store;
        self.late += other.late;
        self.lost += other.lost;
        for (sum, more) in self.policy.iter_mut().zip(other.policy) {
            *sum += more;
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed,
    Paused,
    Dropped,
    Silent,
    Slow,
    Full,
    Replica,
}

const FAULTS: [Fault; 7] = [
    Fault::Killed,
    Fault::Paused,
    Fault::Dropped,
    Fault::Silent,
    Fault::Slow,
    Fault::Full,
    Fault::Replica,
];

impl Fault {
    fn begin(self, bench: &mut Bench) {
        match self {
            Self::Killed => bench.redis.kill(),
            Self::Paused => bench.redis.signal("STOP"),
            Self::Dropped => bench.proxy.turn(Mode::Drop),
            Self::Silent => bench.proxy.turn(Mode::Silent),
            Self::Slow => {
                let slow = Mode::Late(bench.redis.socket(), 4 * BUDGET);
                bench.proxy.turn(slow);
            }
            Self::Full => bench.config("maxmemory", "1"),
            Self::Replica => bench.replica_of("127.0.0.1", "1"),
        }
    }

    fn end(self, bench: &mut Bench) {
        match self {
            Self::Killed => bench.redis.restart(),
            Self::Paused => bench.redis.signal("CONT"),
            Self::Dropped | Self::Silent | Self::Slow => {
                bench.proxy.turn(Mode::To(bench.redis.socket()));
            }
            Self::Full => bench.config("maxmemory", "0"),
            Self::Replica => bench.replica_of("NO", "ONE"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak() {
    let seconds = env::var("SOAK_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(8);
    let mut bench = Bench::quiet(&[]).await;
    let grpc = bench.process.address("grpc").await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let mut client = RateLimitServiceClient::new(channel(grpc).await);
        let stop = Arc::clone(&stop);
        callers.spawn(async move {
            let mut tally = Tally::default();
            let mut number = caller;
            while !stop.load(Ordering::Relaxed) {
                number += 1;
                let place = number % POLICIES.len();
                let call = call(&mut client, POLICIES[place]).await;
                match call.answer {
                    Answer::Store => tally.store += 1,
                    _ if call.as_asked() => tally.policy[place] += 1,
                    _ => tally.lost += 1,
                }
                tally.late += u64::from(call.took > BUDGET + SLACK);
                sleep(Duration::from_millis(5)).await;
            }
            tally
        });
    }
    let memory = async |bench: &Bench| bench.process.metric("process_resident_memory_bytes").await;
    sleep(Duration::from_secs(2)).await;
    let at_start = memory(&bench).await;
    let since = Instant::now();
    let mut faults = 0;
    while since.elapsed() < Duration::from_secs(seconds) {
        let fault = FAULTS[faults % FAULTS.len()];
        fault.begin(&mut bench);
        sleep(Duration::from_millis(500 + 700 * (faults as u64 % 5))).await;
        fault.end(&mut bench);
        faults += 1;
        sleep(Duration::from_secs(3)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut sum = Tally::default();
    while let Some(tally) = callers.join_next().await {
        sum.add(&tally.expect("no caller panics"));
    }
    let at_end = memory(&bench).await;
    println!("seconds   {}", since.elapsed().as_secs());
    println!("faults    {faults}");
    println!("answered  {}", sum.store + sum.policy.iter().sum::<u64>());
    println!("  store   {}", sum.store);
    for (policy, count) in POLICIES.iter().zip(sum.policy) {
        println!("  {policy:<7} {count}");
    }
    println!("late      {} (over {:?})", sum.late, BUDGET + SLACK);
    println!("lost      {}", sum.lost);
    println!(
        "memory    {} KiB at the start, {} KiB at the end",
        at_start / 1_024,
        at_end / 1_024
    );
    assert_eq!(sum.lost, 0);
    assert!(at_end < at_start + 64 * 1_024 * 1_024);
}
