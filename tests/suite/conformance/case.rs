//! The shape of the conformance files.

use std::collections::BTreeMap;

use palang::{
    proto::envoy::{
        extensions::common::ratelimit::v3::{
            RateLimitDescriptor,
            rate_limit_descriptor::{Entry, RateLimitOverride},
        },
        service::ratelimit::v3::RateLimitRequest,
    },
    rules::compile::Domains,
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[expect(dead_code, reason = "the clock's start is repeated where it is used")]
    defaults: Value,
    cases: Vec<Case>,
}

/// One case: rules, settings, requests and what must come back.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    pub(crate) id: String,
    #[expect(dead_code, reason = "for readers of the file")]
    area: String,
    #[expect(dead_code, reason = "for readers of the file")]
    confidence: String,
    #[serde(default)]
    #[expect(dead_code, reason = "for readers of the file")]
    quirk: bool,
    pub(crate) ours: Option<String>,
    #[expect(dead_code, reason = "for readers of the file")]
    ours_note: Option<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "our clock is always in the test's hand")]
    needs_mock_clock: bool,
    #[expect(dead_code, reason = "for readers of the file")]
    load_note: Option<String>,
    #[serde(default)]
    #[expect(dead_code, reason = "ours always starts")]
    starts_despite_load_error: bool,
    pub(crate) clock_start: Option<u64>,
    #[serde(default)]
    pub(crate) env: BTreeMap<String, String>,
    config: Value,
    #[serde(default)]
    pub(crate) requests: Vec<Request>,
    #[serde(default)]
    pub(crate) expect: Vec<Expect>,
    pub(crate) load_error: Option<String>,
    #[serde(default)]
    pub(crate) stats_after: BTreeMap<String, u64>,
    #[serde(default)]
    pub(crate) http: Vec<Exchange>,
}

/// Where Palang differs: what takes the place of the case's own fields.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ours {
    pub(crate) id: String,
    pub(crate) reason: String,
    #[serde(default)]
    loads: bool,
    requests: Option<Vec<Request>>,
    expect: Option<Vec<Expect>>,
    stats_after: Option<BTreeMap<String, u64>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Request {
    domain: String,
    descriptors: Vec<Descriptor>,
    #[serde(default)]
    hits_addend: u32,
    #[serde(default)]
    pub(crate) advance_seconds: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Descriptor {
    entries: Vec<(String, String)>,
    limit: Option<Override>,
    hits_addend: Option<u64>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Override {
    requests_per_unit: u32,
    unit: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    pub(crate) overall_code: Option<String>,
    #[serde(default)]
    pub(crate) statuses: Vec<ExpectStatus>,
    pub(crate) headers: Option<Vec<(String, String)>>,
    pub(crate) dynamic_metadata: Option<Value>,
    pub(crate) grpc_error: Option<GrpcError>,
    #[serde(default)]
    #[expect(dead_code, reason = "ours.yaml says what happens instead")]
    process_crash: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectStatus {
    pub(crate) code: String,
    pub(crate) limit_remaining: Option<u32>,
    pub(crate) requests_per_unit: Option<u32>,
    pub(crate) unit: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) duration_until_reset: Option<i64>,
    pub(crate) has_limit: Option<bool>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrpcError {
    pub(crate) code: String,
    pub(crate) message: String,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exchange {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) body: Option<String>,
    pub(crate) status: u16,
    pub(crate) content_type: Option<String>,
    pub(crate) body_text: Option<String>,
    pub(crate) body_json: Option<Value>,
}

pub(crate) fn parse_reference(text: &str) -> Vec<Case> {
    serde_saphyr::from_str::<File>(text)
        .expect("reference.yaml has the shape of case.rs")
        .cases
}

pub(crate) fn parse_ours(text: &str) -> Vec<Ours> {
    serde_saphyr::from_str(text).expect("ours.yaml has the shape of case.rs")
}

impl Case {
    /// The case as it stands for Palang.
    pub(crate) fn with(&self, ours: Option<&Ours>) -> Self {
        let mut case = self.clone();
        if let Some(ours) = ours {
            if ours.loads {
                case.load_error = None;
            }
            if let Some(requests) = &ours.requests {
                case.requests.clone_from(requests);
            }
            if let Some(expect) = &ours.expect {
                case.expect.clone_from(expect);
            }
            if let Some(stats) = &ours.stats_after {
                case.stats_after.clone_from(stats);
            }
        }
        case
    }

    /// The rule files, by name.
    pub(crate) fn rule_files(&self) -> Vec<(String, String)> {
        match &self.config {
            Value::String(text) => vec![("rules.yaml".to_owned(), text.clone())],
            Value::Array(files) => files
                .iter()
                .map(|file| {
                    let field = |name: &str| {
                        file[name]
                            .as_str()
                            .unwrap_or_else(|| panic!("{}: a file has a {name}", self.id))
                            .to_owned()
                    };
                    (field("file"), field("text"))
                })
                .collect(),
            other => panic!("{}: config is {other}", self.id),
        }
    }

    pub(crate) fn domains(&self) -> Domains {
        match self.env.get("MERGE_DOMAIN_CONFIG").map(String::as_str) {
            Some("true") => Domains::Merged,
            _ => Domains::Distinct,
        }
    }
}

impl Request {
    pub(crate) fn to_wire(&self) -> RateLimitRequest {
        RateLimitRequest {
            domain: self.domain.clone(),
            hits_addend: self.hits_addend,
            descriptors: self
                .descriptors
                .iter()
                .map(|descriptor| RateLimitDescriptor {
                    entries: descriptor
                        .entries
                        .iter()
                        .map(|(key, value)| Entry {
                            key: key.clone(),
                            value: value.clone(),
                        })
                        .collect(),
                    limit: descriptor.limit.as_ref().map(|limit| RateLimitOverride {
                        requests_per_unit: limit.requests_per_unit,
                        unit: unit_number(&limit.unit),
                    }),
                    hits_addend: descriptor.hits_addend,
                    is_negative_hits: false,
                })
                .collect(),
        }
    }
}

fn unit_number(unit: &str) -> i32 {
    [
        "UNKNOWN", "SECOND", "MINUTE", "HOUR", "DAY", "MONTH", "YEAR", "WEEK",
    ]
    .iter()
    .position(|name| *name == unit)
    .and_then(|position| i32::try_from(position).ok())
    .unwrap_or_else(|| panic!("no unit {unit}"))
}
