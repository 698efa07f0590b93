//! A histogram of whole numbers that many threads add to at once: nothing but atomic additions, where
//! prometheus-client's takes a lock for each value.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

/// Bounds of latencies, microseconds: 50 us to 100 ms.
pub(super) const LATENCY: Bounds = Bounds {
    bounds: &[
        50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 20_000, 50_000, 100_000,
    ],
    scale: 1e6,
};

/// Bounds of shares, thousandths.
pub(super) const SHARE: Bounds = Bounds {
    bounds: &[100, 250, 500, 750, 900, 950, 1_000],
    scale: 1e3,
};

/// Upper bounds, rising, and what to divide them by for display.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    bounds: &'static [u64],
    scale: f64,
}

/// The histogram.
#[derive(Debug)]
pub(super) struct Buckets {
    bounds: Bounds,
    /// One for each bound, and one for what is above the last.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Buckets {
    pub(super) fn new(bounds: Bounds) -> Self {
        let places = bounds.bounds.len() + 1;
        Self {
            bounds,
            counts: (0..places).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    pub(super) fn observe(&self, value: u64) {
        let bounds = self.bounds.bounds;
        let place = bounds
            .iter()
            .position(|bound| value <= *bound)
            .unwrap_or(bounds.len());
        self.counts[place].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts
            .iter()
            .all(|count| count.load(Ordering::Relaxed) == 0)
    }

    pub(super) fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let scale = self.bounds.scale;
        let bounds = self.bounds.bounds.iter().map(|bound| *bound as f64 / scale);
        let buckets: Vec<(f64, u64)> = bounds
            .chain([f64::INFINITY])
            .zip(self.counts.iter())
            .map(|(bound, count)| (bound, count.load(Ordering::Relaxed)))
            .collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = self.sum.load(Ordering::Relaxed) as f64 / scale;
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_falls_into_the_first_bucket_that_holds_it() {
        let buckets = Buckets::new(LATENCY);
        assert!(buckets.is_empty());
        for value in [0, 50, 51, 100_000, 100_001] {
            buckets.observe(value);
        }
        let counts: Vec<u64> = buckets
            .counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .collect();
        assert_eq!(counts, [2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!(buckets.sum.load(Ordering::Relaxed), 200_102);
    }
}
