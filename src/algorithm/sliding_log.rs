//! Sliding log: the time of each hit. Exact, at the price of one entry a hit.
//!
//! An entry counts while `t > now - W`: one that is exactly W old is gone. With S the entries that count:
//! - allowed: `S + n <= L`, then n entries are appended at `max(now, newest)`, so that the log keeps its order
//! - remaining = `max(0, L - S)`; reset = `newest + W - now`
//! - retry(n) = `t_j + W - now`, j = `S + n - L` the oldest entries that have to go
//!
//! Expired entries leave when something is written, never on a peek or a refusal. Entries more than W ahead of now
//! come from a clock that jumped forward and back, and are dropped by [`mend`]. Twin, without the answer:
//! `lua/sliding_log.lua`, where the log is a list in the store.

use std::collections::VecDeque;

use super::{Outcome, Source, given, taken};

/// What changes in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Entries that leave at the old end.
    pub evict: usize,
    /// Entries that leave at the new end.
    pub pop: usize,
    /// Entries that are appended,
    pub push: usize,
    /// each at this time, microseconds.
    pub at: u64,
    /// Microseconds from now until the last entry has expired.
    pub expiry: u64,
}

impl Edit {
    /// Makes the change.
    pub fn apply(&self, log: &mut VecDeque<u64>) {
        log.drain(..self.evict);
        log.truncate(log.len() - self.pop);
        log.extend(std::iter::repeat_n(self.at, self.push));
    }
}

/// The change that drops entries more than `window` ahead of `now`, if there are any.
pub fn mend(log: &VecDeque<u64>, window: u64, now: u64) -> Option<Edit> {
    let pop = log
        .iter()
        .rev()
        .take_while(|at| **at > now + window)
        .count();
    let newest = log.len().checked_sub(pop + 1).map(|last| log[last]);
    (pop > 0).then_some(Edit {
        evict: 0,
        pop,
        push: 0,
        at: now,
        expiry: newest.map_or(0, |newest| (newest + window).saturating_sub(now)),
    })
}

/// Decides `hits` at `now` on a log without entries from ahead. `None` when nothing changed.
pub fn take(
    log: &VecDeque<u64>,
    limit: u64,
    window: u64,
    hits: i64,
    now: u64,
) -> (Outcome, Option<Edit>) {
    let expired = log.partition_point(|at| at + window <= now);
    let mut newest = log.back().copied().unwrap_or(0);
    let at = now.max(newest);
    let mut sum = (log.len() - expired) as u64;

    let before = sum;
    let n = if hits == 0 { 1 } else { taken(hits) };
    let allowed = hits < 0 || sum + n <= limit;
    let mut push = 0;
    let mut pop = 0;
    if hits > 0 && allowed {
        push = n;
        sum += n;
        newest = at;
    } else if hits < 0 {
        pop = given(hits).min(sum);
        sum -= pop;
        if sum > 0 {
            newest = log[expired + sum as usize - 1];
        }
    }

    // The entry at `index` of those that count, the appended ones included.
    let entry = |index: u64| {
        let index = expired + index as usize;
        if index < log.len() { log[index] } else { at }
    };
    let remaining = limit.saturating_sub(sum);
    let until = |n: u64| (n <= limit).then(|| entry(sum + n - limit - 1) + window - now);
    let reset = if sum > 0 { newest + window - now } else { 0 };
    let outcome = Outcome {
        allowed,
        remaining,
        reset_after: reset,
        retry_after: if allowed { Some(0) } else { until(n) },
        next_after: if sum > 0 { until(remaining + 1) } else { None },
        delay: 0,
        used: sum,
        source: Source::Counter,
        basis: None,
    };
    let changed = (sum != before).then_some(Edit {
        evict: expired,
        pop: pop as usize,
        push: push as usize,
        at,
        expiry: reset,
    });
    (outcome, changed)
}
