//! Rules and verdicts for the tests of this room.

use std::sync::Arc;

use serde_json::{Map, Value};

use crate::{
    algorithm::{Outcome, Quota, Source},
    request::{Descriptor, Entry, Request},
    rules::{Limit, Modes, Node, NodeId, Place, Rule, Rules, RulesBuilder, Series},
    time::SECOND,
    unit::Unit,
    verdict::Verdict,
};

/// A limit of 10 a minute under the key `key`, for [`rules`] to change.
pub(super) fn rule(key: &str) -> Rule {
    Rule {
        limit: Some(per(10, Unit::Minute)),
        name: "".into(),
        replaces: Box::default(),
        shadow: false,
        quota: false,
        path: format!("d.{key}").into(),
        series: Series::Rule([key.into()].into()),
        metadata: None,
        place: Place::default(),
    }
}

pub(super) fn per(requests_per_unit: u32, unit: Unit) -> Limit {
    Limit {
        requests_per_unit,
        unit: Some(unit),
        window: unit.micros(),
        quota: Quota::FixedWindow {
            limit: requests_per_unit.into(),
            window: unit.micros(),
        },
        cost: 1,
        on_store_failure: None,
    }
}

pub(super) fn metadata(json: &Value) -> Option<Map<String, Value>> {
    json.as_object().cloned()
}

/// Rules of the domain `d`, each under the key its path ends in.
pub(super) fn rules(rules: impl IntoIterator<Item = Rule>) -> Arc<Rules> {
    let mut builder = RulesBuilder::default();
    let mut domain = builder.domain("d");
    for rule in rules {
        let key = rule.path["d.".len()..].to_owned();
        let id = domain.rule(rule);
        let mut node = Node::default();
        node.rule = Some(id);
        node.label = key.as_str().into();
        domain.child(NodeId::ROOT, &key, "", node).unwrap();
    }
    builder.build()
}

/// One hit of each of these keys of the domain `d`, all with the value `x`.
pub(super) fn request(keys: &[&str]) -> Request {
    Request {
        domain: "d".to_owned(),
        descriptors: keys
            .iter()
            .map(|key| Descriptor {
                entries: vec![Entry {
                    key: (*key).to_owned(),
                    value: "x".to_owned(),
                }],
                hits: 1,
                limit: None,
            })
            .collect(),
    }
}

pub(super) fn allowed(remaining: u64) -> Outcome {
    Outcome {
        allowed: true,
        remaining,
        reset_after: 30 * SECOND,
        retry_after: Some(0),
        next_after: Some(6 * SECOND),
        delay: 0,
        used: 1,
        source: Source::Counter,
        basis: None,
    }
}

pub(super) fn refused(retry_after: Option<u64>) -> Outcome {
    Outcome {
        allowed: false,
        remaining: 0,
        retry_after,
        ..allowed(0)
    }
}

pub(super) fn verdict(
    rules: &Arc<Rules>,
    request: &Request,
    modes: Modes,
    outcomes: &[Outcome],
) -> Verdict {
    let plan = rules.plan(request, modes);
    Verdict::new(plan, outcomes.iter().copied().map(Ok).collect()).unwrap()
}
