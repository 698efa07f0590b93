//! How often connections are made while a server is in trouble: an outage must not become a storm of them.

use std::sync::{Mutex, PoisonError};

use crate::time::{Clock, SECOND};

/// Connections made each second in the long run.
const EACH_SECOND: u64 = 5;

/// Lets a few connections be made at once, and then few each second.
#[derive(Debug)]
pub(super) struct Dials {
    clock: Clock,
    /// Microseconds of waiting that one connection costs, and the most that can be saved up.
    cost: u64,
    most: u64,
    saved: Mutex<Saved>,
}

/// How long after a failure a server is taken to be in trouble, microseconds. A sound one may be dialled freely.
const TROUBLE: u64 = 2 * SECOND;

#[derive(Debug)]
struct Saved {
    micros: u64,
    at: u64,
    /// When a call failed last.
    failed: Option<u64>,
}

impl Dials {
    /// `at_once` connections may be made at once.
    pub(super) fn new(at_once: usize, clock: Clock) -> Self {
        let cost = SECOND / EACH_SECOND;
        let most = cost.saturating_mul(at_once.max(1) as u64);
        Self {
            saved: Mutex::new(Saved {
                micros: most,
                at: clock.now().as_micros(),
                failed: None,
            }),
            clock,
            cost,
            most,
        }
    }

    /// A call failed in a way that may mean trouble for all.
    pub(super) fn failed(&self) {
        let now = self.clock.now().as_micros();
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.failed = Some(now);
    }

    /// May one be made now? It counts as made then.
    pub(super) fn pass(&self) -> bool {
        let now = self.clock.now().as_micros();
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        let sound = |failed: u64| now.saturating_sub(failed) >= TROUBLE;
        if saved.failed.is_none_or(sound) {
            return true;
        }
        saved.micros = saved
            .micros
            .saturating_add(now.saturating_sub(saved.at))
            .min(self.most);
        saved.at = now;
        let passes = saved.micros >= self.cost;
        if passes {
            saved.micros -= self.cost;
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Timestamp;

    #[test]
    fn a_few_at_once_and_then_few_each_second() {
        let clock = Clock::manual(Timestamp::from_micros(SECOND));
        let dials = Dials::new(3, clock.clone());
        let made = || (0..100).filter(|_| dials.pass()).count();
        assert_eq!(made(), 100, "nothing is wrong");
        dials.failed();
        assert_eq!(made(), 3);
        clock.set(Timestamp::from_micros(SECOND + SECOND / EACH_SECOND));
        dials.failed();
        assert_eq!(made(), 1);
        clock.set(Timestamp::from_micros(60 * SECOND));
        assert_eq!(made(), 100, "it is long over");
    }
}
