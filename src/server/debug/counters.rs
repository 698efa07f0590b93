//! Reading and resetting counters, for who has the token. What is reset is told in the log.

use axum::{
    extract::{RawQuery, State},
    response::{IntoResponse as _, Response},
};
use http::HeaderMap;
use serde_json::{Value, json};

use super::{
    Debug, bad, json,
    query::{Format, Query},
    token, unavailable,
};
use crate::{
    counter::{Selection, Under},
    limiter::Limiter,
    request::Entry,
    store::{Store, StoreError},
};

/// How the counters of a request stand.
pub(super) async fn show<S: Store>(
    State(debug): State<Debug<S>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    if let Some(refused) = token::refused(&debug.token, &headers) {
        return refused;
    }
    let query = Query::new(query.as_deref().unwrap_or_default());
    let asked = query
        .only(&["domain", "descriptor", "format"])
        .and_then(|query| Ok((query.request(0)?, query)));
    let (request, query) = match asked {
        Ok(asked) => asked,
        Err(wrong) => return bad(&wrong),
    };
    let explanation = match (debug.limiter)().explain(request).await {
        Ok(explanation) => explanation,
        Err(undecided) => return unavailable(&undecided),
    };
    if let Some(error) = explanation.failure() {
        return unavailable(error);
    }
    let counters: Vec<Value> = explanation
        .counters()
        .map(|(key, outcome)| {
            json!({
                "counter": format!("{key:?}"),
                "used": outcome.map(|outcome| outcome.used),
                "remaining": outcome.map(|outcome| outcome.remaining),
                "reset_after_us": outcome.map(|outcome| outcome.reset_after),
            })
        })
        .collect();
    match query.format(&headers) {
        Format::Json => json(&Value::Array(counters)),
        Format::Text => counters
            .iter()
            .map(|counter| {
                format!(
                    "{}: {} used, {} left\n",
                    counter["counter"].as_str().unwrap_or_default(),
                    counter["used"],
                    counter["remaining"]
                )
            })
            .collect::<String>()
            .into_response(),
    }
}

/// Forgets what was taken from the counters of a request, or from all below its entries.
pub(super) async fn reset<S: Store>(
    State(debug): State<Debug<S>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    if let Some(refused) = token::refused(&debug.token, &headers) {
        return refused;
    }
    let query = Query::new(query.as_deref().unwrap_or_default());
    let query = match query.only(&["domain", "descriptor", "prefix", "all", "format"]) {
        Ok(query) => query,
        Err(wrong) => return bad(&wrong),
    };
    let limiter = (debug.limiter)();
    let selections = match selected(&limiter, &query).await {
        Ok(selections) => selections,
        Err(wrong) => return bad(&wrong),
    };
    let mut forgotten = 0;
    let mut failure: Option<StoreError> = None;
    for selection in &selections {
        match limiter.store().forget(selection).await {
            Ok(count) => forgotten += count,
            Err(error) => failure = Some(error),
        }
    }
    tracing::info!(
        selected = format!("{selections:?}"),
        forgotten,
        failure = failure.as_ref().map(ToString::to_string),
        "counters reset by an operator"
    );
    match failure {
        Some(error) => unavailable(&error),
        None => match query.format(&headers) {
            Format::Json => json(&json!({"forgotten": forgotten})),
            Format::Text => format!("forgotten: {forgotten}\n").into_response(),
        },
    }
}

/// Why a prefix selects nothing.
const TOO_LONG: &str = "prefix=true: these entries are too long, because the last entries of long keys are hashed \
                        together: leave some of them out, or reset one descriptor without prefix=true";

/// Why all counters of a domain are not selected.
const WHOLE: &str = "prefix=true without descriptor= is the whole domain: say so with all=true";

/// Why `all=true` selects nothing.
const NOT_ALL: &str = "all=true is for prefix=true without descriptor=";

async fn selected<S: Store>(limiter: &Limiter<S>, query: &Query) -> Result<Vec<Selection>, String> {
    let (is_prefix, is_all) = (query.switch("prefix")?, query.switch("all")?);
    if is_all && !is_prefix {
        return Err(NOT_ALL.to_owned());
    }
    if is_prefix {
        let domain = query.domain()?;
        let descriptors = query.descriptors(0)?;
        if descriptors.is_empty() != is_all {
            return Err(if is_all { NOT_ALL } else { WHOLE }.to_owned());
        }
        let prefixes: Vec<&[Entry]> = match descriptors.is_empty() {
            true => vec![&[]],
            false => descriptors
                .iter()
                .map(|descriptor| &*descriptor.entries)
                .collect(),
        };
        return prefixes
            .into_iter()
            .map(|entries| {
                let pairs = entries
                    .iter()
                    .map(|entry| (entry.key.as_str(), entry.value.as_str()));
                let under = Under::new(domain, pairs).ok_or(TOO_LONG)?;
                Ok(Selection::Under(under))
            })
            .collect();
    }
    let request = query.request(0)?;
    let explanation = limiter
        .explain(request)
        .await
        .map_err(|undecided| undecided.to_string())?;
    let selections: Vec<Selection> = explanation
        .counters()
        .map(|(key, _)| Selection::One(key.clone()))
        .collect();
    if selections.is_empty() {
        return Err("no limit applies: there is no counter".to_owned());
    }
    Ok(selections)
}
