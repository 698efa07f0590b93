//! Token bucket: K tokens, refilled at R each P microseconds. Kept as a debt, see [`super::debt`].
//!
//! - allowed: `d + n*P <= K*P`, then `d += n*P`
//! - remaining = `K - ceil(d/P)`
//! - retry(n) = `wait + ceil((d + n*P - K*P)/R)`; reset = `wait + ceil(d/R)`
//!
//! wait is how far the state is ahead of a clock that stepped back. Twin, without the answer: `lua/token_bucket.lua`.

use super::{
    Outcome, Rate, Source,
    debt::{self, Debt},
    given, taken,
};

/// Decides `hits` at `now`; see [`super::fixed_window::take`] for what is returned.
pub fn take(
    state: Option<Debt>,
    capacity: u64,
    rate: Rate,
    hits: i64,
    now: u64,
) -> (Outcome, Option<(Debt, u64)>) {
    let full = capacity * rate.period();
    let mut debt = debt::settle(state, full, rate, now);

    let before = debt.amount;
    let n = if hits == 0 { 1 } else { taken(hits) };
    let allowed = hits < 0 || n <= capacity && debt.amount <= full - n * rate.period();
    if hits > 0 && allowed {
        debt.amount += n * rate.period();
    } else if hits < 0 {
        debt.give_back(given(hits), rate);
    }

    let used = debt.amount.div_ceil(rate.period());
    let remaining = capacity - used;
    let until = |n: u64| {
        (n <= capacity)
            .then(|| debt.wait + (debt.amount - (full - n * rate.period())).div_ceil(rate.tokens()))
    };
    let outcome = Outcome {
        allowed,
        remaining,
        reset_after: debt.reset(rate),
        retry_after: if allowed { Some(0) } else { until(n) },
        next_after: if used > 0 { until(remaining + 1) } else { None },
        delay: 0,
        used,
        source: Source::Counter,
        basis: None,
    };
    let changed = (debt.amount != before).then(|| debt.keep(rate));
    (outcome, changed)
}

/// `state` brought back to `now` if it is too far ahead, with its expiry; see [`super::mend`].
pub fn mend(state: Debt, capacity: u64, rate: Rate, now: u64) -> Option<(Debt, u64)> {
    debt::mend(state, capacity * rate.period(), rate, now)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The generic cell rate algorithm, written down on its own: one number, the theoretical arrival time.
        #[test]
        fn decides_as_gcra_does(
            capacity in 1..20u64,
            spacing in 1..1_000_000u64,
            steps in prop::collection::vec((0..2_000_000u64, 0..25i64), 1..60),
        ) {
            let rate = Rate::new(1, spacing, capacity).expect("fits");
            let mut now = 1_767_571_200_000_000;
            let mut arrival = now;
            let mut state = None;
            for (moved, hits) in steps {
                now += moved;
                let (outcome, changed) = take(state, capacity, rate, hits, now);
                state = changed.map(|(state, _)| state).or(state);

                arrival = arrival.max(now);
                let n = hits.max(1) as u64;
                let after = arrival + n * spacing;
                let allowed = after - now <= capacity * spacing;
                prop_assert_eq!(outcome.allowed, allowed);
                let retry = if allowed { Some(0) } else { Some(after - capacity * spacing - now) };
                prop_assert_eq!(outcome.retry_after, retry.filter(|_| n <= capacity));
                if allowed && hits > 0 {
                    arrival = after;
                }
                prop_assert_eq!(outcome.reset_after, arrival - now);
                prop_assert_eq!(outcome.remaining, (now + capacity * spacing - arrival) / spacing);
            }
        }
    }
}
