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
    /// A bucket that holds nothing.
    #[error("a bucket needs room for at least one token")]
    Capacity,
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
    /// [`QuotaError::NoRate`] for 0 tokens, [`QuotaError::Window`], or [`QuotaError::Overflow`] when no pair within
    /// 0.1 % fits: a full refill takes longer than 2^53 microseconds (285 years), or nearly so at an odd rate.
    pub fn new(tokens: u64, window: u64, capacity: u64) -> Result<Self, QuotaError> {
        let capacity = capacity.max(1);
        Self::close_to(tokens, window, |rate| {
            capacity
                .checked_mul(rate.period)
                .and_then(|full| full.checked_add(rate.tokens))
                .is_some_and(|full| full <= MAX)
        })
    }

    /// `tokens` each `window` microseconds, such that a queue of `max_delay` microseconds can be counted exactly.
    /// Rounds as [`Rate::new`] does.
    ///
    /// # Errors
    /// As [`Rate::new`], and [`QuotaError::Delay`].
    pub fn for_queue(tokens: u64, window: u64, max_delay: u64) -> Result<Self, QuotaError> {
        if max_delay > MAX_WINDOW {
            return Err(QuotaError::Delay);
        }
        Self::close_to(tokens, window, |rate| {
            // Twice max_delay's worth is the bound of what can be owed: see `queue_full`.
            max_delay
                .checked_mul(rate.tokens)
                .and_then(|worth| worth.checked_mul(2))
                .and_then(|worth| worth.checked_add(rate.period))
                .and_then(|worth| worth.checked_add(rate.tokens))
                .is_some_and(|full| full <= MAX)
        })
    }

    /// The pair itself if it fits, else the closest below it that does.
    fn close_to(
        tokens: u64,
        window: u64,
        fits: impl Fn(&Self) -> bool,
    ) -> Result<Self, QuotaError> {
        if tokens == 0 {
            return Err(QuotaError::NoRate);
        }
        if tokens > MAX {
            return Err(QuotaError::Overflow);
        }
        if window == 0 || window > MAX_WINDOW {
            return Err(QuotaError::Window);
        }
        let exact = Self::reduced(tokens, window);
        if fits(&exact) {
            return Ok(exact);
        }
        // Shorter periods, each with the tokens it is worth, rounded down. From 1,000 tokens up that costs less than
        // 0.1 %.
        let mut period = exact.period / 2;
        while period > 0 {
            let worth = mul_div(period, exact.tokens, exact.period);
            if worth < 1_000 {
                break;
            }
            let near = Self::reduced(worth, period);
            if fits(&near) {
                return Ok(near);
            }
            period /= 2;
        }
        // Few tokens in a long window: one token each so many microseconds, rounded up.
        let single = Self {
            tokens: 1,
            period: exact.period.div_ceil(exact.tokens),
        };
        if exact.period / exact.tokens >= 1_000 && fits(&single) {
            return Ok(single);
        }
        Err(QuotaError::Overflow)
    }

    fn reduced(tokens: u64, period: u64) -> Self {
        let shared = gcd(tokens, period);
        Self {
            tokens: tokens / shared,
            period: period / shared,
        }
    }

    /// The same tokens over `times` the period. A period that cannot be counted stays as it is.
    fn slower(self, times: u64) -> Self {
        match self.period.checked_mul(times) {
            Some(period) if period <= MAX => Self::reduced(self.tokens, period),
            _ => self,
        }
    }

    /// R.
    pub const fn tokens(self) -> u64 {
        self.tokens
    }

    /// P, microseconds.
    pub const fn period(self) -> u64 {
        self.period
    }
}

impl Quota {
    /// At most `limit` hits in each `window` microseconds aligned to the epoch. 0 refuses everything.
    ///
    /// # Errors
    /// [`QuotaError::Window`], or [`QuotaError::Overflow`] for a limit of 2^53 or more.
    pub fn fixed_window(limit: u64, window: u64) -> Result<Self, QuotaError> {
        let (limit, window) = checked(limit, window)?;
        Ok(Self::FixedWindow { limit, window })
    }

    /// At most `limit` hits in the last `window` microseconds, estimated. 0 refuses everything.
    ///
    /// # Errors
    /// As [`Quota::fixed_window`].
    pub fn sliding_window(limit: u64, window: u64) -> Result<Self, QuotaError> {
        let (limit, window) = checked(limit, window)?;
        Ok(Self::SlidingWindow { limit, window })
    }

