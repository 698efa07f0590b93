//! `algorithm`, and the numbers it works with.

use crate::algorithm::{MAX_LOG, Quota, QuotaError, Rate};

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
            Algorithm::FixedWindow => Ok(Quota::FixedWindow { limit, window }),
            Algorithm::SlidingWindow => Ok(Quota::SlidingWindow { limit, window }),
            Algorithm::SlidingLog if limit > MAX_LOG => Err(QuotaError::Log),
            Algorithm::SlidingLog => Ok(Quota::SlidingLog { limit, window }),
            Algorithm::TokenBucket => bucket(limit, window, self.burst.unwrap_or(limit)),
            Algorithm::LeakyBucket => match self.max_delay {
                // A leaky bucket that delays nobody is a meter: a token bucket by another name.
                None => bucket(limit, window, limit),
                Some(max_delay) => {
                    let slots = u128::from(max_delay) * u128::from(limit) / u128::from(window);
                    let slots = u64::try_from(slots).unwrap_or(u64::MAX).saturating_add(1);
                    let rate = Rate::new(limit, window, slots)?;
                    Ok(Quota::LeakyBucket { max_delay, rate })
                }
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

fn bucket(limit: u64, window: u64, capacity: u64) -> Result<Quota, QuotaError> {
    let rate = Rate::new(limit, window, capacity)?;
    Ok(Quota::TokenBucket { capacity, rate })
}
