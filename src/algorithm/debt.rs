//! What both buckets keep: a debt that is worked off at a rate.
//!
//! A bucket refills R tokens each P microseconds. Its debt d is what it lacks to be full, in units of 1/P token, so
//! that one microsecond works off exactly R and one hit adds exactly P. No debt is the same as no state.
//!
//! - `d = max(0, d - (now - t)*R)`; a clock that steps back pauses this: `t = max(t, now)`
//! - Where the rate was changed, P differs from the one stamped on the state: the debt in tokens is kept (rounded up)
//!   and what is still to be worked off goes at the new rate. Where the capacity was cut, the debt is cut to it.
//! - A t so far ahead that even a full debt would be gone by then comes from a clock that jumped forward and back:
//!   it is set to now, see [`super::mend`].
//!
//! Twin: `lua/debt.lua`.

use super::{MAX, Rate};

/// What a bucket keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    /// d, in units of 1/`period` token, 0 to [`MAX`].
    pub amount: u64,
    /// t, the time for which `amount` is right, microseconds.
    pub at: u64,
    /// P of the rate it was counted with, at least 1.
    pub period: u64,
}

/// A debt as it stands now, in units of the quota's rate.
#[derive(Clone, Copy)]
pub(super) struct Settled {
    pub(super) amount: u64,
    pub(super) at: u64,
    /// How far `at` is ahead of now: nothing is worked off until then.
    pub(super) wait: u64,
}

impl Settled {
    /// Time until nothing is owed.
    pub(super) fn reset(&self, rate: Rate) -> u64 {
        if self.amount == 0 {
            0
        } else {
            self.wait + self.amount.div_ceil(rate.tokens())
        }
    }

    /// Gives `tokens` back, down to no debt.
    pub(super) fn give_back(&mut self, tokens: u64, rate: Rate) {
        if tokens >= self.amount.div_ceil(rate.period()) {
            self.amount = 0;
            self.wait = 0;
        } else {
            self.amount -= tokens * rate.period();
        }
    }

    /// The state to keep, and the microseconds after which it is as good as none.
    pub(super) fn keep(&self, rate: Rate) -> (Debt, u64) {
        let debt = Debt {
            amount: self.amount,
            at: self.at,
            period: rate.period(),
        };
        (debt, self.reset(rate))
    }
}

/// The debt at `now`, at most `full`.
pub(super) fn settle(state: Option<Debt>, full: u64, rate: Rate, now: u64) -> Settled {
    let none = Settled {
        amount: 0,
        at: now,
        wait: 0,
    };
    let Some(stored) = state else {
        return none;
    };
    let amount = convert(stored.amount, stored.period, full, rate.period());
    let elapsed = now.saturating_sub(stored.at);
    let amount = amount.saturating_sub(elapsed.saturating_mul(rate.tokens()));
    if amount == 0 {
        return none;
    }
    let at = stored.at.max(now);
    Settled {
        amount,
        at,
        wait: at - now,
    }
}

/// `state` brought back to `now` when it is further ahead than a full refill takes, with its expiry.
pub(super) fn mend(state: Debt, full: u64, rate: Rate, now: u64) -> Option<(Debt, u64)> {
    if state.at <= now + full.div_ceil(rate.tokens()) {
        return None;
    }
    let state = Debt { at: now, ..state };
    let settled = settle(Some(state), full, rate, now);
    Some((state, settled.reset(rate)))
}

/// A debt counted in units of 1/`from` token, in units of 1/`to`, rounded up, at most `full`.
fn convert(amount: u64, from: u64, full: u64, to: u64) -> u64 {
    if from == to {
        return amount.min(full);
    }
    let whole = amount / from;
    let mut part = amount % from;
    let mut unit = from;
    // The fraction loses its last bits, upwards, until the product below can be counted exactly.
    while part > MAX / to {
        part = part.div_ceil(2);
        unit = (unit / 2).max(1);
    }
    let part = (part * to).div_ceil(unit).min(to);
    if whole > full / to || part > full - whole * to {
        full
    } else {
        whole * to + part
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_debt_keeps_its_tokens_when_the_rate_changes(
            amount in prop_oneof![0..1_000_000u64, 0..=MAX],
            from in prop_oneof![1..1_000_000u64, 1..=MAX],
            to in prop_oneof![1..1_000_000u64, 1..=MAX],
            full in prop_oneof![1..1_000_000_000u64, 1..=MAX],
        ) {
            prop_assume!(full >= to);
            let got = convert(amount, from, full, to);
            prop_assert!(got <= full);
            let product = u128::from(amount) * u128::from(to);
            let exact = product.div_ceil(u128::from(from)).min(u128::from(full));
            if from == to {
                prop_assert_eq!(got, amount.min(full));
            }
            prop_assert!(u128::from(got) >= exact, "nothing is forgiven: {got} {exact}");
            // The halved fraction is off by a few parts of its own size, which is less than one token.
            prop_assert!(u128::from(got) - exact <= u128::from(to));
            if to <= 1_000_000 && from <= 1_000_000 {
                prop_assert_eq!(u128::from(got), exact);
            }
        }
    }

    #[test]
    fn nothing_owed_is_no_state() {
        let rate = Rate::new(2, 1_000_000, 5).expect("fits");
        let ahead = Debt {
            amount: 0,
            at: 900,
            period: rate.period(),
        };
        let settled = settle(Some(ahead), 5 * rate.period(), rate, 100);
        assert_eq!((settled.amount, settled.at, settled.wait), (0, 100, 0));
    }
}