    /// At most `limit` hits in any `window` microseconds, exactly. 0 refuses everything.
    ///
    /// # Errors
    /// [`QuotaError::Window`], or [`QuotaError::Log`] for a limit over [`MAX_LOG`].
    pub fn sliding_log(limit: u64, window: u64) -> Result<Self, QuotaError> {
        let (limit, window) = checked(limit, window)?;
        if limit > MAX_LOG {
            return Err(QuotaError::Log);
        }
        Ok(Self::SlidingLog { limit, window })
    }

    /// A bucket of `capacity` tokens that refills at `limit` each `window` microseconds.
    ///
    /// # Errors
    /// [`QuotaError::Capacity`] for a bucket of 0, else as [`Rate::new`].
    pub fn token_bucket(limit: u64, window: u64, capacity: u64) -> Result<Self, QuotaError> {
        if capacity == 0 {
            return Err(QuotaError::Capacity);
        }
        let rate = Rate::new(limit, window, capacity)?;
        Ok(Self::TokenBucket { capacity, rate })
    }

    /// A queue with `limit` slots each `window` microseconds, where a hit waits at most `max_delay` microseconds
    /// (0: only a free slot is good enough).
    ///
    /// # Errors
    /// As [`Rate::for_queue`].
    pub fn leaky_bucket(limit: u64, window: u64, max_delay: u64) -> Result<Self, QuotaError> {
        let rate = Rate::for_queue(limit, window, max_delay)?;
        Ok(Self::LeakyBucket { max_delay, rate })
    }

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

    /// The algorithm's name, as rules write it.
    pub const fn algorithm(&self) -> &'static str {
        match self {
            Self::FixedWindow { .. } => "fixed_window",
            Self::SlidingWindow { .. } => "sliding_window",
            Self::SlidingLog { .. } => "sliding_log",
            Self::TokenBucket { .. } => "token_bucket",
            Self::LeakyBucket { .. } => "leaky_bucket",
        }
    }

    /// The part of the limit that one of `replicas` may grant by itself, when they cannot count together.
    ///
    /// Counts are rounded down, so that together the replicas never grant more than the limit; but each grants at
    /// least one where the limit grants anything, for a share of nothing would be a refusal of everybody.
    #[must_use]
    pub fn share(self, replicas: u64) -> Self {
        let replicas = replicas.max(1);
        let part = |count: u64| (count / replicas).max(count.min(1));
        match self {
            Self::FixedWindow { limit, window } => Self::FixedWindow {
                limit: part(limit),
                window,
            },
            Self::SlidingWindow { limit, window } => Self::SlidingWindow {
                limit: part(limit),
                window,
            },
            Self::SlidingLog { limit, window } => Self::SlidingLog {
                limit: part(limit),
                window,
            },
            Self::TokenBucket { capacity, rate } => {
                let (capacity, slower) = (part(capacity), rate.slower(replicas));
                match capacity.checked_mul(slower.period) {
                    Some(full) if full <= MAX - slower.tokens.min(MAX) => Self::TokenBucket {
                        capacity,
                        rate: slower,
                    },
                    // Too slow to be counted: a bucket that is smaller is all that can be had.
                    _ => Self::TokenBucket { capacity, rate },
                }
            }
            Self::LeakyBucket { max_delay, rate } => {
                let slower = rate.slower(replicas);
                let full = 2 * max_delay * slower.tokens + slower.period + slower.tokens;
                Self::LeakyBucket {
                    max_delay,
                    rate: if full <= MAX { slower } else { rate },
                }
            }
        }
    }

    /// The most hits one call can ever be granted.
    pub const fn capacity(&self) -> u64 {
        match *self {
            Self::FixedWindow { limit, .. }
            | Self::SlidingWindow { limit, .. }
            | Self::SlidingLog { limit, .. } => limit,
            Self::TokenBucket { capacity, .. } => capacity,
            Self::LeakyBucket { max_delay, rate } => queue_capacity(max_delay, rate),
        }
    }
}

/// The slots of a queue that start within `max_delay` of now: one at once, and one each P/R after it.
pub(super) const fn queue_capacity(max_delay: u64, rate: Rate) -> u64 {
    max_delay * rate.tokens / rate.period + 1
}

/// The most a queue can be in debt: all of `max_delay`, and then as many hits as it has slots.
pub(super) const fn queue_full(max_delay: u64, rate: Rate) -> u64 {
    max_delay * rate.tokens + queue_capacity(max_delay, rate) * rate.period
}

