//! The Redis store while callers go away, scripts vanish, and Redis dies, stalls or is not there.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use palang::{
    algorithm::{MAX_WINDOW, Outcome, Quota},
    counter::{Atomicity, Counter},
    store::{
        Redis, Store as _, StoreError,
        redis::{Config, Lane, SocketType},
    },
};

use crate::support::{
    redis::{PATIENCE, RedisServer},
    stores::{config, counter},
};

/// What a busy machine may add to a time that is promised.
const MARGIN: Duration = Duration::from_millis(300);

/// A limit that gives nothing back while a test runs.
fn yearly(limit: u64) -> Quota {
    Quota::fixed_window(limit, MAX_WINDOW).expect("legal")
}

async fn one(lane: &Lane, counter: Counter) -> Result<Outcome, StoreError> {
    lane.take(&[counter], Atomicity::PerCounter)
        .await
        .pop()
        .expect("an answer for the counter")
}

fn connect(config: Config) -> Redis {
    Redis::connect(config).expect("a fine configuration")
}

/// A call that counts nothing.
async fn look(lane: &Lane) -> Result<Outcome, StoreError> {
    one(lane, counter("look", yearly(1), 0)).await
}

/// Asks until Redis answers again.
async fn until_it_answers(lane: &Lane) {
    let started = Instant::now();
    while look(lane).await.is_err() {
        assert!(started.elapsed() < PATIENCE, "the lane does not recover");
        tokio::task::yield_now().await;
    }
}

/// A small generator: the choice of who cancels needs no more.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn totals_are_exact_while_callers_come_and_go() {
    for depth in [1, 3] {
        totals_are_exact_at(depth).await;
    }
}

async fn totals_are_exact_at(depth: usize) {
    const TASKS: u64 = 48;
    const ROUNDS: u64 = 150;
    let server = RedisServer::start();
    let foreign = counter("foreign", yearly(5), 1);
    redis::Commands::lpush::<_, _, ()>(&mut server.connection(), foreign.key.as_bytes(), 1)
        .expect("planted");
    redis::Commands::expire::<_, ()>(&mut server.connection(), foreign.key.as_bytes(), 3_600)
        .expect("planted");
    let redis = connect(Config {
        depth,
        ..config(&server)
    });
    let lanes = [redis.lane(), redis.lane(), redis.lane()];

    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let lane = lanes[task as usize % lanes.len()].clone();
            let foreign = foreign.clone();
            tokio::spawn(async move {
                let mut dice = Dice(task + 1);
                // The limit names its caller: somebody else's answer would show.
                let limit = 1_000_000 + task * 10_000;
                let own = counter(&format!("own{task}"), yearly(limit), 1);
                let (mut answered, mut cancelled) = (0, 0);
                for _ in 0..ROUNDS {
                    let hot = one(&lane, counter("hot", yearly(1 << 40), 1)).await;
                    assert!(hot.expect("decided").allowed);
                    if dice.roll(8) == 0 {
                        assert_eq!(
                            one(&lane, foreign.clone()).await,
                            Err(StoreError::ForeignState)
                        );
                    }
                    let patience = dice.roll(12);
                    let give_up = async {
                        for _ in 0..patience {
                            tokio::task::yield_now().await;
                        }
                    };
                    tokio::select! {
                        biased;
                        own = one(&lane, own.clone()) => {
                            answered += 1;
                            let used = limit - own.expect("decided").remaining;
                            assert!((answered..=answered + cancelled).contains(&used));
                        }
                        () = give_up, if patience < 8 => cancelled += 1,
                    }
                }
                (answered, cancelled)
            })
        })
        .collect();
    let mut cancelled = 0;
    for task in tasks {
        cancelled += task.await.expect("no assertion failed").1;
    }

    assert!(cancelled > 0, "nobody gave up, so nothing was tried");
    let look = one(&lanes[0], counter("hot", yearly(1 << 40), 0)).await;
    assert_eq!(look.expect("decided").used, TASKS * ROUNDS);
    let figures = redis.figures();
    assert!(figures.calls < figures.requests / 2, "{figures:?}");
    assert!(figures.connections <= 3 * depth);
    server.no_key_without_expiry();
}

