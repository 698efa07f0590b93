//! Refusals remembered: a counter that has just refused is refused again without asking the store.
//!
//! Exact, not approximate. A refusal comes with the state it was based on, and while nobody gives back, that state can
//! only have become fuller. What it refuses now, the store would refuse: any hits for which the algorithm itself says
//! so are answered from here, with what is left and a retry time that shrinks; where it would admit them the store is
//! asked. (A sliding log keeps no state here: it repeats the same hits' refusal only.) What is left may be less in the
//! store, if other replicas took of it in the meantime.
//!
//! Remembered together with the limit's numbers: a raised limit, or another one brought by a request, asks the store.
//! Forgotten when hits are given back here, or smaller ones were taken. Another replica may give back too: an entry
//! lives one second at most. Shadow rules are never answered from here, because their counters go on counting what
//! they would have refused. A fixed window's refused hits are not counted while they are refused from here, where the
//! reference counts them: they change no decision within that window, except for a limit raised in it.

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use quick_cache::{DefaultHashBuilder, Lifecycle, Weighter, sync::Cache};

use super::contract::{Store, StoreError};
use crate::{
    algorithm::{self, Outcome, Quota, Refused, Source},
    counter::{Atomicity, Counter, CounterKey, Role, Selection},
    time::{Clock, Deadline, SECOND, Timestamp},
};

/// Longest life of an entry, microseconds: a give-back by another replica is seen within it.
const LIFE: u64 = SECOND;

/// What an entry weighs besides its key, bytes: the refusal, the key's and the map's own bookkeeping.
const OVERHEAD: u64 = 256;

/// A store in front of which refusals are remembered.
#[derive(Debug)]
pub struct DenyCache<S> {
    inner: S,
    refusals: Option<Arc<Refusals>>,
}

/// The memory itself; shared by all lanes of a process.
#[derive(Debug)]
pub struct Refusals {
    entries: Cache<CounterKey, Entry, ByBytes, DefaultHashBuilder, Evictions>,
    evicted: Arc<AtomicU64>,
    expired: AtomicU64,
    overwritten: AtomicU64,
    clock: Clock,
}

/// What became of entries since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gone {
    /// They had to make room.
    pub evicted: u64,
    /// They were looked for, and were too old to say anything.
    pub expired: u64,
    /// Another refusal of the same counter took their place.
    pub overwritten: u64,
}

/// Counts the entries that have to make room.
#[derive(Clone, Debug)]
struct Evictions(Arc<AtomicU64>);

impl Lifecycle<CounterKey, Entry> for Evictions {
    type RequestState = ();

    // Replaced entries are no evictions, and come to `on_evict` too.
    fn before_evict(&self, (): &mut (), _: &CounterKey, _: &mut Entry) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug)]
enum Entry {
    Refused(Refusal),
    /// Hits were given back at this time: a refusal that was asked for before may come in late.
    GivenBack(Timestamp),
}

#[derive(Clone, Debug)]
struct Refusal {
    quota: Quota,
    hits: i64,
    /// When it was asked for, by our clock: not after the store's answer, so that none of it holds for too long.
    at: Timestamp,
    outcome: Outcome,
}

/// What the memory says of a counter.
#[derive(Debug)]
enum Recalled {
    /// It refuses.
    Refused(Outcome),
    /// Only the store can tell, and what was remembered is no more than that.
    Unsure,
    /// Nothing.
    Nothing,
}

#[derive(Clone, Debug)]
struct ByBytes;

impl Weighter<CounterKey, Entry> for ByBytes {
    fn weight(&self, key: &CounterKey, _: &Entry) -> u64 {
        key.as_bytes().len() as u64 + OVERHEAD
    }
}

