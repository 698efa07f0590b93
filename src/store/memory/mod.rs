//! Counters in this process. Needs no background task and no runtime: what has expired is swept while new keys come.
//!
//! Bounded: at the bound an expired counter goes first, else the one of a few looked at that is nearest to its expiry,
//! which is the one whose loss gives away least. An eviction forgets what was taken, so it is counted and must be
//! watched; the bound is never passed and no call is refused for it.

mod shard;

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    algorithm::{Outcome, State},
    counter::{Atomicity, Counter, CounterKey, Selection},
    time::{Clock, Deadline, SECOND, Timestamp},
};

use super::{
    Store, StoreError,
    group::{self, Charge, Slot},
};
use shard::{Record, Room, Shard};

/// Bounds of a [`Memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Most keys kept, at least 1 for each shard. A sliding log weighs one more for each 16 entries it has room for.
    pub max_keys: usize,
    /// Parts with a lock each, at least 1.
    pub shards: usize,
    /// Places looked at for expired counters each time a new key comes. With 0 they go only at the bound.
    pub sweep: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            max_keys: 1_000_000,
            shards: 64,
            sweep: 4,
        }
    }
}

/// Counters in memory.
#[derive(Debug)]
pub struct Memory {
    clock: Clock,
    /// Seeded at random, so that nobody can choose keys that fall together.
    hasher: RandomState,
    // A std mutex: it is held for a microsecond, never across an await, and an uncontended one costs a few
    // nanoseconds, where an async one would cost a task switch.
    shards: Box<[Mutex<Shard>]>,
    sweep: usize,
    live: AtomicU64,
    evicted: AtomicU64,
    expired: AtomicU64,
}

impl Memory {
    /// An empty store that tells time by `clock`.
    pub fn new(clock: Clock, config: Config) -> Self {
        let shards = config.shards.max(1);
        let bound = (config.max_keys / shards).max(1);
        Self {
            clock,
            hasher: RandomState::new(),
            shards: (0..shards).map(|_| Mutex::new(Shard::new(bound))).collect(),
            sweep: config.sweep,
            live: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            expired: AtomicU64::new(0),
        }
    }

    /// Keys held now, expired ones that were not swept yet included.
    pub fn live_keys(&self) -> u64 {
        self.live.load(Ordering::Relaxed)
    }

