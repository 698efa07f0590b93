//! The keys that are refused and asked most.

use std::fmt::Write as _;

use axum::{
    extract::{RawQuery, State},
    response::{IntoResponse as _, Response},
};
use http::HeaderMap;
use serde_json::{Value, json};

use super::{
    Debug, bad, json,
    query::{Format, Query},
};
use crate::telemetry::metrics::{Listed, Offender};

/// Keys that are shown where the question does not say how many.
const SHOWN: usize = 10;

pub(super) async fn show<S>(
    State(debug): State<Debug<S>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let query = Query::new(query.as_deref().unwrap_or_default());
    let query = match query.only(&["domain", "most", "format"]) {
        Ok(query) => query,
        Err(wrong) => return bad(&wrong),
    };
    let most = match query.value("most").map(str::parse) {
        None => SHOWN,
        Some(Ok(most)) => most,
        Some(Err(_)) => return bad("most=: expected a whole number"),
    };
    let mut listed = debug.metrics.top(most);
    if let Some(domain) = query.value("domain") {
        listed.retain(|listed| listed.domain == domain);
    }
    match query.format(&headers) {
        Format::Json => json(&listed.iter().map(as_json).collect()),
        Format::Text => as_text(&listed).into_response(),
    }
}

fn as_json(listed: &Listed) -> Value {
    let rows = |offenders: &[Offender]| -> Value {
        offenders
            .iter()
            .map(|offender| {
                json!({
                    "key": offender.key,
                    "rule": offender.rule,
                    "hits": offender.hits,
                    "error": offender.error,
                })
            })
            .collect()
    };
    json!({
        "domain": listed.domain,
        "refused": rows(&listed.refused),
        "asked": rows(&listed.asked),
    })
}

fn as_text(listed: &[Listed]) -> String {
    let mut text = String::from("hits of the last minutes (halved each minute), key, rule\n");
    for listed in listed {
        for (what, offenders) in [("refused", &listed.refused), ("asked", &listed.asked)] {
            let _ = writeln!(text, "\n{}, most {what}:", listed.domain);
            for offender in offenders {
                let _ = write!(text, "{:>10}", offender.hits);
                if offender.error > 0 {
                    let _ = write!(text, " (at least {})", offender.hits - offender.error);
                }
                let _ = writeln!(text, "  {}  {}", offender.key, offender.rule);
            }
        }
    }
    text
}
