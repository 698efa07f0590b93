//! The HTTP port: `/json` decides, `/livez`, `/readyz` and `/healthcheck` tell how the process is.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    extract::State,
    response::{IntoResponse, Response},
    routing::{any, post},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header::CONTENT_TYPE};
use http_body_util::BodyExt as _;
use hyper::body::Body as _;

use super::{
    answer::{Answers, Refusal},
    bounds::{Bound, Bounds},
    drain::Drain,
    headers::Header,
    health::Readiness,
    json,
    unfinished::Unfinished,
};
use crate::{
    proto::envoy::service::ratelimit::v3::{RateLimitResponse, rate_limit_response::Code},
    store::Store,
    telemetry::metrics::Method,
    time::Deadline,
};

/// Longest time a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Says what was wrong with a request. The body has no room for it: the reference's clients know it by heart.
const ERROR: HeaderName = HeaderName::from_static("x-palang-error");

const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// What `/json` needs.
#[derive(Debug)]
struct Deciding<S> {
    answers: Arc<Answers<S>>,
    drain: Drain,
}

impl<S> Clone for Deciding<S> {
    fn clone(&self) -> Self {
        Self {
            answers: Arc::clone(&self.answers),
            drain: self.drain.clone(),
        }
    }
}

/// What the HTTP port serves, until `drain` begins.
pub(super) fn router<S: Store + 'static>(
    answers: Arc<Answers<S>>,
    readiness: Readiness,
    drain: Drain,
) -> Router {
    Router::new()
        // The reference takes any method. A question that counts is no GET: 405, by the router.
        .route("/json", post(decide::<S>))
        .with_state(Deciding { answers, drain })
        .route(
            "/healthcheck",
            any(healthcheck).with_state(readiness.clone()),
        )
        .route("/readyz", any(readyz).with_state(readiness))
        .route("/livez", any(livez))
}

async fn healthcheck(State(readiness): State<Readiness>) -> Response {
    if readiness.is_healthy() {
        "OK".into_response()
    } else {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}

/// Whether calls should come here, and if not why.
async fn readyz(State(readiness): State<Readiness>) -> Response {
    if readiness.is_ready() {
        return "ready\n".into_response();
    }
    let missing = readiness.missing().join("\n");
    (StatusCode::SERVICE_UNAVAILABLE, format!("{missing}\n")).into_response()
}

/// Whether the process lives: it answers. Nothing that is wrong elsewhere is mended by a restart.
async fn livez() -> &'static str {
    "alive\n"
}

async fn decide<S: Store + 'static>(
    State(Deciding { answers, drain }): State<Deciding<S>>,
    fields: HeaderMap,
    body: Body,
) -> Response {
    let _call = answers.call(Method::Json);
    let settings = answers.settings();
    let mut trace = settings
        .metrics
        .trace(|name| fields.get(name)?.to_str().ok());
    let body = match read(body, settings.bounds, &drain).await {
        Ok(body) => body,
        Err(unread) => {
            let bound = match unread {
                Unread::TooLarge => Bound::MessageSize,
                Unread::Crowded => Bound::Unfinished,
                Unread::TooSlow | Unread::Broken => Bound::Meaning,
            };
            settings.metrics.bad_request(bound.name());
            trace.ends("INVALID_ARGUMENT");
            return unread.response(settings.bounds.max_message_size);
        }
    };
    let message = match json::request(&body) {
        Ok(message) => message,
        Err(mistake) => {
            settings.metrics.bad_request(Bound::Meaning.name());
            trace.ends("INVALID_ARGUMENT");
            return failure(StatusCode::BAD_REQUEST, &mistake.to_string());
        }
    };
    match answers.answer(message, Deadline::NEVER, &mut trace).await {
        Ok((response, headers)) => {
            trace.ends("OK");
            answer(&response, &headers)
        }
        Err(refusal) => {
            trace.ends(refusal.status());
            let status = match refusal {
                Refusal::BadRequest(_) => StatusCode::BAD_REQUEST,
                Refusal::Undecided(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            failure(status, &refusal.to_string())
        }
    }
}

fn answer(response: &RateLimitResponse, headers: &[Header]) -> Response {
    let Ok(body) = json::response(response) else {
        return failure(StatusCode::INTERNAL_SERVER_ERROR, "the answer has no JSON");
    };
    let status = if response.overall_code() == Code::OverLimit {
        StatusCode::TOO_MANY_REQUESTS
    } else {
        StatusCode::OK
    };
    let mut answer = (status, body).into_response();
    let fields = answer.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for header in headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let value = HeaderValue::from_str(&header.value);
        if let (Ok(name), Ok(value)) = (name, value) {
            fields.insert(name, value);
        }
    }
    answer
}

/// Why a body could not be read.
enum Unread {
    TooLarge,
    TooSlow,
    Crowded,
    Broken,
}

impl Unread {
    fn response(&self, most: usize) -> Response {
        match self {
            Self::TooLarge => failure(
                StatusCode::PAYLOAD_TOO_LARGE,
                &format!("body: longer than {most} bytes"),
            ),
            Self::TooSlow => failure(StatusCode::REQUEST_TIMEOUT, "body: not complete in time"),
            Self::Crowded => failure(
                StatusCode::SERVICE_UNAVAILABLE,
                "body: too many are not complete",
            ),
            Self::Broken => failure(StatusCode::BAD_REQUEST, "body: broke off"),
        }
    }
}

async fn read(body: Body, bounds: Bounds, drain: &Drain) -> Result<Bytes, Unread> {
    let whole = collect(body, bounds);
    let whole = drain.arrival(BODY_TIMEOUT, whole).await;
    whole.unwrap_or(Err(Unread::TooSlow))
}

async fn collect(mut body: Body, bounds: Bounds) -> Result<Bytes, Unread> {
    let mut read = Vec::new();
    let mut unfinished = Unfinished::default();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Unread::Broken)?.into_data() else {
            continue;
        };
        if read.len() + data.len() > bounds.max_message_size {
            return Err(Unread::TooLarge);
        }
        read.extend_from_slice(&data);
        if !body.is_end_stream() && !unfinished.grow(read.len(), bounds.max_unfinished_size) {
            return Err(Unread::Crowded);
        }
    }
    Ok(read.into())
}

/// The status' own words as the body, as the reference writes them, and the reason in a header.
fn failure(status: StatusCode, reason: &str) -> Response {
    let body = format!("{}\n", status.canonical_reason().unwrap_or_default());
    let mut response = (status, body).into_response();
    let fields = response.headers_mut();
    fields.insert(CONTENT_TYPE, TEXT);
    if let Ok(reason) = HeaderValue::from_str(&ascii(reason)) {
        fields.insert(ERROR, reason);
    }
    response
}

/// Printable ASCII, with the rest escaped, and not endless: a mistake may quote the caller.
fn ascii(text: &str) -> String {
    let mut escaped = String::new();
    for byte in text.bytes().take(400) {
        match byte {
            b' '..=b'~' => escaped.push(char::from(byte)),
            _ => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}
