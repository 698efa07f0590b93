//! Any interleaving through lanes and batches comes to what one at a time comes to.

use std::{collections::BTreeMap, time::Duration};

use palang::{
    algorithm::{MAX_WINDOW, Quota},
    counter::{Atomicity, Counter},
    store::{
        Memory, Redis, Store as _, StoreError, memory,
        redis::{Config, Kind, Lane},
    },
    time::{Clock, Timestamp},
};
use proptest::{prelude::*, test_runner::TestRunner};

use crate::support::{
    cluster::Cluster,
    redis::RedisServer,
    stores::{START, config, counter},
};

/// One request: which lane, which keys, hits, whether its caller goes away.
type Ask = (usize, Vec<usize>, i64, bool);

const KEYS: usize = 6;

fn quota(key: usize) -> Quota {
    let limit = 5 + 7 * key as u64;
    match key % 4 {
        0 => Quota::fixed_window(limit, MAX_WINDOW),
        1 => Quota::sliding_window(limit, MAX_WINDOW),
        2 => Quota::sliding_log(limit, MAX_WINDOW),
        _ => Quota::token_bucket(1, MAX_WINDOW, limit),
    }
    .expect("legal")
}

fn of(case: usize, key: usize, hits: i64) -> Counter {
    counter(&format!("{case}-{key}"), quota(key), hits)
}

fn asks(most: i64) -> impl Strategy<Value = Vec<Ask>> {
    let ask = (
        0..3usize,
        prop::collection::btree_set(0..KEYS, 1..4).prop_map(|keys| keys.into_iter().collect()),
        1..=most,
        prop::bool::weighted(0.2),
    );
    prop::collection::vec(ask, 1..80)
}

fn cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    }
}

/// Runs all requests at once. The outcomes of those whose callers stayed; those who left may or may not have counted.
async fn at_once(
    lanes: &[Lane],
    case: usize,
    asks: &[Ask],
    atomicity: Atomicity,
) -> Vec<Option<Vec<Result<bool, StoreError>>>> {
    let tasks: Vec<_> = asks
        .iter()
        .map(|(lane, keys, hits, leaves)| {
            let lane = lanes[lane % lanes.len()].clone();
            let ask: Vec<Counter> = keys.iter().map(|key| of(case, *key, *hits)).collect();
            let leaves = *leaves;
            tokio::spawn(async move {
                let take = lane.take(&ask, atomicity);
                let leave = async {
                    for _ in 0..ask.len() {
                        tokio::task::yield_now().await;
                    }
                };
                let outcomes = tokio::select! {
                    biased;
                    outcomes = take => outcomes,
                    () = leave, if leaves => return None,
                };
                Some(
                    outcomes
                        .into_iter()
                        .map(|outcome| outcome.map(|outcome| outcome.allowed))
                        .collect(),
                )
            })
        })
        .collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.expect("runs"));
    }
    answers
}

async fn used(lane: &Lane, case: usize) -> BTreeMap<usize, u64> {
    let looks: Vec<Counter> = (0..KEYS).map(|key| of(case, key, 0)).collect();
    let outcomes = lane.take(&looks, Atomicity::PerCounter).await;
    outcomes
        .into_iter()
        .map(|outcome| outcome.expect("decided").used)
        .enumerate()
        .collect()
}

