//! The dynamic metadata of an answer: what was asked, and what the rules that let it pass have to say.

use prost_types::{ListValue, Struct, Value, value::Kind};
use serde_json::{Map, Value as Json};

use super::wire::Addends;
use crate::{
    request::{Descriptor, Request},
    verdict::{Code, Verdict},
};

/// The metadata of `verdict` on `request`.
pub(super) fn of(verdict: &Verdict, request: &Request, addends: &Addends) -> Struct {
    let mut fields = Struct::default();
    set(&mut fields, "domain", text(&request.domain));
    let descriptors = request
        .descriptors
        .iter()
        .enumerate()
        .map(|(index, asked)| {
            let addend = addends.descriptors.get(index).copied().flatten();
            descriptor(asked, addend)
        });
    set(&mut fields, "descriptors", list(descriptors));
    if addends.request != 0 {
        set(&mut fields, "hitsAddend", number(addends.request.into()));
    }
    let merged = merged(verdict);
    if !merged.is_empty() {
        set(&mut fields, "metadata", structure(object(&merged)));
    }
    let policies: Vec<Value> = verdict
        .policies()
        .map(|policy| text(policy.name()))
        .collect();
    if !policies.is_empty() {
        set(&mut fields, "policy_answer", list(policies.into_iter()));
    }
    if verdict.delay() > 0 {
        let delay = verdict.delay() as f64 / 1_000.0;
        set(&mut fields, "delay_ms", number(delay));
    }
    fields
}

fn descriptor(descriptor: &Descriptor, addend: Option<u64>) -> Value {
    let mut fields = Struct::default();
    let entries = descriptor
        .entries
        .iter()
        .map(|entry| text(&format!("{}={}", entry.key, entry.value)));
    set(&mut fields, "entries", list(entries));
    if let Some(limit) = descriptor.limit {
        let mut brought = Struct::default();
        let unit = limit.unit.name().to_ascii_uppercase();
        set(
            &mut brought,
            "requests_per_unit",
            number(limit.requests_per_unit.into()),
        );
        set(&mut brought, "unit", text(&unit));
        set(&mut fields, "limit", structure(brought));
    }
    if let Some(addend) = addend {
        set(&mut fields, "hitsAddend", number(addend as f64));
    }
    structure(fields)
}

/// The metadata of the rules whose descriptors pass, in order: the first value of a name wins, maps are merged.
fn merged(verdict: &Verdict) -> Map<String, Json> {
    let mut merged = Map::new();
    for (index, status) in verdict.statuses.iter().enumerate() {
        if status.code != Code::Ok {
            continue;
        }
        if let Some(metadata) = verdict.rule(index).and_then(|rule| rule.metadata.as_ref()) {
            merge(&mut merged, metadata);
        }
    }
    merged
}

fn merge(into: &mut Map<String, Json>, from: &Map<String, Json>) {
    for (name, value) in from {
        match (into.get_mut(name), value) {
            (None, _) => {
                into.insert(name.clone(), value.clone());
            }
            (Some(Json::Object(into)), Json::Object(from)) => merge(into, from),
            (Some(_), _) => {}
        }
    }
}

fn set(fields: &mut Struct, name: &str, value: Value) {
    fields.fields.insert(name.to_owned(), value);
}

fn object(map: &Map<String, Json>) -> Struct {
    let mut fields = Struct::default();
    for (name, json) in map {
        set(&mut fields, name, value(json));
    }
    fields
}

fn value(json: &Json) -> Value {
    match json {
        Json::Null => kind(Kind::NullValue(0)),
        Json::Bool(flag) => kind(Kind::BoolValue(*flag)),
        Json::Number(digits) => number(digits.as_f64().unwrap_or(f64::NAN)),
        Json::String(string) => text(string),
        Json::Array(values) => list(values.iter().map(value)),
        Json::Object(map) => structure(object(map)),
    }
}

const fn kind(kind: Kind) -> Value {
    Value { kind: Some(kind) }
}

fn text(text: &str) -> Value {
    kind(Kind::StringValue(text.to_owned()))
}

const fn number(number: f64) -> Value {
    kind(Kind::NumberValue(number))
}

fn list(values: impl Iterator<Item = Value>) -> Value {
    kind(Kind::ListValue(ListValue {
        values: values.collect(),
    }))
}

const fn structure(fields: Struct) -> Value {
    kind(Kind::StructValue(fields))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        algorithm::Outcome,
        request::Override,
        rules::{Modes, Rule},
        server::{
            fixtures::{allowed, metadata, refused, request, rule, rules, verdict},
            json::response,
        },
        unit::Unit,
    };

    #[track_caller]
    fn check(rule_metadata: &[Json], outcomes: &[Outcome], expected: &Json) {
        let keys = ["a", "b"];
        let rules = rules(keys.iter().zip(rule_metadata).map(|(key, json)| Rule {
            metadata: metadata(json),
            quota: true,
            ..rule(key)
        }));
        let request = request(&keys[..rule_metadata.len()]);
        for _ in 0..2 {
            // The second time shows that the first left nothing behind.
            let verdict = verdict(&rules, &request, Modes::default(), outcomes);
            let shown = of(&verdict, &request, &Addends::default());
            assert_eq!(as_json(shown)["metadata"], *expected);
        }
    }

    fn as_json(fields: Struct) -> Json {
        let answer = crate::proto::envoy::service::ratelimit::v3::RateLimitResponse {
            dynamic_metadata: Some(fields),
            ..Default::default()
        };
        let written: Json = serde_json::from_slice(&response(&answer).unwrap()).unwrap();
        written["dynamicMetadata"].clone()
    }

    #[test]
    fn metadata_of_passing_rules_is_merged() {
        check(
            &[json!({"svc": "one"}), json!({"svc": "two"})],
            &[refused(Some(1)), allowed(4)],
            &json!({"svc": "two"}),
        );
        check(
            &[
                json!({"svc": "one", "nest": {"p": 1}}),
                json!({"svc": "two", "extra": ["e"], "nest": {"p": 2, "q": 3}}),
            ],
            &[allowed(1), allowed(4)],
            &json!({"svc": "one", "extra": ["e"], "nest": {"p": 1, "q": 3}}),
        );
        check(&[json!({})], &[allowed(1)], &Json::Null);
    }

    #[test]
    fn the_request_is_repeated() {
        let mut asked = request(&["a", "none"]);
        asked.descriptors[1].limit = Some(Override {
            requests_per_unit: 5,
            unit: Unit::Week,
        });
        let addends = Addends {
            request: 2,
            descriptors: vec![Some(0), None],
        };
        let delayed = Outcome {
            delay: 1_500,
            ..allowed(1)
        };
        let verdict = verdict(
            &rules([rule("a")]),
            &asked,
            Modes::default(),
            &[delayed, allowed(1)],
        );
        assert_eq!(
            as_json(of(&verdict, &asked, &addends)),
            json!({
                "domain": "d",
                "descriptors": [
                    {"entries": ["a=x"], "hitsAddend": 0},
                    {"entries": ["none=x"], "limit": {"requests_per_unit": 5, "unit": "WEEK"}},
                ],
                "hitsAddend": 2,
                "delay_ms": 1.5,
            })
        );
    }
}
