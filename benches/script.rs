//! What a script call costs Redis: CPU time of a private redis-server for each decision, in calls of a known size.
//! `make bench` runs it. The least of many rounds is shown, which the rest of the machine changes little.
//!
//! Linux only: it reads the server's CPU time from /proc.

use std::{
    env, fs,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures_util::future::join_all;
use palang::{
    algorithm::Quota,
    counter::{Atomicity, Counter, CounterKey, OnFailure, Role},
    store::{
        Redis, Store as _,
        redis::{Config, Lane, SocketType},
    },
};

/// Keys to draw from.
const KEYS: usize = 10_000;

/// Calls in one round.
const CALLS: usize = 200;

/// A redis-server; killed when dropped.
struct Server(Child);

impl Server {
    /// CPU time so far, nanoseconds.
    fn cpu(&self) -> anyhow::Result<u64> {
        let id = self.0.id();
        let text = fs::read_to_string(format!("/proc/{id}/task/{id}/schedstat"))?;
        let nanos = text
            .split_whitespace()
            .next()
            .context("an empty schedstat")?;
        Ok(nanos.parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Already gone is as good as killed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What one call asks.
struct Case {
    name: &'static str,
    quota: Quota,
    requests: usize,
    /// Of each request.
    counters: usize,
    atomicity: Atomicity,
    keys: usize,
}

fn cases() -> Vec<Case> {
    let legal = "a legal quota";
    let bucket = Quota::token_bucket(1_000, 1_000_000, 1_000_000).expect(legal);
    let case = |name, quota, requests, counters, atomicity, keys| Case {
        name,
        quota,
        requests,
        counters,
        atomicity,
        keys,
    };
    let (each, all) = (Atomicity::PerCounter, Atomicity::AllOrNothing);
    let window = 60_000_000;
    let others = [
        ("fixed_window", Quota::fixed_window(1_000_000, window)),
        ("sliding_window", Quota::sliding_window(1_000_000, window)),
        ("sliding_log", Quota::sliding_log(1_000, 1_000_000)),
        (
            "leaky_bucket",
            Quota::leaky_bucket(1_000, 1_000_000, window),
        ),
    ];
    let mut cases = vec![
        case("1 request", bucket, 1, 1, each, KEYS),
        case("4 requests", bucket, 4, 1, each, KEYS),
        case("16 requests", bucket, 16, 1, each, KEYS),
        case("64 requests", bucket, 64, 1, each, KEYS),
        case("16 requests, one key", bucket, 16, 1, each, 1),
        case("64 requests, one key", bucket, 64, 1, each, 1),
        case("16 requests of 4 counters", bucket, 16, 4, each, KEYS),
        case(
            "16 requests of 4 counters, all or nothing",
            bucket,
            16,
            4,
            all,
            KEYS,
        ),
    ];
    cases.extend(others.map(|(name, quota)| case(name, quota.expect(legal), 16, 1, each, KEYS)));
    cases
}

impl Case {
    fn request(&self, random: &mut fastrand::Rng) -> Vec<Counter> {
        (0..self.counters)
            .map(|_| Counter {
                key: CounterKey::new(
                    "bench",
                    self.quota.letter(),
                    1,
                    [("key", &*random.usize(..self.keys).to_string())],
                ),
                quota: self.quota,
                hits: 1,
                role: Role::Enforced,
                on_failure: OnFailure::Error,
            })
            .collect()
    }

    /// Microseconds of Redis's CPU a call, at best.
    async fn measure(&self, lane: &Lane, server: &Server, time: Duration) -> anyhow::Result<f64> {
        let mut random = fastrand::Rng::with_seed(1);
        let mut best = u64::MAX;
        let end = Instant::now() + time;
        while Instant::now() < end {
            let before = server.cpu()?;
            for _ in 0..CALLS {
                let requests: Vec<_> = (0..self.requests)
                    .map(|_| self.request(&mut random))
                    .collect();
                let calls = requests
                    .iter()
                    .map(|request| lane.take(request, self.atomicity));
                for outcome in join_all(calls).await.into_iter().flatten() {
                    outcome?;
                }
            }
            best = best.min(server.cpu()? - before);
        }
        Ok(best as f64 / 1_000.0 / CALLS as f64)
    }
}

fn main() -> anyhow::Result<()> {
    // cargo bench says --bench, cargo test does not.
    let is_bench = env::args().any(|argument| argument == "--bench")
        && env::var("BENCH_QUICK").map_or(true, |quick| quick != "1");
    let time = Duration::from_millis(if is_bench { 1_000 } else { 20 });
    let home = tempfile::tempdir()?;
    let socket = home.path().join("redis.sock").display().to_string();
    let server = Server(
        Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .args(["--unixsocket", &socket])
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start redis-server")?,
    );
    let patience = Instant::now() + Duration::from_secs(10);
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        anyhow::ensure!(Instant::now() < patience, "redis-server does not answer");
        std::thread::sleep(Duration::from_millis(10));
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    println!("| in a call | redis us a call | redis us a decision |\n|---|--:|--:|");
    runtime.block_on(async {
        let redis = Redis::connect(Config {
            url: socket.clone(),
            socket_type: SocketType::Unix,
            timeout: Duration::from_secs(5),
            ..Config::default()
        })?;
        let lane = redis.lane();
        for case in cases() {
            let before = redis.figures().calls;
            let call = case.measure(&lane, &server, time).await?;
            anyhow::ensure!(redis.figures().calls > before, "nothing was asked");
            println!(
                "| {} | {call:.1} | {:.2} |",
                case.name,
                call / case.requests as f64
            );
        }
        Ok(())
    })
}
