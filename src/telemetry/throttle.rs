//! Lets one of many equal events through to the log, so that an outage does not become a flood of lines.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::time::{Clock, SECOND};

/// Microseconds of a minute.
const MINUTE: u64 = 60 * SECOND;

/// Passes one event a second or a minute, and tells how many it held back since the last.
#[derive(Debug)]
pub struct Throttle {
    clock: Clock,
    every: u64,
    next: AtomicU64,
    held: AtomicU64,
}

impl Throttle {
    /// Passes the first event at once, and then one a second.
    pub fn new(clock: Clock) -> Self {
        Self::every(SECOND, clock)
    }

    /// Passes the first event at once, and then one a minute.
    pub fn by_the_minute(clock: Clock) -> Self {
        Self::every(MINUTE, clock)
    }

    fn every(every: u64, clock: Clock) -> Self {
        Self {
            clock,
            every,
            next: AtomicU64::new(0),
            held: AtomicU64::new(0),
        }
    }

    /// How many were held back, when this event may pass.
    pub fn pass(&self) -> Option<u64> {
        let now = self.clock.now().as_micros();
        let next = self.next.load(Ordering::Relaxed);
        let passes = now >= next
            && self
                .next
                .compare_exchange(next, now + self.every, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if passes {
            Some(self.held.swap(0, Ordering::Relaxed))
        } else {
            self.held.fetch_add(1, Ordering::Relaxed);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn one_event_a_second_passes() {
        let clock = Clock::manual(Timestamp::from_micros(SECOND));
        let throttle = Throttle::new(clock.clone());
        let passed = |_| throttle.pass();
        assert_eq!(
            (0..3).map(passed).collect::<Vec<_>>(),
            [Some(0), None, None]
        );
        clock.set(Timestamp::from_micros(2 * SECOND));
        assert_eq!((0..2).map(passed).collect::<Vec<_>>(), [Some(2), None]);
    }
}
