//! One part of the memory store: a table of records under one lock.

use std::collections::VecDeque;

use hashbrown::{HashTable, hash_table::Entry};

use crate::{
    algorithm::{State, debt, fixed_window, sliding_window},
    counter::CounterKey,
};

/// Entries of a sliding log that weigh as much as one more key.
pub(super) const LOG_WEIGHT: usize = 16;

/// How many neighbours are looked at to find the one to evict.
const SAMPLE: usize = 16;

#[derive(Debug)]
pub(super) struct Shard {
    pub(super) records: HashTable<Record>,
    /// Keys, and what their logs add to them.
    pub(super) weight: usize,
    pub(super) bound: usize,
    /// Where the sweep goes on.
    cursor: usize,
    /// The number of records the store's own count knows of.
    pub(super) reported: usize,
}

#[derive(Debug)]
pub(super) struct Record {
    pub(super) key: CounterKey,
    pub(super) cell: Cell,
}

/// A [`State`] with its expiry in the room that alignment leaves beside the tag: with the key 48 bytes a record.
/// The expiry is in seconds of the epoch, rounded up.
#[expect(
    clippy::box_collection,
    reason = "a VecDeque is 32 bytes, and every record would be as large"
)]
#[derive(Clone, Debug)]
pub(super) enum Cell {
    FixedWindow(u32, fixed_window::State),
    SlidingWindow(u32, sliding_window::State),
    SlidingLog(u32, Box<VecDeque<u64>>),
    TokenBucket(u32, debt::Debt),
    LeakyBucket(u32, debt::Debt),
    /// While a call decides it.
    Lent(u32),
}

/// What had to go to make room.
pub(super) enum Room {
    Expired,
    Evicted,
}

impl Shard {
    pub(super) fn new(bound: usize) -> Self {
        Self {
            records: HashTable::new(),
            weight: 0,
            bound,
            cursor: 0,
            reported: 0,
        }
    }

    /// Lends the state of `key` out. It comes back by [`Shard::put`], under the same lock.
    pub(super) fn load(&mut self, hash: u64, key: &CounterKey) -> Option<State> {
        let record = self.records.find_mut(hash, |record| record.key == *key)?;
        let lent = Cell::Lent(record.cell.expires());
        let cell = std::mem::replace(&mut record.cell, lent);
        self.weight -= cell.weight();
        cell.open()
    }

    /// Puts a state back, with a new expiry if it changed. True when that made the shard heavier than it could be
    /// before: a new key, or a log that grew.
    pub(super) fn put(
        &mut self,
        hash: u64,
        key: &CounterKey,
        state: State,
        expires: Option<u64>,
        hasher: impl Fn(&Record) -> u64,
    ) -> bool {
        let expires = expires.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX));
        match self
            .records
            .entry(hash, |record| record.key == *key, hasher)
        {
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
    pub(super) fn sweep(&mut self, places: usize, now: u32) -> u64 {
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
    pub(super) fn make_room(&mut self, hash: u64, keep: &CounterKey, now: u32) -> Room {
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

    pub(super) fn open(self) -> Option<State> {
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
