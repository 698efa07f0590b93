//! What both stores promise to operators: a look charges nothing and tells the truth, and what is forgotten is gone.

use std::sync::Arc;

use palang::{
    algorithm::Source,
    counter::{Atomicity, Counter, CounterKey, OnFailure, Role, Selection, Under},
    store::{DenyCache, Store as _, deny_cache::Refusals},
    time::{Clock, Timestamp},
};

use crate::support::{
    quotas::five,
    stores::{Bench, both, counter, with_role},
};

const STEP: u64 = 70_000;

#[tokio::test]
async fn a_look_says_what_the_next_call_gets_and_charges_nothing() {
    both(async |bench| {
        for quota in five() {
            let name = format!("{quota:?}");
            for (round, hits) in [1, 2, 1, 5, 1, 1, 3, 1, 6, 1, 2, 1, 1]
                .into_iter()
                .enumerate()
            {
                // The clock stands while it is looked at and taken from.
                let now = bench.clock.now().as_micros();
                bench.clock.set(Timestamp::from_micros(now + STEP));
                let asked = counter(&name, quota, hits);
                let before = bench
                    .all(&[counter(&name, quota, 0)], Atomicity::PerCounter)
                    .await;
                let looks: Vec<_> = {
                    let first = bench.store.peek(std::slice::from_ref(&asked)).await;
                    let second = bench.store.peek(std::slice::from_ref(&asked)).await;
                    assert_eq!(first, second);
                    first
                        .into_iter()
                        .map(|look| look.expect("decided"))
                        .collect()
                };
                let after = bench
                    .all(&[counter(&name, quota, 0)], Atomicity::PerCounter)
                    .await;
                assert_eq!(before, after, "round {round}: {name}");
                let taken = bench.all(&[asked], Atomicity::AllOrNothing).await;
                assert_eq!(looks[0].allowed, taken[0].allowed, "round {round}: {name}");
                if !taken[0].allowed {
                    assert_eq!(looks[0], taken[0], "round {round}: {name}");
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_look_at_a_shadow_or_at_what_was_never_asked_leaves_nothing() {
    both(async |bench| {
        for quota in five() {
            let name = format!("{quota:?}");
            let asked = with_role(&name, quota, 1, Role::Shadow);
            let look = bench.store.peek(&[asked.clone(), asked]).await;
            assert!(
                look.iter()
                    .all(|look| look.as_ref().is_ok_and(|look| look.allowed))
            );
            let state = bench
                .all(&[counter(&name, quota, 0)], Atomicity::PerCounter)
                .await;
            assert_eq!(state[0].used, 0, "{name}");
        }
        if let Some(server) = &bench.server {
            let keys: Vec<String> = redis::cmd("KEYS")
                .arg("*")
                .query(&mut server.connection())
                .expect("Redis answers");
            assert!(keys.is_empty(), "{keys:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_forgotten_is_gone_and_nothing_else() {
    both(async |bench| {
        let quotas = five();
        let of = |user: &str, route: &str, hits: i64| -> Vec<Counter> {
            let key = |letter| {
                let entries = [("user", user), ("route", route)];
                CounterKey::new("suite", letter, 1_000_000, entries)
            };
            quotas
                .iter()
                .map(|quota| Counter {
                    key: key(quota.letter()),
                    quota: *quota,
                    hits,
                    role: Role::Enforced,
                    on_failure: OnFailure::Error,
                })
                .collect()
        };
        let used = async |user: &str, route: &str| -> Vec<u64> {
            let found = bench.all(&of(user, route, 0), Atomicity::PerCounter).await;
            found.into_iter().map(|outcome| outcome.used).collect()
        };
        for (user, route) in [("7", "a"), ("7", "b*"), ("70", "a"), ("*", "a")] {
            bench.all(&of(user, route, 1), Atomicity::PerCounter).await;
        }
        let one = Selection::One(of("7", "a", 0).remove(2).key);
        assert_eq!(bench.store.forget(&one).await, Ok(1));
        assert_eq!(bench.store.forget(&one).await, Ok(0));
        let left = used("7", "a").await;
        assert_eq!(
            left.iter().filter(|used| **used == 0).count(),
            1,
            "{left:?}"
        );

        let under = Selection::Under(Under::new("suite", [("user", "7")]).expect("short"));
        assert_eq!(bench.store.forget(&under).await, Ok(9));
        for (user, route, is_gone) in [("7", "b*", true), ("70", "a", false), ("*", "a", false)] {
            let used = used(user, route).await;
            assert!(
                used.iter().all(|used| (*used == 0) == is_gone),
                "{user}: {used:?}"
            );
        }
        // A star is a star.
        let star = Selection::Under(Under::new("suite", [("user", "*")]).expect("short"));
        assert_eq!(bench.store.forget(&star).await, Ok(5));
        let all = Selection::Under(Under::new("suite", []).expect("short"));
        assert_eq!(bench.store.forget(&all).await, Ok(5));
        assert_eq!(bench.store.forget(&all).await, Ok(0));
    })
    .await;
}

#[tokio::test]
async fn a_look_goes_past_the_memory_of_refusals() {
    let bench = Bench::memory();
    let clock: Clock = bench.clock.clone();
    let refusals = Arc::new(Refusals::new(100_000, clock));
    let store = DenyCache::new(bench.store, Some(Arc::clone(&refusals)));
    for quota in five() {
        let asked = [counter("refused", quota, 100)];
        store.take(&asked, Atomicity::PerCounter).await;
        assert_eq!(refusals.len(), 1);
        let look = store.peek(&asked).await;
        assert_eq!(
            look[0].as_ref().map(|look| (look.allowed, look.source)),
            Ok((false, Source::Counter))
        );
        let under = Selection::One(asked[0].key.clone());
        store.forget(&under).await.expect("forgotten");
        assert!(refusals.is_empty(), "{quota:?}");
    }
}
