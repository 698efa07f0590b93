//! The log of refusals: a sample, so many lines a second at most, and none unless asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::{SECOND, Timestamp};

/// Passes so many events a second, and tells how many it held back since the last that passed.
#[derive(Debug)]
pub(super) struct Denials {
    most: u64,
    second: AtomicU64,
    passed: AtomicU64,
    held: AtomicU64,
}

impl Denials {
    pub(super) fn new(most: u64) -> Self {
        Self {
            most,
            second: AtomicU64::new(0),
            passed: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    /// How many were held back, when this one may pass.
    pub(super) fn pass(&self, now: Timestamp) -> Option<u64> {
        if self.most == 0 {
            return None;
        }
        let second = now.as_micros() / SECOND;
        // The latest second any worker has seen: one that is behind must not begin an earlier one again.
        if self.second.fetch_max(second, Ordering::Relaxed) < second {
            self.passed.store(0, Ordering::Relaxed);
        }
        if self.passed.fetch_add(1, Ordering::Relaxed) < self.most {
            return Some(self.held.swap(0, Ordering::Relaxed));
        }
        self.held.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_a_second_pass() {
        let denials = Denials::new(2);
        let pass = |second: u64| denials.pass(Timestamp::from_micros(second * SECOND));
        let passed: Vec<_> = [1, 1, 1, 1, 2, 2, 2].map(pass).into();
        assert_eq!(
            passed,
            [Some(0), Some(0), None, None, Some(2), Some(0), None]
        );
        assert_eq!(pass(1), None, "a worker whose clock is behind");
        assert_eq!(pass(2), None, "the second does not begin again");
        assert_eq!(Denials::new(0).pass(Timestamp::from_micros(1)), None);
    }
}
