//! Refusals remembered: the same answers as without, fewer questions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use palang::{
    algorithm::{Outcome, Quota, Source},
    counter::{Atomicity, Counter, Role},
    store::{
        DenyCache, Memory, Redis, Store, StoreError, deny_cache::Refusals, memory, redis::Config,
    },
    time::{Clock, Deadline, Timestamp},
};
use proptest::prelude::*;

use crate::support::{
    quotas::{bucket, five, fixed, log, queue, sliding},
    redis::RedisServer,
    stores::{START, config, counter, with_role},
};

const MS: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// A memory store that counts how often it is asked.
struct Counted {
    inner: Arc<Memory>,
    asked: Arc<AtomicU64>,
}

impl Store for Counted {
    async fn take_by(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> Vec<Result<Outcome, StoreError>> {
        self.asked
            .fetch_add(counters.len() as u64, Ordering::Relaxed);
        self.inner.take_by(counters, atomicity, deadline).await
    }
}

/// Two replicas' caches in front of one store.
struct Bench {
    clock: Clock,
    ours: DenyCache<Counted>,
    theirs: DenyCache<Counted>,
    asked: Arc<AtomicU64>,
    refusals: Arc<Refusals>,
}

fn bench(bytes: u64) -> Bench {
    let clock = Clock::manual(Timestamp::from_micros(START));
    let inner = Arc::new(Memory::new(clock.clone(), memory::Config::default()));
    let asked = Arc::new(AtomicU64::new(0));
    let refusals = Arc::new(Refusals::new(bytes, clock.clone()));
    let store = |refusals: Option<Arc<Refusals>>, asked: Arc<AtomicU64>| {
        let inner = inner.clone();
        DenyCache::new(Counted { inner, asked }, refusals)
    };
    Bench {
        ours: store(Some(refusals.clone()), asked.clone()),
        theirs: store(None, Arc::default()),
        clock,
        asked,
        refusals,
    }
}

impl Bench {
    async fn one(&self, counter: Counter) -> Outcome {
        one(&self.ours, counter).await
    }

    fn at(&self, micros: u64) {
        self.clock.set(Timestamp::from_micros(START + micros));
    }

    fn asked(&self) -> u64 {
        self.asked.swap(0, Ordering::Relaxed)
    }

