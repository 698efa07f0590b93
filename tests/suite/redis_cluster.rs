//! The Redis store on a cluster of three: batches over slots, a paused shard, a slot that moves.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use palang::{
    algorithm::{MAX_WINDOW, Outcome, Quota},
    counter::{Atomicity, Counter, CounterKey, OnFailure, Role},
    store::{
        Redis, Store as _, StoreError,
        redis::{Config, Kind, Lane},
    },
};

use crate::support::{
    cluster::Cluster,
    eventually,
    redis::PATIENCE,
    stores::{counter, with_role},
};

fn yearly(limit: u64) -> Quota {
    Quota::fixed_window(limit, MAX_WINDOW).expect("legal")
}

fn config(cluster: &Cluster) -> Config {
    Config {
        kind: Kind::Cluster,
        url: cluster.url(),
        timeout: Duration::from_secs(10),
        ..Config::default()
    }
}

fn connect(config: Config) -> Redis {
    Redis::connect(config).expect("a fine configuration")
}

async fn one(lane: &Lane, counter: Counter) -> Result<Outcome, StoreError> {
    lane.take(&[counter], Atomicity::PerCounter)
        .await
        .pop()
        .expect("an answer for the counter")
}

async fn used(lane: &Lane, name: &str, quota: Quota) -> u64 {
    one(lane, counter(name, quota, 0))
        .await
        .expect("decided")
        .used
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_go_over_slots_with_exact_totals_and_few_calls() {
    const KEYS: u64 = 60;
    const ROUNDS: u64 = 40;
    let cluster = Cluster::start();
    let redis = connect(config(&cluster));
    let lanes = [redis.lane(), redis.lane()];
    let tasks: Vec<_> = (0..64u64)
        .map(|task| {
            let lane = lanes[task as usize % 2].clone();
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    // Braces in client text choose nothing.
                    let name = format!("{{x}}{}", (task + round) % KEYS);
                    let two = [
                        counter(&name, yearly(1 << 40), 1),
                        counter("{}", yearly(1 << 40), 1),
                    ];
                    for outcome in lane.take(&two, Atomicity::PerCounter).await {
                        assert!(outcome.expect("no call fails").allowed);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no assertion failed");
    }
    let mut sum = 0;
    for key in 0..KEYS {
        sum += used(&lanes[0], &format!("{{x}}{key}"), yearly(1 << 40)).await;
    }
    assert_eq!(sum, 64 * ROUNDS);
    assert_eq!(used(&lanes[0], "{}", yearly(1 << 40)).await, 64 * ROUNDS);
    let figures = redis.figures();
    assert!(figures.calls < figures.requests / 2, "{figures:?}");
    assert!(figures.layouts <= 2, "{figures:?}");
    for node in &cluster.nodes {
        // Every node has its share.
        assert!(
            node.keys().len() > KEYS as usize / 8,
            "{}",
            node.keys().len()
        );
        node.no_key_without_expiry();
    }
}

#[tokio::test]
async fn what_is_charged_all_or_nothing_is_so_over_slots() {
    let cluster = Cluster::start();
    let lane = connect(config(&cluster)).lane();
    for quota in [
        yearly(5),
        Quota::token_bucket(1, MAX_WINDOW, 5).expect("legal"),
        Quota::sliding_log(5, MAX_WINDOW).expect("legal"),
        Quota::sliding_window(5, MAX_WINDOW).expect("legal"),
    ] {
        let names: Vec<String> = (0..12).map(|name| format!("apart{name}")).collect();
        assert!(
            one(&lane, counter("apart7", quota, 5))
                .await
                .expect("decided")
                .allowed
        );
        let ask: Vec<Counter> = names
            .iter()
            .map(|name| {
                let role = if name == "apart3" {
                    Role::Shadow
                } else {
                    Role::Enforced
                };
                with_role(name, quota, 2, role)
            })
            .collect();
        let outcomes = lane.take(&ask, Atomicity::AllOrNothing).await;
        for (name, outcome) in names.iter().zip(outcomes) {
            let outcome = outcome.expect("decided");
            assert_eq!(outcome.allowed, name != "apart7", "{name} {outcome:?}");
            let expected = match &**name {
                "apart7" => 5,
                // A shadow rule is charged whatever the others say.
                "apart3" => 2,
                _ => 0,
            };
            assert_eq!(outcome.used, expected, "{name} {outcome:?}");
            assert_eq!(used(&lane, name, quota).await, expected, "{name}");
        }
        // Quota buckets hold a request back only when all of them refuse, wherever they are.
        let ask = [
            with_role("apart7", quota, 1, Role::Quota),
            with_role("apart8", quota, 1, Role::Quota),
            counter("apart9", quota, 1),
        ];
        let outcomes = lane.take(&ask, Atomicity::AllOrNothing).await;
        let allowed: Vec<bool> = outcomes
            .iter()
            .map(|outcome| outcome.as_ref().expect("decided").allowed)
            .collect();
        assert_eq!(allowed, [false, true, true]);
        assert_eq!(used(&lane, "apart8", quota).await, 1);
        assert_eq!(used(&lane, "apart9", quota).await, 1);
        // Give-backs wait for the others.
        let ask = [counter("apart9", quota, -1), counter("apart7", quota, 1)];
        let outcomes = lane.take(&ask, Atomicity::AllOrNothing).await;
        assert!(outcomes[0].as_ref().expect("decided").allowed);
        assert_eq!(used(&lane, "apart9", quota).await, 1);
        let ask = [counter("apart9", quota, -1), counter("apart8", quota, 1)];
        lane.take(&ask, Atomicity::AllOrNothing).await;
        assert_eq!(used(&lane, "apart9", quota).await, 0);
        assert_eq!(used(&lane, "apart8", quota).await, 2);
    }
}

#[tokio::test]
async fn counters_of_one_tenant_share_a_slot_when_asked_to() {
    let cluster = Cluster::start();
    let redis = connect(Config {
        tag_entry: Some("tenant".to_owned()),
        ..config(&cluster)
    });
    let lane = redis.lane();
    let of = |tenant: &str, path: &str| Counter {
        key: CounterKey::new("d", b'f', MAX_WINDOW, [("path", path), ("tenant", tenant)]),
        quota: yearly(3),
        hits: 1,
        role: Role::Enforced,
        on_failure: OnFailure::Error,
    };
    for tenant in ["a", "{b}", "c", "d"] {
        let before = redis.figures().requests;
        let ask: Vec<Counter> = (0..20).map(|path| of(tenant, &path.to_string())).collect();
        for outcome in lane.take(&ask, Atomicity::AllOrNothing).await {
            assert!(outcome.expect("decided").allowed);
        }
        assert_eq!(
            redis.figures().requests,
            before + 1,
            "one script, no undoing"
        );
    }
    let mut homes = 0;
    for node in &cluster.nodes {
        let tags: std::collections::HashSet<String> = node
            .keys()
            .into_iter()
            .map(|key| key.split('}').next().expect("a tag").to_owned())
            .collect();
        homes += tags.len();
        assert_eq!(node.keys().len() % 20, 0);
    }
    assert!((2..=4).contains(&homes), "tenants are spread: {homes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_shard_does_not_slow_the_others() {
    let cluster = Cluster::start();
    let redis = connect(Config {
        timeout: Duration::from_millis(500),
        ..config(&cluster)
    });
    let lane = redis.lane();
    let names: Vec<String> = (0..48).map(|name| format!("paused{name}")).collect();
    for name in &names {
        let started = Instant::now();
        while one(&lane, counter(name, yearly(1 << 40), 1)).await.is_err() {
            assert!(started.elapsed() < PATIENCE);
        }
    }
    let mut at_home = Vec::new();
    let paused: Vec<String> = cluster.nodes[1].keys();
    for name in names {
        let key = crate::support::stores::key(&name, b'f');
        let key = String::from_utf8_lossy(key.as_bytes()).into_owned();
        if !paused.iter().any(|known| known.ends_with(&key)) {
            at_home.push(name);
        }
    }
    assert!(at_home.len() > 12);
    cluster.nodes[1].signal("STOP");
    let stop = Arc::new(AtomicBool::new(false));
    let failed = Arc::new(AtomicU64::new(0));
    // Load on the paused shard too, all the time.
    let victims: Vec<_> = (0..8)
        .map(|task| {
            let (lane, stop, failed) = (lane.clone(), stop.clone(), failed.clone());
            tokio::spawn(async move {
                let mut round = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let name = format!("victim{task}-{round}");
                    round += 1;
                    if one(&lane, counter(&name, yearly(9), 1)).await.is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })
        })
        .collect();
    let mut slowest = Duration::ZERO;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(2) {
        for name in &at_home {
            let started = Instant::now();
            let outcome = one(&lane, counter(name, yearly(1 << 40), 1)).await;
            assert!(outcome.is_ok(), "{name}: {outcome:?}");
            slowest = slowest.max(started.elapsed());
        }
    }
    stop.store(true, Ordering::Relaxed);
    for victim in victims {
        victim.await.expect("runs");
    }
    cluster.nodes[1].signal("CONT");
    assert!(
        failed.load(Ordering::Relaxed) > 0,
        "the shard was not missed"
    );
    // Far below the time that the paused shard's callers wait.
    assert!(slowest < Duration::from_millis(250), "{slowest:?}");
    let layouts = redis.figures().layouts;
    assert!(layouts <= 6, "asked {layouts} times within some 3 seconds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_under_load_without_a_failed_call() {
    let cluster = Cluster::start();
    let redis = connect(Config {
        // All keys in one slot, which is the one that moves.
        partitions: 1,
        ..config(&cluster)
    });
    let lane = redis.lane();
    one(&lane, counter("k0", yearly(1 << 40), 0))
        .await
        .expect("decided");
    one(&lane, counter("probe", yearly(1 << 40), 1))
        .await
        .expect("decided");
    let (home, key) = cluster
        .nodes
        .iter()
        .enumerate()
        .find_map(|(index, node)| node.keys().pop().map(|key| (index, key)))
        .expect("the key is somewhere");
    let slot: u16 = cluster.nodes[home]
        .ask(&format!("CLUSTER KEYSLOT {key}"))
        .expect("KEYSLOT");
    let target = (home + 1) % 3;

    let stop = Arc::new(AtomicBool::new(false));
    let taken = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..24u64)
        .map(|task| {
            let (lane, stop, taken) = (lane.clone(), stop.clone(), taken.clone());
            tokio::spawn(async move {
                let mut round = task;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    // Some keys are new, some are known.
                    let two = [
                        counter(&format!("k{}", round % 50), yearly(1 << 40), 1),
                        counter(&format!("new{task}-{round}"), yearly(9), 1),
                    ];
                    for outcome in lane.take(&two, Atomicity::PerCounter).await {
                        assert!(outcome.expect("no call fails").allowed);
                    }
                    taken.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let progress = async |more: u64| {
        let goal = taken.load(Ordering::Relaxed) + more;
        let started = Instant::now();
        while taken.load(Ordering::Relaxed) < goal {
            assert!(started.elapsed() < PATIENCE, "the load has ended");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    progress(200).await;
    cluster.begin_move(slot, home, target);
    progress(200).await;
    while tokio::task::block_in_place(|| cluster.move_keys(slot, home, target, 200)) {
        progress(5).await;
    }
    cluster.end_move(slot, target);
    progress(200).await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("no call failed");
    }
    let mut sum = 0;
    for key in 0..50 {
        sum += used(&lane, &format!("k{key}"), yearly(1 << 40)).await;
    }
    assert_eq!(
        sum,
        taken.load(Ordering::Relaxed),
        "no hit lost, none counted twice"
    );
    assert_eq!(cluster.nodes[home].keys(), Vec::<String>::new());
    for node in &cluster.nodes {
        node.no_key_without_expiry();
    }
    assert!(redis.figures().layouts <= 12, "{:?}", redis.figures());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_is_followed() {
    let mut cluster = Cluster::with_node_timeout("1000");
    cluster.add_replica(1);
    eventually("the replica follows, and all know it", async || {
        let info: String = cluster.nodes[3].ask("INFO replication").ok()?;
        let known = cluster.nodes.iter().all(|node| {
            let nodes: String = node.ask("CLUSTER NODES").unwrap_or_default();
            nodes.lines().any(|line| line.contains("slave"))
        });
        (known && info.contains("master_link_status:up")).then_some(())
    })
    .await;
    let redis = connect(Config {
        timeout: Duration::from_millis(200),
        ..config(&cluster)
    });
    let lanes = [redis.lane(), redis.lane()];
    let names: Arc<Vec<String>> = Arc::new((0..48).map(|name| format!("key{name}")).collect());
    for name in names.iter() {
        eventually("it answers", async || {
            one(&lanes[0], counter(name, yearly(1 << 40), 1)).await.ok()
        })
        .await;
    }
    let stop = Arc::new(AtomicBool::new(false));
    let (failed, slowest) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let tasks: Vec<_> = (0..16usize)
        .map(|task| {
            let lane = lanes[task % 2].clone();
            let (stop, failed) = (stop.clone(), failed.clone());
            let (slowest, names) = (slowest.clone(), names.clone());
            tokio::spawn(async move {
                let mut round = task;
                while !stop.load(Ordering::Relaxed) {
                    round += 1;
                    let started = Instant::now();
                    let name = &names[round % names.len()];
                    if one(&lane, counter(name, yearly(1 << 40), 1)).await.is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                        // As callers that were refused do.
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                    slowest.fetch_max(started.elapsed().as_millis() as u64, Ordering::Relaxed);
                }
            })
        })
        .collect();
    cluster.nodes[1].kill();
    let killed = Instant::now();
    eventually("the replica has the slots", async || {
        let role: redis::Value = cluster.nodes[3].ask("ROLE").ok()?;
        let redis::Value::Array(role) = role else {
            return None;
        };
        (role.first() == Some(&redis::Value::BulkString(b"master".to_vec()))).then_some(())
    })
    .await;
    let promoted = Instant::now();
    eventually("every key is counted again", async || {
        for name in names.iter() {
            one(&lanes[0], counter(name, yearly(1 << 40), 1))
                .await
                .ok()?;
        }
        Some(())
    })
    .await;
    // The layout is asked for once a second, and the nodes tell each other of the change a moment after it.
    assert!(
        promoted.elapsed() < Duration::from_secs(4),
        "{:?}",
        promoted.elapsed()
    );
    let outage = killed.elapsed().as_millis() as u64;
    let lost = failed.load(Ordering::Relaxed);
    eventually("all is well again", async || {
        let before = failed.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(200)).await;
        (failed.load(Ordering::Relaxed) == before).then_some(())
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await.expect("runs");
    }
    assert!(lost > 0, "the primary was not missed");
    assert!(lost < 16 * outage / 5 + 100, "{lost} in {outage} ms");
    assert!(slowest.load(Ordering::Relaxed) < 900, "{slowest:?}");
    assert!(
        cluster.nodes[3]
            .keys()
            .iter()
            .any(|key| key.contains("key")),
        "counted at the new primary"
    );
    cluster.nodes[3].no_key_without_expiry();
}

#[tokio::test]
async fn a_cluster_that_is_not_there_fails_at_once() {
    let redis = connect(Config {
        kind: Kind::Cluster,
        url: "127.0.0.1:1,127.0.0.1:2".to_owned(),
        timeout: Duration::from_secs(5),
        ..Config::default()
    });
    let lane = redis.lane();
    let begun = Instant::now();
    let tasks: Vec<_> = (0..64u64)
        .map(|task| {
            let lane = lane.clone();
            tokio::spawn(async move {
                let mut slowest = Duration::ZERO;
                // Over several questions for the layout.
                while begun.elapsed() < Duration::from_millis(2_500) {
                    let started = Instant::now();
                    let outcome = one(&lane, counter(&format!("k{task}"), yearly(9), 1)).await;
                    assert!(outcome.is_err(), "{outcome:?}");
                    slowest = slowest.max(started.elapsed());
                    tokio::task::yield_now().await;
                }
                slowest
            })
        })
        .collect();
    let mut slowest = Duration::ZERO;
    for task in tasks {
        slowest = slowest.max(task.await.expect("runs"));
    }
    assert!(slowest < Duration::from_secs(1), "{slowest:?}");
    assert!(redis.figures().layouts <= 4);
}
