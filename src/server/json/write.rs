//! A `RateLimitResponse` as protobuf's JSON: lower camel case, names of enums, defaults left out.

use prost_types::{Duration, ListValue, Struct, Value, value::Kind};
use serde::{Serialize, Serializer, ser::SerializeMap as _};

use crate::proto::envoy::{
    config::core::v3::HeaderValue,
    service::ratelimit::v3::{
        RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus, RateLimit, rate_limit::Unit},
    },
};

/// Writes an answer.
///
/// # Errors
/// Never, in effect: nothing in an answer is beyond JSON.
pub fn response(response: &RateLimitResponse) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&Response {
        overall_code: code(response.overall_code),
        statuses: response.statuses.iter().map(Status::from).collect(),
        response_headers_to_add: response
            .response_headers_to_add
            .iter()
            .map(Header::from)
            .collect(),
        dynamic_metadata: response.dynamic_metadata.as_ref().map(Fields),
    })
}

/// `request_headers_to_add`, `raw_body` and `quota` are never set in an answer of ours.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    overall_code: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    statuses: Vec<Status<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    response_headers_to_add: Vec<Header<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dynamic_metadata: Option<Fields<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Status<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_limit: Option<Limit<'a>>,
    #[serde(skip_serializing_if = "is_zero")]
    limit_remaining: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_until_reset: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Limit<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    requests_per_unit: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    unit: Option<&'static str>,
}

#[derive(Serialize)]
struct Header<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    value: &'a str,
}

impl<'a> From<&'a DescriptorStatus> for Status<'a> {
    fn from(status: &'a DescriptorStatus) -> Self {
        Self {
            code: code(status.code),
            current_limit: status.current_limit.as_ref().map(Limit::from),
            limit_remaining: status.limit_remaining,
            duration_until_reset: status.duration_until_reset.as_ref().map(duration),
        }
    }
}

impl<'a> From<&'a RateLimit> for Limit<'a> {
    fn from(limit: &'a RateLimit) -> Self {
        Self {
            name: &limit.name,
            requests_per_unit: limit.requests_per_unit,
            unit: match limit.unit() {
                Unit::Unknown => None,
                unit => Some(unit.as_str_name()),
            },
        }
    }
}

impl<'a> From<&'a HeaderValue> for Header<'a> {
    fn from(header: &'a HeaderValue) -> Self {
        Self {
            key: &header.key,
            value: &header.value,
        }
    }
}

fn code(number: i32) -> Option<&'static str> {
    match Code::try_from(number) {
        Ok(Code::Ok) => Some("OK"),
        Ok(Code::OverLimit) => Some("OVER_LIMIT"),
        Ok(Code::Unknown) | Err(_) => None,
    }
}

/// Whole seconds: an answer has no others.
fn duration(duration: &Duration) -> String {
    format!("{}s", duration.seconds)
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde calls it with a reference"
)]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

struct Fields<'a>(&'a Struct);

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.fields.len()))?;
        for (name, value) in &self.0.fields {
            map.serialize_entry(name, &Any(value))?;
        }
        map.end()
    }
}

struct Any<'a>(&'a Value);

impl Serialize for Any<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.kind {
            None | Some(Kind::NullValue(_)) => serializer.serialize_unit(),
            Some(Kind::BoolValue(flag)) => serializer.serialize_bool(*flag),
            Some(Kind::NumberValue(number)) => {
                // A whole number is written without a fraction, as protobuf does. Below 2^53 the cast is exact.
                if number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0 {
                    serializer.serialize_i64(*number as i64)
                } else {
                    serializer.serialize_f64(*number)
                }
            }
            Some(Kind::StringValue(text)) => serializer.serialize_str(text),
            Some(Kind::StructValue(fields)) => Fields(fields).serialize(serializer),
            Some(Kind::ListValue(ListValue { values })) => {
                serializer.collect_seq(values.iter().map(Any))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_are_written_as_protobuf_writes_them() {
        let mut metadata = Struct::default();
        for (name, kind) in [
            ("whole", Kind::NumberValue(3.0)),
            ("part", Kind::NumberValue(1.5)),
            ("text", Kind::StringValue("x".to_owned())),
            ("none", Kind::NullValue(0)),
        ] {
            metadata
                .fields
                .insert(name.to_owned(), Value { kind: Some(kind) });
        }
        let answer = RateLimitResponse {
            overall_code: Code::OverLimit.into(),
            statuses: vec![
                DescriptorStatus {
                    code: Code::OverLimit.into(),
                    current_limit: Some(RateLimit {
                        name: String::new(),
                        requests_per_unit: 10,
                        unit: Unit::Week.into(),
                    }),
                    limit_remaining: 0,
                    duration_until_reset: Some(Duration {
                        seconds: 58,
                        nanos: 0,
                    }),
                    quota: None,
                },
                DescriptorStatus {
                    code: Code::Ok.into(),
                    limit_remaining: u32::MAX,
                    ..DescriptorStatus::default()
                },
            ],
            response_headers_to_add: vec![HeaderValue {
                key: "RateLimit-Limit".to_owned(),
                value: "10".to_owned(),
                raw_value: Vec::new(),
            }],
            dynamic_metadata: Some(metadata),
            ..RateLimitResponse::default()
        };
        let written: serde_json::Value =
            serde_json::from_slice(&response(&answer).unwrap()).unwrap();
        assert_eq!(
            written,
            json!({
                "overallCode": "OVER_LIMIT",
                "statuses": [
                    {
                        "code": "OVER_LIMIT",
                        "currentLimit": {"requestsPerUnit": 10, "unit": "WEEK"},
                        "durationUntilReset": "58s",
                    },
                    {"code": "OK", "limitRemaining": 4_294_967_295_u32},
                ],
                "responseHeadersToAdd": [{"key": "RateLimit-Limit", "value": "10"}],
                "dynamicMetadata": {"whole": 3, "part": 1.5, "text": "x", "none": null},
            })
        );
        assert_eq!(response(&RateLimitResponse::default()).unwrap(), b"{}");
    }
}