fn check(lanes: &[Lane], runtime: &tokio::runtime::Runtime, runs: u32) {
    let case = std::cell::Cell::new(0);
    // Hits of 1: which ones are admitted depends on the order, how many does not.
    let result = TestRunner::new(cases(runs)).run(&asks(1), |asks| {
        case.set(case.get() + 1);
        let clock = Clock::manual(Timestamp::from_micros(START));
        let model = Memory::new(clock, memory::Config::default());
        runtime.block_on(async {
            let answers = at_once(lanes, case.get(), &asks, Atomicity::PerCounter).await;
            let used = used(&lanes[0], case.get()).await;
            let mut sure = BTreeMap::<usize, (u64, u64)>::new();
            let mut all = BTreeMap::<usize, u64>::new();
            for ((_, keys, _, _), answer) in asks.iter().zip(&answers) {
                for (place, key) in keys.iter().enumerate() {
                    *all.entry(*key).or_default() += 1;
                    if let Some(answer) = answer {
                        let (asked, admitted) = sure.entry(*key).or_default();
                        *asked += 1;
                        *admitted += u64::from(answer[place].clone().expect("no call fails"));
                    }
                }
            }
            for (key, all) in all {
                let (asked, admitted) = sure.get(&key).copied().unwrap_or_default();
                let one_at_a_time = async |amount: u64| {
                    let name = format!("{}-{key}-{amount}", case.get());
                    let ask = [counter(&name, quota(key), 1)];
                    let mut admitted = 0;
                    for _ in 0..amount {
                        let outcomes = model.take(&ask, Atomicity::PerCounter).await;
                        admitted += u64::from(outcomes[0].as_ref().expect("decided").allowed);
                    }
                    let look = [counter(&name, quota(key), 0)];
                    let look = model.take(&look, Atomicity::PerCounter).await;
                    (admitted, look[0].as_ref().expect("decided").used)
                };
                let (admitted_alone, least) = one_at_a_time(asked).await;
                let (_, most) = one_at_a_time(all).await;
                prop_assert!(admitted <= admitted_alone, "key {}", key);
                prop_assert!(admitted + (all - asked) >= admitted_alone, "key {}", key);
                prop_assert!(
                    (least..=most).contains(&used[&key]),
                    "key {} {:?}",
                    key,
                    used
                );
            }
            Ok(())
        })
    });
    result.expect("the same totals");
    // All or nothing: what is counted is what was admitted, on every key.
    let case = std::cell::Cell::new(1_000_000);
    let result = TestRunner::new(cases(runs)).run(&asks(4), |asks| {
        case.set(case.get() + 1);
        runtime.block_on(async {
            let answers = at_once(lanes, case.get(), &asks, Atomicity::AllOrNothing).await;
            let used = used(&lanes[0], case.get()).await;
            let mut least = BTreeMap::<usize, u64>::new();
            let mut open = BTreeMap::<usize, u64>::new();
            for ((_, keys, hits, _), answer) in asks.iter().zip(&answers) {
                let admitted = answer.as_ref().map(|answer| {
                    answer
                        .iter()
                        .all(|allowed| *allowed.as_ref().expect("no call fails"))
                });
                for key in keys {
                    match admitted {
                        Some(true) => *least.entry(*key).or_default() += *hits as u64,
                        Some(false) => {}
                        None => *open.entry(*key).or_default() += *hits as u64,
                    }
                }
            }
            for (key, used) in used {
                let least = least.get(&key).copied().unwrap_or_default();
                let open = open.get(&key).copied().unwrap_or_default();
                prop_assert!(
                    (least..=least + open).contains(&used),
                    "key {}: {} not in {}+{}",
                    key,
                    used,
                    least,
                    open
                );
                prop_assert!(used <= quota(key).capacity());
            }
            Ok(())
        })
    });
    result.expect("all or nothing");
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

#[test]
fn any_interleaving_comes_to_the_same() {
    let server = RedisServer::start();
    let runtime = runtime();
    for depth in [1, 2, 4] {
        let redis = Redis::connect(Config {
            depth,
            max_batch: 7,
            prefix: format!("{depth}:"),
            ..config(&server)
        })
        .expect("a fine configuration");
        let _inside = runtime.enter();
        let lanes: Vec<Lane> = (0..3).map(|_| redis.lane()).collect();
        check(&lanes, &runtime, 40);
    }
    server.no_key_without_expiry();
}

#[test]
fn any_interleaving_over_a_cluster_comes_to_the_same() {
    let cluster = Cluster::start();
    let runtime = runtime();
    let redis = Redis::connect(Config {
        kind: Kind::Cluster,
        url: cluster.url(),
        timeout: Duration::from_secs(10),
        ..Config::default()
    })
    .expect("a fine configuration");
    let _inside = runtime.enter();
    let lanes: Vec<Lane> = (0..3).map(|_| redis.lane()).collect();
    check(&lanes, &runtime, 30);
    for node in &cluster.nodes {
        node.no_key_without_expiry();
    }
}
