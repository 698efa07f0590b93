//! Pure integer arithmetic: no clock, no I/O.
//!
//! Each algorithm is one file with its formulas and one `take`; its twin in `lua/` has the same names and the same
//! order of statements, up to the new state. The answer (remaining, reset, retry, next, delay) is worked out here alone,
//! for both stores; the script takes several equal hits at once, where `take` is asked as many times.
//!
//! What a call may do to a state: hits above 0 are charged if they are allowed, 0 looks and changes nothing, below 0
//! gives back what this counter holds, at most all of it. A refusal changes nothing, except where
//! [`Refused::Counted`] says so.

mod basis;
pub mod debt;
pub mod fixed_window;
pub mod leaky_bucket;
mod outcome;
mod quota;
pub mod sliding_log;
pub mod sliding_window;
pub mod token_bucket;

use std::collections::VecDeque;

pub use basis::Basis;
pub use outcome::{Outcome, Source};
pub use quota::{MAX_LOG, MAX_WINDOW, Quota, QuotaError, Rate};

use crate::time::{SECOND, Timestamp};

/// 2^53 - 1: the largest number a Lua double counts exactly, hence the bound of every count, time and product.
pub const MAX: u64 = (1 << 53) - 1;

/// Microseconds a window's state outlives the window, so that a clock a little behind still finds it.
const GRACE: u64 = SECOND;

/// What refused hits do to a fixed window. No other algorithm counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// They count too, up to [`MAX`], as envoyproxy/ratelimit does.
    Counted,
    /// They count nowhere.
    Free,
}

/// What a counter keeps between calls. No state is the state of a counter that nothing was taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Of a fixed window.
    FixedWindow(fixed_window::State),
    /// Of a sliding window.
    SlidingWindow(sliding_window::State),
    /// Of a sliding log: the times of its hits, oldest first. Boxed, so that the other states stay small.
    SlidingLog(Box<VecDeque<u64>>),
    /// Of a token bucket.
    TokenBucket(debt::Debt),
    /// Of a leaky bucket with a queue.
    LeakyBucket(debt::Debt),
}

/// One decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The answer.
    pub outcome: Outcome,
    /// `None` when the state is as it was, else the microseconds from now after which it can be forgotten.
    pub changed: Option<u64>,
}

/// The state belongs to another algorithm than the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign;

/// Decides `hits` against `quota` at `now` and brings `state` up to date.
///
/// The state must have gone through [`mend`] at this `now`.
///
/// # Errors
/// [`Foreign`], with `state` untouched.
pub fn take(
    state: &mut Option<State>,
    quota: &Quota,
    hits: i64,
    now: Timestamp,
    refused: Refused,
) -> Result<Taken, Foreign> {
    let now = now.as_micros();
    let (outcome, changed) = match (quota, &mut *state) {
        (&Quota::FixedWindow { limit, window }, None | Some(State::FixedWindow(_))) => {
            let old = match state {
                Some(State::FixedWindow(old)) => Some(*old),
                _ => None,
            };
            let (outcome, new) = fixed_window::take(old, limit, window, hits, now, refused);
            (
                outcome,
                new.map(|(new, expiry)| (State::FixedWindow(new), expiry)),
            )
        }
        (&Quota::SlidingWindow { limit, window }, None | Some(State::SlidingWindow(_))) => {
            let old = match state {
                Some(State::SlidingWindow(old)) => Some(*old),
                _ => None,
            };
            let (outcome, new) = sliding_window::take(old, limit, window, hits, now);
            (
                outcome,
                new.map(|(new, expiry)| (State::SlidingWindow(new), expiry)),
            )
        }
        (&Quota::TokenBucket { capacity, rate }, None | Some(State::TokenBucket(_))) => {
            let old = match state {
                Some(State::TokenBucket(old)) => Some(*old),
                _ => None,
            };
            let (outcome, new) = token_bucket::take(old, capacity, rate, hits, now);
            (
                outcome,
                new.map(|(new, expiry)| (State::TokenBucket(new), expiry)),
            )
        }
        (&Quota::LeakyBucket { max_delay, rate }, None | Some(State::LeakyBucket(_))) => {
            let old = match state {
                Some(State::LeakyBucket(old)) => Some(*old),
                _ => None,
            };
            let (outcome, new) = leaky_bucket::take(old, max_delay, rate, hits, now);
            (
                outcome,
                new.map(|(new, expiry)| (State::LeakyBucket(new), expiry)),
            )
        }
        (&Quota::SlidingLog { limit, window }, Some(State::SlidingLog(log))) => {
            let (outcome, edit) = sliding_log::take(log, limit, window, hits, now);
            return Ok(Taken {
                outcome,
                changed: edit.map(|edit| {
                    edit.apply(log);
                    edit.expiry
                }),
            });
        }
        (&Quota::SlidingLog { limit, window }, None) => {
            let mut log = VecDeque::new();
            let (outcome, edit) = sliding_log::take(&log, limit, window, hits, now);
            let new = edit.map(|edit| {
                edit.apply(&mut log);
                (State::SlidingLog(Box::new(log)), edit.expiry)
            });
            (outcome, new)
        }
        (_, Some(_)) => return Err(Foreign),
    };
    let changed = changed.map(|(new, expiry)| {
        *state = Some(new);
        expiry
    });
    Ok(Taken { outcome, changed })
}

/// Brings back a state that a clock which jumped forward, and back again, left far ahead of `now`.
///
/// Returns the microseconds after which the state can be forgotten if it was changed. This is the one thing that a
/// look or a refused call may write: without it a full bucket would stay full until `now` catches up. Windows need no
/// mending, they pass over such a state.
pub fn mend(state: &mut Option<State>, quota: &Quota, now: Timestamp) -> Option<u64> {
    let now = now.as_micros();
    match (quota, state) {
        (&Quota::TokenBucket { capacity, rate }, Some(State::TokenBucket(debt))) => {
            let (mended, expiry) = token_bucket::mend(*debt, capacity, rate, now)?;
            *debt = mended;
            Some(expiry)
        }
        (&Quota::LeakyBucket { max_delay, rate }, Some(State::LeakyBucket(debt))) => {
            let (mended, expiry) = leaky_bucket::mend(*debt, max_delay, rate, now)?;
            *debt = mended;
            Some(expiry)
        }
        (&Quota::SlidingLog { window, .. }, Some(State::SlidingLog(log))) => {
            let edit = sliding_log::mend(log, window, now)?;
            edit.apply(log);
            Some(edit.expiry)
        }
        _ => None,
    }
}

/// The hits a call takes. One more than [`MAX`] is already more than any counter can grant.
fn taken(hits: i64) -> u64 {
    u64::try_from(hits).unwrap_or(0).min(MAX + 1)
}

/// The hits a call gives back.
fn given(hits: i64) -> u64 {
    hits.min(0).unsigned_abs().min(MAX + 1)
}
