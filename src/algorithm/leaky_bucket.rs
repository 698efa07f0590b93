//! Leaky bucket as a queue: a slot each P/R microseconds, and a hit waits for its own, at most D.
//!
//! Kept as a debt, see [`super::debt`]: what is owed is the time until the next free slot.
//! - delay = `wait + ceil(d/R)`; allowed: `delay <= D`, then `d += n*P`: n hits take n slots after their start
//! - remaining = `floor(((D - wait)*R - d)/P) + 1`, 0 when the delay is over D
//! - retry = `delay - D`; reset = `wait + ceil(d/R)`
//!
//! As a meter (no D) a leaky bucket is a token bucket. Twin, without the answer: `lua/leaky_bucket.lua`.

use super::{
    Outcome, Rate, Source,
    debt::{self, Debt},
    given,
    quota::{queue_capacity, queue_full},
    taken,
};

/// Decides `hits` at `now`; see [`super::fixed_window::take`] for what is returned.
pub fn take(
    state: Option<Debt>,
    max_delay: u64,
    rate: Rate,
    hits: i64,
    now: u64,
) -> (Outcome, Option<(Debt, u64)>) {
    let capacity = queue_capacity(max_delay, rate);
    let full = queue_full(max_delay, rate);
    let mut debt = debt::settle(state, full, rate, now);

    let before = debt.amount;
    let n = taken(hits);
    let delay = debt.reset(rate);
    let allowed = hits < 0 || n <= capacity && delay <= max_delay;
    if hits > 0 && allowed {
        debt.amount += n * rate.period();
    } else if hits < 0 {
        debt.give_back(given(hits), rate);
    }

    let used = debt.amount.div_ceil(rate.period());
    let reset = debt.reset(rate);
    let remaining = if reset <= max_delay {
        ((max_delay - debt.wait) * rate.tokens() - debt.amount) / rate.period() + 1
    } else {
        0
    };
    let next =
        debt.wait + (debt.amount + remaining * rate.period()).div_ceil(rate.tokens()) - max_delay;
    let outcome = Outcome {
        allowed,
        remaining,
        reset_after: reset,
        retry_after: if allowed {
            Some(0)
        } else {
            (n <= capacity).then(|| delay - max_delay)
        },
        // With a D between two slots all slots may be free while something is still owed.
        next_after: (used > 0 && remaining < capacity).then_some(next),
        delay: if allowed && hits >= 0 { delay } else { 0 },
        used,
        source: Source::Counter,
        basis: None,
    };
    let changed = (debt.amount != before).then(|| debt.keep(rate));
    (outcome, changed)
}

/// `state` brought back to `now` if it is too far ahead, with its expiry; see [`super::mend`].
pub fn mend(state: Debt, max_delay: u64, rate: Rate, now: u64) -> Option<(Debt, u64)> {
    debt::mend(state, queue_full(max_delay, rate), rate, now)
}
