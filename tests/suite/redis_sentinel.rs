//! The Redis store behind sentinels: found by name, followed through a failover under load.

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
    secret::Secret,
    store::{
        Redis, Store as _, StoreError,
        redis::{Config, Kind, Lane, Tls},
    },
};

use crate::support::{certificates::Authority, cluster::Port, eventually, stores::counter};

fn yearly() -> Quota {
    Quota::fixed_window(1 << 40, MAX_WINDOW).expect("legal")
}

async fn one(lane: &Lane, counter: Counter) -> Result<Outcome, StoreError> {
    lane.take(&[counter], Atomicity::PerCounter)
        .await
        .pop()
        .expect("an answer")
}

/// A primary, its replica, and a sentinel that knows both.
async fn trio(more: &str) -> (Port, Port, Port) {
    let primary = Port::start(&[]);
    let replica = Port::start(&["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
    eventually("the replica follows", async || {
        let info: String = replica.ask("INFO replication").ok()?;
        info.contains("master_link_status:up").then_some(())
    })
    .await;
    let sentinel = Port::sentinel(primary.port, more);
    (primary, replica, sentinel)
}

async fn until_it_knows_the_replica(sentinel: &Port) {
    eventually("the sentinel knows the replica", async || {
        let replicas: redis::Value = sentinel.ask("SENTINEL replicas main").ok()?;
        matches!(replicas, redis::Value::Array(list) if !list.is_empty()).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_primary_is_followed_under_load() {
    let (mut primary, replica, sentinel) = trio("").await;
    until_it_knows_the_replica(&sentinel).await;
    let redis = Redis::connect(Config {
        kind: Kind::Sentinel,
        // A sentinel that is not there costs nothing.
        url: format!("main,127.0.0.1:1,{}", sentinel.address()),
        timeout: Duration::from_millis(500),
        ..Config::default()
    })
    .expect("a fine configuration");
    let lanes = [redis.lane(), redis.lane()];
    eventually("it answers", async || {
        one(&lanes[0], counter("first", yearly(), 1)).await.ok()
    })
    .await;
    assert!(primary.keys().iter().any(|key| key.contains("first")));

    let stop = Arc::new(AtomicBool::new(false));
    let failed = Arc::new(AtomicU64::new(0));
    let slowest = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let lane = lanes[task % 2].clone();
            let (stop, failed, slowest) = (stop.clone(), failed.clone(), slowest.clone());
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let started = Instant::now();
                    if one(&lane, counter("load", yearly(), 1)).await.is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                        // As callers that were refused do.
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    let took = started.elapsed().as_millis() as u64;
                    slowest.fetch_max(took, Ordering::Relaxed);
                }
            })
        })
        .collect();
    eventually("there is load", async || {
        (redis.figures().requests > 500).then_some(())
    })
    .await;
    primary.kill();
    let started = Instant::now();
    eventually("the replica was promoted", async || {
        let role: redis::Value = replica.ask("ROLE").ok()?;
        let redis::Value::Array(role) = role else {
            return None;
        };
        (role.first() == Some(&redis::Value::BulkString(b"master".to_vec()))).then_some(())
    })
    .await;
    let promoted = Instant::now();
    eventually("the new primary is used", async || {
        one(&lanes[0], counter("after", yearly(), 1)).await.ok()
    })
    .await;
    // The sentinel tells of the new primary a moment after it has promoted it.
    assert!(
        promoted.elapsed() < Duration::from_secs(3),
        "{:?}",
        promoted.elapsed()
    );
    let lost = failed.load(Ordering::Relaxed);
    eventually("all is well again", async || {
        let before = failed.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(200)).await;
        (failed.load(Ordering::Relaxed) == before).then_some(())
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no task panicked");
    }
    assert!(lost > 0, "the primary was not missed");
    // 16 callers, each with a pause of 5 ms after a failure.
    let outage = started.elapsed().as_millis() as u64;
    assert!(lost < 16 * outage / 5 + 100, "{lost} in {outage} ms");
    assert!(slowest.load(Ordering::Relaxed) < 900, "{slowest:?}");
    replica.no_key_without_expiry();
}

