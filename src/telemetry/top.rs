//! Which keys are refused and asked most, at a fixed size: a space-saving sketch (Metwally, Agrawal and El Abbadi,
//! 2005) with a filter before it (Homem and Carvalho, 2010). It keeps `k` keys with a count each. Keys that are not kept
//! are counted in cells, many of them in each; one whose cell has reached the least count that is kept takes the place
//! of that count's key, and goes on from the cell's. So every key with more than a `k`th of all hits is kept, a count is
//! too high by at most the `error` beside it, never too low, and among very many keys with few hits each the places
//! seldom change hands.
//!
//! Each worker adds to sketches of its own, so that their memory stays in its core's cache and their lock is free; they
//! are put together when somebody looks. A sketch is split in parts of a few keys by the key's hash, which are searched
//! from end to end: that is less work than to keep an order. Counts are halved each minute: what is shown is who asks
//! now, not who asked last week.

mod sketch;

use std::{
    cell::Cell,
    collections::HashMap,
    hash::BuildHasher as _,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use hashbrown::DefaultHashBuilder;

use crate::time::Timestamp;

pub(super) use sketch::Ask;
use sketch::{Counts, Part, Sketch, lock};

/// Most domains that have sketches.
const DOMAINS: usize = 100;

/// Most sketches of one domain; beyond that workers share them.
const SHARDS: usize = 8;

/// The sketches of all domains.
#[derive(Debug)]
pub(super) struct Top {
    domains: RwLock<HashMap<Box<str>, Arc<DomainTop>>>,
    /// Seeded at random, so that nobody can choose keys that fall together.
    hasher: DefaultHashBuilder,
    keys: usize,
}

/// The sketches of one domain.
#[derive(Debug)]
pub(super) struct DomainTop {
    shards: [Sketch; SHARDS],
    hasher: DefaultHashBuilder,
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

impl Top {
    /// Sketches of `keys` keys for each domain; 0 keeps none.
    pub(super) fn new(keys: usize) -> Self {
        Self {
            domains: RwLock::default(),
            hasher: DefaultHashBuilder::default(),
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
                shards: std::array::from_fn(|_| Sketch::new(self.keys)),
                hasher: self.hasher.clone(),
            })
        });
        Some(Arc::clone(found))
    }

    /// The first `most` keys of each domain, as many as one sketch has at most. Domains are sorted.
    pub(super) fn list(&self, most: usize, now: Timestamp) -> Vec<Listed> {
        let most = most.min(self.keys);
        let domains = self.domains.read().unwrap_or_else(PoisonError::into_inner);
        let mut listed: Vec<Listed> = domains
            .iter()
            .map(|(name, domain)| Listed {
                domain: name.to_string(),
                refused: domain.list(most, now, |part| &part.refused),
                asked: domain.list(most, now, |part| &part.asked),
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
        self.add_to(shard(), ask);
    }

    fn add_to(&self, shard: usize, ask: Ask<'_>) {
        let hash = self.hasher.hash_one(ask.key);
        let mut part = self.shards[shard].part(hash);
        part.halve(ask.now);
        part.asked.add(hash, ask);
        if ask.is_refused {
            part.refused.add(hash, ask);
        }
    }

    /// The first `most` keys of all sketches together. Where a sketch does not keep a key, it may have had as many hits
    /// there as the least that is kept.
    fn list(&self, most: usize, now: Timestamp, of: impl Fn(&Part) -> &Counts) -> Vec<Offender> {
        let mut found: HashMap<u64, Offender> = HashMap::new();
        for place in 0..self.shards[0].0.len() {
            let parts: Vec<_> = self
                .shards
                .iter()
                .map(|shard| {
                    let mut part = lock(&shard.0[place]);
                    part.halve(now);
                    part
                })
                .collect();
            let floors: u64 = parts.iter().map(|part| of(part).floor()).sum();
            for counts in parts.iter().map(|part| of(part)) {
                for (at, hash) in counts.hashes.iter().enumerate() {
                    let kept = &counts.kept[at];
                    let offender = found.entry(*hash).or_insert_with(|| Offender {
                        key: kept.key.clone(),
                        rule: kept.rule.clone(),
                        hits: floors,
                        error: floors,
                    });
                    offender.hits += counts.hits[at] - counts.floor();
                    offender.error = offender.error + kept.error - counts.floor();
                }
            }
        }
        let mut listed: Vec<Offender> = found
            .into_values()
            .filter(|offender| offender.hits > offender.error)
            .collect();
        listed.sort_by(|a, b| (b.hits, &a.key).cmp(&(a.hits, &b.key)));
        listed.truncate(most);
        listed
    }
}

/// Which sketch this thread adds to.
fn shard() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static SHARD: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    SHARD.with(|shard| {
        if shard.get() == usize::MAX {
            shard.set(NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS);
        }
        shard.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{counter::CounterKey, request::Entry};
    use sketch::HALF_LIFE;

    fn ask(top: &Top, name: &str, hits: u64, is_refused: bool, now: u64) {
        ask_in(0, top, name, hits, is_refused, now);
    }

    fn ask_in(shard: usize, top: &Top, name: &str, hits: u64, is_refused: bool, now: u64) {
        let key = CounterKey::new("d", b'f', 1, [("k", name)]);
        let entries = [Entry {
            key: "k".to_owned(),
            value: name.to_owned(),
        }];
        let ask = Ask {
            key: &key,
            rule: "d.k",
            entries: &entries,
            hits,
            is_refused,
            now: Timestamp::from_micros(now),
        };
        top.domain("d").expect("there is room").add_to(shard, ask);
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
        let kept: usize = domain.shards[0]
            .0
            .iter()
            .map(|part| lock(part).asked.hashes.len())
            .sum();
        assert!(kept <= 105, "{kept}");
    }

    #[test]
    fn no_count_is_too_low_nor_too_high_by_more_than_its_error() {
        let top = Top::new(20);
        let mut random = fastrand::Rng::with_seed(7);
        let mut truth = HashMap::new();
        let mut all = 0;
        for _ in 0..200_000 {
            // Few names often, most of them seldom.
            let name = (1.0 / (random.f64() + 1e-4)) as u64;
            let hits = random.u64(0..4);
            *truth.entry(format!("k={name}")).or_insert(0) += hits;
            all += hits;
            ask(&top, &name.to_string(), hits, false, 1);
        }
        let listed = top.list(20, Timestamp::from_micros(1)).remove(0).asked;
        for found in &listed {
            let hits = truth[&found.key];
            assert!(found.hits >= hits, "{found:?}: {hits}");
            assert!(found.hits - found.error <= hits, "{found:?}: {hits}");
        }
        for (name, hits) in truth {
            let is_listed = listed.iter().any(|found| found.key == name);
            assert!(is_listed || hits <= all / 10, "{name}: {hits}");
        }
    }

    #[test]
    fn sketches_of_several_workers_are_one() {
        let shown = |top: &Top| -> Vec<(String, u64, u64)> {
            let mut listed = top.list(10, Timestamp::from_micros(1));
            let found = listed.remove(0);
            assert_eq!(found.refused, found.asked);
            let asked = found.asked.into_iter();
            asked
                .map(|found| (found.key, found.hits, found.error))
                .collect()
        };
        let top = Top::new(10);
        for (shard, name, hits) in [(0, "a", 5), (1, "b", 9), (7, "a", 7)] {
            ask_in(shard, &top, name, hits, true, 1);
        }
        let expected = [("k=a".to_owned(), 12, 0), ("k=b".to_owned(), 9, 0)];
        assert_eq!(shown(&top), expected);

        // Where a full sketch does not keep a key, the key may have had as many hits there as the least that is kept.
        let top = Top::new(1);
        ask_in(0, &top, "a", 100, true, 1);
        ask_in(1, &top, "b", 30, true, 1);
        assert_eq!(shown(&top), [("k=a".to_owned(), 130, 30)]);
    }

    #[test]
    fn a_worker_keeps_its_sketch() {
        let mine = shard();
        assert_eq!(shard(), mine);
        let others = (0..SHARDS).map(|_| std::thread::spawn(shard).join());
        assert!(
            others
                .map(|shard| shard.expect("no panic"))
                .all(|shard| shard < SHARDS)
        );
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
