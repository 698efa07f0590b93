//! Whether this process is ready: one truth, told over gRPC and HTTP alike.

use std::{
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::{Stream, StreamExt as _};
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::{Request, Response, Status};

use crate::{
    proto::grpc::health::v1::{
        HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus,
        health_server::Health,
    },
    telemetry::metrics::{Method, Metrics},
};

/// When a process counts as ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadyWhen {
    /// Rules have been loaded.
    #[default]
    RulesLoaded,
    /// Rules of at least one domain are in force.
    SomeDomain,
    /// At once: rules may come later.
    Started,
}

/// The readiness of the process. Cloning it gives another handle on the same.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    when: ReadyWhen,
    facts: Mutex<Facts>,
    ready: watch::Sender<bool>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    /// Domains of the rules in force; `None` before the first load.
    domains: Option<usize>,
    stopping: bool,
    /// Stores that have to answer once, and have not.
    stores_silent: usize,
    /// Stores that fail now, where that matters.
    stores_failing: usize,
}

impl Readiness {
    /// Ready `when` that is so.
    pub fn new(when: ReadyWhen) -> Self {
        let facts = Facts::default();
        Self(Arc::new(Inner {
            when,
            ready: watch::Sender::new(facts.ready(when)),
            facts: Mutex::new(facts),
        }))
    }

    /// Rules with that many domains are in force now.
    pub fn rules_loaded(&self, domains: usize) {
        self.update(|facts| facts.domains = Some(domains));
    }

    /// The process stops: it is not ready any more, whatever comes.
    pub fn stopping(&self) {
        self.update(|facts| facts.stopping = true);
    }

    /// There is one more store: not ready before it has answered once.
    pub fn needs_store(&self) {
        self.update(|facts| facts.stores_silent += 1);
    }

    /// One more store has answered.
    pub fn store_answered(&self) {
        self.update(|facts| facts.stores_silent = facts.stores_silent.saturating_sub(1));
    }

    /// A store began to fail, or does not any more, and the process is not ready without it. Each change is told once.
    pub fn store_fails(&self, fails: bool) {
        self.update(|facts| {
            facts.stores_failing = if fails {
                facts.stores_failing + 1
            } else {
                facts.stores_failing.saturating_sub(1)
            };
        });
    }

    /// Whether the process is ready.
    pub fn is_ready(&self) -> bool {
        *self.0.ready.borrow()
    }

    /// Whether the process is sound by the reference's measure, which platforms take for liveness too: as ready, but a
    /// store that failed later does not count, for a restart would not mend it.
    pub fn is_healthy(&self) -> bool {
        let facts = *self.facts();
        Facts {
            stores_failing: 0,
            ..facts
        }
        .ready(self.0.when)
    }

    /// What keeps the process from being ready, in words.
    pub fn missing(&self) -> Vec<&'static str> {
        let facts = *self.facts();
        [
            (facts.stopping, "stopping"),
            (!facts.has_rules(self.0.when), "no rules loaded"),
            (facts.stores_silent > 0, "the store has not answered yet"),
            (facts.stores_failing > 0, "the store fails"),
        ]
        .into_iter()
        .filter_map(|(so, what)| so.then_some(what))
        .collect()
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.0.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut Facts)) {
        let mut facts = self.facts();
        change(&mut facts);
        let ready = facts.ready(self.0.when);
        // Watchers hear of changes only.
        self.0
            .ready
            .send_if_modified(|was| std::mem::replace(was, ready) != ready);
    }

    fn watch(&self) -> watch::Receiver<bool> {
        self.0.ready.subscribe()
    }
}

impl Facts {
    fn ready(self, when: ReadyWhen) -> bool {
        !self.stopping
            && self.stores_silent == 0
            && self.stores_failing == 0
            && self.has_rules(when)
    }

    fn has_rules(self, when: ReadyWhen) -> bool {
        match when {
            ReadyWhen::RulesLoaded => self.domains.is_some(),
            ReadyWhen::SomeDomain => self.domains.is_some_and(|domains| domains > 0),
            ReadyWhen::Started => true,
        }
    }
}

/// The services that may be asked for. The reference registers `ratelimit`; plain probes ask for the empty name.
const SERVICES: [&str; 3] = [
    "",
    "ratelimit",
    "envoy.service.ratelimit.v3.RateLimitService",
];

/// `grpc.health.v1.Health`.
#[derive(Clone, Debug)]
pub(super) struct HealthService {
    readiness: Readiness,
    metrics: Arc<Metrics>,
}

impl HealthService {
    /// Tells of `readiness`.
    pub(super) fn new(readiness: Readiness, metrics: Arc<Metrics>) -> Self {
        Self { readiness, metrics }
    }
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let _call = self.metrics.call(Method::Check);
        if !SERVICES.contains(&request.get_ref().service.as_str()) {
            return Err(Status::not_found("unknown service"));
        }
        Ok(Response::new(answer(serving(self.readiness.is_ready()))))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<HealthCheckRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let known = SERVICES.contains(&request.get_ref().service.as_str());
        let changes = WatchStream::new(self.readiness.watch()).map(move |ready| {
            Ok(answer(if known {
                serving(ready)
            } else {
                ServingStatus::ServiceUnknown
            }))
        });
        // An unknown name stays unknown: one message says so, and the stream stays open, as the protocol asks.
        let changes = changes.scan(None, |last, message| {
            let fresh = message.as_ref().ok().map(|message| message.status) != *last;
            *last = message.as_ref().ok().map(|message| message.status);
            std::future::ready(Some(fresh.then_some(message)))
        });
        let changes = changes.filter_map(std::future::ready);
        Ok(Response::new(Box::pin(changes)))
    }
}

const fn serving(ready: bool) -> ServingStatus {
    if ready {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    }
}

fn answer(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse {
        status: status.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_follows_its_rule() {
        for (when, at_start, empty, loaded) in [
            (ReadyWhen::RulesLoaded, false, true, true),
            (ReadyWhen::SomeDomain, false, false, true),
            (ReadyWhen::Started, true, true, true),
        ] {
            let readiness = Readiness::new(when);
            assert_eq!(readiness.is_ready(), at_start, "{when:?}");
            readiness.rules_loaded(0);
            assert_eq!(readiness.is_ready(), empty, "{when:?}");
            readiness.rules_loaded(2);
            assert_eq!(readiness.is_ready(), loaded, "{when:?}");
            readiness.needs_store();
            readiness.needs_store();
            readiness.store_answered();
            assert!(!readiness.is_ready() && !readiness.is_healthy(), "{when:?}");
            assert_eq!(readiness.missing(), ["the store has not answered yet"]);
            readiness.store_answered();
            assert!(readiness.is_ready(), "{when:?}");
            readiness.store_fails(true);
            assert!(!readiness.is_ready() && readiness.is_healthy(), "{when:?}");
            readiness.store_fails(false);
            assert!(readiness.is_ready(), "{when:?}");
            readiness.stopping();
            readiness.rules_loaded(3);
            assert!(!readiness.is_ready(), "{when:?}");
        }
    }
}
