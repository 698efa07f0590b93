//! The ports for operators: metrics, and what is in force. They run apart from the workers, and so answer while those
//! are busy.

use std::{io, sync::Arc};

use axum::{Router, extract::State, response::IntoResponse, routing::get};
use http::header::CONTENT_TYPE;

use tokio_util::task::TaskTracker;

use super::{connection, drain::Drain, listener::Listener};
use crate::{
    limiter::InForce,
    telemetry::{metrics::Metrics, throttle::Throttle},
    time::Clock,
};

/// Serves an admin port on this runtime until the drain begins; what is in flight finishes until it ends.
///
/// # Errors
/// When the socket cannot be watched.
pub async fn serve(listener: Listener, router: Router, drain: Drain) -> io::Result<()> {
    let connections = TaskTracker::new();
    let failures = Throttle::new(Clock::system());
    let take = |stream| {
        // Operators and scrapers are few. Whoever holds more open than that is neither.
        if connections.len() < MOST {
            let (router, drain) = (router.clone(), drain.clone());
            connections.spawn(async move { connection::http(stream, router, &drain).await });
        }
    };
    tokio::select! {
        ended = listener.accept(&failures, take) => ended?,
        () = drain.begun() => {}
    }
    connections.close();
    tokio::select! {
        () = connections.wait() => {}
        () = drain.over() => {}
    }
    Ok(())
}

/// Most connections of an admin port.
const MOST: usize = 100;

/// The metrics port.
pub fn metrics(path: &str, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route(path, get(exposition))
        .with_state(metrics)
}

async fn exposition(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        metrics.prometheus(),
    )
}

#[derive(Clone)]
struct Debug {
    rules: Arc<InForce>,
    metrics: Arc<Metrics>,
}

/// The debug port.
pub fn debug(rules: Arc<InForce>, metrics: Arc<Metrics>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/rlconfig", get(rlconfig))
        .route("/stats", get(stats))
        .with_state(Debug { rules, metrics })
}

/// The paths there are, sorted.
async fn index() -> &'static str {
    "/: this list\n/rlconfig: the rules in force\n/stats: the counters\n"
}

async fn rlconfig(State(debug): State<Debug>) -> String {
    match debug.rules.rules() {
        Some(rules) => debug.metrics.stale_rules() + &rules.dump(),
        None => debug.metrics.stale_rules() + "no config\n",
    }
}

async fn stats(State(debug): State<Debug>) -> String {
    debug.metrics.stats()
}
