//! Which keys are refused and asked most, at a fixed size: a space-saving sketch (Metwally, Agrawal and El Abbadi,
//! 2005). It keeps `k` keys with a count each; a key that is not kept takes the place of the one with the least count,
//! and goes on from that count. So every key with more than a `k`th of all hits is kept, and a count is too high by at
//! most the `error` beside it, never too low.
//!
//! A sketch is split in parts by the key's hash, each with its lock, so that workers seldom meet. Counts are halved
//! each minute: what is shown is who asks now, not who asked last week.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, BuildHasherDefault, Hasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
};

use crate::{
    counter::CounterKey,
    request::Entry,
    shown,
    time::{SECOND, Timestamp},
};

/// Most domains that have sketches.
const DOMAINS: usize = 100;

/// Parts of a sketch.
const PARTS: usize = 8;

/// Time after which counts are halved, microseconds.
const HALF_LIFE: u64 = 60 * SECOND;

/// The sketches of all domains.
#[derive(Debug)]
pub(super) struct Top {
    domains: RwLock<HashMap<Box<str>, Arc<DomainTop>>>,
    /// Seeded at random, so that nobody can choose keys that fall together.
    hasher: RandomState,
    keys: usize,
}

/// The sketches of one domain.
#[derive(Debug)]
pub(super) struct DomainTop {
    asked: Sketch,
    refused: Sketch,
    hasher: RandomState,
}

/// One key of [`Listed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offender {
    /// The entries, escaped and cut.
    pub key: String,
    /// The rule's path.
    pub rule: String,
    /// Hits of the last minutes, at most `error` too many.
    pub hits: u64,
    /// What may be too much in `hits`.
    pub error: u64,
}

/// The keys of one domain, most hits first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listed {
    /// The domain.
    pub domain: String,
    /// By hits refused.
    pub refused: Vec<Offender>,
    /// By hits asked for.
    pub asked: Vec<Offender>,
}

/// A decision, as the sketches see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask<'a> {
    pub(super) key: &'a CounterKey,
    pub(super) rule: &'a str,
    pub(super) entries: &'a [Entry],
    pub(super) hits: u64,
    pub(super) is_refused: bool,
    pub(super) now: Timestamp,
}

impl Top {
    /// Sketches of `keys` keys for each domain; 0 keeps none.
    pub(super) fn new(keys: usize) -> Self {
        Self {
            domains: RwLock::default(),
            hasher: RandomState::new(),
            keys,
        }
    }

    /// The sketches of a domain with rules, the same across reloads; `None` when they are off, or there are too many.
    pub(super) fn domain(&self, name: &str) -> Option<Arc<DomainTop>> {
        if self.keys == 0 {
            return None;
        }
        let mut domains = self.domains.write().unwrap_or_else(PoisonError::into_inner);
        if domains.len() >= DOMAINS && !domains.contains_key(name) {
            return None;
        }
        let found = domains.entry(name.into()).or_insert_with(|| {
            Arc::new(DomainTop {
                asked: Sketch::new(self.keys),
                refused: Sketch::new(self.keys),
                hasher: self.hasher.clone(),
            })
        });
        Some(Arc::clone(found))
    }

    /// The first `most` keys of each domain, domains sorted.
    pub(super) fn list(&self, most: usize, now: Timestamp) -> Vec<Listed> {
        let domains = self.domains.read().unwrap_or_else(PoisonError::into_inner);
        let mut listed: Vec<Listed> = domains
            .iter()
            .map(|(name, domain)| Listed {
                domain: name.to_string(),
                refused: domain.refused.list(most, now),
                asked: domain.asked.list(most, now),
            })
            .collect();
        drop(domains);
        listed.sort_by(|a, b| a.domain.cmp(&b.domain));
        listed
    }
}

impl DomainTop {
    /// Adds a decision.
    pub(super) fn add(&self, ask: Ask<'_>) {
        let hash = self.hasher.hash_one(ask.key);
        self.asked.add(hash, ask);
        if ask.is_refused {
            self.refused.add(hash, ask);
        }
    }
}

#[derive(Debug)]
struct Sketch(Box<[Mutex<Part>]>);

#[derive(Debug)]
struct Part {
    kept: Vec<Kept>,
    places: HashMap<u64, usize, BuildHasherDefault<AsItIs>>,
    most: usize,
    /// No count is below it.
    floor: u64,
    /// Where the search for the least goes on.
    cursor: usize,
    halved: u64,
}

#[derive(Debug)]
struct Kept {
    hash: u64,
    hits: u64,
    error: u64,
    key: String,
    rule: String,
}