    /// Counters forgotten before their time, because the store was at its bound.
    pub fn evictions(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Counters forgotten after they had expired.
    pub fn expirations(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }

    /// The state kept under `key`, for tests and inspection.
    pub fn peek(&self, key: &CounterKey) -> Option<State> {
        let hash = self.hasher.hash_one(key);
        let shard = self.lock(self.shard(hash));
        let record = shard.records.find(hash, |record| record.key == *key)?;
        record.cell.clone().open()
    }

    fn shard(&self, hash: u64) -> usize {
        // The table inside a shard uses the low bits and the top seven, so the shard goes by those between.
        (hash >> 32) as usize % self.shards.len()
    }

    fn lock(&self, shard: usize) -> MutexGuard<'_, Shard> {
        // A panic while the lock was held leaves at worst one counter unwritten, and the rest as good as before.
        self.shards[shard]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides at once: memory has nothing to wait for.
    pub(super) fn decide(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
    ) -> Vec<Result<Outcome, StoreError>> {
        if let [counter] = counters {
            let hash = self.hasher.hash_one(&counter.key);
            let mut shard = self.lock(self.shard(hash));
            let now = self.clock.now();
            let mut slots = [Slot::new(shard.load(hash, &counter.key))];
            let mut outcomes = Vec::with_capacity(1);
            let charges = counters.iter().map(Charge::from);
            group::decide(charges, &[0], &mut slots, atomicity, now, &mut outcomes);
            let [slot] = slots;
            self.store(&mut shard, hash, &counter.key, slot, now);
            return outcomes;
        }

        // Distinct keys, and the slot of each counter.
        let mut keys: Vec<(u64, &CounterKey)> = Vec::with_capacity(counters.len());
        let mut index = Vec::with_capacity(counters.len());
        for counter in counters {
            let known = keys.iter().position(|(_, key)| **key == counter.key);
            index.push(known.unwrap_or_else(|| {
                keys.push((self.hasher.hash_one(&counter.key), &counter.key));
                keys.len() - 1
            }));
        }
        // Shards are locked in rising order, by every call, so that no two calls wait for each other.
        let mut order: Vec<usize> = keys.iter().map(|(hash, _)| self.shard(*hash)).collect();
        order.sort_unstable();
        order.dedup();
        let mut guards: Vec<MutexGuard<'_, Shard>> =
            order.iter().map(|shard| self.lock(*shard)).collect();
        let place = |hash| order.partition_point(|shard| *shard < self.shard(hash));

        let now = self.clock.now();
        let mut slots: Vec<Slot> = keys
            .iter()
            .map(|(hash, key)| Slot::new(guards[place(*hash)].load(*hash, key)))
            .collect();
        let mut outcomes = Vec::with_capacity(counters.len());
        let charges = counters.iter().map(Charge::from);
        group::decide(charges, &index, &mut slots, atomicity, now, &mut outcomes);
        for ((hash, key), slot) in keys.into_iter().zip(slots) {
            self.store(&mut guards[place(hash)], hash, key, slot, now);
        }
        outcomes
    }

    /// Puts a decided state back, and makes room for it.
    fn store(&self, shard: &mut Shard, hash: u64, key: &CounterKey, slot: Slot, now: Timestamp) {
        let Some(state) = slot.state else { return };
        let expires = slot
            .changed
            .map(|after| now.as_micros().saturating_add(after).div_ceil(SECOND));
        let hasher = |record: &Record| self.hasher.hash_one(&record.key);
        if !shard.put(hash, key, state, expires, hasher) {
            return;
        }
        let now = (now.as_micros() / SECOND) as u32;
        let mut expired = shard.sweep(self.sweep, now);
        let mut evicted = 0;
        while shard.weight > shard.bound && shard.records.len() > 1 {
            match shard.make_room(hash, key, now) {
                Room::Expired => expired += 1,
                Room::Evicted => evicted += 1,
            }
        }
        self.expired.fetch_add(expired, Ordering::Relaxed);
        self.evicted.fetch_add(evicted, Ordering::Relaxed);
        let grown = shard.records.len() as i64 - shard.reported as i64;
        shard.reported = shard.records.len();
        self.live.fetch_add(grown as u64, Ordering::Relaxed);
    }
}

impl Store for Memory {
    async fn take_by(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        _deadline: Deadline,
    ) -> Vec<Result<Outcome, StoreError>> {
        self.decide(counters, atomicity)
    }

