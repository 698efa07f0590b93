//! Profiles, for `go tool pprof` and what else reads its format.

use std::time::Duration;

use axum::{
    extract::{RawQuery, State},
    response::{IntoResponse as _, Response},
};
use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_DISPOSITION, CONTENT_TYPE},
};

use super::{Debug, query::Query, token};
use crate::telemetry::profile::{self, Unprofiled};

/// Seconds where the question does not say how many, and the most it may say.
const SECONDS: u64 = 10;
const MOST: u64 = 120;

pub(super) async fn cpu<S>(
    State(debug): State<Debug<S>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    take(&debug, query, &headers, "cpu", profile::cpu).await
}

pub(super) async fn heap<S>(
    State(debug): State<Debug<S>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    take(&debug, query, &headers, "heap", profile::heap).await
}

async fn take<S, F>(
    debug: &Debug<S>,
    query: Option<String>,
    headers: &HeaderMap,
    what: &'static str,
    profile: impl FnOnce(Duration) -> F,
) -> Response
where
    F: Future<Output = Result<Vec<u8>, Unprofiled>> + Send,
{
    if let Some(refused) = token::refused(&debug.token, headers) {
        return refused;
    }
    let query = Query::new(query.as_deref().unwrap_or_default());
    let seconds = match query.value("seconds").map(str::parse) {
        None => SECONDS,
        Some(Ok(seconds)) if (1..=MOST).contains(&seconds) => seconds,
        Some(_) => {
            let wrong = format!("seconds=: expected a whole number from 1 to {MOST}\n");
            return (StatusCode::BAD_REQUEST, wrong).into_response();
        }
    };
    tracing::info!(what, seconds, "an operator takes a profile");
    let taken = profile(Duration::from_secs(seconds)).await;
    match taken {
        Ok(bytes) => {
            tracing::info!(what, seconds, bytes = bytes.len(), "a profile was taken");
            let name = format!("attachment; filename=\"{what}.pb.gz\"");
            let kind = "application/octet-stream".to_owned();
            ([(CONTENT_TYPE, kind), (CONTENT_DISPOSITION, name)], bytes).into_response()
        }
        Err(cause) => {
            tracing::warn!(what, %cause, "no profile was taken");
            let status = match cause {
                Unprofiled::Busy => StatusCode::CONFLICT,
                Unprofiled::NoHeapProfile => StatusCode::NOT_IMPLEMENTED,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            };
            (status, format!("{cause}\n")).into_response()
        }
    }
}
