//! What a refusal was based on: enough to judge the same counter again a little later, without its store.

use super::{Quota, State, debt::Debt, fixed_window, sliding_window};
use crate::time::Timestamp;

/// A counter's state at the instant of a refusal. A sliding log has none: its state is as long as its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Basis {
    /// The instant, by the store's clock.
    pub at: Timestamp,
    /// The state's numbers, in the order the state has them; 0 where it has fewer.
    pub numbers: [u64; 3],
}

impl Basis {
    /// Of a state that refused at `at`.
    pub fn of(state: &State, at: Timestamp) -> Option<Self> {
        let numbers = match state {
            State::FixedWindow(state) => [state.start, state.count, 0],
            State::SlidingWindow(state) => [state.start, state.count, state.previous],
            State::TokenBucket(debt) | State::LeakyBucket(debt) => {
                [debt.amount, debt.at, debt.period]
            }
            State::SlidingLog(_) => return None,
        };
        Some(Self { at, numbers })
    }

    /// The state, as one of `quota`'s algorithm.
    pub fn state(&self, quota: &Quota) -> Option<State> {
        let [first, second, third] = self.numbers;
        let debt = Debt {
            amount: first,
            at: second,
            period: third,
        };
        Some(match quota {
            Quota::FixedWindow { .. } => State::FixedWindow(fixed_window::State {
                start: first,
                count: second,
            }),
            Quota::SlidingWindow { .. } => State::SlidingWindow(sliding_window::State {
                start: first,
                count: second,
                previous: third,
            }),
            Quota::TokenBucket { .. } => State::TokenBucket(debt),
            Quota::LeakyBucket { .. } => State::LeakyBucket(debt),
            Quota::SlidingLog { .. } => return None,
        })
    }
}
