//! What stands between decisions and a store that may fail: a deadline for each call, a bound on the calls in flight,
//! a circuit breaker, and this replica's own counts for the rules that want them.
//!
//! A store behind a guard costs a caller at most what the caller has, and a dead one costs it microseconds.

mod breaker;
mod local;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use breaker::Went;
pub use breaker::{Breaker, Config as BreakerConfig, State};
use local::Local;
pub use local::Replicas;

use super::{StoreError, contract::Store, memory, trouble::Trouble};
use crate::{
    algorithm::{Outcome, Quota},
    counter::{Atomicity, Counter, CounterKey, OnFailure, Role, Selection},
    time::{Clock, Deadline, SECOND},
};

/// Bounds of a guard.
#[derive(Clone, Debug)]
pub struct Config {
    /// The longest a call waits for the store. The store keeps to it by itself; here it tells whether a call had the
    /// time that a sound store needs.
    pub timeout: Duration,
    /// What a caller needs of its time to receive the answer.
    pub margin: Duration,
    /// Most calls in flight of each guard: one guard is one worker.
    pub max_in_flight: usize,
    /// When the breaker opens.
    pub breaker: BreakerConfig,
    /// How many replicas share the limits while each counts by itself.
    pub replicas: Replicas,
    /// Bounds of those counts.
    pub local: memory::Config,
    /// The clock of those counts.
    pub clock: Clock,
}

/// A store behind a guard.
#[derive(Debug)]
pub struct Guard<S> {
    inner: S,
    shared: Arc<Shared>,
    in_flight: AtomicUsize,
}

/// What the guards of one store share: the breaker, the counts, and the figures.
#[derive(Debug)]
pub struct Shared {
    timeout: Duration,
    margin: Duration,
    max_in_flight: usize,
    breaker: Breaker,
    local: Local,
    replicas: Replicas,
    errors: [AtomicU64; Trouble::KINDS],
}

impl Shared {
    /// A sound store, as far as is known.
    pub fn new(config: Config) -> Self {
        Self {
            timeout: config.timeout,
            margin: config.margin,
            max_in_flight: config.max_in_flight,
            // The store's own clock may be a test's. Failures take real time.
            breaker: Breaker::new(config.breaker, Clock::system()),
            local: Local::new(config.replicas.clone(), config.clock, config.local),
            replicas: config.replicas,
            errors: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// The breaker.
    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// Counters that could not be decided, by kind of trouble.
    pub fn errors(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Trouble::ALL
            .iter()
            .zip(&self.errors)
            .map(|(trouble, count)| (trouble.name, count.load(Ordering::Relaxed)))
    }

    /// Counters that this replica keeps by itself now.
    pub fn local_keys(&self) -> u64 {
        self.local.keys()
    }

    /// How many replicas share the limits, as far as is known.
    pub fn replicas(&self) -> &Replicas {
        &self.replicas
    }

    fn count(&self, error: &StoreError) {
        self.errors[Trouble::of(error).kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// What a call's answers say about the store.
    fn went(&self, answers: &[Result<Outcome, StoreError>], had: Option<Duration>) -> Went {
        let whole = |answer: &Result<Outcome, StoreError>| match answer {
            Ok(_) => false,
            Err(error) => Trouble::of(error).whole,
        };
        if !answers.iter().any(whole) {
            // The store was not asked.
            let unasked = |answer: &Result<Outcome, StoreError>| {
                matches!(answer, Err(StoreError::Full | StoreError::NoConnection))
            };
            return if answers.iter().any(unasked) {
                Went::Unknown
            } else {
                Went::Well
            };
        }
        // A caller without patience must not be able to open the breaker for everybody.
        let hasty = had.is_some_and(|had| had < self.timeout * 2 / 3);
        if hasty && answers.contains(&Err(StoreError::Timeout)) {
            Went::Unknown
        } else {
            Went::Badly
        }
    }
}

impl<S: Store> Guard<S> {
    /// `inner`, behind a guard.
    pub fn new(inner: S, shared: Arc<Shared>) -> Self {
        Self {
            inner,
            shared,
            in_flight: AtomicUsize::new(0),
        }
    }

    /// The answers of the store, or the reason why it was not asked.
    async fn ask(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> Result<Vec<Result<Outcome, StoreError>>, StoreError> {
        let _in_flight = self.enter().ok_or(StoreError::Overloaded)?;
        let until = deadline.earlier_by(self.shared.margin);
        let had = until.left();
        if had.is_some_and(|had| had.is_zero()) {
            return Err(StoreError::Timeout);
        }
        let pass = self.shared.breaker.admit().ok_or(StoreError::Open)?;
        let answers = self.inner.take_by(counters, atomicity, until).await;
        pass.tell(self.shared.went(&answers, had));
        Ok(answers)
    }

    fn enter(&self) -> Option<InFlight<'_>> {
        // Only this worker counts here: there is no race to lose.
        let before = self.in_flight.fetch_add(1, Ordering::Relaxed);
        let entered = InFlight(&self.in_flight);
        (before < self.shared.max_in_flight).then_some(entered)
    }

    /// Whether the store decides, and writes what it decided: a ping would not notice a full store or a replica.
    ///
    /// # Errors
    /// What a call would get.
    pub async fn probe(&self) -> Result<(), StoreError> {
        let probe = Counter {
            // No rule has an empty domain, so that this key is nobody else's.
            key: CounterKey::new("", b'f', SECOND, [("palang", "probe")]),
            quota: Quota::FixedWindow {
                limit: 1,
                window: SECOND,
            },
            hits: 1,
            role: Role::Enforced,
            on_failure: OnFailure::Error,
        };
        self.take(&[probe], Atomicity::PerCounter)
            .await
            .into_iter()
            .try_for_each(|answer| answer.map(|_| ()))
    }
}

impl<S: Store> Store for Guard<S> {
    async fn take_by(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> Vec<Result<Outcome, StoreError>> {
        let mut answers = self
            .ask(counters, atomicity, deadline)
            .await
            .unwrap_or_else(|error| vec![Err(error); counters.len()]);
        for error in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            self.shared.count(error);
        }
        self.shared.local.settle(counters, &mut answers, atomicity);
        answers
    }

    async fn peek(&self, counters: &[Counter]) -> Vec<Result<Outcome, StoreError>> {
        // What an operator asks says nothing about the store to the breaker, and is never answered from counts here.
        self.inner.peek(counters).await
    }

    async fn forget(&self, selection: &Selection) -> Result<u64, StoreError> {
        self.inner.forget(selection).await
    }
}

struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
