//! What gRPC and HTTP have in common: from Envoy's request to Envoy's answer, or to the one reason there is none.

use std::sync::Arc;

use super::{
    bounds::Bounds,
    headers::{Header, Headers},
    metadata,
    wire::{self, Addends, BadRequest},
};
use crate::{
    limiter::{Limiter, Undecided},
    proto::envoy::{
        config::core::v3::HeaderValue,
        service::ratelimit::v3::{RateLimitRequest, RateLimitResponse},
    },
    shown::Shown,
    store::{Store, StoreError},
    telemetry::{
        metrics::{Call, Method, Metrics},
        throttle::Throttle,
        traces::Trace,
    },
    time::{Clock, Deadline},
};

/// Answers requests, in Envoy's words. One for each worker.
#[derive(Debug)]
pub(super) struct Answers<S> {
    limiter: Limiter<S>,
    settings: Arc<Settings>,
}

/// What all workers' answers share.
#[derive(Debug)]
pub struct Settings {
    /// How large a request may be.
    pub bounds: Bounds,
    /// Which headers an answer carries.
    pub headers: Headers,
    /// Whether it carries dynamic metadata.
    pub metadata: bool,
    /// Where calls and refusals are counted.
    pub metrics: Arc<Metrics>,
    failures: Throttle,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The request makes no sense, or is over a bound.
    #[error("{0}")]
    BadRequest(#[from] BadRequest),
    /// It could not be decided.
    #[error("{}", undecided(.0))]
    Undecided(Undecided),
}

impl Refusal {
    /// The name of the gRPC status it stands for.
    pub(super) const fn status(&self) -> &'static str {
        match self {
            Self::BadRequest(_) => "INVALID_ARGUMENT",
            Self::Undecided(_) => "UNAVAILABLE",
        }
    }
}

impl Settings {
    /// These settings.
    pub fn new(bounds: Bounds, headers: Headers, metadata: bool, metrics: Arc<Metrics>) -> Self {
        Self {
            bounds,
            headers,
            metadata,
            metrics,
            failures: Throttle::new(Clock::system()),
        }
    }
}

impl<S: Store> Answers<S> {
    /// Answers by `limiter`.
    pub(super) fn new(limiter: Limiter<S>, settings: Arc<Settings>) -> Self {
        Self { limiter, settings }
    }

    /// What all workers share.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Counts a call, and its time until the returned value is dropped.
    pub(super) fn call(&self, method: Method) -> Call {
        self.settings.metrics.call(method)
    }

    /// Decides a request for a caller that waits until `deadline`.
    ///
    /// # Errors
    /// [`Refusal`]. Nothing was charged where it is a bad request.
    pub(super) async fn answer(
        &self,
        message: RateLimitRequest,
        deadline: Deadline,
        trace: &mut Trace,
    ) -> Result<(RateLimitResponse, Vec<Header>), Refusal> {
        let addends = self.settings.metadata.then(|| Addends::of(&message));
        let request = wire::request(message, &self.settings.bounds).inspect_err(|bad| {
            self.settings.metrics.bad_request(bad.bound().name());
            tracing::debug!(%bad, "refused a request");
        })?;
        let decided = self.limiter.decide(&request, deadline, trace).await;
        if deadline.is_past() {
            self.settings.metrics.late_answer();
        }
        let verdict = match decided {
            Ok(verdict) => verdict,
            Err(undecided) => return Err(self.failed(undecided)),
        };
        tracing::debug!(domain = %Shown(&request.domain), code = ?verdict.code, "decided");
        let mut response = wire::response(&verdict);
        let headers = self.settings.headers.of(&verdict);
        response.response_headers_to_add = headers.iter().map(header).collect();
        response.dynamic_metadata = addends
            .as_ref()
            .map(|addends| metadata::of(&verdict, &request, addends));
        Ok((response, headers))
    }

    fn failed(&self, undecided: Undecided) -> Refusal {
        let metrics = &self.settings.metrics;
        match &undecided {
            Undecided::NoRules => metrics.no_rules(),
            Undecided::Store(_) => metrics.store_error(),
        }
        if let Some(held) = self.settings.failures.pass() {
            let reason = reason(&undecided);
            tracing::warn!(reason, not_shown = held, "could not decide a call");
        }
        Refusal::Undecided(undecided)
    }
}

/// For the log: with the store's own words, which may name an address.
fn reason(undecided: &Undecided) -> String {
    match undecided {
        Undecided::Store(error) => error.cause(),
        Undecided::NoRules => undecided.to_string(),
    }
}

/// For the caller: never an address, a key, or the store's own words.
fn undecided(undecided: &Undecided) -> &'static str {
    match undecided {
        Undecided::NoRules => "no rate limit configuration loaded",
        Undecided::Store(StoreError::Timeout) => "the store did not answer in time",
        Undecided::Store(StoreError::Unavailable(_)) => "the store is unavailable",
        Undecided::Store(StoreError::Refused(_)) => "the store refused the call",
        Undecided::Store(StoreError::ForeignState) => "a counter holds foreign data",
        Undecided::Store(StoreError::Full) => "the store is full",
        Undecided::Store(StoreError::Open) => "the store is not asked, it failed just now",
        Undecided::Store(StoreError::NoConnection) => "no connection to the store was free",
        Undecided::Store(StoreError::Overloaded) => "too many calls wait for the store",
    }
}

fn header(header: &Header) -> HeaderValue {
    HeaderValue {
        key: header.name.clone(),
        value: header.value.clone(),
        raw_value: Vec::new(),
    }
}
