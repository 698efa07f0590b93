//! What the stores say of themselves, asked when the metrics are read.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
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
    /// Counters in Redis, by the store's name.
    pub redis: Vec<(&'static str, Redis)>,
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

    /// The reference's figures of the connections to Redis, by their statsd names.
    pub(super) fn pools(&self) -> Pools {
        let mut pools = Pools::default();
        for (name, redis) in self.0.get().into_iter().flat_map(|stores| &stores.redis) {
            let pool = match *name {
                "per_second" => "ratelimit.redis_per_second_pool",
                _ => "ratelimit.redis_pool",
            };
            let figures = redis.figures();
            let active = figures.connections as u64;
            pools.gauges.push((format!("{pool}.cx_active"), active));
            pools.counters.extend([
                (format!("{pool}.cx_total"), figures.opened),
                (format!("{pool}.cx_local_close"), figures.closed),
            ]);
        }
        pools
    }
}

/// Figures of connections, by their statsd names.
#[derive(Debug, Default)]
pub(super) struct Pools {
    pub(super) gauges: Vec<(String, u64)>,
    pub(super) counters: Vec<(String, u64)>,
}

/// A figure of a Redis: its name, what it says, its type, and where it is.
type Row = (&'static str, &'static str, MetricType, fn(&Figures) -> u64);

const REDIS: &[Row] = &[
    (
        "palang_redis_calls",
        "Round trips, failed ones included",
        MetricType::Counter,
        |figures| figures.calls,
    ),
    (
        "palang_redis_requests",
        "Requests in those round trips: divided by them, the mean batch",
        MetricType::Counter,
        |figures| figures.requests,
    ),
    (
        "palang_redis_script_loads",
        "Times the script was put into Redis",
        MetricType::Counter,
        |figures| figures.script_loads,
    ),
    (
        "palang_redis_layouts",
        "Times a cluster was asked for its layout",
        MetricType::Counter,
        |figures| figures.layouts,
    ),
    (
        "palang_redis_late_answers",
        "Answers that came after their caller had gone",
        MetricType::Counter,
        |figures| figures.late,
    ),
    (
        "palang_redis_in_flight",
        "Requests in round trips that are not answered yet",
        MetricType::Gauge,
        |figures| figures.in_flight,
    ),
    (
        "palang_redis_queue",
        "Requests that wait for the next round trip",
        MetricType::Gauge,
        |figures| figures.queued,
    ),
    (
        "palang_redis_pool_waiting",
        "Lines that wait for a connection",
        MetricType::Gauge,
        |figures| figures.waiting as u64,
    ),
];

impl Collector for StoreFigures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(stores) = self.0.get() else {
            return Ok(());
        };
        let mut page = Page(&mut encoder);
        let redis: Vec<(&'static str, Figures)> = stores
            .redis
            .iter()
            .map(|(name, redis)| (*name, redis.figures()))
            .collect();
        if !redis.is_empty() {
            page.redis(&redis)?;
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
    fn redis(&mut self, stores: &[(&'static str, Figures)]) -> Result<(), fmt::Error> {
        for (name, help, kind, figure) in REDIS {
            let mut family = self.0.encode_descriptor(name, help, None, *kind)?;
            for (store, figures) in stores {
                let label = [("store", *store)];
                let mut one = family.encode_family(&label)?;
                match kind {
                    MetricType::Counter => {
                        one.encode_counter::<NoLabelSet, u64, f64>(&figure(figures), None)?;
                    }
                    _ => one.encode_gauge(&figure(figures))?,
                }
            }
        }
        let mut family = self.0.encode_descriptor(
            "palang_redis_connections",
            "Open connections, by state; what is not idle is in use",
            None,
            MetricType::Gauge,
        )?;
        for (store, figures) in stores {
            let in_use = figures.connections.saturating_sub(figures.idle);
            for (state, count) in [("idle", figures.idle), ("in_use", in_use)] {
                family
                    .encode_family(&[("store", *store), ("state", state)])?
                    .encode_gauge(&(count as u64))?;
            }
        }
        let mut family = self.0.encode_descriptor(
            "palang_redis_batch_size",
            "Requests of a round trip",
            None,
            MetricType::Histogram,
        )?;
        for (store, figures) in stores {
            let bounds = BATCHES
                .iter()
                .map(|bound| *bound as f64)
                .chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = bounds.zip(figures.batches).collect();
            family
                .encode_family(&[("store", *store)])?
                .encode_histogram::<NoLabelSet>(
                    figures.requests as f64,
                    figures.batches.iter().sum(),
                    &buckets,
                    None,
                )?;
        }
        Ok(())
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
