//! The debug port: what is in force, who is being limited, why a call is answered as it is, and, behind a token, the
//! counters themselves. Listens on the loopback unless told otherwise.

mod args;
mod counters;
mod profile;
mod query;
mod token;
mod top;

use std::{fmt, sync::Arc};

use axum::{
    Router,
    extract::{RawQuery, State},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use http::{HeaderMap, HeaderValue, StatusCode, header::CONTENT_TYPE};
use serde_json::Value;

pub use args::AdminArgs;
use query::{Format, Query};

use crate::{
    limiter::{InForce, Limiter},
    secret::Secret,
    store::Store,
    telemetry::metrics::Metrics,
};

/// The paths there are and what they show.
const INDEX: &str = "\
/: this list
/counter?domain=D&descriptor=K=V,K=V: how a counter stands; needs the token
/debug/pprof/heap[?seconds=N]: who holds what was allocated in N seconds, for pprof; needs the token
/debug/pprof/profile[?seconds=N]: where the CPU time of N seconds goes, for pprof; needs the token
/explain?domain=D&descriptor=K=V,K=V[&hits=N]: which rules apply and why, and what the answer would be; charges nothing
/reset?domain=D&descriptor=K=V,K=V[&prefix=true]: POST, forgets a counter, or all below the entries; needs the token
/reset?domain=D&prefix=true&all=true: POST, forgets all counters of the domain; needs the token
/rlconfig: the rules in force
/stats: the counters
/top[?domain=D&most=N]: the keys that are refused and asked most

Several descriptors: repeat descriptor=. JSON instead of text: &format=json.
The token: Authorization: Bearer, with the value of ADMIN_TOKEN; without that setting what needs it is closed.
";

/// What the debug port serves from.
pub struct Debug<S> {
    rules: Arc<InForce>,
    metrics: Arc<Metrics>,
    token: Secret,
    /// A limiter for one question: the workers' own belong to their threads.
    limiter: Arc<dyn Fn() -> Limiter<S> + Send + Sync>,
}

impl<S> Debug<S> {
    /// A debug port over these. `limiter` is called on the port's runtime.
    pub fn new(
        rules: Arc<InForce>,
        metrics: Arc<Metrics>,
        token: Secret,
        limiter: impl Fn() -> Limiter<S> + Send + Sync + 'static,
    ) -> Self {
        Self {
            rules,
            metrics,
            token,
            limiter: Arc::new(limiter),
        }
    }
}

impl<S> Clone for Debug<S> {
    fn clone(&self) -> Self {
        Self {
            rules: Arc::clone(&self.rules),
            metrics: Arc::clone(&self.metrics),
            token: self.token.clone(),
            limiter: Arc::clone(&self.limiter),
        }
    }
}

impl<S> fmt::Debug for Debug<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Debug").finish_non_exhaustive()
    }
}

/// The debug port.
pub fn router<S: Store + 'static>(debug: Debug<S>) -> Router {
    Router::new()
        .route("/", get(async || INDEX))
        .route("/counter", get(counters::show::<S>))
        .route("/debug/pprof/heap", get(profile::heap::<S>))
        .route("/debug/pprof/profile", get(profile::cpu::<S>))
        .route("/explain", get(explain::<S>))
        .route("/reset", post(counters::reset::<S>))
        .route("/rlconfig", get(rlconfig::<S>))
        .route("/stats", get(stats::<S>))
        .route("/top", get(top::show::<S>))
        .with_state(debug)
}

async fn rlconfig<S>(State(debug): State<Debug<S>>) -> String {
    match debug.rules.rules() {
        Some(rules) => debug.metrics.stale_rules() + &rules.dump(),
        None => debug.metrics.stale_rules() + "no config\n",
    }
}

async fn stats<S>(State(debug): State<Debug<S>>) -> String {
    debug.metrics.stats()
}

async fn explain<S: Store>(
    State(debug): State<Debug<S>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let query = Query::new(query.as_deref().unwrap_or_default());
    let asked = query
        .only(&["domain", "descriptor", "hits", "format"])
        .and_then(|query| Ok((query.request(1)?, query)));
    let (request, query) = match asked {
        Ok(asked) => asked,
        Err(wrong) => return bad(&wrong),
    };
    match (debug.limiter)().explain(request).await {
        Ok(explanation) => match query.format(&headers) {
            Format::Text => explanation.to_string().into_response(),
            Format::Json => json(&explanation.json()),
        },
        Err(undecided) => unavailable(&undecided),
    }
}

fn json(value: &Value) -> Response {
    let json = HeaderValue::from_static("application/json");
    ([(CONTENT_TYPE, json)], format!("{value}\n")).into_response()
}

fn bad(wrong: &str) -> Response {
    (StatusCode::BAD_REQUEST, format!("{wrong}\n")).into_response()
}

fn unavailable(cause: &impl fmt::Display) -> Response {
    (StatusCode::SERVICE_UNAVAILABLE, format!("{cause}\n")).into_response()
}