    async fn forget(&self, selection: &Selection) -> Result<u64, StoreError> {
        let mut forgotten = 0;
        for shard in 0..self.shards.len() {
            // One part after the other: no call waits longer than for the walk through one.
            let mut shard = self.lock(shard);
            let gone = shard.forget(selection);
            shard.reported = shard.records.len();
            self.live.fetch_sub(gone, Ordering::Relaxed);
            forgotten += gone;
        }
        Ok(forgotten)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{shard::LOG_WEIGHT, *};
    use crate::{
        algorithm::Quota,
        counter::{OnFailure, Role},
    };

    const START: u64 = 1_767_571_200 * SECOND;

    fn bucket() -> Quota {
        Quota::token_bucket(1, SECOND, 10).expect("legal")
    }

    fn counter(name: u64, quota: Quota, hits: i64) -> Counter {
        Counter {
            key: CounterKey::new("memory", quota.letter(), 1, [("n", &*name.to_string())]),
            quota,
            hits,
            role: Role::Enforced,
            on_failure: OnFailure::Error,
        }
    }

    fn store(max_keys: usize, shards: usize, sweep: usize) -> (Clock, Memory) {
        let clock = Clock::manual(Timestamp::from_micros(START));
        let config = Config {
            max_keys,
            shards,
            sweep,
        };
        (clock.clone(), Memory::new(clock, config))
    }

    fn take(memory: &Memory, counter: Counter) -> Outcome {
        let outcomes = memory.decide(&[counter], Atomicity::PerCounter);
        outcomes[0].clone().expect("decided")
    }

    #[test]
    fn a_record_is_small() {
        assert_eq!(size_of::<Record>(), 48);
    }

    #[test]
    fn what_has_expired_is_swept_while_new_keys_come() {
        let (clock, memory) = store(100_000, 4, 4);
        for name in 0..1_000 {
            take(&memory, counter(name, bucket(), 1));
        }
        assert_eq!(memory.live_keys(), 1_000);
        clock.set(Timestamp::from_micros(START + 5 * SECOND));
        for name in 1_000..3_000 {
            take(&memory, counter(name, bucket(), 1));
        }
        assert_eq!(memory.expirations(), 1_000);
        assert_eq!(memory.live_keys(), 2_000);
        assert_eq!(memory.evictions(), 0);
    }

    #[test]
    fn the_bound_holds_and_the_nearest_to_full_go_first() {
        let (_, memory) = store(100, 1, 0);
        // Nothing left in these, so they are the last to go.
        for name in 0..50 {
            take(&memory, counter(name, bucket(), 10));
        }
        for name in 1_000..3_000 {
            take(&memory, counter(name, bucket(), 1));
        }
        assert_eq!(memory.live_keys(), 100);
        assert_eq!(memory.evictions(), 1_950);
        let kept = (0..50)
            .filter(|name| !take(&memory, counter(*name, bucket(), 0)).allowed)
            .count();
        assert!(kept >= 45, "{kept} of 50 exhausted buckets are still known");
    }

    #[test]
    fn a_look_and_a_refusal_make_no_key() {
        let (_, memory) = store(100, 4, 4);
        take(&memory, counter(1, bucket(), 0));
        take(&memory, counter(2, bucket(), 11));
        take(&memory, counter(3, bucket(), -1));
        assert_eq!(memory.live_keys(), 0);
    }

    #[test]
    fn logs_weigh_what_they_hold() {
        let (_, memory) = store(1_000, 1, 0);
        let quota = Quota::sliding_log(1_000, SECOND).expect("legal");
        for name in 0..100 {
            assert!(take(&memory, counter(name, quota, 1_000)).allowed);
        }
        assert!(memory.live_keys() <= 1_000 / (1_000 / LOG_WEIGHT as u64));
        assert!(memory.evictions() > 80);
        // One that alone is over the bound still counts.
        let (_, memory) = store(1, 1, 0);
        assert!(take(&memory, counter(1, quota, 1_000)).allowed);
        assert!(!take(&memory, counter(1, quota, 1)).allowed);
    }

    #[test]
    fn requests_over_many_shards_neither_lock_up_nor_lose_a_hit() {
        let memory = Arc::new(Memory::new(Clock::system(), Config::default()));
        let quota = Quota::fixed_window(1 << 40, crate::algorithm::MAX_WINDOW).expect("legal");
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let memory = memory.clone();
                std::thread::spawn(move || {
                    for round in 0..2_000 {
                        // Each thread in another order.
                        let ask: Vec<Counter> = (0..4)
                            .map(|place| counter((place * (thread + 1) + round) % 5, quota, 1))
                            .collect();
                        for outcome in memory.decide(&ask, Atomicity::AllOrNothing) {
                            assert!(outcome.expect("decided").allowed);
                        }
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no assertion failed");
        }
        let used: u64 = (0..5)
            .map(|name| take(&memory, counter(name, quota, 0)).used)
            .sum();
        assert_eq!(used, 4 * 2_000 * 4);
    }
}
