//! Refusals remembered: a counter that has just refused is refused again without asking the store.
//!
//! Exact, not approximate. A refusal of n hits holds for every n or more until the counter would admit it, so that
//! answering it from memory changes no decision. It is remembered together with the limit's numbers (a raised limit,
//! or another one brought by a request, asks the store) and forgotten when hits are given back here. Another replica
//! may give back too: an entry lives one second at most. Shadow rules are never answered from here, because their
//! counters go on counting what they would have refused.

use std::sync::Arc;

use quick_cache::{Weighter, sync::Cache};

use super::contract::{Store, StoreError};
use crate::{
    algorithm::{Outcome, Quota, Source},
    counter::{Atomicity, Counter, CounterKey, Role},
    time::{Clock, Deadline, SECOND, Timestamp},
};

/// Longest life of an entry, microseconds: a give-back by another replica is seen within it.
const LIFE: u64 = SECOND;

/// What an entry weighs besides its key, bytes: the refusal, the key's and the map's own bookkeeping.
const OVERHEAD: u64 = 192;

/// A store in front of which refusals are remembered.
#[derive(Debug)]
pub struct DenyCache<S> {
    inner: S,
    refusals: Option<Arc<Refusals>>,
}

/// The memory itself; shared by all lanes of a process.
#[derive(Debug)]
pub struct Refusals {
    entries: Cache<CounterKey, Refusal, ByBytes>,
    clock: Clock,
}

#[derive(Clone, Debug)]
struct Refusal {
    quota: Quota,
    hits: i64,
    at: Timestamp,
    /// Until when it holds, from `at`, microseconds.
    life: u64,
    outcome: Outcome,
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<CounterKey, Refusal> for ByBytes {
    fn weight(&self, key: &CounterKey, _: &Refusal) -> u64 {
        key.as_bytes().len() as u64 + OVERHEAD
    }
}

impl Refusals {
    /// A memory of at most `bytes` bytes.
    pub fn new(bytes: u64, clock: Clock) -> Self {
        let entries = usize::try_from(bytes / OVERHEAD).unwrap_or(usize::MAX);
        Self {
            entries: Cache::with_weighter(entries.max(1), bytes, ByBytes),
            clock,
        }
    }

    /// Entries kept now.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn recall(&self, counter: &Counter) -> Option<Outcome> {
        if counter.role == Role::Shadow || counter.hits <= 0 {
            return None;
        }
        let refusal = self.entries.get(&counter.key)?;
        let now = self.clock.now().as_micros();
        let gone = now.checked_sub(refusal.at.as_micros())?;
        if refusal.quota != counter.quota || gone >= refusal.life {
            self.entries.remove(&counter.key);
            return None;
        }
        refusal
            .answers(counter.hits)
            .then(|| refusal.after(gone, counter.hits))
    }

    fn remember(&self, counter: &Counter, answer: &Result<Outcome, StoreError>) {
        if counter.hits < 0 {
            self.entries.remove(&counter.key);
            return;
        }
        let Ok(outcome) = answer else {
            return;
        };
        // What this replica counted by itself is not what the store would say.
        if outcome.source != Source::Counter
            || outcome.allowed
            || counter.hits == 0
            || counter.role == Role::Shadow
        {
            return;
        }
        let refusal = Refusal {
            quota: counter.quota,
            hits: counter.hits,
            at: self.clock.now(),
            life: life(outcome),
            outcome: *outcome,
        };
        self.entries.insert(counter.key.clone(), refusal);
    }
}

/// How long every figure of the refusal stays as it is, but for the passing of time: until `remaining` grows.
fn life(outcome: &Outcome) -> u64 {
    [outcome.retry_after, outcome.next_after]
        .into_iter()
        .flatten()
        .fold(LIFE, u64::min)
}

impl Refusal {
    /// Whether the refusal says all there is to say about `hits`.
    fn answers(&self, hits: i64) -> bool {
        match self.quota {
            // Every cost that fits the limit waits for the window's end.
            Quota::FixedWindow { .. } => hits >= self.hits,
            // A larger cost waits longer, and only the store knows how long.
            _ => hits == self.hits,
        }
    }

    fn after(&self, gone: u64, hits: i64) -> Outcome {
        let outcome = self.outcome;
        let reset_after = outcome.reset_after.saturating_sub(gone);
        let retry_after = match self.quota {
            Quota::FixedWindow { limit, .. } => {
                (hits.unsigned_abs() <= limit).then_some(reset_after)
            }
            _ => outcome.retry_after.map(|retry| retry.saturating_sub(gone)),
        };
        Outcome {
            reset_after,
            retry_after,
            next_after: outcome.next_after.map(|next| next.saturating_sub(gone)),
            source: Source::DenyCache,
            ..outcome
        }
    }
}

impl<S> DenyCache<S> {
    /// `inner`, with refusals remembered in `refusals`, or not at all.
    pub fn new(inner: S, refusals: Option<Arc<Refusals>>) -> Self {
        Self { inner, refusals }
    }

    /// The store behind.
    pub fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: Store> Store for DenyCache<S> {
    async fn take(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
    ) -> Vec<Result<Outcome, StoreError>> {
        self.take_by(counters, atomicity, Deadline::NEVER).await
    }

    async fn take_by(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> Vec<Result<Outcome, StoreError>> {
        let Some(refusals) = &self.refusals else {
            return self.inner.take_by(counters, atomicity, deadline).await;
        };
        let recalled: Vec<Option<Outcome>> = counters
            .iter()
            .map(|counter| refusals.recall(counter))
            .collect();
        if recalled.iter().all(Option::is_none) {
            let answers = self.inner.take_by(counters, atomicity, deadline).await;
            for (counter, answer) in counters.iter().zip(&answers) {
                refusals.remember(counter, answer);
            }
            return answers;
        }
        let held = atomicity == Atomicity::AllOrNothing && holds_back(counters, &recalled);
        let asked: Vec<Counter> = counters
            .iter()
            .zip(&recalled)
            .filter(|(_, recalled)| recalled.is_none())
            .map(|(counter, _)| Counter {
                // A request that is held back takes nothing from the others: they are only looked at.
                hits: if held && counter.role != Role::Shadow {
                    0
                } else {
                    counter.hits
                },
                ..counter.clone()
            })
            .collect();
        let mut answers = if asked.is_empty() {
            Vec::new()
        } else {
            self.inner.take_by(&asked, atomicity, deadline).await
        }
        .into_iter();
        counters
            .iter()
            .zip(recalled)
            .map(|(counter, recalled)| match recalled {
                Some(outcome) => Ok(outcome),
                None => {
                    let answer = answers
                        .next()
                        .expect("a store answers each counter it was asked about");
                    if !held {
                        refusals.remember(counter, &answer);
                    }
                    answer
                }
            })
            .collect()
    }
}

fn holds_back(counters: &[Counter], recalled: &[Option<Outcome>]) -> bool {
    let refused = |role: Role| {
        counters
            .iter()
            .zip(recalled)
            .filter(move |(counter, _)| counter.role == role)
            .map(|(_, recalled)| recalled.is_some())
    };
    refused(Role::Enforced).any(|refused| refused)
        || (refused(Role::Quota).next().is_some() && refused(Role::Quota).all(|refused| refused))
}
