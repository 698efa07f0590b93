//! Every instrument of the process, in one struct.
//!
//! The set that dashboards for envoyproxy/ratelimit read keeps its exact names, which have no `_total`: those are
//! written by `exposition.rs`. Our own instruments are prometheus-client's.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use prometheus_client::{
    encoding::{EncodeLabelSet, prometheus_text, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram, info::Info},
    registry::Registry,
};

pub use super::{
    accounting::{RuleHandles, Times},
    top::{Listed, Offender},
};
use super::{
    catalogue::Catalogue,
    decisions::Decisions,
    denials::Denials,
    exposition,
    figures::{StoreFigures, Stores},
    own::Own,
    series::NearRatio,
    sources::Sources,
    statsd::Timings,
    top::Top,
    top_view::TopView,
    traces::{METHOD, SpanCounts, Trace, Traces},
};
use crate::{
    counter::OnFailure,
    go_values::{self, Malformed},
    store::guard,
    time::{Clock, Timestamp},
};

/// Settings of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Metrics")]
pub struct Args {
    /// Share of a limit from which on hits count as near it, 0 to 1.
    #[arg(long, env = "NEAR_LIMIT_RATIO", default_value = "0.8", value_parser = near_ratio)]
    pub near_limit_ratio: NearRatio,
    /// Most metric series that text of requests makes in one domain; what comes after is counted as `other`.
    #[arg(long, env = "METRICS_MAX_SERIES", default_value = "10000", value_parser = go_values::count)]
    pub metrics_max_series: usize,
    /// Keys of each domain whose hits and refusals are followed, to show which are most (/top on the debug port); 0 is
    /// off.
    #[arg(long, env = "TOP_KEYS", default_value = "100", value_parser = go_values::integer)]
    pub top_keys: u64,
    /// Show the text of those keys in metrics, too. Each key that comes and goes then makes a series in Prometheus.
    #[arg(long, env = "TOP_KEYS_IN_METRICS", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub top_keys_in_metrics: bool,
    /// Most refusals that are written to the log in a second, with rule and key; 0 is off.
    #[arg(long, env = "DENY_LOG_PER_SECOND", default_value = "0", value_parser = go_values::integer)]
    pub deny_log_per_second: u64,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            near_limit_ratio: NearRatio::default(),
            metrics_max_series: 10_000,
            top_keys: 100,
            top_keys_in_metrics: false,
            deny_log_per_second: 0,
        }
    }
}

fn near_ratio(text: &str) -> Result<NearRatio, Malformed> {
    NearRatio::parse(text).ok_or_else(|| Malformed::new("expected a number from 0 to 1"))
}

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
    registry: Registry,
    pub(super) sources: Sources,
    pub(super) timings: Timings,
    /// Durations are not decisions: they are measured by the real clock, also where a test stops the other one.
    pub(super) clock: Clock,
}

/// A call that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// A decision over gRPC.
    ShouldRateLimit,
    /// A health check over gRPC.
    Check,
    /// A decision over HTTP. Not among the reference's series, which are gRPC's.
    Json,
}

impl Method {
    const ALL: [Self; 3] = [Self::ShouldRateLimit, Self::Check, Self::Json];
    pub(super) const GRPC: [Self; 2] = [Self::ShouldRateLimit, Self::Check];

    /// Name of the method in labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ShouldRateLimit => "ShouldRateLimit",
            Self::Check => "Check",
            Self::Json => "json",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MethodLabel {
    grpc_method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BoundLabel {
    bound: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PolicyLabel {
    policy: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PortLabel {
    port: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkerLabel {
    worker: u64,
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
            registry,
            sources: Sources::default(),
            timings: Timings::default(),
            clock,
        }
    }

    /// Counts a call that begins now. It is in flight, and its time runs, until the returned value is dropped.
    pub fn call(self: &Arc<Self>, method: Method) -> Call {
        self.calls[method as usize].fetch_add(1, Ordering::Relaxed);
        self.in_flight.inc();
        Call {
            metrics: Arc::clone(self),
            method,
            since: self.clock.now(),
        }
    }

    /// Counts a call that was refused for what it holds.
    pub fn bad_request(&self, bound: &'static str) {
        self.service_errors.fetch_add(1, Ordering::Relaxed);
        self.bad_requests.get_or_create(&BoundLabel { bound }).inc();
    }

    /// Counts a call that was not decided, because there are no rules yet.
    pub fn no_rules(&self) {
        self.service_errors.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that the store could not decide.
    pub fn store_error(&self) {
        self.store_errors.fetch_add(1, Ordering::Relaxed);
        self.policy_answer(OnFailure::Error);
    }

    pub(super) fn policy_answer(&self, policy: OnFailure) {
        let policy = policy.name();
        self.policy_answers
            .get_or_create(&PolicyLabel { policy })
            .inc();
    }

    /// Counts an answer that its caller did not wait for.
    pub fn late_answer(&self) {
        self.late_answers.inc();
    }

    /// Counts certificates that changed while the service runs: `taken` up, or `refused`.
    pub fn tls_reload(&self, result: &'static str) {
        self.tls_reloads
            .get_or_create(&ResultLabel { result })
            .inc();
    }

    /// Shows the figures of the guard of the store `name` from now on.
    pub fn show_store(&self, name: &'static str, guard: Arc<guard::Shared>) {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.push((name, guard));
    }

    /// Shows that worker's connections from now on, be there none.
    pub fn worker(&self, worker: usize) {
        self.of_worker(worker).set(0);
    }

    /// Counts a connection on `port` of that worker as open, until the returned value is dropped.
    pub fn connection(&self, port: &'static str, worker: usize) -> Open {
        let gauges = [
            self.connections.get_or_create_owned(&PortLabel { port }),
            self.of_worker(worker),
        ];
        for gauge in &gauges {
            gauge.inc();
        }
        Open(gauges)
    }

    fn of_worker(&self, worker: usize) -> Gauge {
        self.worker_connections.get_or_create_owned(&WorkerLabel {
            worker: worker as u64,
        })
    }

    /// Counts a connection on `port` that was closed at once.
    pub fn refused_connection(&self, port: &'static str) {
        self.refused_connections
            .get_or_create(&PortLabel { port })
            .inc();
    }

    /// Follows calls by `traces` from now on. A second call changes nothing.
    pub fn follow(&self, traces: Arc<Traces>) {
        let _ = self.traces.set(traces);
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
        // A String takes every write.
        let _ = prometheus_text::encode(&mut text, &self.registry);
        text
    }

    /// The same in OpenMetrics, with traces beside the counters of refusals.
    pub fn openmetrics(&self) -> String {
        // A counter must have `_total` there, which the reference's have not; for ours it is no part of the name.
        let mut text = exposition::prometheus(self)
            .replace(" counter\n", " unknown\n")
            .replace(" untyped\n", " unknown\n");
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

/// A call in flight.
#[derive(Debug)]
pub struct Call {
    metrics: Arc<Metrics>,
    method: Method,
    since: Timestamp,
}

impl Drop for Call {
    fn drop(&mut self) {
        let metrics = &self.metrics;
        metrics.in_flight.dec();
        let micros = metrics
            .clock
            .now()
            .as_micros()
            .saturating_sub(self.since.as_micros());
        metrics.response_time[self.method as usize].observe(micros as f64 / 1e6);
        if Method::GRPC.contains(&self.method) {
            metrics.timings.add(self.method, micros);
        }
    }
}

/// An open connection.
#[derive(Debug)]
pub struct Open([Gauge; 2]);

impl Drop for Open {
    fn drop(&mut self) {
        for gauge in &self.0 {
            gauge.dec();
        }
    }
}
