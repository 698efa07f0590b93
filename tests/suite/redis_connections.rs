//! Connections to Redis: closed by the server, all in use, or one that says what nobody asked for.

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
        Redis, Store as _, StoreError, Trouble,
        redis::{Config, Lane},
    },
};

use crate::support::{
    redis::{PATIENCE, RedisServer},
    stores::{config, counter},
};

fn yearly() -> Quota {
    Quota::fixed_window(1 << 40, MAX_WINDOW).expect("legal")
}

async fn one(lane: &Lane, counter: Counter) -> Result<Outcome, StoreError> {
    lane.take(&[counter], Atomicity::PerCounter)
        .await
        .pop()
        .expect("an answer")
}

async fn used(lane: &Lane, name: &str) -> u64 {
    one(lane, counter(name, yearly(), 0))
        .await
        .expect("decided")
        .used
}

/// Closes every connection but the test's own, and says how many there were.
fn close_all(connection: &mut redis::Connection) -> u64 {
    redis::cmd("CLIENT")
        .arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"])
        .query(connection)
        .expect("CLIENT KILL")
}

#[tokio::test]
async fn a_connection_closed_while_idle_fails_no_call() {
    let server = RedisServer::start();
    let redis = Redis::connect(config(&server)).expect("fine");
    let lane = redis.lane();
    let mut connection = server.connection();
    let mut closed = 0;
    for round in 1..=300_u64 {
        let outcome = one(&lane, counter("idle", yearly(), 1)).await;
        assert_eq!(outcome.map(|outcome| outcome.used), Ok(round));
        // Half of the time the lane has not been told yet: this thread does not yield in between.
        closed += close_all(&mut connection);
        if round.is_multiple_of(2) {
            tokio::task::yield_now().await;
        }
    }
    assert!(closed >= 300, "{closed} were closed");
    server.no_key_without_expiry();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_closed_under_load_fail_no_call_that_comes_after() {
    let server = RedisServer::start();
    let redis = Redis::connect(config(&server)).expect("fine");
    let lanes = [redis.lane(), redis.lane()];
    let stop = Arc::new(AtomicBool::new(false));
    // Even while nothing is being closed. Calls that began and ended under the same even number met no closing.
    let epoch = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..24)
        .map(|task| {
            let lane = lanes[task % 2].clone();
            let (stop, epoch) = (stop.clone(), epoch.clone());
            tokio::spawn(async move {
                let (mut counted, mut lost) = (0, 0);
                while !stop.load(Ordering::Relaxed) {
                    let before = epoch.load(Ordering::SeqCst);
                    match one(&lane, counter("load", yearly(), 1)).await {
                        Ok(_) => counted += 1,
                        Err(error) => {
                            let after = epoch.load(Ordering::SeqCst);
                            assert!(
                                before % 2 == 1 || after != before,
                                "began after the closing was done: {error:?}"
                            );
                            lost += 1;
                        }
                    }
                }
                (counted, lost)
            })
        })
        .collect();
    let mut connection = server.connection();
    for _ in 0..60 {
        let goal = redis.figures().requests + 200;
        let started = Instant::now();
        while redis.figures().requests < goal {
            assert!(started.elapsed() < PATIENCE, "the load has ended");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        epoch.fetch_add(1, Ordering::SeqCst);
        close_all(&mut connection);
        epoch.fetch_add(1, Ordering::SeqCst);
    }
    stop.store(true, Ordering::Relaxed);
    let (mut counted, mut lost) = (0, 0);
    for task in tasks {
        let own = task.await.expect("no assertion failed");
        counted += own.0;
        lost += own.1;
    }
    // What was in flight when its connection was closed may have been counted; it is never tried twice.
    let used = used(&lanes[0], "load").await;
    assert!(
        (counted..=counted + lost).contains(&used),
        "{used} counted, {counted} answered, {lost} failed"
    );
    server.no_key_without_expiry();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_a_connection_has_a_limit_and_a_name_of_its_own() {
    let server = RedisServer::start();
    let redis = Redis::connect(Config {
        pool_size: 1,
        slot_timeout: Duration::from_millis(50),
        timeout: Duration::from_secs(5),
        ..config(&server)
    })
    .expect("fine");
    let (first, second) = (redis.lane(), redis.lane());
    one(&first, counter("slot", yearly(), 1))
        .await
        .expect("decided");
    one(&second, counter("slot", yearly(), 1))
        .await
        .expect("they share it");
    server.signal("STOP");
    let holder = {
        let first = first.clone();
        tokio::spawn(async move { one(&first, counter("slot", yearly(), 1)).await })
    };
    crate::support::eventually("the call is in flight", async || {
        (redis.figures().in_flight == 1).then_some(())
    })
    .await;
    let started = Instant::now();
    let error = one(&second, counter("slot", yearly(), 1))
        .await
        .expect_err("there is no connection for it");
    let took = started.elapsed();
    server.signal("CONT");
    assert_eq!(error, StoreError::NoConnection);
    assert_eq!(Trouble::of(&error).name, "no_connection");
    assert!(
        took >= Duration::from_millis(50) && took < Duration::from_secs(2),
        "{took:?}"
    );
    // It was our own shortage: the one that had the connection is answered, and so are those that come later.
    holder.await.expect("runs").expect("answered");
    assert_eq!(used(&second, "slot").await, 3);
    assert!(redis.figures().connections <= 1);
}
