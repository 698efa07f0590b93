//! What hangs together in a request: charged all or none, shadows, quotas, keys that come twice.

use palang::{
    algorithm::Outcome,
    counter::{Atomicity, Role},
};

use crate::support::{
    quotas::{five, fixed, log},
    stores::{both, counter, with_role},
};

fn allowed(outcomes: &[Outcome]) -> Vec<bool> {
    outcomes.iter().map(|outcome| outcome.allowed).collect()
}

#[tokio::test]
async fn all_or_nothing_leaves_no_trace() {
    both(async |bench| {
        for free in five() {
            let ask = [
                counter("free", free, 1),
                counter("free", free, 1),
                counter("spent", log(1), 2),
            ];
            let outcomes = bench.all(&ask, Atomicity::AllOrNothing).await;
            assert_eq!(allowed(&outcomes), [true, true, false]);
            for outcome in &outcomes[..2] {
                assert_eq!((outcome.remaining, outcome.used), (free.capacity(), 0));
                assert_eq!(outcome.retry_after, Some(0));
            }
            assert_eq!(bench.one(counter("free", free, 0)).await.used, 0);
            let ask = [counter("free", free, 1), counter("free", free, 1)];
            let outcomes = bench.all(&ask, Atomicity::AllOrNothing).await;
            assert_eq!(allowed(&outcomes), [true, true]);
            assert_eq!((outcomes[0].used, outcomes[1].used), (1, 2));
        }
    })
    .await;
}

#[tokio::test]
async fn a_key_twice_in_a_request_is_decided_one_after_the_other() {
    both(async |bench| {
        let ask = vec![counter("twice", fixed(2), 1); 3];
        let outcomes = bench.all(&ask, Atomicity::AllOrNothing).await;
        assert_eq!(allowed(&outcomes), [true, true, false]);
        assert_eq!(bench.one(counter("twice", fixed(2), 0)).await.used, 0);
        let outcomes = bench.all(&ask, Atomicity::PerCounter).await;
        assert_eq!(allowed(&outcomes), [true, true, false]);
        assert_eq!(outcomes[2].used, 3);
    })
    .await;
}

#[tokio::test]
async fn a_shadow_is_charged_but_holds_nobody_back() {
    both(async |bench| {
        let shadow = |hits| with_role("shadow", log(3), hits, Role::Shadow);
        let ask = [counter("real", log(9), 1), shadow(4)];
        let outcomes = bench.all(&ask, Atomicity::AllOrNothing).await;
        assert_eq!(allowed(&outcomes), [true, false]);
        assert_eq!(outcomes[0].used, 1);
        // Held back by another: the shadow alone is charged.
        let ask = [counter("real", log(9), 9), shadow(2)];
        let outcomes = bench.all(&ask, Atomicity::AllOrNothing).await;
        assert_eq!(allowed(&outcomes), [false, true]);
        assert_eq!(bench.one(shadow(0)).await.used, 2);
        assert_eq!(bench.one(counter("real", log(9), 0)).await.used, 1);
    })
    .await;
}

#[tokio::test]
async fn quotas_hold_back_only_when_all_of_them_refuse() {
    both(async |bench| {
        let quota = |name, hits| with_role(name, fixed(1), hits, Role::Quota);
        let ask = [quota("a", 2), quota("b", 1), counter("c", fixed(9), 1)];
        let outcomes = bench.all(&ask, Atomicity::AllOrNothing).await;
        assert_eq!(allowed(&outcomes), [false, true, true]);
        let used: Vec<u64> = outcomes.iter().map(|outcome| outcome.used).collect();
        assert_eq!(used, [0, 1, 1]);
        let outcomes = bench.all(&ask, Atomicity::AllOrNothing).await;
        assert_eq!(allowed(&outcomes), [false, false, true]);
        assert_eq!(outcomes[2].used, 1);
        assert_eq!(bench.one(counter("c", fixed(9), 0)).await.used, 1);
    })
    .await;
}

#[tokio::test]
async fn a_give_back_in_a_held_request_does_nothing() {
    both(async |bench| {
        bench.one(counter("back", fixed(5), 3)).await;
        let ask = [counter("back", fixed(5), -2), counter("no", fixed(0), 1)];
        let outcomes = bench.all(&ask, Atomicity::AllOrNothing).await;
        assert_eq!(allowed(&outcomes), [true, false]);
        assert_eq!(bench.one(counter("back", fixed(5), 0)).await.used, 3);
    })
    .await;
}
