use super::*;
use crate::time::SECOND;

const START: u64 = 1_767_571_200 * SECOND;

struct Bench {
    clock: Clock,
    local: Local,
}

impl Bench {
    fn new(replicas: u64) -> Self {
        let clock = Clock::manual(Timestamp::from_micros(START));
        let local = Local::new(
            Replicas::new(replicas),
            clock.clone(),
            memory::Config::default(),
        );
        Self { clock, local }
    }

    /// The store decides: so much is left.
    fn known(&self, counter: &Counter, remaining: u64, reset_after: u64) {
        let said = Outcome {
            allowed: true,
            remaining,
            reset_after,
            retry_after: Some(0),
            next_after: None,
            delay: 0,
            used: 0,
            source: Source::Counter,
            basis: None,
        };
        let mut answers = [Ok(said)];
        self.local.settle(
            std::slice::from_ref(counter),
            &mut answers,
            Atomicity::PerCounter,
        );
        assert_eq!(answers[0], Ok(said));
    }

    /// How many of 1,000 hits this replica admits by itself.
    fn admits(&self, counter: &Counter) -> usize {
        (0..1_000).filter(|_| self.one(counter).allowed).count()
    }

    fn one(&self, counter: &Counter) -> Outcome {
        let mut answers = [Err(StoreError::Timeout)];
        self.local.settle(
            std::slice::from_ref(counter),
            &mut answers,
            Atomicity::PerCounter,
        );
        let outcome = answers[0].clone().expect("counted");
        assert_eq!(outcome.source, Source::Local);
        outcome
    }
}

fn counter(quota: Quota) -> Counter {
    Counter {
        key: CounterKey::new("local", quota.letter(), 1, [("k", "v")]),
        quota,
        hits: 1,
        role: Role::Enforced,
        on_failure: OnFailure::Local,
    }
}

fn hourly(limit: u64) -> Counter {
    counter(Quota::fixed_window(limit, 3_600 * SECOND).expect("legal"))
}

#[test]
fn each_replica_grants_its_share() {
    for (limit, replicas, share) in [(100, 1, 100), (100, 3, 33), (2, 3, 1), (0, 3, 0)] {
        let bench = Bench::new(replicas);
        assert_eq!(bench.admits(&hourly(limit)), share, "{limit} / {replicas}");
    }
}

#[test]
fn it_begins_with_what_is_known_to_be_left() {
    let bench = Bench::new(2);
    let counter = hourly(100);
    bench.known(&counter, 20, 1_800 * SECOND);
    assert_eq!(bench.admits(&counter), 10);
    // The store is back, and gone again: what it said last is what counts.
    bench.known(&counter, 60, 1_800 * SECOND);
    assert_eq!(bench.admits(&counter), 30);
    bench.known(&counter, 0, 1_800 * SECOND);
    assert_eq!(bench.admits(&counter), 0);
}

#[test]
fn what_is_known_grows_old() {
    let bench = Bench::new(1);
    let window = hourly(10);
    bench.known(&window, 0, 60 * SECOND);
    bench.clock.set(Timestamp::from_micros(START + 61 * SECOND));
    assert_eq!(bench.admits(&window), 10);

    let bench = Bench::new(1);
    let bucket = counter(Quota::token_bucket(1, SECOND, 100).expect("legal"));
    bench.known(&bucket, 0, 100 * SECOND);
    bench.clock.set(Timestamp::from_micros(START + 40 * SECOND));
    assert_eq!(bench.admits(&bucket), 40);
}

#[test]
fn a_request_that_is_held_back_takes_nothing() {
    let bench = Bench::new(1);
    let denied = Counter {
        key: CounterKey::new("local", b'f', 1, [("k", "denied")]),
        on_failure: OnFailure::Deny,
        ..hourly(10)
    };
    let both = [hourly(10), denied];
    for _ in 0..20 {
        let mut answers = [Err(StoreError::Timeout), Err(StoreError::Timeout)];
        bench
            .local
            .settle(&both, &mut answers, Atomicity::AllOrNothing);
        assert!(answers[0].is_ok() && answers[1].is_err());
    }
    assert_eq!(bench.admits(&hourly(10)), 10);
}

#[test]
fn without_such_a_rule_it_takes_no_room() {
    let bench = Bench::new(1);
    let counter = Counter {
        on_failure: OnFailure::Allow,
        ..hourly(1)
    };
    let mut answers = [Err(StoreError::Timeout)];
    bench.local.settle(
        std::slice::from_ref(&counter),
        &mut answers,
        Atomicity::PerCounter,
    );
    assert_eq!(answers, [Err(StoreError::Timeout)]);
    assert!(bench.local.counts.get().is_none());
}
