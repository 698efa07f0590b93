//! Time as a value: microseconds since the Unix epoch, and where they come from.
//!
//! Nothing else in the crate reads a clock. A caller never brings its own time to a store: Redis answers by its
//! `TIME`, the memory store by the [`Clock`] it was made with, and tests hold a manual one.

use std::{
    hash::{BuildHasher as _, Hasher as _, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// Microseconds of one second.
pub const SECOND: u64 = 1_000_000;

/// A point in time: microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The point `micros` microseconds after the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }
}

/// Until when an answer is of use to whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// No end: the caller waits for ever, or did not say.
    pub const NEVER: Self = Self(None);

    /// That long from now. What is too far away to be counted never comes.
    pub fn after(time: Duration) -> Self {
        Self(Instant::now().checked_add(time))
    }

    /// So much earlier; [`Deadline::NEVER`] stays.
    #[must_use]
    pub fn earlier_by(self, time: Duration) -> Self {
        // An instant that cannot be told is long past: so is the time of the start of the process.
        Self(self.0.map(|at| at.checked_sub(time).unwrap_or(at)))
    }

    /// The instant itself, if there is one.
    pub const fn instant(self) -> Option<Instant> {
        self.0
    }

    /// Time until then, zero when it is past; `None` when it never comes.
    pub fn left(self) -> Option<Duration> {
        self.0
            .map(|at| at.saturating_duration_since(Instant::now()))
    }

    /// Whether it is over.
    pub fn is_past(self) -> bool {
        self.0.is_some_and(|at| at <= Instant::now())
    }
}

/// `time` give or take `share` of it, so that what began together does not go on together.
pub fn jittered(time: Duration, share: f64) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 2_001;
    time.mul_f64(1.0 - share + share * random as f64 / 1_000.0)
}

/// A source of [`Timestamp`]s. Cloning it gives another handle on the same clock.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    /// Wall time was read once; from there on the monotonic clock counts, so a step of the wall clock moves nothing.
    Anchored {
        wall: u64,
        since: Instant,
    },
    Manual(Arc<AtomicU64>),
}

impl Clock {
    /// A monotonic clock, anchored to wall time at this call.
    pub fn system() -> Self {
        // A wall clock before 1970 reads as 1970: windows are then aligned to that, and still move on.
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or(Duration::ZERO);
        Self(Source::Anchored {
            wall: micros(wall),
            since: Instant::now(),
        })
    }

    /// A clock that stands at `start` until [`Clock::set`] moves it.
    pub fn manual(start: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(AtomicU64::new(start.0))))
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::Anchored { wall, since } => {
                Timestamp(wall.saturating_add(micros(since.elapsed())))
            }
            Source::Manual(at) => Timestamp(at.load(Ordering::Relaxed)),
        }
    }

    /// Moves a manual clock, forward or back. A system clock cannot be moved: the call changes nothing there.
    pub fn set(&self, to: Timestamp) {
        if let Source::Manual(at) = &self.0 {
            at.store(to.0, Ordering::Relaxed);
        }
    }

    /// The time of a manual clock, `None` on a system clock: the Redis store pins its script to it in tests.
    pub fn pinned(&self) -> Option<Timestamp> {
        match &self.0 {
            Source::Anchored { .. } => None,
            Source::Manual(_) => Some(self.now()),
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_system_clock_never_steps_back() {
        let clock = Clock::system();
        let first = clock.now();
        assert!(clock.now() >= first);
        assert!(first.as_micros() > 1_700_000_000 * SECOND);
        clock.set(Timestamp::from_micros(0));
        assert!(clock.now() >= first);
        assert_eq!(clock.pinned(), None);
    }

    #[test]
    fn handles_of_a_manual_clock_move_together() {
        let clock = Clock::manual(Timestamp::from_micros(7));
        let other = clock.clone();
        other.set(Timestamp::from_micros(3));
        assert_eq!(clock.now().as_micros(), 3);
        assert_eq!(clock.pinned(), Some(Timestamp::from_micros(3)));
    }
}
