//! How long to wait before the next attempt: longer each time, and not the same on every replica.

use std::{
    hash::{BuildHasher, RandomState},
    time::Duration,
};

/// Whatever the settings say, attempts are never closer together than this on average.
const FLOOR: Duration = Duration::from_millis(100);

/// How waits grow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The first wait after a stream broke.
    pub initial: Duration,
    /// The first wait after the server could not be reached.
    pub unreachable: Duration,
    /// The longest wait.
    pub max: Duration,
    /// Each wait is this many times the one before.
    pub growth: f64,
    /// The part of a wait, from 0 to 1, of which chance takes away some: replicas that lost one server together do not
    /// come back together.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            initial: Duration::from_secs(10),
            unreachable: Duration::from_secs(3),
            max: Duration::from_secs(60),
            growth: 2.0,
            jitter: 0.5,
        }
    }
}

/// The attempts since it last went well.
#[derive(Debug)]
pub(super) struct Attempts {
    policy: Backoff,
    failed: i32,
}

impl Attempts {
    pub(super) const fn new(policy: Backoff) -> Self {
        Self { policy, failed: 0 }
    }

    pub(super) const fn reset(&mut self) {
        self.failed = 0;
    }

    /// The wait before the next attempt, when the first one is `first`.
    pub(super) fn wait(&mut self, first: Duration) -> Duration {
        let wait = self.whole(first);
        self.failed = self.failed.saturating_add(1);
        wait.mul_f64(1.0 - self.policy.jitter.clamp(0.0, 1.0) * chance())
    }

    fn whole(&self, first: Duration) -> Duration {
        let max = self.policy.max.max(FLOOR);
        let grown = first.max(FLOOR).as_secs_f64() * self.policy.growth.max(1.0).powi(self.failed);
        // Infinity has no duration; it is above the longest wait.
        Duration::try_from_secs_f64(grown).map_or(max, |wait| wait.min(max))
    }
}

/// From 0 to 1. The standard library's only source of chance, and good enough to spread replicas.
fn chance() -> f64 {
    let bits = RandomState::new().hash_one(0_u8) >> 32;
    f64::from(u32::try_from(bits).unwrap_or(u32::MAX)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Attempts, Backoff, FLOOR};

    #[test]
    fn waits_grow_to_the_longest_and_start_again() {
        let mut attempts = Attempts::new(Backoff {
            jitter: 0.0,
            ..Backoff::default()
        });
        let seconds = |attempts: &mut Attempts| attempts.wait(Duration::from_secs(10)).as_secs();
        for expected in [10, 20, 40, 60, 60] {
            assert_eq!(seconds(&mut attempts), expected);
        }
        for _ in 0..2_000 {
            assert_eq!(seconds(&mut attempts), 60);
        }
        attempts.reset();
        assert_eq!(seconds(&mut attempts), 10);
    }

    #[test]
    fn chance_shortens_a_wait_by_its_share_at_most() {
        let mut seen = Vec::new();
        for _ in 0..200 {
            let wait = Attempts::new(Backoff::default()).wait(Duration::from_secs(10));
            assert!((Duration::from_secs(5)..=Duration::from_secs(10)).contains(&wait));
            seen.push(wait);
        }
        seen.sort();
        seen.dedup();
        assert!(seen.len() > 100, "only {} different waits", seen.len());
    }

    #[test]
    fn no_setting_makes_it_hammer() {
        let zero = Backoff {
            initial: Duration::ZERO,
            unreachable: Duration::ZERO,
            max: Duration::ZERO,
            growth: 0.0,
            jitter: 0.0,
        };
        let mut attempts = Attempts::new(zero);
        for _ in 0..5 {
            assert_eq!(attempts.wait(Duration::ZERO), FLOOR);
        }
    }
}
