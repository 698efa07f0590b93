//! The sketch of one worker: places with a count each, and cells for the keys that have none.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{
    counter::CounterKey,
    request::Entry,
    shown,
    time::{SECOND, Timestamp},
};

/// Most keys of one part of a sketch, about.
const PART: usize = 16;

/// Cells of one part: with many more than places, few hits find theirs full.
const CELLS: usize = 128;

/// Time after which counts are halved, microseconds.
pub(super) const HALF_LIFE: u64 = 60 * SECOND;

/// A decision, as the sketches see it.
#[derive(Clone, Copy, Debug)]
pub(in crate::telemetry) struct Ask<'a> {
    pub(in crate::telemetry) key: &'a CounterKey,
    pub(in crate::telemetry) rule: &'a str,
    pub(in crate::telemetry) entries: &'a [Entry],
    pub(in crate::telemetry) hits: u64,
    pub(in crate::telemetry) is_refused: bool,
    pub(in crate::telemetry) now: Timestamp,
}

/// The keys of one domain that one worker has seen, refused and asked.
#[derive(Debug)]
pub(super) struct Sketch(pub(super) Box<[Mutex<Part>]>);

/// What belongs to some of the keys. On cache lines of its own: its neighbours may be another worker's.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Part {
    pub(super) asked: Counts,
    pub(super) refused: Counts,
    halved: u64,
}

/// Some keys and their counts, in three lists of the same length: what is searched lies close together.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) hashes: Vec<u64>,
    pub(super) hits: Vec<u64>,
    pub(super) kept: Vec<Kept>,
    /// The most hits that any key can have had which has that cell and is not kept. None until all places are taken.
    cells: Vec<u64>,
    most: usize,
}

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) error: u64,
    pub(super) key: String,
    pub(super) rule: String,
}

impl Sketch {
    pub(super) fn new(keys: usize) -> Self {
        let parts = keys.div_ceil(PART);
        let counts = || Counts {
            hashes: Vec::new(),
            hits: Vec::new(),
            kept: Vec::new(),
            cells: Vec::new(),
            most: keys.div_ceil(parts),
        };
        let part = || Part {
            asked: counts(),
            refused: counts(),
            halved: 0,
        };
        Self((0..parts).map(|_| Mutex::new(part())).collect())
    }

    pub(super) fn part(&self, hash: u64) -> MutexGuard<'_, Part> {
        let parts = self.0.len() as u64;
        // The upper half of the hash as a share of the parts: cheaper than a division.
        lock(&self.0[(((hash >> 32) * parts) >> 32) as usize])
    }
}

/// The part, whoever panicked with it.
pub(super) fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Part {
    pub(super) fn halve(&mut self, now: Timestamp) {
        let now = now.as_micros();
        if self.halved == 0 || now < self.halved {
            self.halved = now;
            return;
        }
        let times = (now - self.halved) / HALF_LIFE;
        if times == 0 {
            return;
        }
        self.halved += times * HALF_LIFE;
        let shift = u32::try_from(times.min(63)).unwrap_or(63);
        for counts in [&mut self.asked, &mut self.refused] {
            for (hits, kept) in counts.hits.iter_mut().zip(&mut counts.kept) {
                *hits >>= shift;
                kept.error >>= shift;
            }
            counts.cells.iter_mut().for_each(|cell| *cell >>= shift);
        }
    }
}

impl Counts {
    pub(super) fn add(&mut self, hash: u64, ask: Ask<'_>) {
        if let Some(at) = self.hashes.iter().position(|kept| *kept == hash) {
            self.hits[at] += ask.hits;
            return;
        }
        let (at, error) = if self.hashes.len() < self.most {
            self.hashes.push(hash);
            self.hits.push(0);
            self.kept.push(Kept {
                error: 0,
                key: String::new(),
                rule: String::new(),
            });
            (self.hashes.len() - 1, 0)
        } else {
            let counts = self.hits.iter().enumerate();
            let Some((at, least)) = counts.min_by_key(|(_, hits)| **hits) else {
                return;
            };
            if self.cells.is_empty() {
                self.cells.resize(CELLS, 0);
            }
            let cell = &mut self.cells[cell(hash)];
            if *cell + ask.hits <= *least {
                *cell += ask.hits;
                return;
            }
            let error = *cell;
            // Its key goes, and may come back.
            let old = &mut self.cells[self::cell(self.hashes[at])];
            *old = (*old).max(*least);
            (at, error)
        };
        let kept = &mut self.kept[at];
        self.hashes[at] = hash;
        self.hits[at] = error + ask.hits;
        kept.error = error;
        // The texts' room is used again: nothing is allocated once all places are taken.
        kept.key.clear();
        shown::entries(&mut kept.key, ask.entries);
        kept.rule.clear();
        kept.rule.push_str(ask.rule);
    }

    /// The most hits that a key which is not kept can have had.
    pub(super) fn floor(&self) -> u64 {
        if self.hashes.len() < self.most {
            return 0;
        }
        self.hits.iter().min().copied().unwrap_or(0)
    }
}

/// The cell of a key, by the half of its hash that does not choose its part.
const fn cell(hash: u64) -> usize {
    hash as usize % CELLS
}
