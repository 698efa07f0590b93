//! Both stores behind one name, on a clock that the test moves.

use std::time::Duration;

use palang::{
    algorithm::{Outcome, Quota},
    counter::{Atomicity, Counter, CounterKey, OnFailure, Role, Selection},
    store::{
        Memory, Redis, Store, StoreError, memory,
        redis::{Config, Lane, SocketType},
    },
    time::{Clock, Deadline, Timestamp},
};

use super::redis::RedisServer;

/// Monday, in microseconds: a multiple of all windows used here.
pub(crate) const START: u64 = 1_767_571_200_000_000;

/// A store and its clock.
pub(crate) struct Bench {
    pub(crate) clock: Clock,
    pub(crate) store: AnyStore,
    pub(crate) server: Option<RedisServer>,
}

pub(crate) enum AnyStore {
    Memory(Memory),
    Redis(Lane),
}

impl Store for AnyStore {
    async fn take_by(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> Vec<Result<Outcome, StoreError>> {
        match self {
            Self::Memory(memory) => memory.take_by(counters, atomicity, deadline).await,
            Self::Redis(lane) => lane.take_by(counters, atomicity, deadline).await,
        }
    }

    async fn forget(&self, selection: &Selection) -> Result<u64, StoreError> {
        match self {
            Self::Memory(memory) => memory.forget(selection).await,
            Self::Redis(lane) => lane.forget(selection).await,
        }
    }
}

impl Bench {
    /// A memory store that forgets nothing before its bound.
    pub(crate) fn memory() -> Self {
        let clock = Clock::manual(Timestamp::from_micros(START));
        let config = memory::Config {
            max_keys: 100_000,
            shards: 8,
            sweep: 0,
        };
        Self {
            store: AnyStore::Memory(Memory::new(clock.clone(), config)),
            clock,
            server: None,
        }
    }

    /// A lane to a Redis of its own. Needs a tokio runtime.
    pub(crate) fn redis() -> Self {
        let clock = Clock::manual(Timestamp::from_micros(START));
        let server = RedisServer::start();
        let redis = Redis::connect(Config {
            clock: clock.clone(),
            ..config(&server)
        });
        Self {
            store: AnyStore::Redis(redis.expect("a fine configuration").lane()),
            clock,
            server: Some(server),
        }
    }

    /// Moves the clock to `micros` after [`START`].
    pub(crate) fn at(&self, micros: u64) {
        self.clock.set(Timestamp::from_micros(START + micros));
    }

    /// Takes one counter on its own.
    pub(crate) async fn one(&self, counter: Counter) -> Outcome {
        let outcomes = self.store.take(&[counter], Atomicity::PerCounter).await;
        let [Ok(outcome)] = outcomes[..] else {
            panic!("{outcomes:?}")
        };
        outcome
    }

    /// Takes a request that every counter of which can be decided.
    pub(crate) async fn all(&self, counters: &[Counter], atomicity: Atomicity) -> Vec<Outcome> {
        let outcomes = self.store.take(counters, atomicity).await;
        assert_eq!(outcomes.len(), counters.len());
        outcomes
            .into_iter()
            .map(|outcome| outcome.expect("decided"))
            .collect()
    }
}

/// Runs a test on each store.
pub(crate) async fn both(test: impl AsyncFn(&Bench)) {
    test(&Bench::memory()).await;
    let bench = Bench::redis();
    test(&bench).await;
    if let Some(server) = &bench.server {
        server.no_key_without_expiry();
    }
}

pub(crate) fn config(server: &RedisServer) -> Config {
    Config {
        url: server.url(),
        socket_type: SocketType::Unix,
        timeout: Duration::from_secs(10),
        slot_timeout: Duration::from_secs(10),
        ..Config::default()
    }
}

pub(crate) fn key(name: &str, letter: u8) -> CounterKey {
    CounterKey::new("suite", letter, 1_000_000, [("name", name)])
}

/// An enforced counter.
pub(crate) fn counter(name: &str, quota: Quota, hits: i64) -> Counter {
    with_role(name, quota, hits, Role::Enforced)
}

pub(crate) fn with_role(name: &str, quota: Quota, hits: i64, role: Role) -> Counter {
    Counter {
        key: key(name, quota.letter()),
        quota,
        hits,
        role,
        on_failure: OnFailure::Error,
    }
}