#[tokio::test]
async fn what_waits_for_a_call_goes_together_in_the_next() {
    let server = RedisServer::start();
    let redis = connect(config(&server));
    let lane = redis.lane();
    look(&lane).await.expect("Redis answers");
    let before = redis.figures().calls;
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let lane = lane.clone();
            tokio::spawn(async move { one(&lane, counter("many", yearly(1_000), 1)).await })
        })
        .collect();
    for task in tasks {
        assert!(task.await.expect("runs").expect("decided").allowed);
    }
    let calls = redis.figures().calls - before;
    assert!(calls <= 3, "{:?}", redis.figures());
    // A request of more counters than a batch has room for goes nevertheless.
    let big = vec![counter("big", yearly(1_000), 1); 700];
    let outcomes = lane.take(&big, Atomicity::AllOrNothing).await;
    assert_eq!(outcomes[699].as_ref().map(|outcome| outcome.used), Ok(700));
    let none = lane.take(&[], Atomicity::AllOrNothing).await;
    assert_eq!(none, []);
    server.no_key_without_expiry();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flushed_script_costs_no_call() {
    let server = RedisServer::start();
    let redis = connect(config(&server));
    let stop = Arc::new(AtomicBool::new(false));
    let taken = Arc::new(AtomicU64::new(0));
    let lanes: Vec<Lane> = (0..4).map(|_| redis.lane()).collect();
    let tasks: Vec<_> = (0..32)
        .map(|task| {
            let lane = lanes[task % lanes.len()].clone();
            let (stop, taken) = (stop.clone(), taken.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let outcome = one(&lane, counter("flushed", yearly(1 << 40), 1)).await;
                    assert!(outcome.expect("no call fails").allowed);
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let mut connection = server.connection();
    const FLUSHES: u64 = 20;
    for _ in 0..FLUSHES {
        let goal = taken.load(Ordering::Relaxed) + 200;
        let started = Instant::now();
        while taken.load(Ordering::Relaxed) < goal {
            assert!(started.elapsed() < PATIENCE, "the load has ended");
            tokio::task::yield_now().await;
        }
        redis::cmd("SCRIPT")
            .arg("FLUSH")
            .query::<()>(&mut connection)
            .expect("flushed");
    }
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no call failed");
    }
    let look = one(&lanes[0], counter("flushed", yearly(1 << 40), 0)).await;
    assert_eq!(look.expect("decided").used, taken.load(Ordering::Relaxed));
    // One for each flush, one at the start, and at most one each for a load that a flush overtook.
    let loads = server.calls_of("script|load");
    assert!((FLUSHES..=2 * FLUSHES + 2).contains(&loads), "{loads}");
    assert_eq!(redis.figures().script_loads, loads);
}

#[tokio::test]
async fn a_restart_costs_only_the_calls_in_flight() {
    let mut server = RedisServer::start();
    let redis = connect(config(&server));
    let lane = redis.lane();
    for round in 0..3 {
        let outcome = one(&lane, counter("restart", yearly(9), 1)).await;
        assert_eq!(outcome.map(|outcome| outcome.used), Ok(1), "round {round}");
        server.kill();
        // With nobody there a call fails at once, and says so.
        let started = Instant::now();
        let outcome = one(&lane, counter("restart", yearly(9), 1)).await;
        assert!(
            matches!(outcome, Err(StoreError::Unavailable(_))),
            "{outcome:?}"
        );
        assert!(started.elapsed() < Duration::from_secs(1));
        server.restart();
        // The next call after that is answered, without a call that has to fail first.
    }
    one(&lane, counter("restart", yearly(9), 1))
        .await
        .expect("answered");
    // An idle connection that died unnoticed is found out before a call is trusted to it.
    tokio::time::sleep(Duration::from_millis(150)).await;
    server.kill();
    server.restart();
    one(&lane, counter("restart", yearly(9), 1))
        .await
        .expect("answered");
    server.no_key_without_expiry();
}

#[tokio::test]
async fn a_redis_that_is_not_there_yet_is_no_error_at_the_start() {
    let mut server = RedisServer::start();
    server.kill();
    let redis = connect(config(&server));
    let lane = redis.lane();
    assert!(matches!(look(&lane).await, Err(StoreError::Unavailable(_))));
    let two = [counter("a", yearly(9), 1), counter("b", yearly(9), 1)];
    let outcomes = lane.take(&two, Atomicity::AllOrNothing).await;
    assert_eq!(outcomes.len(), 2);
    assert!(outcomes.iter().all(Result::is_err));
    server.restart();
    until_it_answers(&lane).await;
    assert!(
        lane.take(&two, Atomicity::AllOrNothing)
            .await
            .iter()
            .all(Result::is_ok)
    );
}

#[tokio::test]
async fn a_stalled_redis_holds_nobody_beyond_the_timeout() {
    let timeout = Duration::from_millis(100);
    let server = RedisServer::start();
    let redis = connect(Config {
        timeout,
        queue: 8,
        ..config(&server)
    });
    let lane = redis.lane();
    until_it_answers(&lane).await;
    assert!(one(&lane, counter("stalled", yearly(99), 1)).await.is_ok());
    for _ in 0..2 {
        server.signal("STOP");
        let started = Instant::now();
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let lane = lane.clone();
                tokio::spawn(async move { one(&lane, counter("stalled", yearly(99), 1)).await })
            })
            .collect();
        let mut full = 0;
        for task in tasks {
            match task.await.expect("runs") {
                Err(StoreError::Timeout) => {}
                Err(StoreError::Full) => full += 1,
                other => panic!("{other:?}"),
            }
        }
        assert!(
            started.elapsed() < timeout + MARGIN,
            "{:?}",
            started.elapsed()
        );
        assert!(full > 0, "the queue is bounded");
        // The second call meets a connection that hangs while it is made.
        let started = Instant::now();
        let outcome = one(&lane, counter("stalled", yearly(99), 1)).await;
        assert_eq!(outcome, Err(StoreError::Timeout));
        assert!(started.elapsed() < timeout + MARGIN);
        server.signal("CONT");
        until_it_answers(&lane).await;
    }
    let look = one(&lane, counter("stalled", yearly(99), 0))
        .await
        .expect("decided");
    assert!(look.used <= 21, "nothing was tried twice: {look:?}");
    server.no_key_without_expiry();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_lanes_than_connections_share_them() {
    let server = RedisServer::start();
    let redis = connect(Config {
        pool_size: 2,
        ..config(&server)
    });
    let lanes: Vec<Lane> = (0..6).map(|_| redis.lane()).collect();
    let tasks: Vec<_> = lanes
        .iter()
        .cloned()
        .map(|lane| {
            tokio::spawn(async move {
                for _ in 0..50 {
                    one(&lane, counter("shared", yearly(1 << 30), 1))
                        .await
                        .expect("decided");
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("every lane got its turn");
    }
    assert!(redis.figures().connections <= 2);
    let look = one(&lanes[0], counter("shared", yearly(1 << 30), 0)).await;
    assert_eq!(look.expect("decided").used, 300);
    let connected: String = redis::cmd("CLIENT")
        .arg("LIST")
        .query(&mut server.connection())
        .expect("CLIENT LIST");
    assert!(connected.lines().count() <= 3, "{connected}");
}

#[tokio::test]
async fn an_error_of_redis_names_its_first_word_only() {
    let server = RedisServer::start();
    let redis = connect(config(&server));
    let lane = redis.lane();
    let mut connection = server.connection();
    redis::cmd("REPLICAOF")
        .arg("127.0.0.1")
        .arg(1)
        .query::<()>(&mut connection)
        .expect("a replica");
    let outcome = one(&lane, counter("replica", yearly(9), 1)).await;
    assert_eq!(outcome, Err(StoreError::Refused("READONLY".into())));
    redis::cmd("REPLICAOF")
        .arg("NO")
        .arg("ONE")
        .query::<()>(&mut connection)
        .expect("a primary");
    assert!(one(&lane, counter("replica", yearly(9), 1)).await.is_ok());
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("maxmemory")
        .arg(1)
        .query::<()>(&mut connection)
        .expect("set");
    let outcome = one(&lane, counter("replica", yearly(9), 1)).await;
    assert_eq!(outcome, Err(StoreError::Refused("OOM".into())));
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("maxmemory")
        .arg(0)
        .query::<()>(&mut connection)
        .expect("set");
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("requirepass")
        .arg("pw")
        .query::<()>(&mut connection)
        .expect("set");
    let fresh = connect(config(&server)).lane();
    let outcome = one(&fresh, counter("replica", yearly(9), 1)).await;
    assert!(outcome.is_err(), "{outcome:?}");
    let with_auth = Config {
        auth: Some(palang::secret::Secret::from("pw")),
        ..config(&server)
    };
    assert!(
        one(&connect(with_auth).lane(), counter("replica", yearly(9), 1))
            .await
            .is_ok()
    );
    redis::cmd("CONFIG")
        .arg("SET")
        .arg("requirepass")
        .arg("")
        .query::<()>(&mut connection)
        .expect("set");
    server.no_key_without_expiry();
}

#[tokio::test]
async fn an_address_may_be_a_port_or_a_url_with_user_and_database() {
    let server = RedisServer::start();
    let port = server.open_port();
    let mut connection = server.connection();
    redis::cmd("ACL")
        .arg("SETUSER")
        .arg("limiter")
        .arg(["on", ">secret", "~p:*", "+@all"].as_slice())
        .query::<()>(&mut connection)
        .expect("a user");
    for (url, auth) in [
        (format!("127.0.0.1:{port}"), None),
        (format!("127.0.0.1:{port}"), Some("limiter:secret")),
        (format!("redis://limiter:secret@127.0.0.1:{port}/3"), None),
    ] {
        let redis = connect(Config {
            url,
            socket_type: SocketType::Tcp,
            auth: auth.map(palang::secret::Secret::from),
            prefix: "p:".to_owned(),
            ..config(&server)
        });
        let outcome = one(&redis.lane(), counter("address", yearly(9), 1)).await;
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    for (database, count) in [(0, 1), (3, 1)] {
        redis::cmd("SELECT")
            .arg(database)
            .query::<()>(&mut connection)
            .expect("SELECT");
        let keys: Vec<String> = redis::Commands::keys(&mut connection, "p:*").expect("KEYS");
        assert_eq!(keys.len(), count);
    }
    let wrong = Config {
        url: format!("127.0.0.1:{port}"),
        socket_type: SocketType::Tcp,
        auth: Some(palang::secret::Secret::from("limiter:wrong")),
        ..config(&server)
    };
    let outcome = one(&connect(wrong).lane(), counter("address", yearly(9), 1)).await;
    assert!(outcome.is_err_and(|error| !error.to_string().contains("wrong")));
}

#[tokio::test]
async fn a_lane_ends_with_its_last_handle_and_leaves_its_connection() {
    let server = RedisServer::start();
    let redis = connect(Config {
        pool_size: 1,
        ..config(&server)
    });
    for used in 1..=5 {
        let lane = redis.lane();
        let other = lane.clone();
        drop(lane);
        let outcome = one(&other, counter("ends", yearly(9), 1)).await;
        assert_eq!(outcome.map(|outcome| outcome.used), Ok(used));
    }
    assert_eq!(redis.figures().connections, 1);
}
