//! Trouble by kind: what a server says, what it is counted under, and what becomes of the connection.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use palang::{
    algorithm::Quota,
    counter::{Atomicity, Counter, CounterKey, OnFailure, Role},
    store::{
        Guard, Redis, Store, StoreError, Trouble,
        guard::{self, BreakerConfig, Replicas},
        memory,
        redis::{Config, Lane},
    },
    time::{Clock, Deadline, SECOND},
};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::support::{
    eventually,
    redis::RedisServer,
    stores::{config, counter},
};

/// A server that answers each command with the same words.
#[derive(Clone)]
struct Parrot {
    at: SocketAddr,
    says: Arc<Mutex<String>>,
    connections: Arc<AtomicUsize>,
}

impl Parrot {
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a free port");
        let parrot = Self {
            at: listener.local_addr().expect("bound"),
            says: Arc::default(),
            connections: Arc::default(),
        };
        let own = parrot.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                own.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(own.clone().serve(stream));
            }
        });
        parrot
    }

    async fn serve(self, stream: TcpStream) {
        let (read, mut write) = stream.into_split();
        let mut read = BufReader::new(read);
        while command(&mut read).await.is_some() {
            let says = self.says.lock().expect("no panic while held").clone();
            if write
                .write_all(format!("{says}\r\n").as_bytes())
                .await
                .is_err()
            {
                return;
            }
        }
    }
}

/// Reads one command to its end.
async fn command(read: &mut (impl AsyncBufRead + Unpin)) -> Option<()> {
    let parts = number(read, '*').await?;
    for _ in 0..parts {
        let length = number(read, '$').await?;
        let mut bytes = vec![0; length + 2];
        read.read_exact(&mut bytes).await.ok()?;
    }
    Some(())
}

async fn number(read: &mut (impl AsyncBufRead + Unpin), mark: char) -> Option<usize> {
    let mut line = String::new();
    read.read_line(&mut line).await.ok()?;
    line.trim_end().strip_prefix(mark)?.parse().ok()
}

async fn one(lane: &Lane) -> Result<(), StoreError> {
    let quota = Quota::fixed_window(5, SECOND).expect("legal");
    let answers = lane
        .take(&[counter("kinds", quota, 1)], Atomicity::PerCounter)
        .await;
    answers.into_iter().next().expect("an answer").map(|_| ())
}

#[tokio::test]
async fn each_reply_has_its_kind_and_its_remedy() {
    let parrot = Parrot::start().await;
    for (says, kind, reconnects) in [
        (
            "-READONLY You can't write against a read only replica.",
            "readonly",
            true,
        ),
        (
            "-LOADING Redis is loading the dataset in memory",
            "loading",
            false,
        ),
        ("-MASTERDOWN Link with MASTER is down", "masterdown", true),
        ("-MOVED 3999 127.0.0.1:6381", "moved", false),
        ("-ASK 3999 127.0.0.1:6381", "ask", false),
        (
            "-TRYAGAIN Multiple keys request during rehashing of slot",
            "tryagain",
            false,
        ),
        ("-CLUSTERDOWN The cluster is down", "clusterdown", false),
        ("-BUSY Redis is busy running a script.", "busy", false),
        (
            "-OOM command not allowed when used memory > 'maxmemory'.",
            "oom",
            false,
        ),
        ("-NOAUTH Authentication required.", "auth", true),
        (
            "-WRONGPASS invalid username-password pair or user is disabled.",
            "auth",
            true,
        ),
        (
            "-NOPERM this user has no permissions to run 'evalsha'",
            "noperm",
            false,
        ),
        (
            "-MISCONF Redis is configured to save RDB snapshots",
            "misconf",
            false,
        ),
        (
            "-NOREPLICAS Not enough good replicas to write.",
            "noreplicas",
            false,
        ),
        ("-ERR max number of clients reached", "maxclients", true),
        ("-WRONGTYPE Operation against a key", "wrongtype", false),
        ("-NOSCRIPT No matching script.", "noscript", false),
        ("-ERR something else", "other", false),
        ("+a reply of another type", "unavailable", true),
        ("!! no reply at all", "unavailable", true),
    ] {
        *parrot.says.lock().expect("no panic while held") = says.to_owned();
        let redis = Redis::connect(Config {
            url: parrot.at.to_string(),
            timeout: Duration::from_secs(5),
            ..Config::default()
        });
        let lane = redis.expect("a fine configuration").lane();
        let before = parrot.connections.load(Ordering::Relaxed);
        for _ in 0..2 {
            let error = one(&lane).await.expect_err(says);
            assert_eq!(Trouble::of(&error).name, kind, "{says}: {error:?}");
        }
        let made = parrot.connections.load(Ordering::Relaxed) - before;
        assert_eq!(made, if reconnects { 2 } else { 1 }, "{says}");
    }
}

