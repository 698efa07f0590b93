//! The numbers of a limit, checked once, in the form the algorithms work with.

use super::MAX;

/// Longest window or delay: one year, in microseconds.
pub const MAX_WINDOW: u64 = 365 * 86_400 * 1_000_000;

/// Most hits a sliding log may keep: each admitted hit is one entry in the store.
pub const MAX_LOG: u64 = 10_000;

/// The numbers of one limit. Which variant it is says which algorithm decides.
///
/// Windows and delays are microseconds, 1 to [`MAX_WINDOW`]; counts are hits, 0 to 2^53 - 1. The constructors hold
/// the bounds that keep every product in the algorithms below 2^53, where a Lua number is still exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// At most `limit` hits in each window aligned to the epoch. Refused hits count too.
    FixedWindow {
        /// L.
        limit: u64,
        /// W.
        window: u64,
    },
    /// At most `limit` hits in the last `window`, estimated from two aligned windows.
    SlidingWindow {
        /// L.
        limit: u64,
        /// W.
        window: u64,
    },
    /// At most `limit` hits in any `window`, exactly; keeps the time of each hit.
    SlidingLog {
        /// L, at most [`MAX_LOG`].
        limit: u64,
        /// W.
        window: u64,
    },
    /// A bucket of `capacity` tokens that refills at `rate`. Also a leaky bucket used as a meter.
    TokenBucket {
        /// K.
        capacity: u64,
        /// R tokens each P microseconds.
        rate: Rate,
    },
    /// A leaky bucket as a queue: a hit is told to wait for its slot, or refused if that is over `max_delay` away.
    LeakyBucket {
        /// D.
        max_delay: u64,
        /// R slots each P microseconds.
        rate: Rate,
    },
}

/// R tokens each P microseconds, in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    tokens: u64,
    period: u64,
}

/// Why a limit's numbers cannot be kept exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuotaError {
    /// The window is zero or longer than a year.
    #[error("a window is 1 microsecond to 1 year long")]
    Window,
    /// The delay is longer than a year.
    #[error("max_delay is at most 1 year")]
    Delay,
    /// A sliding log of that size would keep too many entries.
    #[error("a sliding_log keeps one entry a hit and is bounded at {MAX_LOG}")]
    Log,
    /// A rate needs at least one token a window.
    #[error("a bucket that never refills admits nothing")]
    NoRate,
    /// `capacity` tokens at this rate take too long to refill to be counted in exact integers.
    #[error("burst and window together exceed what can be counted exactly (2^53)")]
    Overflow,
}

impl Rate {
    /// `tokens` each `window` microseconds, such that `capacity` tokens can be counted exactly.
    ///
    /// The pair is exact whenever `capacity * P < 2^53` for the reduced P. Where it is not, the rate is rounded
    /// *down* to a close pair that is, by less than 0.1 %: it never admits more than was written.
    ///
    /// # Errors
    /// [`QuotaError::NoRate`] for 0 tokens, [`QuotaError::Window`], or [`QuotaError::Overflow`] when a full refill
    /// takes longer than 2^53 microseconds (285 years).
    pub fn new(tokens: u64, window: u64, capacity: u64) -> Result<Self, QuotaError> {
        if tokens == 0 {
            return Err(QuotaError::NoRate);
        }
        if window == 0 || window > MAX_WINDOW {
            return Err(QuotaError::Window);
        }
        let capacity = capacity.max(1);
        let shared = gcd(tokens, window);
        let exact = Self {
            tokens: tokens / shared,
            period: window / shared,
        };
        if exact.fits(capacity) {
            return Ok(exact);
        }
        // The largest period that still fits, with the tokens that period is worth, rounded down.
        let period = (MAX / 2) / capacity;
        let worth = mul_div(period, exact.tokens, exact.period);
        if worth >= 1_000 {
            let shared = gcd(worth, period);
            let near = Self {
                tokens: worth / shared,
                period: period / shared,
            };
            if near.fits(capacity) {
                return Ok(near);
            }
        }
        // Few tokens in a long window: one token each so many microseconds, rounded up.
        let single = Self {
            tokens: 1,
            period: exact.period.div_ceil(exact.tokens),
        };
        if single.fits(capacity) {
            return Ok(single);
        }
        Err(QuotaError::Overflow)
    }

    /// R.
    pub const fn tokens(self) -> u64 {
        self.tokens
    }

    /// P, microseconds.
    pub const fn period(self) -> u64 {
        self.period
    }

    /// `capacity * P`, plus one refill's worth, stays exact.
    fn fits(self, capacity: u64) -> bool {
        capacity
            .checked_mul(self.period)
            .and_then(|full| full.checked_add(self.tokens))
            .is_some_and(|full| full <= MAX)
    }
}

impl Quota {
    /// One letter for each algorithm, part of a counter's key and of the script's arguments: another algorithm
    /// starts with another state.
    pub const fn letter(&self) -> u8 {
        match self {
            Self::FixedWindow { .. } => b'f',
            Self::SlidingWindow { .. } => b's',
            Self::SlidingLog { .. } => b'l',
            Self::TokenBucket { .. } => b't',
            Self::LeakyBucket { .. } => b'q',
        }
    }

    /// The most hits one call can ever be granted.
    pub const fn capacity(&self) -> u64 {
        match *self {
            Self::FixedWindow { limit, .. }
            | Self::SlidingWindow { limit, .. }
            | Self::SlidingLog { limit, .. } => limit,
            Self::TokenBucket { capacity, .. } => capacity,
            // The slots that start within max_delay of now: one at once, and one each P/R after it.
            Self::LeakyBucket { max_delay, rate } => {
                mul_div(max_delay, rate.tokens, rate.period) + 1
            }
        }
    }
}

/// `a * b / c`, rounded down, without overflow in between.
const fn mul_div(a: u64, b: u64, c: u64) -> u64 {
    (a as u128 * b as u128 / c as u128) as u64
}

const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
