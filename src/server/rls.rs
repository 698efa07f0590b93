//! `envoy.service.ratelimit.v3.RateLimitService`, and all else the gRPC port serves.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
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
        match self.0.answer(request.into_inner()).await {
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
        let answer = self.rls.call(request);
        async move {
            let response = answer.await?;
            // tonic refuses a message that is too large before our code sees it, and calls it out of range.
            if code(response.headers()) != Some(Code::OutOfRange) {
                return Ok(response);
            }
            let settings = answers.settings();
            settings.metrics.bad_request(Bound::MessageSize.name());
            let most = settings.bounds.max_message_size;
            Ok(Status::invalid_argument(format!("message: larger than {most} bytes")).into_http())
        }
        .boxed()
    }
}

/// The status of an answer that is nothing but a status.
fn code(headers: &HeaderMap) -> Option<Code> {
    headers
        .get(Status::GRPC_STATUS)
        .map(|status| Code::from_bytes(status.as_bytes()))
}