#[tokio::test]
async fn an_idle_connection_that_redis_closes_fails_no_call() {
    let server = RedisServer::start();
    redis::cmd("CONFIG")
        .arg(&["SET", "timeout", "1"])
        .query::<()>(&mut server.connection())
        .expect("set");
    let redis = Redis::connect(config(&server)).expect("a fine configuration");
    let lane = redis.lane();
    for _ in 0..2 {
        for _ in 0..20 {
            one(&lane).await.expect("decided");
        }
        // The one that asks is the only one left.
        eventually("Redis has closed the idle connection", async || {
            let clients: String = redis::cmd("CLIENT")
                .arg("LIST")
                .query(&mut server.connection())
                .expect("CLIENT LIST answers");
            (clients.trim_end().lines().count() == 1).then_some(())
        })
        .await;
    }
    for _ in 0..20 {
        one(&lane).await.expect("decided");
    }
}

/// A store that never decides.
struct Nothing;

impl Store for Nothing {
    async fn take_by(
        &self,
        counters: &[Counter],
        _atomicity: Atomicity,
        _deadline: Deadline,
    ) -> Vec<Result<palang::algorithm::Outcome, StoreError>> {
        vec![Err(StoreError::Timeout); counters.len()]
    }
}

fn guarded(max_keys: usize) -> (Arc<guard::Shared>, Guard<Nothing>) {
    let shared = Arc::new(guard::Shared::new(guard::Config {
        timeout: Duration::from_millis(15),
        margin: Duration::ZERO,
        max_in_flight: 8,
        breaker: BreakerConfig::default(),
        replicas: Replicas::new(3),
        local: memory::Config {
            max_keys,
            ..memory::Config::default()
        },
        clock: Clock::system(),
    }));
    (Arc::clone(&shared), Guard::new(Nothing, shared))
}

fn named(name: &str) -> Counter {
    let quota = Quota::fixed_window(90, 3_600 * SECOND).expect("legal");
    Counter {
        key: CounterKey::new("d", quota.letter(), 3_600 * SECOND, [("k", name)]),
        quota,
        hits: 1,
        role: Role::Enforced,
        on_failure: OnFailure::Local,
    }
}

#[tokio::test]
async fn a_million_keys_counted_here_stay_within_their_bound() {
    const BOUND: usize = 10_000;
    let (shared, guard) = guarded(BOUND);
    for number in 0..1_000_000 {
        let asked = [named(&number.to_string())];
        let answers = guard.take(&asked, Atomicity::PerCounter).await;
        assert!(answers[0].as_ref().is_ok_and(|outcome| outcome.allowed));
    }
    assert!(shared.local_keys() <= BOUND as u64);
    assert!(shared.local_keys() > BOUND as u64 / 2);
}

#[tokio::test]
async fn while_the_breaker_is_open_an_answer_costs_microseconds() {
    let (shared, guard) = guarded(100);
    let asked = [named("same")];
    while shared.breaker().state() == guard::State::Closed {
        guard.take(&asked, Atomicity::PerCounter).await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let since = std::time::Instant::now();
    const CALLS: u32 = 10_000;
    for _ in 0..CALLS {
        guard.take(&asked, Atomicity::PerCounter).await;
    }
    // A debug build on a busy machine: a tenth of that is usual.
    assert!(since.elapsed() / CALLS < Duration::from_micros(200));
    let count = |kind: &str| {
        let mut errors = shared.errors();
        errors
            .find(|(name, _)| *name == kind)
            .map(|(_, count)| count)
    };
    assert!(count("open").is_some_and(|open| open > 9_000));
}
