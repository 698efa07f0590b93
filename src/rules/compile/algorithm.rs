//! `algorithm`, and the numbers it works with.

use crate::algorithm::{Quota, QuotaError, Rate};

/// An algorithm as the operator names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    FixedWindow,
    SlidingWindow,
    SlidingLog,
    TokenBucket,
    LeakyBucket,
}

impl Algorithm {
    pub(super) const ALL: [(&'static str, Self); 5] = [
        ("fixed_window", Self::FixedWindow),
        ("sliding_window", Self::SlidingWindow),
        ("sliding_log", Self::SlidingLog),
        ("token_bucket", Self::TokenBucket),
        ("leaky_bucket", Self::LeakyBucket),
    ];
}

/// What a rule says, each number checked by itself. Times are microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbers {
    pub(super) algorithm: Algorithm,
    pub(super) requests: u64,
    pub(super) window: u64,
    /// Of a token bucket; as large as `requests` when not written.
    pub(super) burst: Option<u64>,
    /// Of a leaky bucket; without it, it delays nobody.
    pub(super) max_delay: Option<u64>,
}

impl Numbers {
    pub(super) fn quota(self) -> Result<Quota, QuotaError> {
        let Self {
            requests: limit,
            window,
            ..
        } = self;
        match self.algorithm {
            Algorithm::FixedWindow => Quota::fixed_window(limit, window),
            Algorithm::SlidingWindow => Quota::sliding_window(limit, window),
            Algorithm::SlidingLog => Quota::sliding_log(limit, window),
            Algorithm::TokenBucket => {
                Quota::token_bucket(limit, window, self.burst.unwrap_or(limit))
            }
            Algorithm::LeakyBucket => match self.max_delay {
                // A leaky bucket that delays nobody is a meter: a token bucket by another name.
                None => Quota::token_bucket(limit, window, limit),
                Some(max_delay) => Quota::leaky_bucket(limit, window, max_delay),
            },
        }
    }

    /// The rate of `quota` when it is not the one that is written: rounded down to one that can be counted exactly.
    pub(super) fn rounded(self, quota: &Quota) -> Option<Rate> {
        let (Quota::TokenBucket { rate, .. } | Quota::LeakyBucket { rate, .. }) = *quota else {
            return None;
        };
        let written = u128::from(self.requests) * u128::from(rate.period());
        let kept = u128::from(rate.tokens()) * u128::from(self.window);
        (kept != written).then_some(rate)
    }
}
