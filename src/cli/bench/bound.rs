//! How much a counter may grant in the time it was asked, and whether it did.

use std::time::{Duration, Instant};

/// What a limit has to look like from outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    /// Hits a counter grants in one window.
    pub(super) limit: u64,
    /// The window; `None` when it outlasts the run.
    pub(super) per: Option<Duration>,
    /// `None` when it is not known: then the bound is the one that all of them keep.
    pub(super) algorithm: Option<Algorithm>,
    /// Hits that a bucket grants at once; `None`: the limit.
    pub(super) burst: Option<u64>,
}

/// The algorithm of the rule that is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(super) enum Algorithm {
    /// At most the limit in each window that the time touches
    FixedWindow,
    /// The same
    SlidingWindow,
    /// At most the limit in any stretch as long as the window
    SlidingLog,
    /// The burst, and what is refilled meanwhile
    TokenBucket,
    /// The same; the burst is what may wait
    LeakyBucket,
}

/// The most that a counter may grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) hits: u64,
    /// How it comes about.
    pub(super) how: String,
}

/// What was found of one counter.
#[derive(Clone, Debug)]
pub(super) struct Finding {
    /// Its place in the row of all counters.
    pub(super) counter: usize,
    pub(super) answered: u64,
    pub(super) granted: u64,
    pub(super) under: u64,
    /// It was asked for more than the limit.
    pub(super) exhausted: bool,
    pub(super) bound: Bound,
}

/// Whether the limit held.
#[derive(Clone, Debug, Default)]
pub(super) struct Check {
    /// Counters that were asked.
    pub(super) counters: u64,
    /// Of these, those that were asked for more than the limit.
    pub(super) exhausted: u64,
    /// Those that granted too much, and by how many hits in all.
    pub(super) over: u64,
    pub(super) over_hits: u64,
    /// Those that refused too early, and how many hits in all.
    pub(super) under: u64,
    pub(super) under_hits: u64,
    /// The counters that are over their bound most, or came closest to it; the worst first.
    pub(super) closest: Vec<Finding>,
}

/// How many counters are shown.
const SHOWN: usize = 5;

impl Check {
    /// No counter granted too much or too little.
    pub(super) const fn holds(&self) -> bool {
        self.over == 0 && self.under == 0
    }

    pub(super) fn add(&mut self, finding: Finding) {
        self.counters += 1;
        self.exhausted += u64::from(finding.exhausted);
        let over = finding.granted.saturating_sub(finding.bound.hits);
        self.over += u64::from(over > 0);
        self.over_hits += over;
        self.under += u64::from(finding.under > 0);
        self.under_hits += finding.under;
        let margin =
            |finding: &Finding| i128::from(finding.granted) - i128::from(finding.bound.hits);
        let wrong = |finding: &Finding| (margin(finding) > 0 || finding.under > 0, margin(finding));
        let place = self
            .closest
            .partition_point(|other| wrong(other) >= wrong(&finding));
        if place < SHOWN {
            self.closest.insert(place, finding);
            self.closest.truncate(SHOWN);
        }
    }
}

impl Expected {
    /// What a fresh counter grants at once, at least.
    pub(super) fn at_once(&self) -> u64 {
        match self.algorithm {
            Some(Algorithm::TokenBucket | Algorithm::LeakyBucket) => {
                self.burst.unwrap_or(self.limit)
            }
            _ => self.limit,
        }
    }

    /// The most that a counter grants that was first asked at `from` and last answered at `to`.
    pub(super) fn most(&self, from: Instant, to: Instant) -> Bound {
        let limit = self.limit;
        let Some(per) = self.per.filter(|per| !per.is_zero()) else {
            let hits = self.at_once();
            return Bound {
                hits,
                how: format!("{hits}, the window outlasts the run"),
            };
        };
        let time = to.saturating_duration_since(from);
        let many = |windows: u128, how: &str| Bound {
            hits: limit.saturating_mul(u64::try_from(windows).unwrap_or(u64::MAX)),
            how: format!("{limit} x {windows} {how} in {:.3} s", time.as_secs_f64()),
        };
        let (took, window) = (time.as_nanos(), per.as_nanos());
        match self.algorithm {
            // The service's windows begin by its store's clock, of which nothing is known here.
            None | Some(Algorithm::FixedWindow | Algorithm::SlidingWindow) => {
                many(took.div_ceil(window) + 1, "windows that may be touched")
            }
            Some(Algorithm::SlidingLog) => many(took / window + 1, "windows begun"),
            Some(Algorithm::TokenBucket | Algorithm::LeakyBucket) => {
                let burst = self.at_once();
                let refilled = u128::from(limit).saturating_mul(took) / window;
                let refilled = u64::try_from(refilled).unwrap_or(u64::MAX);
                Bound {
                    hits: burst.saturating_add(refilled),
                    how: format!(
                        "{burst} at once + {refilled} refilled in {:.3} s",
                        time.as_secs_f64()
                    ),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn most(algorithm: Option<Algorithm>, burst: Option<u64>, millis: u64, hits: u64, how: &str) {
        let expected = Expected {
            limit: 10,
            per: Some(Duration::from_secs(1)),
            algorithm,
            burst,
        };
        let from = Instant::now();
        let bound = expected.most(from, from + Duration::from_millis(millis));
        assert_eq!((bound.hits, &*bound.how), (hits, how));
    }

    #[test]
    fn the_bound_is_what_the_algorithm_permits() {
        use Algorithm::{FixedWindow, LeakyBucket, SlidingLog, TokenBucket};
        most(
            None,
            None,
            2_500,
            40,
            "10 x 4 windows that may be touched in 2.500 s",
        );
        most(
            Some(FixedWindow),
            None,
            900,
            20,
            "10 x 2 windows that may be touched in 0.900 s",
        );
        most(
            Some(SlidingLog),
            None,
            2_500,
            30,
            "10 x 3 windows begun in 2.500 s",
        );
        most(
            Some(TokenBucket),
            None,
            2_500,
            35,
            "10 at once + 25 refilled in 2.500 s",
        );
        most(
            Some(TokenBucket),
            Some(3),
            2_500,
            28,
            "3 at once + 25 refilled in 2.500 s",
        );
        most(
            Some(LeakyBucket),
            Some(6),
            50,
            6,
            "6 at once + 0 refilled in 0.050 s",
        );
        let year = Expected {
            limit: 10,
            per: None,
            algorithm: Some(TokenBucket),
            burst: Some(4),
        };
        assert_eq!(year.most(Instant::now(), Instant::now()).hits, 4);
    }
}