/// What is hashed is a hash already.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl Sketch {
    fn new(keys: usize) -> Self {
        let part = || Part {
            kept: Vec::new(),
            places: HashMap::default(),
            most: keys.div_ceil(PARTS),
            floor: 0,
            cursor: 0,
            halved: 0,
        };
        Self((0..PARTS).map(|_| Mutex::new(part())).collect())
    }

    fn add(&self, hash: u64, ask: Ask<'_>) {
        // The table uses the low bits and the top seven.
        let part = &self.0[(hash >> 32) as usize % PARTS];
        let mut part = lock(part);
        part.halve(ask.now);
        part.add(hash, ask);
    }

    fn list(&self, most: usize, now: Timestamp) -> Vec<Offender> {
        let mut listed: Vec<Offender> = Vec::new();
        for part in &self.0 {
            let mut part = lock(part);
            part.halve(now);
            let kept = part.kept.iter().filter(|kept| kept.hits > kept.error);
            listed.extend(kept.map(|kept| Offender {
                key: kept.key.clone(),
                rule: kept.rule.clone(),
                hits: kept.hits,
                error: kept.error,
            }));
        }
        listed.sort_by(|a, b| (b.hits, &a.key).cmp(&(a.hits, &b.key)));
        listed.truncate(most);
        listed
    }
}

fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Part {
    fn add(&mut self, hash: u64, ask: Ask<'_>) {
        if let Some(place) = self.places.get(&hash) {
            self.kept[*place].hits += ask.hits;
            return;
        }
        let place = if self.kept.len() < self.most {
            self.kept.push(Kept {
                hash,
                hits: 0,
                error: 0,
                key: String::new(),
                rule: String::new(),
            });
            self.floor = 0;
            self.kept.len() - 1
        } else {
            let place = self.least();
            self.places.remove(&self.kept[place].hash);
            place
        };
        let kept = &mut self.kept[place];
        kept.hash = hash;
        kept.error = kept.hits;
        kept.hits += ask.hits;
        // The texts' room is used again: nothing is allocated once all places are taken.
        kept.key.clear();
        shown::entries(&mut kept.key, ask.entries);
        kept.rule.clear();
        kept.rule.push_str(ask.rule);
        self.places.insert(hash, place);
    }

    /// The place with the least count. Counts only grow, so most of the time the next with the last least is near.
    fn least(&mut self) -> usize {
        for _ in 0..self.kept.len() {
            self.cursor = (self.cursor + 1) % self.kept.len();
            if self.kept[self.cursor].hits <= self.floor {
                return self.cursor;
            }
        }
        let counts = self.kept.iter().map(|kept| kept.hits).enumerate();
        let (place, floor) = counts.min_by_key(|(_, hits)| *hits).unwrap_or_default();
        self.floor = floor;
        self.cursor = place;
        place
    }

    fn halve(&mut self, now: Timestamp) {
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
        for kept in &mut self.kept {
            // The error last, so that it stays at most what it should be.
            kept.error >>= shift;
            kept.hits >>= shift;
        }
        self.floor >>= shift;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(top: &Top, name: &str, hits: u64, is_refused: bool, now: u64) {
        let key = CounterKey::new("d", b'f', 1, [("k", name)]);
        let entries = [Entry {
            key: "k".to_owned(),
            value: name.to_owned(),
        }];
        let domain = top.domain("d").expect("there is room");
        domain.add(Ask {
            key: &key,
            rule: "d.k",
            entries: &entries,
            hits,
            is_refused,
            now: Timestamp::from_micros(now),
        });
    }

    #[test]
    fn heavy_keys_are_found_among_very_many() {
        let top = Top::new(100);
        for number in 0..100_000u64 {
            ask(&top, &format!("light {number}"), 1, false, 1);
            if number % 20 == 0 {
                ask(&top, "heavy", 1, true, 1);
            }
        }
        let listed = top.list(10, Timestamp::from_micros(1));
        assert_eq!(listed[0].refused.len(), 1);
        assert_eq!(listed[0].refused[0].hits, 5_000);
        let heavy = &listed[0].asked[0];
        assert_eq!(heavy.key, "k=heavy");
        assert!(heavy.hits >= 5_000 && heavy.hits - heavy.error <= 5_000);
        let domain = top.domain("d").expect("known");
        let kept: usize = domain
            .asked
            .0
            .iter()
            .map(|part| lock(part).kept.len())
            .sum();
        assert!(kept <= 104, "{kept}");
    }

    #[test]
    fn counts_fade() {
        let top = Top::new(10);
        ask(&top, "a", 64, true, 1);
        let hits = |minutes: u64| {
            let now = Timestamp::from_micros(1 + minutes * HALF_LIFE);
            top.list(1, now)[0].refused.first().map(|found| found.hits)
        };
        assert_eq!((hits(0), hits(1), hits(3)), (Some(64), Some(32), Some(8)));
        assert_eq!(hits(1_000), None);
    }

    #[test]
    fn domains_are_bounded() {
        let top = Top::new(10);
        let kept = (0..1_000)
            .filter(|number| top.domain(&number.to_string()).is_some())
            .count();
        assert_eq!(kept, DOMAINS);
        assert!(Top::new(0).domain("d").is_none());
    }
}
