//! Counters in this process. Needs no background task and no runtime: what has expired is swept while new keys come.
//!
//! Bounded: at the bound an expired counter goes first, else the one of a few looked at that is nearest to its expiry,
//! which is the one whose loss gives away least. An eviction forgets what was taken, so it is counted and must be
//! watched; the bound is never passed and no call is refused for it.

use std::{
    collections::VecDeque,
    hash::{BuildHasher as _, RandomState},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use hashbrown::{HashTable, hash_table::Entry};

use crate::{
    algorithm::{Outcome, State, debt, fixed_window, sliding_window},
    counter::{Counter, CounterKey},
    time::{Clock, SECOND, Timestamp},
};

use super::{
    Atomicity, Store, StoreError,
    group::{self, Slot},
};

/// Entries of a sliding log that weigh as much as one more key.
const LOG_WEIGHT: usize = 16;

/// How many neighbours are looked at to find the one to evict.
const SAMPLE: usize = 16;

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
            shards: (0..shards)
                .map(|_| Mutex::new(Shard::new(bound)))
                .collect(),
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

    fn decide(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
    ) -> Vec<Result<Outcome, StoreError>> {
        if let [counter] = counters {
            let hash = self.hasher.hash_one(&counter.key);
            let mut shard = self.lock(self.shard(hash));
            let now = self.clock.now();
            let mut slots = [Slot::new(shard.load(hash, &counter.key))];
            let outcomes = group::decide(counters, &[0], &mut slots, atomicity, now);
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
        let outcomes = group::decide(counters, &index, &mut slots, atomicity, now);
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
    async fn take(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
    ) -> Vec<Result<Outcome, StoreError>> {
        self.decide(counters, atomicity)
    }
}

#[derive(Debug)]
struct Shard {
    records: HashTable<Record>,
    /// Keys, and what their logs add to them.
    weight: usize,
    bound: usize,
    /// Where the sweep goes on.
    cursor: usize,
    /// The number of records the store's own count knows of.
    reported: usize,
}

#[derive(Debug)]
struct Record {
    key: CounterKey,
    cell: Cell,
}

/// A [`State`] with its expiry in the room that alignment leaves beside the tag: with the key 48 bytes a record.
/// The expiry is in seconds of the epoch, rounded up.
#[derive(Clone, Debug)]
enum Cell {
    FixedWindow(u32, fixed_window::State),
    SlidingWindow(u32, sliding_window::State),
    SlidingLog(u32, Box<VecDeque<u64>>),
    TokenBucket(u32, debt::Debt),
    LeakyBucket(u32, debt::Debt),
    /// While a call decides it.
    Lent(u32),
}

enum Room {
    Expired,
    Evicted,
}

impl Shard {
    fn new(bound: usize) -> Self {
        Self {
            records: HashTable::new(),
            weight: 0,
            bound,
            cursor: 0,
            reported: 0,
        }
    }

    /// Lends the state of `key` out. It comes back by [`Shard::put`], under the same lock.
    fn load(&mut self, hash: u64, key: &CounterKey) -> Option<State> {
        let record = self.records.find_mut(hash, |record| record.key == *key)?;
        let lent = Cell::Lent(record.cell.expires());
        let cell = std::mem::replace(&mut record.cell, lent);
        self.weight -= cell.weight();
        cell.open()
    }

    /// Puts a state back, with a new expiry if it changed. True when that made the shard heavier than it could be
    /// before: a new key, or a log that grew.
    fn put(
        &mut self,
        hash: u64,
        key: &CounterKey,
        state: State,
        expires: Option<u64>,
        hasher: impl Fn(&Record) -> u64,
    ) -> bool {
        let expires = expires.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
        match self.records.entry(hash, |record| record.key == *key, hasher) {
            Entry::Occupied(mut entry) => {
                let record = entry.get_mut();
                record.cell = Cell::close(state, expires.unwrap_or(record.cell.expires()));
                self.weight += record.cell.weight();
                self.weight > self.bound
            }
            Entry::Vacant(entry) => {
                // A look at a new key, or a refusal of one, leaves nothing.
                let Some(expires) = expires else { return false };
                let cell = Cell::close(state, expires);
                self.weight += cell.weight();
                let key = key.clone();
                entry.insert(Record { key, cell });
                true
            }
        }
    }

    /// Looks at the next `places` for expired records, drops them and says how many.
    fn sweep(&mut self, places: usize, now: u32) -> u64 {
        let mut dropped = 0;
        for _ in 0..places.min(self.records.num_buckets()) {
            let place = self.step();
            let gone = self
                .records
                .get_bucket(place)
                .is_some_and(|record| record.cell.expires() <= now);
            if gone {
                self.drop_at(place);
                dropped += 1;
            }
        }
        dropped
    }

    /// Drops one record other than `keep`: an expired one, else the one of a few that is nearest to its expiry.
    fn make_room(&mut self, hash: u64, keep: &CounterKey, now: u32) -> Room {
        let keep = self
            .records
            .find_bucket_index(hash, |record| record.key == *keep);
        let mut nearest: Option<(u32, usize)> = None;
        let mut seen = 0;
        for _ in 0..self.records.num_buckets() {
            let place = self.step();
            let Some(record) = self.records.get_bucket(place) else {
                continue;
            };
            if Some(place) == keep {
                continue;
            }
            let expires = record.cell.expires();
            if nearest.is_none_or(|(earliest, _)| expires < earliest) {
                nearest = Some((expires, place));
            }
            seen += 1;
            if expires <= now || seen >= SAMPLE {
                break;
            }
        }
        match nearest {
            Some((expires, place)) => {
                self.drop_at(place);
                if expires <= now {
                    Room::Expired
                } else {
                    Room::Evicted
                }
            }
            None => Room::Evicted,
        }
    }

    fn step(&mut self) -> usize {
        self.cursor = (self.cursor + 1) % self.records.num_buckets().max(1);
        self.cursor
    }

    fn drop_at(&mut self, place: usize) {
        if let Ok(entry) = self.records.get_bucket_entry(place) {
            let (record, _) = entry.remove();
            self.weight -= record.cell.weight();
        }
    }
}

impl Cell {
    fn close(state: State, expires: u32) -> Self {
        match state {
            State::FixedWindow(state) => Self::FixedWindow(expires, state),
            State::SlidingWindow(state) => Self::SlidingWindow(expires, state),
            State::SlidingLog(log) => Self::SlidingLog(expires, log),
            State::TokenBucket(debt) => Self::TokenBucket(expires, debt),
            State::LeakyBucket(debt) => Self::LeakyBucket(expires, debt),
        }
    }

    fn open(self) -> Option<State> {
        match self {
            Self::FixedWindow(_, state) => Some(State::FixedWindow(state)),
            Self::SlidingWindow(_, state) => Some(State::SlidingWindow(state)),
            Self::SlidingLog(_, log) => Some(State::SlidingLog(log)),
            Self::TokenBucket(_, debt) => Some(State::TokenBucket(debt)),
            Self::LeakyBucket(_, debt) => Some(State::LeakyBucket(debt)),
            // Only a call that panicked leaves one behind: what it was deciding is lost, and nothing else.
            Self::Lent(_) => None,
        }
    }

    fn expires(&self) -> u32 {
        match self {
            Self::FixedWindow(expires, _)
            | Self::SlidingWindow(expires, _)
            | Self::SlidingLog(expires, _)
            | Self::TokenBucket(expires, _)
            | Self::LeakyBucket(expires, _)
            | Self::Lent(expires) => *expires,
        }
    }

    fn weight(&self) -> usize {
        match self {
            Self::SlidingLog(_, log) => 1 + log.capacity() / LOG_WEIGHT,
            Self::Lent(_) => 0,
            _ => 1,
        }
    }
}