fn checked(limit: u64, window: u64) -> Result<(u64, u64), QuotaError> {
    if window == 0 || window > MAX_WINDOW {
        return Err(QuotaError::Window);
    }
    if limit > MAX {
        return Err(QuotaError::Overflow);
    }
    Ok((limit, window))
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: u64 = 86_400_000_000;

    #[test]
    fn a_rate_is_reduced() {
        let rate = Rate::new(2, 1_000_000, 5).expect("fits");
        assert_eq!((rate.tokens(), rate.period()), (1, 500_000));
        let rate = Rate::new(1_000_000, DAY, 1_000_000).expect("fits");
        assert_eq!((rate.tokens(), rate.period()), (1, 86_400));
    }

    #[test]
    fn a_share_is_rounded_down_and_at_least_one() {
        for (limit, replicas, share) in [(10, 1, 10), (10, 3, 3), (2, 3, 1), (0, 3, 0), (5, 0, 5)] {
            for quota in [
                Quota::fixed_window(limit, DAY),
                Quota::sliding_window(limit, DAY),
                Quota::sliding_log(limit, DAY),
            ] {
                let shared = quota.expect("legal").share(replicas);
                assert_eq!(shared.capacity(), share, "{shared:?}");
            }
        }
        let bucket = Quota::token_bucket(100, 1_000_000, 50).expect("legal");
        assert_eq!(
            bucket.share(4),
            Quota::token_bucket(25, 1_000_000, 12).expect("legal")
        );
        let queue = Quota::leaky_bucket(100, 1_000_000, 60_000_000).expect("legal");
        assert_eq!(
            queue.share(4),
            Quota::leaky_bucket(25, 1_000_000, 60_000_000).expect("legal")
        );
    }

    #[test]
    fn bounds_are_refused_with_their_reason() {
        assert_eq!(Quota::fixed_window(1, 0), Err(QuotaError::Window));
        assert_eq!(Quota::fixed_window(MAX + 1, 1), Err(QuotaError::Overflow));
        assert!(Quota::fixed_window(0, 1).is_ok());
        assert!(Quota::sliding_window(0, MAX_WINDOW).is_ok());
        assert_eq!(
            Quota::sliding_window(1, MAX_WINDOW + 1),
            Err(QuotaError::Window)
        );
        assert_eq!(Quota::sliding_log(MAX_LOG + 1, 1), Err(QuotaError::Log));
        assert_eq!(Quota::token_bucket(0, 1, 1), Err(QuotaError::NoRate));
        assert_eq!(Quota::token_bucket(1, 1, 0), Err(QuotaError::Capacity));
        assert_eq!(Quota::token_bucket(1, DAY, MAX), Err(QuotaError::Overflow));
        assert_eq!(Quota::leaky_bucket(0, 1, 1), Err(QuotaError::NoRate));
        assert_eq!(
            Quota::leaky_bucket(1, 1, MAX_WINDOW + 1),
            Err(QuotaError::Delay)
        );
        assert_eq!(
            Quota::leaky_bucket(2, 1_000_000, 0).map(|quota| quota.capacity()),
            Ok(1)
        );
    }

    proptest! {
        #[test]
        fn a_rounded_rate_is_never_above_what_was_written_and_close(
            tokens in prop_oneof![1..100u64, 1..2_000_000_000u64],
            window in prop_oneof![1..1_000_000u64, DAY - 1000..DAY + 1000, 1..=MAX_WINDOW],
            room in prop_oneof![1..100_000u64, 1..MAX],
            queue: bool,
        ) {
            let rate = if queue {
                Rate::for_queue(tokens, window, room.min(MAX_WINDOW))
            } else {
                Rate::new(tokens, window, room)
            };
            if let Ok(rate) = rate {
                let got = u128::from(rate.tokens()) * u128::from(window);
                let written = u128::from(tokens) * u128::from(rate.period());
                prop_assert!(got <= written);
                prop_assert!((written - got) * 1_000 < written, "{rate:?}");
                if queue {
                    let max_delay = room.min(MAX_WINDOW);
                    prop_assert!(queue_full(max_delay, rate) + rate.tokens() <= MAX);
                } else {
                    prop_assert!(room * rate.period() + rate.tokens() <= MAX);
                }
            }
        }

        #[test]
        fn ordinary_limits_always_fit(
            tokens in 1..=1_000_000u64,
            unit in prop_oneof![Just(1_000_000u64), Just(60_000_000), Just(3_600_000_000), Just(DAY)],
        ) {
            prop_assert!(Rate::new(tokens, unit, tokens).is_ok());
            prop_assert!(Rate::for_queue(tokens, unit, 60_000_000).is_ok());
        }
    }
}
