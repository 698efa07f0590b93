//! Every instrument of the process, in one struct.
//!
//! The set that dashboards for envoyproxy/ratelimit read keeps its exact names, which have no `_total`: those are
//! written by `exposition.rs`. Our own instruments are prometheus-client's.

mod args;
mod calls;

use std::sync::{Arc, Mutex, OnceLock, PoisonError, atomic::AtomicU64};

use prometheus_client::{
    encoding::{prometheus_text, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};

pub use super::{
    accounting::{RuleHandles, Times},
    top::{Listed, Offender},
};
pub use args::Args;
use calls::{BoundLabel, MethodLabel, PolicyLabel, PortLabel, ResultLabel, WorkerLabel};
pub use calls::{Call, Method, Open};

use super::{
    buckets::Examples,
    catalogue::Catalogue,
    decisions::Decisions,
    denials::Denials,
    exposition,
    figures::{StoreFigures, Stores},
    otlp::{ExportCounts, Exports},
    own::Own,
    series::NearRatio,
    sources::Sources,
    statsd::Timings,
    top::Top,
    top_view::TopView,
    traces::{METHOD, SpanCounts, Trace, Traces},
};
use crate::{counter::OnFailure, store::guard, time::Clock};

/// Every instrument.
#[derive(Debug)]
pub struct Metrics {
    pub(super) ratio: NearRatio,
    pub(super) catalogue: Catalogue,
    pub(super) store_errors: AtomicU64,
    pub(super) service_errors: AtomicU64,
    pub(super) shadowed: AtomicU64,
    pub(super) calls: [AtomicU64; Method::ALL.len()],
    response_time: [Histogram; Method::ALL.len()],
    in_flight: Gauge,
    bad_requests: Family<BoundLabel, Counter>,
    connections: Family<PortLabel, Gauge>,
    worker_connections: Family<WorkerLabel, Gauge>,
    refused_connections: Family<PortLabel, Counter>,
    policy_answers: Family<PolicyLabel, Counter>,
    late_answers: Counter,
    tls_reloads: Family<ResultLabel, Counter>,
    pub(super) stores: Mutex<Vec<(&'static str, Arc<guard::Shared>)>>,
    pub(super) own: Arc<Own>,
    pub(super) decisions: Decisions,
    pub(super) top: Arc<Top>,
    pub(super) denials: Denials,
    pub(super) figures: StoreFigures,
    traces: Arc<OnceLock<Arc<Traces>>>,
    exports: Arc<OnceLock<Arc<Exports>>>,
    registry: Registry,
    pub(super) sources: Sources,
    pub(super) timings: Timings,
    /// Durations are not decisions: they are measured by the real clock, also where a test stops the other one.
    pub(super) clock: Clock,
}

/// Upper bounds of the response times, seconds: 50 us to 1 s.
const BUCKETS: [f64; 14] = [
    0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5,
    1.0,
];

impl Metrics {
    /// Fresh instruments, all at zero.
    pub fn new(args: Args) -> Self {
        let mut registry = Registry::default();
        let times =
            Family::<MethodLabel, Histogram, fn() -> Histogram>::new_with_constructor(|| {
                Histogram::new(BUCKETS)
            });
        let http_times = Histogram::new(BUCKETS);
        let in_flight = Gauge::default();
        let bad_requests = Family::default();
        let connections = Family::default();
        let worker_connections = Family::default();
        let refused_connections = Family::<PortLabel, Counter>::default();
        for port in ["grpc", "http"] {
            drop(refused_connections.get_or_create(&PortLabel { port }));
        }
        let policy_answers = Family::<PolicyLabel, Counter>::default();
        for policy in OnFailure::ALL {
            let policy = policy.name();
            // Shown from the start, so that an alarm has something to compare with.
            drop(policy_answers.get_or_create(&PolicyLabel { policy }));
        }
        let late_answers = Counter::default();
        let tls_reloads = Family::<ResultLabel, Counter>::default();
        for result in ["taken", "refused"] {
            // Here too: an increase from nothing is none that Prometheus sees.
            drop(tls_reloads.get_or_create(&ResultLabel { result }));
        }
        registry.register(
            "palang_tls_reloads",
            "Certificates that changed while the service ran, by what became of them",
            tls_reloads.clone(),
        );
        registry.register(
            "palang_policy_answers",
            "Descriptors answered by a failure policy because the store could not decide; error: calls that failed",
            policy_answers.clone(),
        );
        registry.register(
            "palang_late_answers",
            "Answers given after the caller's deadline",
            late_answers.clone(),
        );
        registry.register(
            "ratelimit_service_response_time_seconds",
            "Time from a call's arrival to its answer",
            times.clone(),
        );
        registry.register(
            "palang_http_response_time_seconds",
            "Time from an HTTP call's head to its answer",
            http_times.clone(),
        );
        registry.register("palang_in_flight", "Calls being decided", in_flight.clone());
        registry.register(
            "palang_bad_requests",
            "Calls refused for what they hold, by the bound they break",
            bad_requests.clone(),
        );
        registry.register(
            "palang_connections",
            "Open connections",
            connections.clone(),
        );
        registry.register(
            "palang_worker_connections",
            "Open connections of each worker",
            worker_connections.clone(),
        );
        registry.register(
            "palang_refused_connections",
            "Connections closed at once because there are too many",
            refused_connections.clone(),
        );
        registry.register(
            "palang_build",
            "What is running",
            Info::new(vec![("version", env!("CARGO_PKG_VERSION"))]),
        );
        let own = Arc::new(Own::default());
        let decisions = Decisions::default();
        let figures = StoreFigures::default();
        let top = Arc::new(Top::new(
            usize::try_from(args.top_keys).unwrap_or(usize::MAX),
        ));
        let traces = Arc::default();
        registry.register_collector(Box::new(SpanCounts(Arc::clone(&traces))));
        let exports = Arc::default();
        registry.register_collector(Box::new(ExportCounts(Arc::clone(&exports))));
        let clock = Clock::system();
        registry.register_collector(Box::new(Arc::clone(&own)));
        registry.register_collector(Box::new(decisions.clone()));
        registry.register_collector(Box::new(figures.clone()));
        registry.register_collector(Box::new(TopView {
            top: Arc::clone(&top),
            clock: clock.clone(),
            with_keys: args.top_keys_in_metrics,
        }));
        Self {
            ratio: args.near_limit_ratio,
            catalogue: Catalogue::new(args.metrics_max_series),
            store_errors: AtomicU64::new(0),
            service_errors: AtomicU64::new(0),
            shadowed: AtomicU64::new(0),
            calls: Default::default(),
            response_time: Method::ALL.map(|method| match method {
                Method::Json => http_times.clone(),
                grpc => times.get_or_create_owned(&MethodLabel {
                    grpc_method: grpc.name(),
                }),
            }),
            in_flight,
            bad_requests,
            connections,
            worker_connections,
            refused_connections,
            policy_answers,
            late_answers,
            tls_reloads,
            stores: Mutex::default(),
            own,
            decisions,
            top,
            denials: Denials::new(args.deny_log_per_second),
            figures,
            traces,
            exports,
            registry,
            sources: Sources::default(),
            timings: Timings::default(),
            clock,
        }
    }

    /// Shows the figures of the guard of the store `name` from now on.
    pub fn show_store(&self, name: &'static str, guard: Arc<guard::Shared>) {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.push((name, guard));
    }

    /// Follows calls by `traces` from now on. A second call changes nothing.
    pub fn follow(&self, traces: Arc<Traces>) {
        let _ = self.traces.set(traces);
    }

    /// Shows what becomes of exports from now on. A second call changes nothing.
    pub(super) fn show_exports(&self, exports: Arc<Exports>) {
        let _ = self.exports.set(exports);
    }

    /// Starts to follow a call, if it is one to be followed. `header` reads what came with it.
    pub fn trace<'h>(&self, header: impl Fn(&str) -> Option<&'h str>) -> Trace {
        match self.traces.get() {
            Some(traces) => traces.call(METHOD, header),
            None => Trace::default(),
        }
    }

    /// Shows the figures of these stores from now on.
    pub fn watch(&self, stores: Stores) {
        self.figures.watch(stores);
    }

    /// The `most` keys of each domain that are refused most and asked most.
    pub fn top(&self, most: usize) -> Vec<Listed> {
        self.top.list(most, self.clock.now())
    }

    /// All instruments in the Prometheus text format 0.0.4.
    pub fn prometheus(&self) -> String {
        let mut text = exposition::prometheus(self);
        exposition::latencies(&mut text, self, Examples::Hidden);
        // A String takes every write.
        let _ = prometheus_text::encode(&mut text, &self.registry);
        text
    }

    /// The same in OpenMetrics, with traces beside the counters of refusals and the latencies.
    pub fn openmetrics(&self) -> String {
        // A counter must have `_total` there, which the reference's have not; for ours it is no part of the name.
        let mut text = exposition::prometheus(self)
            .replace(" counter\n", " unknown\n")
            .replace(" untyped\n", " unknown\n");
        exposition::latencies(&mut text, self, Examples::Shown);
        // A String takes every write.
        let _ = text::encode(&mut text, &self.registry);
        text
    }

    /// The counters under the reference's statsd names, one `name: value` a line, sorted.
    pub fn stats(&self) -> String {
        exposition::stats(self)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new(Args::default())
    }
}
