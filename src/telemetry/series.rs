//! The counters of one rule, and how a decision is added to them: the reference's accounting.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{
    algorithm::{Outcome, Quota, Source},
    counter::Atomicity,
};

/// The counters of one rule, or of one text that a rule asked to see.
#[derive(Debug, Default)]
pub struct RuleSeries {
    total_hits: AtomicU64,
    over_limit: AtomicU64,
    near_limit: AtomicU64,
    within_limit: AtomicU64,
    shadow_mode: AtomicU64,
    over_limit_with_local_cache: AtomicU64,
    total_negative_hits: AtomicU64,
}

/// What the counters of [`Sums`] are called, in its order.
pub(super) const NAMES: [&str; 7] = [
    "total_hits",
    "over_limit",
    "near_limit",
    "within_limit",
    "shadow_mode",
    "over_limit_with_local_cache",
    "total_negative_hits",
];

/// The counters' values at one time, in the order of [`NAMES`].
pub(super) type Sums = [u64; NAMES.len()];

/// Share of a limit from which on hits count as near it: 0 to 1, kept exactly as billionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearRatio(u64);

const WHOLE: u64 = 1_000_000_000;

/// What is known of one decided counter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decided {
    pub(super) quota: Quota,
    pub(super) hits: i64,
    pub(super) outcome: Outcome,
    pub(super) atomicity: Atomicity,
    pub(super) shadow: bool,
}

impl NearRatio {
    /// The ratio that `text` writes as a decimal.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let ratio: f64 = text.parse().ok()?;
        (0.0..=1.0)
            .contains(&ratio)
            .then(|| Self((ratio * WHOLE as f64).round() as u64))
    }

    /// The hits up to which a limit is not near.
    fn threshold(self, limit: u64) -> u64 {
        // At most `limit`, because the ratio is at most 1.
        (u128::from(limit) * u128::from(self.0) / u128::from(WHOLE)) as u64
    }
}

impl Default for NearRatio {
    fn default() -> Self {
        Self(800_000_000)
    }
}

impl RuleSeries {
    /// Adds one decision.
    pub(super) fn add(&self, decided: &Decided, ratio: NearRatio) {
        let hits = decided.hits.unsigned_abs();
        if decided.hits < 0 {
            add(&self.total_negative_hits, hits);
            return;
        }
        add(&self.total_hits, hits);
        let limit = decided.quota.capacity();
        let near = ratio.threshold(limit);
        let after = decided.outcome.used;
        let before = after.saturating_sub(hits);
        if decided.outcome.source == Source::DenyCache {
            add(&self.over_limit, hits);
            add(&self.over_limit_with_local_cache, hits);
            return;
        }
        if decided.outcome.allowed {
            add(&self.within_limit, hits);
            if after > near {
                let share = if before >= near { hits } else { after - near };
                add(&self.near_limit, share);
            }
            return;
        }
        // Only a fixed window on its own counts refused hits, and so can be partly within its limit.
        let counted = matches!(decided.quota, Quota::FixedWindow { .. })
            && decided.atomicity == Atomicity::PerCounter;
        let excess = if counted && before < limit {
            add(&self.near_limit, limit.saturating_sub(near.max(before)));
            after.saturating_sub(limit)
        } else {
            hits
        };
        add(&self.over_limit, excess);
        if decided.shadow {
            add(&self.shadow_mode, excess);
        }
    }

    pub(super) fn sums(&self) -> Sums {
        [
            &self.total_hits,
            &self.over_limit,
            &self.near_limit,
            &self.within_limit,
            &self.shadow_mode,
            &self.over_limit_with_local_cache,
            &self.total_negative_hits,
        ]
        .map(|counter| counter.load(Ordering::Relaxed))
    }
}

fn add(counter: &AtomicU64, by: u64) {
    if by > 0 {
        counter.fetch_add(by, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed(limit: u64, hits: i64, used: u64, allowed: bool) -> Decided {
        Decided {
            quota: Quota::FixedWindow {
                limit,
                window: 1_000_000,
            },
            hits,
            outcome: Outcome {
                allowed,
                remaining: limit.saturating_sub(used),
                reset_after: 0,
                retry_after: None,
                next_after: None,
                delay: 0,
                used,
                source: Source::Counter,
                basis: None,
            },
            atomicity: Atomicity::PerCounter,
            shadow: false,
        }
    }

    /// total, over, near, within, shadow.
    fn check(decisions: &[Decided], expected: [u64; 5]) {
        let series = RuleSeries::default();
        for decided in decisions {
            series.add(decided, NearRatio::default());
        }
        assert_eq!(series.sums()[..5], expected, "{decisions:?}");
    }

    #[test]
    fn accounting_is_the_references() {
        // before >= near threshold: all of it is near.
        check(&[fixed(10, 1, 9, true)], [1, 0, 1, 1, 0]);
        // Up to the threshold nothing is near.
        check(&[fixed(10, 8, 8, true)], [8, 0, 0, 8, 0]);
        // Across it, the part beyond.
        check(&[fixed(10, 9, 9, true)], [9, 0, 1, 9, 0]);
        // All three zones in one call.
        check(
            &[fixed(20, 15, 15, true), fixed(20, 7, 22, false)],
            [22, 2, 4, 15, 0],
        );
        // Larger than the limit on the first call.
        check(&[fixed(10, 25, 25, false)], [25, 15, 2, 0, 0]);
        // Already over.
        check(&[fixed(10, 3, 14, false)], [3, 3, 0, 0, 0]);
        // A peek adds nothing, whatever it finds.
        check(&[fixed(10, 0, 10, true), fixed(10, 0, 99, false)], [0; 5]);
        // A limit of 0.
        check(&[fixed(0, 1, 1, false)], [1, 1, 0, 0, 0]);
    }

    #[test]
    fn a_shadow_rule_counts_only_the_excess() {
        let over = Decided {
            shadow: true,
            ..fixed(10, 5, 12, false)
        };
        check(&[fixed(10, 7, 7, true), over], [12, 2, 2, 7, 2]);
    }

    #[test]
    fn refused_hits_that_were_not_counted_are_all_over() {
        let refused = Decided {
            atomicity: Atomicity::AllOrNothing,
            ..fixed(10, 5, 8, false)
        };
        check(&[refused], [5, 5, 0, 0, 0]);
    }

    #[test]
    fn hits_given_back_have_their_own_counter() {
        let series = RuleSeries::default();
        series.add(&fixed(10, -4, 3, true), NearRatio::default());
        assert_eq!(series.sums(), [0, 0, 0, 0, 0, 0, 4]);
    }

    #[test]
    fn the_threshold_is_exact() {
        for (ratio, limit, threshold) in [
            ("0.8", 4_294_967_295, 3_435_973_836),
            ("0.29", 100, 29),
            ("0.7", 10, 7),
            ("0", 10, 0),
            ("1", 10, 10),
            ("1", (1 << 53) - 1, (1 << 53) - 1),
        ] {
            let parsed = NearRatio::parse(ratio).unwrap();
            assert_eq!(parsed.threshold(limit), threshold, "{ratio} of {limit}");
        }
        for ratio in ["", "NaN", "2", "-0.1", "1.0001", "x", "inf"] {
            assert_eq!(NearRatio::parse(ratio), None, "{ratio}");
        }
    }
}
