//! One assertion vocabulary for all conformance cases. A mismatch is text, so that a run reports all of them.

use std::collections::BTreeMap;

use palang::{
    proto::envoy::service::ratelimit::v3::{
        RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus, rate_limit::Unit},
    },
    rules::compile::Domains,
};
use serde_json::Value;

use super::case::{Exchange, Expect, ExpectStatus};
use crate::support::{
    rules,
    service::{HttpAnswer, struct_to_json},
};

pub(crate) fn answer(
    answer: &Result<RateLimitResponse, tonic::Status>,
    expect: &Expect,
) -> Result<(), String> {
    let response = match (answer, &expect.grpc_error) {
        (Ok(response), None) => response,
        (Err(status), Some(error)) => {
            same("code", &grpc_code(status.code()), &error.code)?;
            return contains("message", status.message(), &error.message);
        }
        (other, _) => return Err(format!("answered {other:?}")),
    };
    if let Some(code) = &expect.overall_code {
        same("overall_code", &code_name(response.overall_code), code)?;
    }
    same(
        "number of statuses",
        &response.statuses.len(),
        &expect.statuses.len(),
    )?;
    for (index, (got, want)) in response.statuses.iter().zip(&expect.statuses).enumerate() {
        status(got, want).map_err(|why| format!("statuses[{index}]: {why}"))?;
    }
    if let Some(headers) = &expect.headers {
        let got: Vec<_> = response
            .response_headers_to_add
            .iter()
            .map(|header| (header.key.clone(), header.value.clone()))
            .collect();
        same("headers", &got, headers)?;
    }
    if let Some(metadata) = &expect.dynamic_metadata {
        let got = response.dynamic_metadata.as_ref().map(struct_to_json);
        same(
            "dynamic_metadata",
            &got.as_ref().map(with_floats),
            &Some(with_floats(metadata)),
        )?;
    }
    Ok(())
}

fn status(got: &DescriptorStatus, want: &ExpectStatus) -> Result<(), String> {
    same("code", &code_name(got.code), &want.code)?;
    if let Some(remaining) = want.limit_remaining {
        same("limit_remaining", &got.limit_remaining, &remaining)?;
    }
    if want.has_limit == Some(false) {
        same("current_limit", &got.current_limit, &None)?;
        return same("duration_until_reset", &got.duration_until_reset, &None);
    }
    let limit = got.current_limit.as_ref();
    if let Some(requests) = want.requests_per_unit {
        same(
            "requests_per_unit",
            &limit.map(|limit| limit.requests_per_unit),
            &Some(requests),
        )?;
        let name = want.name.clone().unwrap_or_default();
        same("name", &limit.map(|limit| limit.name.clone()), &Some(name))?;
    }
    if let Some(unit) = &want.unit {
        let got = limit.map(|limit| match Unit::try_from(limit.unit) {
            Ok(unit) => unit.as_str_name().to_owned(),
            Err(_) => limit.unit.to_string(),
        });
        same("unit", &got, &Some(unit.clone()))?;
    }
    if let Some(seconds) = want.duration_until_reset {
        let got = got.duration_until_reset.as_ref();
        same(
            "duration_until_reset",
            &got.map(|duration| (duration.seconds, duration.nanos)),
            &Some((seconds, 0)),
        )?;
    }
    Ok(())
}

pub(crate) fn load_error(
    files: &[(String, String)],
    phrase: &str,
    domains: Domains,
) -> Result<(), String> {
    let mistakes = match rules::load_files(files, domains) {
        Ok(_) => return Err("the rules load".to_owned()),
        Err(mistakes) => mistakes,
    };
    let text = mistakes.to_string();
    if !files.iter().any(|(name, _)| text.contains(name.as_str())) {
        return Err(format!("no file named in: {text}"));
    }
    contains("mistake", &text, phrase)
}

pub(crate) fn http(got: &HttpAnswer, want: &Exchange) -> Result<(), String> {
    same("status", &got.status, &want.status)?;
    if let Some(content_type) = &want.content_type {
        same("content_type", &got.content_type, content_type)?;
    }
    if let Some(body) = &want.body_text {
        same("body", &got.body, body)?;
    }
    if let Some(body) = &want.body_json {
        let got: Value = serde_json::from_str(&got.body)
            .map_err(|error| format!("body is not JSON ({error}): {}", got.body))?;
        same("body", &got, body)?;
    }
    Ok(())
}

pub(crate) fn stats(
    got: &BTreeMap<String, u64>,
    want: &BTreeMap<String, u64>,
) -> Result<(), String> {
    for (name, value) in want {
        same(name, &got.get(name).copied().unwrap_or(0), value)?;
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, want: &T) -> Result<(), String> {
    if got == want {
        Ok(())
    } else {
        Err(format!("{what} is {got:?}, expected {want:?}"))
    }
}

fn contains(what: &str, got: &str, phrase: &str) -> Result<(), String> {
    if got.contains(phrase) {
        Ok(())
    } else {
        Err(format!("{what} is {got:?}, expected in it {phrase:?}"))
    }
}

fn code_name(code: i32) -> String {
    Code::try_from(code).map_or_else(|_| code.to_string(), |code| code.as_str_name().to_owned())
}

fn grpc_code(code: tonic::Code) -> String {
    match code {
        tonic::Code::InvalidArgument => "INVALID_ARGUMENT".to_owned(),
        tonic::Code::Unavailable => "UNAVAILABLE".to_owned(),
        other => format!("{other:?}"),
    }
}

/// A protobuf Struct knows doubles only.
fn with_floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => number.as_f64().map_or(Value::Null, Value::from),
        Value::Array(items) => items.iter().map(with_floats).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), with_floats(value)))
            .collect(),
        other => other.clone(),
    }
}
