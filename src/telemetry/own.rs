//! Our own instruments of the whole process, beside those of rules and stores.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet},
    metrics::MetricType,
};

use super::buckets::{Buckets, LATENCY};
use crate::time::{SECOND, Timestamp};

/// The instruments.
#[derive(Debug)]
pub(super) struct Own {
    pub(super) decision_time: Buckets,
    pub(super) store_time: Buckets,
    pub(super) deny_cache_hits: AtomicU64,
    pub(super) unmatched: AtomicU64,
    pub(super) loads: AtomicU64,
    pub(super) refused_loads: AtomicU64,
    loaded_at: AtomicU64,
}

impl Default for Own {
    fn default() -> Self {
        Self {
            decision_time: Buckets::new(LATENCY),
            store_time: Buckets::new(LATENCY),
            deny_cache_hits: AtomicU64::new(0),
            unmatched: AtomicU64::new(0),
            loads: AtomicU64::new(0),
            refused_loads: AtomicU64::new(0),
            loaded_at: AtomicU64::new(0),
        }
    }
}

impl Own {
    pub(super) fn loaded(&self, now: Timestamp) {
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.loaded_at.store(now.as_micros(), Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused_loads.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

impl Collector for Own {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        for (name, help, count) in [
            (
                "palang_deny_cache_hits",
                "Counters answered from the memory of refusals",
                &self.deny_cache_hits,
            ),
            (
                "palang_unmatched_descriptors",
                "Descriptors that no rule of their domain applies to",
                &self.unmatched,
            ),
        ] {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, u64, f64>(&count.load(Ordering::Relaxed), None)?;
        }
        let mut family = encoder.encode_descriptor(
            "palang_rule_loads",
            "Loads of rules, by result",
            None,
            MetricType::Counter,
        )?;
        for (result, count) in [("ok", &self.loads), ("refused", &self.refused_loads)] {
            family
                .encode_family(&ResultLabel { result })?
                .encode_counter::<NoLabelSet, u64, f64>(&count.load(Ordering::Relaxed), None)?;
        }
        encoder
            .encode_descriptor(
                "palang_rules_loaded_timestamp_seconds",
                "When rules were put in force last",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&(self.loaded_at.load(Ordering::Relaxed) / SECOND))
    }
}
