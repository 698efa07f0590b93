//! How long calls took, on the way from the workers to the statsd receiver.

use std::sync::{
    Mutex, OnceLock, PoisonError,
    atomic::{AtomicU64, Ordering},
    mpsc::{Receiver, SyncSender, sync_channel},
};

use crate::telemetry::metrics::Method;

/// Most calls whose time is kept between two reports. The others are told by the sample rate of those.
const MOST: usize = 4_096;

/// One call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) method: Method,
    pub(super) micros: u64,
}

/// A queue that nobody waits at: what does not fit is counted. Nothing is kept until somebody listens.
#[derive(Debug, Default)]
pub(in crate::telemetry) struct Timings {
    queue: OnceLock<Queue>,
    skipped: AtomicU64,
}

#[derive(Debug)]
struct Queue {
    calls: SyncSender<Timing>,
    taken: Mutex<Receiver<Timing>>,
}

impl Timings {
    /// Adds a call.
    pub(in crate::telemetry) fn add(&self, method: Method, micros: u64) {
        if let Some(queue) = self.queue.get()
            && queue.calls.try_send(Timing { method, micros }).is_err()
        {
            self.skipped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Keeps calls from now on.
    pub(super) fn listen(&self) {
        self.queue.get_or_init(|| {
            let (calls, taken) = sync_channel(MOST);
            Queue {
                calls,
                taken: Mutex::new(taken),
            }
        });
    }

    /// The calls since the last time, and how many more there were.
    pub(super) fn take(&self) -> (Vec<Timing>, u64) {
        let Some(queue) = self.queue.get() else {
            return (Vec::new(), 0);
        };
        let skipped = self.skipped.swap(0, Ordering::Relaxed);
        let taken = queue.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // No more than there can be: calls go on arriving.
        (taken.try_iter().take(MOST).collect(), skipped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_counted() {
        let timings = Timings::default();
        timings.add(Method::Check, 1);
        assert_eq!(timings.take().0.len(), 0, "nobody listens");
        timings.listen();
        for _ in 0..MOST + 3 {
            timings.add(Method::ShouldRateLimit, 420);
        }
        let (taken, skipped) = timings.take();
        assert_eq!((taken.len(), skipped), (MOST, 3));
        assert_eq!(timings.take().1, 0);
    }
}
