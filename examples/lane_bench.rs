use palang::{
    algorithm::Quota,
    counter::{Atomicity, Counter, CounterKey, Role},
    store::{
        Redis, Store as _,
        redis::{Config, Kind},
    },
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
fn arg(n: usize) -> String {
    std::env::args().nth(n).unwrap()
}
fn main() {
    // url kind depth partitions inflight keys seconds workers
    let kind = match arg(2).as_str() {
        "cluster" => Kind::Cluster,
        _ => Kind::Single,
    };
    let redis = Redis::connect(Config {
        url: arg(1),
        kind,
        depth: arg(3).parse().unwrap(),
        partitions: arg(4).parse().unwrap(),
        timeout: Duration::from_secs(2),
        ..Config::default()
    })
    .unwrap();
    let inflight: usize = arg(5).parse().unwrap();
    let keys: u64 = arg(6).parse().unwrap();
    let secs: u64 = arg(7).parse().unwrap();
    let workers: usize = arg(8).parse().unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let threads: Vec<_> = (0..workers)
        .map(|w| {
            let (redis, stop, done) = (redis.clone(), stop.clone(), done.clone());
            std::thread::spawn(move || {
                let rt = tokio::runtime::Builder::new_current_thread()
                    .enable_all()
                    .build()
                    .unwrap();
                rt.block_on(async move {
                    let lane = redis.lane();
                    let mut set = tokio::task::JoinSet::new();
                    for t in 0..inflight / workers {
                        let (lane, stop, done) = (lane.clone(), stop.clone(), done.clone());
                        set.spawn(async move {
                            let mut x = (w * 1000 + t) as u64 * 7919 + 88172645463325252;
                            let mut lat = Vec::new();
                            let quota =
                                Quota::token_bucket(1_000_000, 1_000_000, 1_000_000).unwrap();
                            while !stop.load(Ordering::Relaxed) {
                                x ^= x << 13;
                                x ^= x >> 7;
                                x ^= x << 17;
                                let k = (x % keys).to_string();
                                let c = Counter {
                                    key: CounterKey::new("bench", b't', 1_000_000, [("key", &*k)]),
                                    quota,
                                    hits: 1,
                                    role: Role::Enforced,
                                };
                                let s = Instant::now();
                                let r = lane.take(&[c], Atomicity::PerCounter).await;
                                if r[0].is_err() {
                                    eprintln!("{:?}", r[0]);
                                }
                                lat.push(s.elapsed().as_nanos() as u64);
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                            lat
                        });
                    }
                    let mut all = Vec::new();
                    while let Some(l) = set.join_next().await {
                        all.extend(l.unwrap());
                    }
                    all
                })
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(secs));
    stop.store(true, Ordering::Relaxed);
    let mut all: Vec<u64> = threads
        .into_iter()
        .flat_map(|t| t.join().unwrap())
        .collect();
    all.sort_unstable();
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let f: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let cpu = (f[11].parse::<f64>().unwrap() + f[12].parse::<f64>().unwrap()) * 10_000.0;
    let n = all.len();
    let fig = redis.figures();
    println!(
        "inflight {inflight} keys {keys} depth {} partitions {}: {:.1} k/s cpu {:.1} us p50 {} us p99 {} us, {:.1} requests a call",
        arg(3),
        arg(4),
        n as f64 / secs as f64 / 1000.0,
        cpu / n as f64,
        all[n / 2] / 1000,
        all[n * 99 / 100] / 1000,
        fig.requests as f64 / fig.calls as f64
    );
}
