//! Sliding window: the last W microseconds, estimated from two aligned windows.
//!
//! State: the start of this window, its count c, the count p of the one before. With w the time this window still
//! has, `w = start + W - now`, the estimate is `c + p * w / W`:
//! - allowed: `p*w + (c + n)*W <= L*W`, that is `c + n <= L` and `w <= floor((L - c - n)*W / p)`
//! - remaining = `max(0, L - c - ceil(p*w / W))`
//! - retry: the moment w has shrunk that far; if this window alone is too full, the same in the next one, where
//!   `p' = c` and `c' = 0`
//! - reset: the end of this window, or of the next when c > 0
//!
//! Where `L*W` or `p*W` would pass 2^53, time is counted in ticks of u microseconds, `u = ceil(W / M)` with
//! `M = floor(MAX / max(L, p))`: W in ticks rounds down, w rounds up and is at most W, so a coarse tick refuses
//! a little longer and never admits more. Twin, without the answer: `lua/sliding_window.lua`.

use super::{GRACE, MAX, Outcome, Source, given, taken};

/// What a sliding window keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Start of the current window, microseconds.
    pub start: u64,
    /// Hits taken in it, 0 to [`MAX`].
    pub count: u64,
    /// Hits taken in the window before it, 0 to [`MAX`].
    pub previous: u64,
}

/// Decides `hits` at `now`; see [`super::fixed_window::take`] for what is returned.
pub fn take(
    state: Option<State>,
    limit: u64,
    window: u64,
    hits: i64,
    now: u64,
) -> (Outcome, Option<(State, u64)>) {
    let mut start = now - now % window;
    let mut count = 0;
    let mut previous = 0;
    if let Some(stored) = state {
        let stored_start = stored.start - stored.start % window;
        if stored_start >= start && stored_start <= now + window {
            start = stored_start;
            count = stored.count;
            previous = stored.previous;
        } else if stored_start + window == start {
            previous = stored.count;
        }
    }
    // A clock that stepped back before the window's start stands at the start.
    let wait = start.saturating_sub(now);
    let left = start + window - now.max(start);

    let tick = tick(limit, previous, window);
    let whole = window / tick;
    let part = left.div_ceil(tick).min(whole);
    let weighted = (previous * part).div_ceil(whole);

    let before = count;
    let n = if hits == 0 { 1 } else { taken(hits) };
    let allowed = if hits >= 0 {
        count + n <= limit && weighted <= limit - count - n
    } else {
        true
    };
    if hits > 0 && allowed {
        count += n;
    } else if hits < 0 {
        count = count.saturating_sub(given(hits));
    }

    let remaining = limit.saturating_sub(count).saturating_sub(weighted);
    let until = |n| until(limit, window, count, previous, left, n).map(|after| wait + after);
    let used = (count + weighted).min(MAX);
    let reset = match (count, previous) {
        (0, 0) => 0,
        (0, _) => wait + left,
        _ => wait + left + window,
    };
    let outcome = Outcome {
        allowed,
        remaining,
        reset_after: reset,
        retry_after: if allowed { Some(0) } else { until(n) },
        next_after: if used > 0 { until(remaining + 1) } else { None },
        delay: 0,
        used,
        source: Source::Counter,
        basis: None,
    };
    let changed = (count != before).then_some((
        State {
            start,
            count,
            previous,
        },
        wait + left + window + GRACE,
    ));
    (outcome, changed)
}

/// The time until `n` more hits, refused now, are admitted; `None` when they are more than the limit.
fn until(limit: u64, window: u64, count: u64, previous: u64, left: u64, n: u64) -> Option<u64> {
    if n > limit {
        return None;
    }
    if count + n <= limit {
        let tick = tick(limit, previous, window);
        let fits = (limit - count - n) * (window / tick) / previous;
        return Some(left - fits * tick);
    }
    let tick = tick(limit, count, window);
    let fits = (limit - n) * (window / tick) / count;
    Some(left + window - fits * tick)
}

/// Microseconds of one tick: 1 unless a count times the window would pass [`MAX`].
fn tick(limit: u64, count: u64, window: u64) -> u64 {
    let most = MAX / limit.max(count).max(1);
    if window <= most {
        1
    } else {
        window.div_ceil(most)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{MAX_WINDOW, SECOND},
        *,
    };

    proptest! {
        #[test]
        fn a_coarse_tick_never_admits_what_the_exact_estimate_refuses(
            limit in prop_oneof![1..100u64, 1..=MAX],
            window in prop_oneof![Just(SECOND), 1..=MAX_WINDOW],
            part in 0.0..1.0f64,
            count in 0.0..1.0f64,
            previous in 0.0..1.0f64,
            n in 0.0..1.0f64,
        ) {
            let of = |whole: u64, part: f64| (whole as f64 * part) as u64;
            let start = window * (1_767_571_200 * SECOND / window);
            let state = State {
                start,
                count: of(limit, count),
                previous: of(limit, previous),
            };
            let n = of(limit - state.count, n).max(1);
            let now = start + of(window - 1, part);
            let (outcome, _) = take(Some(state), limit, window, n as i64, now);

            let left = u128::from(start + window - now);
            let weighted = u128::from(state.previous) * left;
            let asked = u128::from(state.count + n) * u128::from(window);
            let fits = weighted + asked <= u128::from(limit) * u128::from(window);
            if outcome.allowed {
                prop_assert!(fits);
            }
            if tick(limit, state.previous, window) == 1 {
                prop_assert_eq!(outcome.allowed, fits);
            }
        }
    }

    #[test]
    fn a_tick_is_fine_for_ordinary_limits() {
        let day = 86_400 * SECOND;
        assert_eq!(tick(104_249, 0, day), 1);
        assert_eq!(tick(1_000_000, 0, day), 10);
        assert_eq!(tick(1_000_000_000, 0, SECOND), 1);
    }
}