impl Refusals {
    /// A memory of at most `bytes` bytes.
    pub fn new(bytes: u64, clock: Clock) -> Self {
        let entries = usize::try_from(bytes / OVERHEAD).unwrap_or(usize::MAX);
        let evicted = Arc::new(AtomicU64::new(0));
        Self {
            entries: Cache::with(
                entries.max(1),
                bytes,
                ByBytes,
                DefaultHashBuilder::default(),
                Evictions(Arc::clone(&evicted)),
            ),
            evicted,
            expired: AtomicU64::new(0),
            overwritten: AtomicU64::new(0),
            clock,
        }
    }

    /// What became of entries since the start.
    pub fn gone(&self) -> Gone {
        Gone {
            evicted: self.evicted.load(Ordering::Relaxed),
            expired: self.expired.load(Ordering::Relaxed),
            overwritten: self.overwritten.load(Ordering::Relaxed),
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

    /// Bytes kept now, as they are counted against the bound.
    pub fn bytes(&self) -> u64 {
        self.entries.weight()
    }

    fn forget_all(&self, selection: &Selection) {
        self.entries.retain(|key, _| !selection.matches(key));
    }

    fn recall(&self, counter: &Counter) -> Recalled {
        if counter.role == Role::Shadow {
            return Recalled::Nothing;
        }
        let refusal = match self.entries.get(&counter.key) {
            Some(Entry::Refused(refusal)) => refusal,
            Some(Entry::GivenBack(_)) | None => return Recalled::Nothing,
        };
        let now = self.clock.now().as_micros();
        // A clock that stepped back has nothing to go by.
        let gone = now.checked_sub(refusal.at.as_micros());
        match gone.filter(|gone| *gone < LIFE && refusal.quota == counter.quota) {
            Some(gone) if counter.hits > 0 => refusal
                .again(counter.hits, gone)
                .map_or(Recalled::Unsure, Recalled::Refused),
            Some(_) => Recalled::Unsure,
            None => {
                if gone.is_none_or(|gone| gone >= LIFE) {
                    self.expired.fetch_add(1, Ordering::Relaxed);
                }
                self.entries.remove(&counter.key);
                Recalled::Nothing
            }
        }
    }

    /// Learns from what the store said. `known`: something is remembered of the counter, which may no longer be so.
    fn learn(
        &self,
        counter: &Counter,
        answer: &Result<Outcome, StoreError>,
        at: Timestamp,
        known: bool,
    ) {
        if counter.role != Role::Shadow
            && counter.hits > 0
            && let Ok(outcome) = answer
            // What this replica counted by itself is not what the store would say.
            && outcome.source == Source::Counter
            && !outcome.allowed
        {
            let refusal = Refusal {
                quota: counter.quota,
                hits: counter.hits,
                at,
                outcome: *outcome,
            };
            let last = self.entries.get(&counter.key);
            if !matches!(last, Some(Entry::GivenBack(given)) if given >= at) {
                if matches!(last, Some(Entry::Refused(_))) {
                    self.overwritten.fetch_add(1, Ordering::Relaxed);
                }
                let entry = Entry::Refused(refusal);
                self.entries.insert(counter.key.clone(), entry);
            }
        } else if counter.hits < 0 {
            let entry = Entry::GivenBack(self.clock.now());
            self.entries.insert(counter.key.clone(), entry);
        } else if known && counter.hits > 0 && answer.is_ok() {
            // There was room for less, which is taken now.
            self.forget(counter);
        }
    }

    fn forget(&self, counter: &Counter) {
        self.entries.remove(&counter.key);
    }
}

impl Refusal {
    /// The refusal of `hits` as it stands `gone` microseconds later, if it is certain.
    fn again(&self, hits: i64, gone: u64) -> Option<Outcome> {
        let outcome = match self.outcome.basis {
            Some(basis) => {
                let now = Timestamp::from_micros(basis.at.as_micros() + gone);
                let mut state = basis.state(&self.quota);
                algorithm::mend(&mut state, &self.quota, now);
                // Hits refused from here are counted nowhere.
                algorithm::take(&mut state, &self.quota, hits, now, Refused::Free)
                    .ok()?
                    .outcome
            }
            None => self.as_it_was(hits, gone)?,
        };
        (!outcome.allowed).then_some(Outcome {
            source: Source::DenyCache,
            basis: None,
            ..outcome
        })
    }

    /// Without a state to work it out from: the same hits, until any figure changes by more than the passing of time.
    fn as_it_was(&self, hits: i64, gone: u64) -> Option<Outcome> {
        let outcome = self.outcome;
        let holds = [outcome.retry_after, outcome.next_after]
            .into_iter()
            .flatten()
            .all(|until| gone < until);
        let shrunk = |time: u64| time.saturating_sub(gone);
        (holds && hits == self.hits).then(|| Outcome {
            reset_after: shrunk(outcome.reset_after),
            retry_after: outcome.retry_after.map(shrunk),
            next_after: outcome.next_after.map(shrunk),
            ..outcome
        })
    }
}

impl<S> DenyCache<S> {
    /// `inner`, with refusals remembered in `refusals`, or not at all.
    pub fn new(inner: S, refusals: Option<Arc<Refusals>>) -> Self {
        Self { inner, refusals }
    }
}

impl<S: Store> Store for DenyCache<S> {
    async fn take_by(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> Vec<Result<Outcome, StoreError>> {
        let Some(refusals) = &self.refusals else {
            return self.inner.take_by(counters, atomicity, deadline).await;
        };
        // What a request gives back may make room for what it takes after that: the store decides them in order.
        let gives_back = counters.iter().any(|counter| counter.hits < 0);
        let recalled: Vec<Recalled> = counters
            .iter()
            .map(|counter| match refusals.recall(counter) {
                Recalled::Refused(_) if gives_back => Recalled::Unsure,
                recalled => recalled,
            })
            .collect();
        let at = refusals.clock.now();
        let is_refused = |recalled: &Recalled| matches!(recalled, Recalled::Refused(_));
        // A request that hangs together is judged as a whole, by one or the other: what its counters are told depends
        // on each other.
        let recalled = if atomicity == Atomicity::AllOrNothing && !recalled.iter().all(is_refused) {
            counters.iter().map(|_| Recalled::Unsure).collect()
        } else {
            recalled
        };
        let asked: Cow<'_, [Counter]> = if recalled.iter().any(is_refused) {
            let open = counters.iter().zip(&recalled);
            open.filter(|(_, recalled)| !is_refused(recalled))
                .map(|(counter, _)| counter.clone())
                .collect()
        } else {
            Cow::Borrowed(counters)
        };
        let mut answers = if asked.is_empty() {
            Vec::new()
        } else {
            self.inner.take_by(&asked, atomicity, deadline).await
        }
        .into_iter();
        let mut learns = asked.iter();
        recalled
            .into_iter()
            .map(|recalled| {
                let known = match recalled {
                    Recalled::Refused(outcome) => return Ok(outcome),
                    Recalled::Unsure => true,
                    Recalled::Nothing => false,
                };
                let answer = answers
                    .next()
                    .expect("a store answers each counter it was asked about");
                if let Some(counter) = learns.next() {
                    if atomicity == Atomicity::PerCounter || is_single(counter, &asked) {
                        refusals.learn(counter, &answer, at, known);
                    } else {
                        refusals.forget(counter);
                    }
                }
                answer
            })
            .collect()
    }

    async fn peek(&self, counters: &[Counter]) -> Vec<Result<Outcome, StoreError>> {
        self.inner.peek(counters).await
    }

    async fn forget(&self, selection: &Selection) -> Result<u64, StoreError> {
        let forgotten = self.inner.forget(selection).await?;
        // After the store: what is remembered in between was refused before. Another replica's memory of it ends
        // within LIFE.
        if let Some(refusals) = &self.refusals {
            refusals.forget_all(selection);
        }
        Ok(forgotten)
    }
}

/// Is it the only one of its key? In a request that is held back another one's charge may have led to its refusal, and
/// was undone.
fn is_single(counter: &Counter, all: &[Counter]) -> bool {
    all.iter().filter(|other| other.key == counter.key).count() == 1
}
