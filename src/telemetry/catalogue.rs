//! All series of hits there are: those of the rules, and the bounded number that request text has made.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
};

use super::series::{RuleSeries, Sums};

/// Longest text of the request, over all levels, that makes a series of its own; bytes.
const LONGEST: usize = 1_024;

/// Most unknown domains that are counted under their own name.
const UNKNOWN_DOMAINS: usize = 100;

/// What counts in place of a series there is no room for.
pub(super) const OTHER: &str = "other";

/// Series of one domain, by the text of each level.
type ByLevels = HashMap<Box<[Box<str>]>, Arc<RuleSeries>>;

/// Series of rules that are no longer in force and are kept all the same.
const GONE: usize = 10_000;

/// The series, by domain and levels. A rule that goes leaves its series behind, since it may come back and a counter
/// that vanishes reads as a reset; but not more than [`GONE`] of them.
#[derive(Debug)]
pub(super) struct Catalogue {
    /// Made by rules: as many as operators wrote.
    rules: RwLock<HashMap<Box<str>, ByLevels>>,
    /// Made by request text.
    texts: RwLock<HashMap<Box<str>, Texts>>,
    unknown: RwLock<HashMap<Box<str>, AtomicU64>>,
    unknown_others: AtomicU64,
    most: usize,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Texts {
    series: ByLevels,
    other: Arc<RuleSeries>,
}

impl Catalogue {
    /// An empty one that makes at most `most` series of request text in each domain.
    pub(super) fn new(most: usize) -> Self {
        Self {
            rules: RwLock::default(),
            texts: RwLock::default(),
            unknown: RwLock::default(),
            unknown_others: AtomicU64::new(0),
            most,
            dropped: AtomicU64::new(0),
        }
    }

    /// The series of a rule: the same one across reloads.
    pub(super) fn of_rule(&self, domain: &str, levels: &[Box<str>]) -> Arc<RuleSeries> {
        let mut rules = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(
            rules
                .entry(domain.into())
                .or_default()
                .entry(levels.into())
                .or_default(),
        )
    }

    /// Makes room for `rules` series: where too many are of rules that are gone, those go.
    pub(super) fn make_room(&self, rules: usize) {
        let mut series = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        let kept: usize = series.values().map(HashMap::len).sum();
        if kept <= 2 * rules + GONE {
            return;
        }
        // What is in force holds its series.
        for levels in series.values_mut() {
            levels.retain(|_, series| Arc::strong_count(series) > 1);
        }
        series.retain(|_, levels| !levels.is_empty());
    }

    /// Hands the series of that request text to `add`, or the one for all others when there is no room.
    pub(super) fn of_text(&self, domain: &str, levels: &[Box<str>], add: impl FnOnce(&RuleSeries)) {
        let fits = levels.iter().map(|level| level.len()).sum::<usize>() <= LONGEST;
        {
            let texts = self.texts.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(texts) = texts.get(domain) {
                if let Some(series) = texts.series.get(levels) {
                    return add(series);
                }
                if !fits || texts.series.len() >= self.most {
                    self.dropped.fetch_add(1, Ordering::Relaxed);
                    return add(&texts.other);
                }
            }
        }
        let mut texts = self.texts.write().unwrap_or_else(PoisonError::into_inner);
        let texts = texts.entry(domain.into()).or_default();
        if !texts.series.contains_key(levels) && (!fits || texts.series.len() >= self.most) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return add(&texts.other);
        }
        add(texts.series.entry(levels.into()).or_default());
    }

