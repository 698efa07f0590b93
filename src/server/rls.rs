//! `envoy.service.ratelimit.v3.RateLimitService`, and all else the gRPC port serves.

use std::{
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use futures_util::future::{BoxFuture, FutureExt as _};
use http::{Request, Response};
use hyper::body::Incoming;
use tonic::{Status, service::Routes};
use tower::{Service, ServiceExt as _};

use super::{
    answer::{Answers, Refusal},
    bounds::Bound,
    health::HealthService,
    unary::{self, Body, Unreadable},
};
use crate::{
    proto::{DESCRIPTORS, grpc::health::v1::health_server::HealthServer},
    store::Store,
    telemetry::metrics::Method,
};

/// The one method, which is served past tonic: nearly every call is for it.
const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Everything the gRPC port serves. Cheap to clone.
#[derive(Debug)]
pub(super) struct Grpc<S> {
    answers: Arc<Answers<S>>,
    others: Routes,
}

impl<S> Clone for Grpc<S> {
    fn clone(&self) -> Self {
        Self {
            answers: Arc::clone(&self.answers),
            others: self.others.clone(),
        }
    }
}

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
            answers,
            others: Routes::new(HealthServer::new(health))
                .add_service(reflection().build_v1()?)
                .add_service(reflection().build_v1alpha()?)
                .prepare(),
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
            // The head is dropped here, and so is no part of a future that is moved about.
            let body = request.into_body();
            return async move { Ok(should_rate_limit(&answers, body).await) }.boxed();
        }
        let others = self.others.clone();
        let answer = others.oneshot(request.map(tonic::body::Body::new));
        async move { Ok(answer.await?.map(Body::Tonic)) }.boxed()
    }
}

async fn should_rate_limit<S: Store>(answers: &Answers<S>, body: Incoming) -> Response<Body> {
    let settings = answers.settings();
    let most = settings.bounds.max_message_size;
    let message = match unary::read(body, most).await {
        Ok(message) => message,
        Err(Unreadable::TooLarge) => {
            settings.metrics.bad_request(Bound::MessageSize.name());
            let reason = format!("message: larger than {most} bytes");
            return Status::invalid_argument(reason).into_http();
        }
        Err(Unreadable::Malformed(status)) => return status.into_http(),
    };
    let _call = answers.call(Method::ShouldRateLimit);
    match answers.answer(message).await {
        Ok((response, _)) => unary::answer(&response),
        Err(refusal) => status(&refusal).into_http(),
    }
}

fn status(refusal: &Refusal) -> Status {
    match refusal {
        Refusal::BadRequest(bad) => Status::invalid_argument(bad.to_string()),
        Refusal::Undecided(_) => Status::unavailable(refusal.to_string()),
    }
}
