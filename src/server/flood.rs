//! Tells a flood of resets from callers that give up: a flood takes its calls back at once, and nothing of it is ever
//! answered.
//!
//! The libraries' own bound counts calls that were reset before they were looked at. A worker looks at them at once, so
//! that bound is never reached, and each costs what a call costs.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::Notify;

/// Who gives up waits first: Envoy 20 ms. A call that was open for longer is no part of a flood.
const AT_ONCE: Duration = Duration::from_millis(5);

/// That many resets within [`WINDOW`] are a flood, if ten times fewer calls were answered. A proxy that gives up on all
/// its calls for a moment resets hundreds.
const RESETS: usize = 5_000;

const WINDOW: Duration = Duration::from_secs(2);

/// The resets of one connection.
#[derive(Debug, Default)]
pub(super) struct Flood {
    window: Mutex<Option<Window>>,
    is_seen: AtomicBool,
    seen: Notify,
}

#[derive(Debug)]
struct Window {
    since: Instant,
    resets: usize,
}

impl Flood {
    /// Counts the reset of a call that was open for `age`, on a connection that has had so many answers since the last
    /// look.
    pub(super) fn reset(&self, age: Duration, answered: &AtomicUsize) {
        if age > AT_ONCE {
            return;
        }
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = || Window {
            since: Instant::now(),
            resets: 0,
        };
        let open = window.get_or_insert_with(|| {
            answered.store(0, Ordering::Relaxed);
            fresh()
        });
        open.resets += 1;
        if open.resets < RESETS {
            return;
        }
        let quick = open.since.elapsed() < WINDOW;
        let few = answered.swap(0, Ordering::Relaxed) * 10 < open.resets;
        *open = fresh();
        if quick && few {
            self.is_seen.store(true, Ordering::Relaxed);
            self.seen.notify_one();
        }
    }

    /// Was there one?
    pub(super) fn is_seen(&self) -> bool {
        self.is_seen.load(Ordering::Relaxed)
    }

    /// Waits for a flood.
    pub(super) async fn seen(&self) {
        self.seen.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn is_flood(answers_each_ten: usize) -> bool {
        let (flood, answered) = (Flood::default(), AtomicUsize::new(0));
        for number in 0..RESETS {
            flood.reset(Duration::ZERO, &answered);
            if number % 10 == 0 {
                answered.fetch_add(answers_each_ten, Ordering::Relaxed);
            }
        }
        flood.seen().now_or_never().is_some()
    }

    #[test]
    fn resets_without_answers_are_a_flood_and_calls_given_up_are_not() {
        assert!(is_flood(0));
        assert!(!is_flood(2));
        let (flood, answered) = (Flood::default(), AtomicUsize::new(0));
        for _ in 0..RESETS - 1 {
            flood.reset(Duration::ZERO, &answered);
        }
        assert!(flood.seen().now_or_never().is_none());
        // However many they are: they waited.
        for _ in 0..3 * RESETS {
            flood.reset(Duration::from_millis(20), &answered);
        }
        assert!(!flood.is_seen());
    }
}
