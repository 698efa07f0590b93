//! `envoy.service.ratelimit.v3.RateLimitService`, and all else the gRPC port serves.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::future::{BoxFuture, FutureExt as _};
use http::HeaderMap;
use hyper::body::Incoming;
use tonic::{Code, Request, Response, Status, body::Body, service::Routes};
use tower::{Service, ServiceExt as _};

use super::{
    answer::{Answers, Refusal},
    bounds::Bound,
    health::HealthService,
};
use crate::{
    proto::{
        DESCRIPTORS,
        envoy::service::ratelimit::v3::{
            RateLimitRequest, RateLimitResponse,
            rate_limit_service_server::{RateLimitService, RateLimitServiceServer},
        },
        grpc::health::v1::health_server::HealthServer,
    },
    store::Store,
    telemetry::metrics::Method,
    time::Deadline,
};

/// The one method.
#[derive(Debug)]
struct Rls<S>(Arc<Answers<S>>);

#[tonic::async_trait]
impl<S: Store + 'static> RateLimitService for Rls<S> {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let _call = self.0.call(Method::ShouldRateLimit);
        let deadline = request.extensions().get().copied();
        let deadline = deadline.unwrap_or(Deadline::NEVER);
        match self.0.answer(request.into_inner(), deadline).await {
            Ok((response, _)) => Ok(Response::new(response)),
            Err(refusal) => Err(status(&refusal)),
        }
    }
}

fn status(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::BadRequest(bad) => Status::invalid_argument(bad.to_string()),
        Refusal::Undecided(_) => Status::unavailable(refusal.to_string()),
    }
}

/// Everything the gRPC port serves. Cheap to clone.
#[derive(Debug)]
pub(super) struct Grpc<S> {
    answers: Arc<Answers<S>>,
    /// Called past the router: nearly every call is for this one.
    rls: RateLimitServiceServer<Rls<S>>,
    others: Routes,
}

impl<S> Clone for Grpc<S> {
    fn clone(&self) -> Self {
        Self {
            answers: Arc::clone(&self.answers),
            rls: self.rls.clone(),
            others: self.others.clone(),
        }
    }
}

const RLS: &str = "/envoy.service.ratelimit.v3.RateLimitService/";

impl<S: Store + 'static> Grpc<S> {
    /// The decisions of `answers`, health and reflection.
    ///
    /// # Errors
    /// When the descriptors that reflection serves do not decode, which would be a broken build.
    pub(super) fn new(
        answers: Arc<Answers<S>>,
        health: HealthService,
    ) -> Result<Self, tonic_reflection::server::Error> {
        let reflection = || {
            tonic_reflection::server::Builder::configure()
                .register_encoded_file_descriptor_set(DESCRIPTORS)
        };
        Ok(Self {
            rls: RateLimitServiceServer::new(Rls(Arc::clone(&answers)))
                .max_decoding_message_size(answers.settings().bounds.max_message_size),
            others: Routes::new(HealthServer::new(health))
                .add_service(reflection().build_v1()?)
                .add_service(reflection().build_v1alpha()?)
                .prepare(),
            answers,
        })
    }
}

impl<S: Store + 'static> Service<http::Request<Incoming>> for Grpc<S> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Incoming>) -> Self::Future {
        let request = request.map(Body::new);
        if !request.uri().path().starts_with(RLS) {
            return self.others.clone().oneshot(request).boxed();
        }
        let answers = Arc::clone(&self.answers);
        let mut request = request;
        // The caller's clock runs from the head on, also while the message is on its way.
        if let Some(deadline) = deadline(request.headers()) {
            request.extensions_mut().insert(deadline);
        }
        let answer = self.rls.call(request);
        async move {
            let response = answer.await?;
            // What tonic refuses before our code sees it. Our own answers never have these codes.
            let settings = answers.settings();
            let (bound, what) = match code(response.headers()) {
                Some(Code::OutOfRange) => {
                    let most = settings.bounds.max_message_size;
                    (Bound::MessageSize, format!("larger than {most} bytes"))
                }
                Some(Code::Internal) => (Bound::Meaning, "not a RateLimitRequest".to_owned()),
                _ => return Ok(response),
            };
            settings.metrics.bad_request(bound.name());
            Ok(Status::invalid_argument(format!("message: {what}")).into_http())
        }
        .boxed()
    }
}

/// Until when the caller waits, if it says so.
fn deadline(headers: &HeaderMap) -> Option<Deadline> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    timeout(text).map(Deadline::after)
}

/// The protocol's form: at most 8 digits and a unit.
fn timeout(text: &str) -> Option<Duration> {
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

/// The status of an answer that is nothing but a status.
fn code(headers: &HeaderMap) -> Option<Code> {
    headers
        .get(Status::GRPC_STATUS)
        .map(|status| Code::from_bytes(status.as_bytes()))
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
            assert_eq!(timeout(text), expected, "{text}");
        }
    }
}
