//! How often connections are tried in vain: an outage must not become a storm of them.

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

#[derive(Debug)]
struct Saved {
    micros: u64,
    at: u64,
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
            }),
            clock,
            cost,
            most,
        }
    }

    /// May one be made now? It counts as made then.
    pub(super) fn pass(&self) -> bool {
        let now = self.clock.now().as_micros();
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
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

    /// The one that just passed led somewhere: it does not count.
    pub(super) fn went_well(&self) {
        let mut saved = self.saved.lock().unwrap_or_else(PoisonError::into_inner);
        saved.micros = saved.micros.saturating_add(self.cost).min(self.most);
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
        assert_eq!(made(), 3);
        dials.went_well();
        assert_eq!(made(), 1);
        clock.set(Timestamp::from_micros(SECOND + SECOND / EACH_SECOND));
        assert_eq!(made(), 1);
        clock.set(Timestamp::from_micros(60 * SECOND));
        assert_eq!(made(), 3);
    }
}
