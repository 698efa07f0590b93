//! `envoy.service.ratelimit.v3.RateLimitService`, and all else the gRPC port serves.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::{BoxFuture, FutureExt as _};
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use tonic::{Status, service::Routes};
use tower::{Service, ServiceExt as _};

use super::{
    answer::{Answers, Refusal},
    bounds::Bound,
    drain::Drain,
    health::HealthService,
    unary::{self, Body, Unreadable},
};
use crate::{
    proto::{DESCRIPTORS, grpc::health::v1::health_server::HealthServer},
    store::Store,
    telemetry::{metrics::Method, traces::Trace},
    time::Deadline,
};

/// The one method, which is served past tonic: nearly every call is for it.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Longest time for a message to arrive: what never does must not be held for ever.
const RECEIVE: Duration = Duration::from_secs(10);

/// Everything the gRPC port serves. Cheap to clone.
#[derive(Debug)]
pub(super) struct Grpc<S> {
    answers: Arc<Answers<S>>,
    others: Routes,
    drain: Drain,
}

impl<S> Clone for Grpc<S> {
    fn clone(&self) -> Self {
        Self {
            answers: Arc::clone(&self.answers),
            others: self.others.clone(),
            drain: self.drain.clone(),
        }
    }
}

impl<S: Store + 'static> Grpc<S> {
    /// The decisions of `answers`, health and reflection, until `drain` begins.
    ///
    /// # Errors
    /// When the descriptors that reflection serves do not decode, which would be a broken build.
    pub(super) fn new(
        answers: Arc<Answers<S>>,
        health: HealthService,
        drain: Drain,
    ) -> Result<Self, tonic_reflection::server::Error> {
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
        };
        Ok(Self {
            answers,
            others: Routes::new(HealthServer::new(health))
                .add_service(reflection().build_v1()?)
                .add_service(reflection().build_v1alpha()?)
                .prepare(),
            drain,
        })
    }
}

impl<S: Store + 'static> Service<Request<Incoming>> for Grpc<S> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Incoming>) -> Self::Future {
        if request.uri().path() == SHOULD_RATE_LIMIT {
            let answers = Arc::clone(&self.answers);
            // The caller's clock runs from the head on, also while the message is on its way.
            let deadline = deadline(request.headers()).unwrap_or(Deadline::NEVER);
            let headers = request.headers();
            let header = |name: &str| headers.get(name)?.to_str().ok();
            let trace = answers.settings().metrics.trace(header);
            // The head is dropped here, and so is no part of a future that is moved about.
            let body = request.into_body();
            let drain = self.drain.clone();
            return async move {
                Ok(should_rate_limit(&answers, body, &drain, deadline, trace).await)
            }
            .boxed();
        }
        let others = self.others.clone();
        let answer = others.oneshot(request.map(tonic::body::Body::new));
        let drain = self.drain.clone();
        async move {
            // What takes time here is a message that does not come.
            match drain.arrival(RECEIVE, answer).await {
                Some(answer) => Ok(answer?.map(Body::Tonic)),
                None => Ok(Unreadable::TooSlow.status(0).into_http()),
            }
        }
        .boxed()
    }
}

async fn should_rate_limit<S: Store>(
    answers: &Answers<S>,
    body: Incoming,
    drain: &Drain,
    deadline: Deadline,
    mut trace: Trace,
) -> Response<Body> {
    let settings = answers.settings();
    let most = settings.bounds.max_message_size;
    let message = unary::read(body, most, settings.bounds.max_unfinished_size);
    let read = drain.arrival(RECEIVE, message).await;
    let read = read.unwrap_or(Err(Unreadable::TooSlow));
    let message = match read {
        Ok(message) => message,
        Err(unreadable) => {
            let bound = match unreadable {
                Unreadable::TooLarge => Bound::MessageSize,
                Unreadable::Crowded => Bound::Unfinished,
                Unreadable::TooSlow | Unreadable::Malformed(_) => Bound::Meaning,
            };
            settings.metrics.bad_request(bound.name());
            trace.ends("INVALID_ARGUMENT");
            return unreadable.status(most).into_http();
        }
    };
    let _call = answers.call(Method::ShouldRateLimit);
    match answers.answer(message, deadline, &mut trace).await {
        Ok((response, _)) => {
            trace.ends("OK");
            unary::answer(&response)
        }
        Err(refusal) => {
            trace.ends(refusal.status());
            status(&refusal).into_http()
        }
    }
}

fn status(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::BadRequest(bad) => Status::invalid_argument(bad.to_string()),
        Refusal::Undecided(_) => Status::unavailable(refusal.to_string()),
    }
}

/// Until when the caller waits, if it says so.
fn deadline(headers: &HeaderMap) -> Option<Deadline> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    patience(text).map(Deadline::after)
}

/// The protocol's form: at most 8 digits and a unit.
fn patience(text: &str) -> Option<Duration> {
    let at = text.len().checked_sub(1).filter(|&digits| digits <= 8)?;
    let (digits, unit) = text.split_at_checked(at)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(number * 3_600),
        "M" => Duration::from_secs(number * 60),
        "S" => Duration::from_secs(number),
        "m" => Duration::from_millis(number),
        "u" => Duration::from_micros(number),
        "n" => Duration::from_nanos(number),
        _ => return None,
    })
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_are_read_as_the_protocol_writes_them() {
        for (text, expected) in [
            ("20m", Some(Duration::from_millis(20))),
            ("99999999n", Some(Duration::from_nanos(99_999_999))),
            ("1H", Some(Duration::from_secs(3_600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("15000u", Some(Duration::from_millis(15))),
            ("0m", Some(Duration::ZERO)),
            ("m", None),
            ("", None),
            ("123456789m", None),
            ("+1m", None),
            ("1s", None),
            ("1\u{b5}", None),
        ] {
            assert_eq!(patience(text), expected, "{text}");
        }
    }
}