    /// Counts `descriptors` of a domain nobody has rules for.
    pub(super) fn unknown_domain(&self, domain: &str, descriptors: u64) {
        {
            let unknown = self.unknown.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(count) = unknown.get(domain) {
                count.fetch_add(descriptors, Ordering::Relaxed);
                return;
            }
            if unknown.len() >= UNKNOWN_DOMAINS {
                self.unknown_others
                    .fetch_add(descriptors, Ordering::Relaxed);
                return;
            }
        }
        let mut unknown = self.unknown.write().unwrap_or_else(PoisonError::into_inner);
        if unknown.len() >= UNKNOWN_DOMAINS && !unknown.contains_key(domain) {
            self.unknown_others
                .fetch_add(descriptors, Ordering::Relaxed);
            return;
        }
        if !unknown.contains_key(domain) {
            // Once for each name, and for so many names only.
            let domain: String = domain
                .chars()
                .take(64)
                .flat_map(char::escape_debug)
                .collect();
            tracing::warn!(domain, "no rules for this domain: its requests pass");
        }
        unknown
            .entry(domain.into())
            .or_default()
            .fetch_add(descriptors, Ordering::Relaxed);
    }

    /// Hits that went to a series for all others, one for each decided counter.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Descriptors of unknown domains, by domain.
    pub(super) fn unknown_domains(&self) -> BTreeMap<String, u64> {
        let unknown = self.unknown.read().unwrap_or_else(PoisonError::into_inner);
        let mut counts: BTreeMap<String, u64> = unknown
            .iter()
            .map(|(name, count)| (name.to_string(), count.load(Ordering::Relaxed)))
            .collect();
        let others = self.unknown_others.load(Ordering::Relaxed);
        if others > 0 {
            *counts.entry(OTHER.to_owned()).or_default() += others;
        }
        counts
    }

    /// Calls `visit` with the domain, levels and values of each series.
    pub(super) fn each(&self, mut visit: impl FnMut(&str, &[Box<str>], Sums)) {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner);
        for (domain, series) in rules.iter() {
            for (levels, series) in series {
                visit(domain, levels, series.sums());
            }
        }
        drop(rules);
        let texts = self.texts.read().unwrap_or_else(PoisonError::into_inner);
        for (domain, texts) in texts.iter() {
            for (levels, series) in &texts.series {
                visit(domain, levels, series.sums());
            }
            let others = texts.other.sums();
            if others.iter().any(|&count| count > 0) {
                visit(domain, &[OTHER.into()], others);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_text_makes_a_bounded_number_of_series() {
        let catalogue = Catalogue::new(2);
        let mut asked = 0;
        for text in ["a", "b", "a", "c", "d", &"x".repeat(LONGEST + 1)] {
            catalogue.of_text("d", &[text.into()], |_| asked += 1);
        }
        assert_eq!(asked, 6);
        assert_eq!(catalogue.dropped(), 3);
        let mut seen = 0;
        catalogue.each(|_, _, _| seen += 1);
        assert_eq!(seen, 2, "the series for all others shows once it has hits");
    }

    #[test]
    fn series_of_rules_that_are_gone_are_bounded() {
        let catalogue = Catalogue::new(10);
        let in_force = catalogue.of_rule("d", &["kept".into()]);
        for number in 0..3 * GONE {
            catalogue.make_room(1);
            catalogue.of_rule("d", &[number.to_string().into()]);
        }
        let kept: usize = catalogue
            .rules
            .read()
            .unwrap()
            .values()
            .map(HashMap::len)
            .sum();
        assert!(kept <= GONE + 3, "{kept}");
        let again = catalogue.of_rule("d", &["kept".into()]);
        assert!(Arc::ptr_eq(&in_force, &again));
    }

    #[test]
    fn unknown_domains_are_bounded() {
        let catalogue = Catalogue::new(1);
        for number in 0..1_000 {
            catalogue.unknown_domain(&format!("d{number}"), 2);
        }
        let counts = catalogue.unknown_domains();
        assert_eq!(counts.len(), UNKNOWN_DOMAINS + 1);
        assert_eq!(counts["other"], 1_800);
        assert_eq!(counts["d0"], 2);
    }

    #[test]
    fn a_rule_keeps_its_series_across_reloads() {
        let catalogue = Catalogue::new(1);
        let first = catalogue.of_rule("d", &["k".into()]);
        assert!(Arc::ptr_eq(&first, &catalogue.of_rule("d", &["k".into()])));
    }
}
