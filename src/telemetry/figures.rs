//! What the stores say of themselves, asked when the metrics are read.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, NoLabelSet},
    metrics::MetricType,
};

use crate::store::{
    Memory, Redis,
    deny_cache::Refusals,
    redis::{BATCHES, Figures},
};

/// The stores of the process. Each may be absent.
#[derive(Debug, Default)]
pub struct Stores {
    /// Counters in Redis.
    pub redis: Option<Redis>,
    /// Counters in this process.
    pub memory: Option<Arc<Memory>>,
    /// The memory of refusals.
    pub refusals: Option<Arc<Refusals>>,
}

/// Reads the stores' figures, once it knows them.
#[derive(Clone, Debug, Default)]
pub(super) struct StoreFigures(Arc<OnceLock<Stores>>);

impl StoreFigures {
    /// From now on these stores' figures are shown. A second call changes nothing.
    pub(super) fn watch(&self, stores: Stores) {
        let _ = self.0.set(stores);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

impl Collector for StoreFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(stores) = self.0.get() else {
            return Ok(());
        };
        let mut page = Page(&mut encoder);
        if let Some(redis) = &stores.redis {
            page.redis(&redis.figures())?;
        }
        if let Some(memory) = &stores.memory {
            page.gauge(
                "palang_memory_keys",
                "Counters kept in this process",
                memory.live_keys(),
            )?;
            page.counter(
                "palang_memory_evictions",
                "Counters forgotten before their time because there were too many",
                memory.evictions(),
            )?;
            page.counter(
                "palang_memory_expirations",
                "Counters forgotten after they had expired",
                memory.expirations(),
            )?;
        }
        if let Some(refusals) = &stores.refusals {
            page.gauge(
                "palang_deny_cache_entries",
                "Refusals remembered",
                refusals.len() as u64,
            )?;
            page.gauge(
                "palang_deny_cache_bytes",
                "Bytes of the refusals remembered",
                refusals.bytes(),
            )?;
        }
        Ok(())
    }
}

struct Page<'p, 'e>(&'p mut DescriptorEncoder<'e>);

impl Page<'_, '_> {
    fn redis(&mut self, figures: &Figures) -> Result<(), fmt::Error> {
        self.counter(
            "palang_redis_calls",
            "Script calls, failed ones included",
            figures.calls,
        )?;
        self.counter(
            "palang_redis_requests",
            "Requests in those calls: divided by the calls, the mean batch",
            figures.requests,
        )?;
        self.counter(
            "palang_redis_script_loads",
            "Times the script was put into Redis",
            figures.script_loads,
        )?;
        self.counter(
            "palang_redis_late_answers",
            "Answers that came after their caller had gone",
            figures.late,
        )?;
        self.gauge(
            "palang_redis_in_flight",
            "Requests in script calls that are not answered yet",
            figures.in_flight,
        )?;
        self.gauge(
            "palang_redis_queue",
            "Requests that wait for the next script call",
            figures.queued,
        )?;
        self.gauge(
            "palang_redis_pool_waiting",
            "Lanes that wait for a connection",
            figures.waiting as u64,
        )?;
        let mut family = self.0.encode_descriptor(
            "palang_redis_connections",
            "Open connections, by state; what is not idle is in use",
            None,
            MetricType::Gauge,
        )?;
        let in_use = figures.connections.saturating_sub(figures.idle);
        for (state, count) in [("idle", figures.idle), ("in_use", in_use)] {
            let label = StateLabel { state };
            family
                .encode_family(&label)?
                .encode_gauge(&(count as u64))?;
        }
        let mut batches = self.0.encode_descriptor(
            "palang_redis_batch_size",
            "Requests of a script call",
            None,
            MetricType::Histogram,
        )?;
        let bounds = BATCHES
            .iter()
            .map(|bound| *bound as f64)
            .chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(figures.batches).collect();
        batches.encode_histogram::<NoLabelSet>(
            figures.requests as f64,
            figures.batches.iter().sum(),
            &buckets,
            None,
        )
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> Result<(), fmt::Error> {
        self.0
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, u64, f64>(&value, None)
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> Result<(), fmt::Error> {
        self.0
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&value)
    }
}