#[tokio::test]
async fn a_demoted_primary_that_still_answers_is_left() {
    let (primary, replica, sentinel) = trio("").await;
    until_it_knows_the_replica(&sentinel).await;
    let redis = Redis::connect(Config {
        kind: Kind::Sentinel,
        url: format!("main,{}", sentinel.address()),
        timeout: Duration::from_secs(5),
        ..Config::default()
    })
    .expect("a fine configuration");
    let lane = redis.lane();
    eventually("it answers", async || {
        one(&lane, counter("k", yearly(), 1)).await.ok()
    })
    .await;
    eventually("the sentinel begins", async || {
        sentinel.ask::<()>("SENTINEL failover main").ok()
    })
    .await;
    eventually("the new primary has a count of ours", async || {
        let _ = one(&lane, counter("moved", yearly(), 1)).await;
        let role: redis::Value = replica.ask("ROLE").ok()?;
        let redis::Value::Array(role) = role else {
            return None;
        };
        let promoted = role.first() == Some(&redis::Value::BulkString(b"master".to_vec()));
        (promoted && one(&lane, counter("now", yearly(), 1)).await.is_ok()).then_some(())
    })
    .await;
    eventually("the count is at the new primary", async || {
        let _ = one(&lane, counter("there", yearly(), 1)).await;
        replica
            .keys()
            .iter()
            .any(|key| key.contains("there"))
            .then_some(())
    })
    .await;
    drop(primary);
}

#[tokio::test]
async fn sentinels_have_a_password_of_their_own() {
    let (primary, _replica, sentinel) = trio("requirepass \"sentinel:@/%#\"").await;
    let config = |auth: &str| Config {
        kind: Kind::Sentinel,
        url: format!("main,{}", sentinel.address()),
        timeout: Duration::from_secs(5),
        sentinel_auth: Some(Secret::from(auth)),
        ..Config::default()
    };
    let lane = Redis::connect(config(":sentinel:@/%#"))
        .expect("fine")
        .lane();
    let outcome = one(&lane, counter("auth", yearly(), 1)).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    let lane = Redis::connect(config("wrong")).expect("fine").lane();
    assert!(one(&lane, counter("auth", yearly(), 1)).await.is_err());
    drop(primary);
}

#[tokio::test]
async fn sentinels_have_an_authority_of_their_own() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    for authority in [&ours, &theirs] {
        authority.issue("server", "IP:127.0.0.1");
        authority.issue("client", "DNS:limiter");
    }
    let arguments = |authority: &Authority| {
        ["ca.crt", "server.crt", "server.key"].map(|file| authority.path(file))
    };
    let [ca, certificate, key] = arguments(&ours);
    let primary = Port::encrypted(&[
        "--tls-ca-cert-file",
        &ca,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &key,
    ]);
    let [ca, certificate, key] = arguments(&theirs);
    let sentinel = Port::encrypted_sentinel(
        primary.port,
        &format!("tls-ca-cert-file {ca}\ntls-cert-file {certificate}\ntls-key-file {key}"),
    );
    let tls = |authority: &Authority| Tls {
        ca: Some(authority.path("ca.crt").into()),
        client: Some((
            authority.path("client.crt").into(),
            authority.path("client.key").into(),
        )),
        ..Tls::default()
    };
    let ask = async |data: Option<Tls>, sentinels: Option<Tls>| {
        let lane = Redis::connect(Config {
            kind: Kind::Sentinel,
            url: format!("main,{}", sentinel.address()),
            timeout: Duration::from_secs(5),
            tls: data,
            sentinel_tls: sentinels,
            ..Config::default()
        })
        .expect("fine")
        .lane();
        one(&lane, counter("tls", yearly(), 1)).await
    };
    let outcome = ask(Some(tls(&ours)), Some(tls(&theirs))).await;
    assert!(outcome.is_ok(), "{outcome:?}");
    for (data, sentinels) in [
        (Some(tls(&ours)), Some(tls(&ours))),
        (Some(tls(&theirs)), Some(tls(&theirs))),
        (Some(tls(&ours)), None),
        (None, Some(tls(&theirs))),
    ] {
        assert!(ask(data, sentinels).await.is_err());
    }
}
