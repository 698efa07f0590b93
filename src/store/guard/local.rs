//! Counting in this process while the store cannot: by the same algorithms, at this replica's share of each limit,
//! beginning with what is known to be left of it.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use quick_cache::sync::Cache;

use crate::{
    algorithm::{MAX, Outcome, Quota, Source},
    counter::{Atomicity, Counter, CounterKey, OnFailure, Role},
    store::{
        StoreError,
        memory::{self, Memory},
    },
    time::{Clock, Timestamp},
};

/// How many replicas share each limit, this one included. Cloning it gives another handle on the same.
#[derive(Clone, Debug)]
pub struct Replicas(Arc<AtomicU64>);

impl Replicas {
    /// That many, at least one.
    pub fn new(count: u64) -> Self {
        Self(Arc::new(AtomicU64::new(count.max(1))))
    }

    /// It is that many now, at least one.
    pub fn set(&self, count: u64) {
        self.0.store(count.max(1), Ordering::Relaxed);
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The counts of this replica. Takes no room before a rule asks for it.
#[derive(Debug)]
pub(super) struct Local {
    replicas: Replicas,
    clock: Clock,
    config: memory::Config,
    counts: OnceLock<Counts>,
}

#[derive(Debug)]
struct Counts {
    memory: Memory,
    /// What the store said last, of each counter that it has decided since this replica counted it by itself.
    known: Cache<CounterKey, Known>,
}

#[derive(Clone, Debug)]
struct Known {
    remaining: u64,
    reset_after: u64,
    quota: Quota,
    at: Timestamp,
}

impl Known {
    /// What is left at `now`, when nobody took anything since; `None` when it says nothing any more.
    fn left(&self, quota: &Quota, now: Timestamp) -> Option<u64> {
        let gone = now.as_micros().saturating_sub(self.at.as_micros());
        if gone >= self.reset_after || self.quota != *quota {
            return None;
        }
        let used = quota.capacity().saturating_sub(self.remaining);
        let back = match quota {
            // These come back evenly. The others at once, when it is known how long that takes.
            Quota::TokenBucket { .. } | Quota::LeakyBucket { .. } => {
                (u128::from(used) * u128::from(gone) / u128::from(self.reset_after.max(1))) as u64
            }
            _ => 0,
        };
        Some(self.remaining.saturating_add(back))
    }
}

impl Local {
    pub(super) fn new(replicas: Replicas, clock: Clock, config: memory::Config) -> Self {
        Self {
            replicas,
            clock,
            config,
            counts: OnceLock::new(),
        }
    }

    /// Counters kept now.
    pub(super) fn keys(&self) -> u64 {
        self.counts
            .get()
            .map_or(0, |counts| counts.memory.live_keys())
    }

    /// Puts this replica's own decisions in the place of those that the store could not make, where the rules say so,
    /// and remembers what the store did decide for that case.
    pub(super) fn settle(
        &self,
        counters: &[Counter],
        answers: &mut [Result<Outcome, StoreError>],
        atomicity: Atomicity,
    ) {
        let local = |counter: &Counter| counter.on_failure == OnFailure::Local;
        if !counters.iter().any(local) {
            return;
        }
        let counts = self.counts.get_or_init(|| Counts {
            memory: Memory::new(self.clock.clone(), self.config),
            known: Cache::new(self.config.max_keys),
        });
        let now = self.clock.now();
        let mut asked = Vec::new();
        let mut places = Vec::new();
        let held = atomicity == Atomicity::AllOrNothing && holds_back(counters, answers);
        for (place, (counter, answer)) in counters.iter().zip(&*answers).enumerate() {
            if !local(counter) {
                continue;
            }
            match answer {
                Ok(outcome) if outcome.source == Source::Counter => {
                    let known = Known {
                        remaining: outcome.remaining,
                        reset_after: outcome.reset_after,
                        quota: counter.quota,
                        at: now,
                    };
                    counts.known.insert(counter.key.clone(), known);
                }
                Ok(_) => {}
                Err(_) => {
                    let own = Counter {
                        quota: counter.quota.share(self.replicas.count()),
                        // A request that is held back takes nothing.
                        hits: if held && counter.role != Role::Shadow {
                            0
                        } else {
                            counter.hits
                        },
                        ..counter.clone()
                    };
                    self.begin(counts, counter, &own, now);
                    asked.push(own);
                    places.push(place);
                }
            }
        }
        for (place, decided) in places
            .into_iter()
            .zip(counts.memory.decide(&asked, atomicity))
        {
            answers[place] = decided.map(|outcome| Outcome {
                source: Source::Local,
                ..outcome
            });
        }
    }

    /// Takes up the count where the store left it, if it has decided this counter since it was last counted here.
    fn begin(&self, counts: &Counts, counter: &Counter, own: &Counter, now: Timestamp) {
        let Some((_, known)) = counts.known.remove(&counter.key) else {
            return;
        };
        let charge = known.left(&counter.quota, now).map_or(0, |left| {
            let share = (left / self.replicas.count()).max(left.min(1));
            own.quota.capacity().saturating_sub(share)
        });
        let part = |hits: u64| Counter {
            hits: i64::try_from(hits).unwrap_or(i64::MAX),
            role: Role::Shadow,
            ..own.clone()
        };
        let mut anew = part(MAX);
        anew.hits = -anew.hits;
        // One call, so that nobody sees the counter empty in between.
        counts
            .memory
            .decide(&[anew, part(charge)], Atomicity::PerCounter);
    }
}

/// Is one of the counters refused already, whatever the others say?
fn holds_back(counters: &[Counter], answers: &[Result<Outcome, StoreError>]) -> bool {
    counters.iter().zip(answers).any(|(counter, answer)| {
        counter.role == Role::Enforced
            && match answer {
                Ok(outcome) => !outcome.allowed,
                Err(_) => counter.on_failure == OnFailure::Deny,
            }
    })
}

#[cfg(test)]
mod tests;
