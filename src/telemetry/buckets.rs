//! A histogram of whole numbers that many threads add to at once: nothing but atomic additions, where
//! prometheus-client's takes a lock for each value. For each bucket it remembers the trace of one call, if calls are
//! followed.

use std::{
    fmt::{self, Write as _},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use prometheus_client::encoding::{MetricEncoder, NoLabelSet};

use super::exposition::typed_head;
use crate::time::Timestamp;

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

/// Whether traces are written beside the buckets. There is room for them in OpenMetrics only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Examples {
    Shown,
    Hidden,
}

/// A call that fell into a bucket.
#[derive(Clone, Debug)]
struct Example {
    trace: Box<str>,
    value: u64,
    at: Timestamp,
}

/// The histogram.
#[derive(Debug)]
pub(super) struct Buckets {
    bounds: Bounds,
    /// One for each bound, and one for what is above the last.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
    /// The last followed call of each bucket.
    examples: Mutex<Box<[Option<Example>]>>,
}

impl Buckets {
    pub(super) fn new(bounds: Bounds) -> Self {
        let places = bounds.bounds.len() + 1;
        Self {
            bounds,
            counts: (0..places).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
            examples: Mutex::new(vec![None; places].into()),
        }
    }

    pub(super) fn observe(&self, value: u64) {
        self.counts[self.place(value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Remembers the trace of a call that took `value` and ended now. Only calls that are followed come here.
    pub(super) fn example(&self, value: u64, trace: &str, now: Timestamp) {
        let mut examples = self.examples.lock().unwrap_or_else(PoisonError::into_inner);
        examples[self.place(value)] = Some(Example {
            trace: trace.into(),
            value,
            at: now,
        });
    }

    fn place(&self, value: u64) -> usize {
        let mut bounds = self.bounds.bounds.iter();
        bounds
            .position(|bound| value <= *bound)
            .unwrap_or(self.bounds.bounds.len())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts
            .iter()
            .all(|count| count.load(Ordering::Relaxed) == 0)
    }

    pub(super) fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let buckets = self.buckets();
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum(), count, &buckets, None)
    }

    /// Writes it as text, with the traces where they are `Shown`: prometheus-client has no way to hand it an example.
    pub(super) fn write(&self, text: &mut String, name: &str, help: &str, examples: Examples) {
        typed_head(text, name, help, "histogram");
        let known = match examples {
            Examples::Hidden => Vec::new(),
            Examples::Shown => {
                let known = self.examples.lock().unwrap_or_else(PoisonError::into_inner);
                known.to_vec()
            }
        };
        let mut below = 0;
        for (place, (bound, count)) in self.buckets().into_iter().enumerate() {
            below += count;
            let bound = if bound.is_finite() {
                bound.to_string()
            } else {
                "+Inf".to_owned()
            };
            // A String takes every write.
            let _ = write!(text, "{name}_bucket{{le=\"{bound}\"}} {below}");
            if let Some(Some(Example { trace, value, at })) = known.get(place) {
                let value = *value as f64 / self.bounds.scale;
                let at = at.as_micros() as f64 / 1e6;
                let _ = write!(text, " # {{trace_id=\"{trace}\"}} {value} {at}");
            }
            text.push('\n');
        }
        let _ = writeln!(text, "{name}_sum {}\n{name}_count {below}", self.sum());
    }

    /// Each bound and what fell below it and above the one before.
    fn buckets(&self) -> Vec<(f64, u64)> {
        let scale = self.bounds.scale;
        let bounds = self.bounds.bounds.iter().map(|bound| *bound as f64 / scale);
        bounds
            .chain([f64::INFINITY])
            .zip(self.counts.iter())
            .map(|(bound, count)| (bound, count.load(Ordering::Relaxed)))
            .collect()
    }

    fn sum(&self) -> f64 {
        self.sum.load(Ordering::Relaxed) as f64 / self.bounds.scale
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_stand_beside_their_bucket_where_there_is_room() {
        let buckets = Buckets::new(LATENCY);
        buckets.observe(60);
        buckets.observe(200_000);
        buckets.example(60, "4bf9", Timestamp::from_micros(1_500_000));
        let mut text = String::new();
        buckets.write(&mut text, "t", "Time", Examples::Shown);
        let line = "t_bucket{le=\"0.0001\"} 1 # {trace_id=\"4bf9\"} 0.00006 1.5\n";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("t_bucket{le=\"+Inf\"} 2\nt_sum 0.20006\nt_count 2\n"));
        text.clear();
        buckets.write(&mut text, "t", "Time", Examples::Hidden);
        assert!(!text.contains('4'), "{text}");
    }

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
