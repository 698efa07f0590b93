//! The ports for operators run apart from the workers, and so answer while those are busy. Here is how they are served,
//! and the metrics port.

use std::{io, sync::Arc};

use axum::{Router, extract::State, response::IntoResponse, routing::get};
use http::{
    HeaderMap,
    header::{ACCEPT, CONTENT_TYPE},
};

use tokio_util::task::TaskTracker;

use super::{connection, drain::Drain, listener::Listener};
use crate::{
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

/// In OpenMetrics for who asks for it, as Prometheus does: only there is room for traces beside counters.
async fn exposition(State(metrics): State<Arc<Metrics>>, headers: HeaderMap) -> impl IntoResponse {
    let is_asked = headers
        .get(ACCEPT)
        .and_then(|accept| accept.to_str().ok())
        .is_some_and(|accept| accept.contains("application/openmetrics-text"));
    if is_asked {
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        ([(CONTENT_TYPE, kind)], metrics.openmetrics())
    } else {
        let kind = "text/plain; version=0.0.4; charset=utf-8";
        ([(CONTENT_TYPE, kind)], metrics.prometheus())
    }
}