    /// Uses `quota` up, and has that remembered.
    async fn exhaust(&self, name: &str, quota: Quota) -> Outcome {
        while self.one(counter(name, quota, 1)).await.allowed {}
        let again = self.one(counter(name, quota, 1)).await;
        assert_eq!(again.source, Source::DenyCache);
        self.asked();
        again
    }
}

async fn one(store: &impl Store, counter: Counter) -> Outcome {
    let outcomes = store.take(&[counter], Atomicity::PerCounter).await;
    let [Ok(outcome)] = outcomes[..] else {
        panic!("{outcomes:?}")
    };
    outcome
}

/// What a caller sees of it.
fn figures(outcome: &Outcome) -> Outcome {
    Outcome {
        source: Source::Counter,
        basis: None,
        ..*outcome
    }
}

#[tokio::test]
async fn every_cost_is_refused_with_exact_figures_that_shrink() {
    for quota in [
        bucket(3, 7 * SECOND, 5),
        queue(3, 7 * SECOND, 9 * SECOND),
        fixed(5),
        sliding(5),
    ] {
        let bench = bench(1 << 20);
        bench.exhaust("k", quota).await;
        for moved in [0, 1, 17 * MS, 123_457, 200 * MS] {
            bench.at(moved);
            for hits in [1, 2, 3, 5, 6, 1 << 40] {
                let ours = bench.one(counter("k", quota, hits)).await;
                assert_eq!(
                    ours.source,
                    Source::DenyCache,
                    "{quota:?} {hits} at {moved}"
                );
                // In a request that charges nothing, so that a fixed window counts nothing either.
                let ask = [counter("k", quota, hits)];
                let theirs = bench.theirs.take(&ask, Atomicity::AllOrNothing).await;
                let theirs = theirs[0].as_ref().expect("decided");
                assert_eq!(
                    figures(&ours),
                    figures(theirs),
                    "{quota:?} {hits} at {moved}"
                );
            }
        }
        assert_eq!(bench.asked(), 0);
    }
}

#[tokio::test]
async fn what_has_room_again_is_asked_for_to_the_microsecond() {
    for quota in five() {
        let bench = bench(1 << 20);
        let refused = bench.exhaust("k", quota).await;
        let retry = refused.retry_after.expect("comes back");
        bench.at(retry - 1);
        let before = bench.one(counter("k", quota, 1)).await;
        assert!(!before.allowed, "{quota:?} {before:?}");
        bench.at(retry);
        let after = bench.one(counter("k", quota, 1)).await;
        assert!(after.allowed, "{quota:?} {after:?}");
    }
}

#[tokio::test]
async fn smaller_hits_that_fit_are_asked_for_and_change_what_is_left() {
    let bench = bench(1 << 20);
    let quota = bucket(1, 100 * SECOND, 5);
    bench.one(counter("k", quota, 2)).await;
    assert_eq!(bench.one(counter("k", quota, 4)).await.remaining, 3);
    assert_eq!(
        bench.one(counter("k", quota, 5)).await.source,
        Source::DenyCache
    );
    assert!(bench.one(counter("k", quota, 2)).await.allowed);
    let refused = bench.one(counter("k", quota, 4)).await;
    assert_eq!((refused.remaining, refused.source), (1, Source::Counter));
}

#[tokio::test]
async fn hits_given_back_are_seen_at_once() {
    for quota in five() {
        let bench = bench(1 << 20);
        bench.exhaust("k", quota).await;
        // A fixed window counts refused hits: more than the limit is given back.
        bench.one(counter("k", quota, -3)).await;
        assert!(bench.one(counter("k", quota, 1)).await.allowed, "{quota:?}");
    }
}

#[tokio::test]
async fn hits_given_back_earlier_in_the_same_request_count() {
    for quota in five() {
        let bench = bench(1 << 20);
        bench.exhaust("k", quota).await;
        let ask = [counter("k", quota, -3), counter("k", quota, 1)];
        let outcomes = bench.ours.take(&ask, Atomicity::PerCounter).await;
        let allowed = |place: usize| {
            outcomes[place]
                .as_ref()
                .is_ok_and(|outcome| outcome.allowed)
        };
        assert!(allowed(0) && allowed(1), "{quota:?}: {outcomes:?}");
    }
}

/// Decides at once, but answers single hits only when there is a permit.
struct Late(Memory, Arc<tokio::sync::Semaphore>);

impl Store for Late {
    async fn take_by(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> Vec<Result<Outcome, StoreError>> {
        let outcomes = self.0.take_by(counters, atomicity, deadline).await;
        if counters[0].hits == 1 {
            self.1.acquire().await.expect("never closed").forget();
        }
        outcomes
    }
}

#[tokio::test]
async fn a_refusal_that_comes_in_after_a_give_back_is_not_remembered() {
    let clock = Clock::manual(Timestamp::from_micros(START));
    let memory = Memory::new(clock.clone(), memory::Config::default());
    let refusals = Arc::new(Refusals::new(1 << 20, clock.clone()));
    let answers = Arc::new(tokio::sync::Semaphore::new(0));
    let late = Late(memory, Arc::clone(&answers));
    let store = Arc::new(DenyCache::new(late, Some(refusals)));
    let quota = bucket(1, 100 * SECOND, 5);
    assert!(one(&*store, counter("k", quota, 5)).await.allowed);
    let refused = {
        let store = store.clone();
        tokio::spawn(async move { one(&*store, counter("k", quota, 1)).await })
    };
    tokio::task::yield_now().await;
    assert!(one(&*store, counter("k", quota, -3)).await.allowed);
    answers.add_permits(2);
    assert!(!refused.await.expect("runs").allowed);
    assert!(one(&*store, counter("k", quota, 1)).await.allowed);
}

#[tokio::test]
async fn hits_given_back_by_another_replica_are_seen_within_a_second() {
    let quota = bucket(1, 100 * SECOND, 5);
    let bench = bench(1 << 20);
    bench.exhaust("k", quota).await;
    one(&bench.theirs, counter("k", quota, -3)).await;
    bench.at(SECOND - 1);
    assert!(!bench.one(counter("k", quota, 1)).await.allowed);
    assert_eq!(bench.asked(), 0);
    bench.at(SECOND);
    assert!(bench.one(counter("k", quota, 1)).await.allowed);
}

#[tokio::test]
async fn a_raised_limit_is_seen_at_once() {
    for (quota, raised) in [
        (bucket(1, 100 * SECOND, 5), bucket(1, 100 * SECOND, 9)),
        (fixed(5), fixed(99)),
        (sliding(5), sliding(9)),
        (log(5), log(9)),
    ] {
        let bench = bench(1 << 20);
        bench.exhaust("k", quota).await;
        let outcome = bench.one(counter("k", raised, 1)).await;
        assert!(outcome.allowed, "{quota:?} {outcome:?}");
    }
}

#[tokio::test]
async fn a_limit_that_a_request_brings_asks_for_itself() {
    let bench = bench(1 << 20);
    bench.exhaust("k", fixed(5)).await;
    // Another one of the same counter, and the rule's own again.
    let brought = bench.one(counter("k", fixed(1_000), 1)).await;
    assert!(brought.allowed);
    let own = bench.one(counter("k", fixed(5), 1)).await;
    assert_eq!((own.allowed, own.source), (false, Source::Counter));
}

#[tokio::test]
async fn a_clock_that_stepped_back_asks() {
    let quota = bucket(1, 100 * SECOND, 5);
    let bench = bench(1 << 20);
    bench.at(SECOND);
    bench.exhaust("k", quota).await;
    bench.at(0);
    assert_eq!(
        bench.one(counter("k", quota, 1)).await.source,
        Source::Counter
    );
}

#[tokio::test]
async fn a_shadow_rule_counts_on() {
    let bench = bench(1 << 20);
    bench.exhaust("k", fixed(5)).await;
    let before = bench.one(counter("k", fixed(5), 0)).await.used;
    for more in 1..4 {
        let shadow = bench.one(with_role("k", fixed(5), 1, Role::Shadow)).await;
        assert_eq!(
            (shadow.source, shadow.used),
            (Source::Counter, before + more)
        );
    }
}

#[tokio::test]
async fn a_refusal_that_came_of_a_charge_undone_is_not_remembered() {
    let bench = bench(1 << 20);
    let quota = bucket(1, 100 * SECOND, 5);
    let twice = [counter("k", quota, 4), counter("k", quota, 4)];
    let outcomes = bench.ours.take(&twice, Atomicity::AllOrNothing).await;
    assert!(!outcomes[1].as_ref().expect("decided").allowed);
    assert!(bench.one(counter("k", quota, 4)).await.allowed);
}

#[tokio::test]
async fn memory_is_bounded() {
    let bench = bench(64 << 10);
    let quota = bucket(1, 100 * SECOND, 1);
    for name in 0..5_000 {
        let name = name.to_string();
        bench.one(counter(&name, quota, 1)).await;
        assert!(!bench.one(counter(&name, quota, 1)).await.allowed);
    }
    assert!(!bench.refusals.is_empty());
    assert!(bench.refusals.len() <= 256, "{}", bench.refusals.len());
}

#[tokio::test]
async fn refused_keys_cause_no_call() {
    let server = RedisServer::start();
    let redis = Redis::connect(Config {
        timeout: Duration::from_secs(10),
        ..config(&server)
    })
    .expect("a fine configuration");
    let refusals = Arc::new(Refusals::new(1 << 20, Clock::system()));
    let store = DenyCache::new(redis.lane(), Some(refusals));
    let hour = 3_600 * SECOND;
    let quotas = [
        bucket(2, hour, 5),
        Quota::fixed_window(5, hour).expect("legal"),
        Quota::sliding_window(5, hour).expect("legal"),
        queue(2, hour, hour),
    ];
    let mut waits = Vec::new();
    for quota in quotas {
        while one(&store, counter("busy", quota, 1)).await.allowed {}
        waits.push(one(&store, counter("busy", quota, 1)).await.retry_after);
    }
    let before = server.calls_of("evalsha");
    let mut asked = 0;
    for round in 0..500i64 {
        for (quota, wait) in quotas.iter().zip(&mut waits) {
            let outcome = one(&store, counter("busy", *quota, 1)).await;
            assert!(!outcome.allowed);
            assert!(outcome.retry_after <= *wait, "it shrinks");
            *wait = outcome.retry_after;
            asked += u64::from(outcome.source == Source::Counter);
            // More is refused from memory, too.
            one(&store, counter("busy", *quota, 1 + round % 5)).await;
        }
    }
    let calls = server.calls_of("evalsha") - before;
    // Each entry lives a second.
    assert!(
        calls <= 4 * 6 && asked <= calls,
        "{calls} calls, {asked} asked"
    );
}

fn calls() -> impl Strategy<Value = Vec<(u64, usize, i64, u8)>> {
    let hits = prop_oneof![6 => 1..4i64, 1 => 4..9i64, 1 => Just(0i64), 1 => -2..0i64];
    let moved = prop_oneof![3 => Just(0u64), 4 => 0..90_000u64, 1 => 0..900_000u64];
    prop::collection::vec((moved, 0..5usize, hits, 0..8u8), 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 500,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Of one replica no caller can tell whether refusals are remembered.
    #[test]
    fn nobody_can_tell_that_refusals_are_remembered(calls in calls()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        runtime.block_on(async {
            let clock = Clock::manual(Timestamp::from_micros(START));
            let memory = || Memory::new(clock.clone(), memory::Config::default());
            let refusals = Arc::new(Refusals::new(1 << 20, clock.clone()));
            let cached = DenyCache::new(memory(), Some(refusals));
            let plain = memory();
            let quotas = [bucket(7, 3 * SECOND, 5), log(5), fixed(5), sliding(5), queue(7, SECOND, SECOND)];
            let mut now = START;
            for (moved, which, hits, other) in calls {
                now += moved;
                clock.set(Timestamp::from_micros(now));
                let mut ask = vec![counter("k", quotas[which], hits)];
                // Sometimes with another one, which may be of the same key.
                if let Some(quota) = quotas.get(usize::from(other)) {
                    ask.push(with_role("k", *quota, 1, [Role::Enforced, Role::Quota][usize::from(other % 2)]));
                }
                let ours = cached.take(&ask, Atomicity::AllOrNothing).await;
                let theirs = plain.take(&ask, Atomicity::AllOrNothing).await;
                for (ours, theirs) in ours.iter().zip(&theirs) {
                    let (ours, theirs) = (ours.as_ref().expect("decided"), theirs.as_ref().expect("decided"));
                    prop_assert_eq!(figures(ours), figures(theirs), "{:?}", ask);
                }
            }
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn what_becomes_of_refusals_is_counted() {
    let gone = |bench: &Bench| {
        let gone = bench.refusals.gone();
        [gone.expired, gone.overwritten, gone.evicted]
    };
    let (slow, listed) = (bucket(1, 100 * SECOND, 5), log(5));
    let roomy = bench(1 << 20);
    roomy.exhaust("k", slow).await;
    roomy.exhaust("l", listed).await;
    assert_eq!(gone(&roomy), [0, 0, 0]);
    // A list keeps no state here: other hits are asked about, and refused anew.
    assert!(!roomy.one(counter("l", listed, 2)).await.allowed);
    assert_eq!(gone(&roomy), [0, 1, 0]);
    roomy.at(SECOND);
    assert!(!roomy.one(counter("k", slow, 1)).await.allowed);
    assert_eq!(gone(&roomy), [1, 1, 0]);

    let tight = bench(3_000);
    for number in 0..50 {
        let name = format!("k{number}");
        while tight.one(counter(&name, slow, 1)).await.allowed {}
    }
    let [expired, overwritten, evicted] = gone(&tight);
    assert_eq!((expired, overwritten), (0, 0));
    assert!(evicted > 0);
    assert_eq!(evicted + tight.refusals.len() as u64, 50);
}
