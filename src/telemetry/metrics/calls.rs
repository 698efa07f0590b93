//! What counts calls and the connections they come by.

use std::sync::{Arc, atomic::Ordering};

use prometheus_client::{encoding::EncodeLabelSet, metrics::gauge::Gauge};

use super::Metrics;
use crate::{counter::OnFailure, time::Timestamp};

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
    pub(super) const ALL: [Self; 3] = [Self::ShouldRateLimit, Self::Check, Self::Json];
    pub(in crate::telemetry) const GRPC: [Self; 2] = [Self::ShouldRateLimit, Self::Check];

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
pub(super) struct MethodLabel {
    pub(super) grpc_method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct BoundLabel {
    pub(super) bound: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PolicyLabel {
    pub(super) policy: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ResultLabel {
    pub(super) result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct PortLabel {
    pub(super) port: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct WorkerLabel {
    pub(super) worker: u64,
}

impl Metrics {
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

    pub(in crate::telemetry) fn policy_answer(&self, policy: OnFailure) {
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
