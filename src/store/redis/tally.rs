//! What lanes do, counted.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Upper bounds of the batches that [`super::Figures::batches`] counts.
pub const BATCHES: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Counts of all lanes of a process.
#[derive(Debug, Default)]
pub(super) struct Tally {
    batches: [AtomicU64; BATCHES.len() + 1],
    late: AtomicU64,
    /// Handed to a lane and not answered yet.
    pending: AtomicU64,
    in_flight: AtomicU64,
}

/// Counts something as being there until it is dropped.
#[derive(Debug)]
pub(super) struct Present {
    tally: Arc<Tally>,
    place: Place,
    count: u64,
}

#[derive(Clone, Copy, Debug)]
enum Place {
    Lane,
    Call,
}

impl Tally {
    /// A request that a lane was handed.
    pub(super) fn request(self: &Arc<Self>) -> Present {
        self.present(Place::Lane, 1)
    }

    /// A script call with that many requests.
    pub(super) fn call(self: &Arc<Self>, requests: u64) -> Present {
        let place = BATCHES.iter().position(|bound| requests <= *bound);
        self.batches[place.unwrap_or(BATCHES.len())].fetch_add(1, Ordering::Relaxed);
        self.present(Place::Call, requests)
    }

    /// An answer that nobody waited for any more.
    pub(super) fn late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    fn present(self: &Arc<Self>, place: Place, count: u64) -> Present {
        self.place(place).fetch_add(count, Ordering::Relaxed);
        Present {
            tally: Arc::clone(self),
            place,
            count,
        }
    }

    const fn place(&self, place: Place) -> &AtomicU64 {
        match place {
            Place::Lane => &self.pending,
            Place::Call => &self.in_flight,
        }
    }

    pub(super) fn batches(&self) -> [u64; BATCHES.len() + 1] {
        self.batches
            .each_ref()
            .map(|count| count.load(Ordering::Relaxed))
    }

    pub(super) fn lates(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// Requests in calls, and requests that wait for one.
    pub(super) fn pending(&self) -> (u64, u64) {
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        let pending = self.pending.load(Ordering::Relaxed);
        (in_flight, pending.saturating_sub(in_flight))
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let place = self.tally.place(self.place);
        place.fetch_sub(self.count, Ordering::Relaxed);
    }
}
