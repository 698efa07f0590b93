//! Fixed window: a count that starts anew at each multiple of the window.
//!
//! With `k = floor(now / W)` the window is `[k*W, (k+1)*W)`. State: the window's start and the count c.
//! - allowed: `c + n <= L`, then `c += n`; a refused call adds n too where refused hits count
//! - remaining = `max(0, L - c)`; reset = retry = next = the time to the window's end
//!
//! The start is in the value, not in the key, so an older window never reopens when the clock steps back. A start
//! more than W ahead of now is dropped: the clock had jumped forward. Twin, without the answer: `lua/fixed_window.lua`.

use super::{GRACE, MAX, Outcome, Refused, Source, given, taken};

/// What a fixed window keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Start of the window, microseconds.
    pub start: u64,
    /// Hits counted in it, 0 to [`MAX`].
    pub count: u64,
}

/// Decides `hits` at `now`. The second part is the new state and the microseconds after which it can be forgotten;
/// `None` when nothing changed.
pub fn take(
    state: Option<State>,
    limit: u64,
    window: u64,
    hits: i64,
    now: u64,
    refused: Refused,
) -> (Outcome, Option<(State, u64)>) {
    let mut start = now - now % window;
    let mut count = 0;
    if let Some(stored) = state {
        let stored_start = stored.start - stored.start % window;
        if stored_start >= start && stored_start <= now + window {
            start = stored_start;
            count = stored.count;
        }
    }
    let reset = start + window - now;

    let before = count;
    let n = taken(hits);
    let allowed = if hits > 0 {
        let allowed = count + n <= limit;
        if allowed || refused == Refused::Counted {
            count = (count + n).min(MAX);
        }
        allowed
    } else if hits == 0 {
        match refused {
            Refused::Counted => count <= limit,
            Refused::Free => count < limit,
        }
    } else {
        count = count.saturating_sub(given(hits));
        true
    };

    let retry = if allowed {
        Some(0)
    } else if n <= limit && (limit > 0 || refused == Refused::Counted) {
        Some(reset)
    } else {
        None
    };
    let outcome = Outcome {
        allowed,
        remaining: limit.saturating_sub(count),
        reset_after: reset,
        retry_after: retry,
        next_after: (count > 0 && limit > 0).then_some(reset),
        delay: 0,
        used: count,
        source: Source::Counter,
        basis: None,
    };
    let changed = (count != before).then_some((State { start, count }, reset + GRACE));
    (outcome, changed)
}
