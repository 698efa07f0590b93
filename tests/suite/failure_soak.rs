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
use tokio::{
    task::{JoinSet, block_in_place},
    time::sleep,
};

use crate::support::{
    faults::{Answer, Call, Fault, POLICIES, Stage},
    service::channel,
};

/// The default of `STORE_TIMEOUT`.
const BUDGET: Duration = Duration::from_millis(15);

/// Callers, one call after the other each.
const CALLERS: usize = 32;

/// What a call may take above the budget before it counts as late: the callers' own time to be woken is in it.
const SLACK: Duration = Duration::from_millis(5);

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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak() {
    let seconds = env::var("SOAK_SECONDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(8);
    let mut stage = Stage::start(BUDGET).await;
    let process = stage.serve(&[]).await;
    let grpc = process.address("grpc").await;
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
                let call = Call::make(&mut client, POLICIES[place]).await;
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
    sleep(Duration::from_secs(2)).await;
    let at_start = process.usage();
    let since = Instant::now();
    let mut faults = 0;
    while since.elapsed() < Duration::from_secs(seconds) {
        let fault = Fault::ALL[faults % Fault::ALL.len()];
        block_in_place(|| fault.begin(&mut stage));
        sleep(Duration::from_millis(500 + 700 * (faults as u64 % 5))).await;
        block_in_place(|| fault.end(&mut stage));
        faults += 1;
        sleep(Duration::from_secs(3)).await;
    }
    stop.store(true, Ordering::Relaxed);
    let mut sum = Tally::default();
    while let Some(tally) = callers.join_next().await {
        sum.add(&tally.expect("no caller panics"));
    }
    let at_end = process.usage();
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
        at_start.memory / 1_024,
        at_end.memory / 1_024
    );
    assert_eq!(sum.lost, 0);
    assert!(at_end.memory < at_start.memory + 64 * 1_024 * 1_024);
}
