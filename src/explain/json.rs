//! An explanation for programs.

use serde_json::{Map, Value, json};

use super::{Answer, Explanation, Row, meaning};
use crate::{
    algorithm::{Outcome, Source},
    request::Entry,
    rules::{Step, Walk},
    shown::Shown,
    verdict::Code,
};

impl Explanation {
    /// As JSON. Times are microseconds.
    pub fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert(
            "domain".to_owned(),
            json!(Shown(&self.request.domain).to_string()),
        );
        let hash = format!("{:016x}", self.plan.rules.hash());
        object.insert("rules_hash".to_owned(), json!(hash));
        match &self.answer {
            Answer::NotAsked => {}
            Answer::Failed(error) => {
                object.insert("error".to_owned(), json!(error.to_string()));
            }
            Answer::Verdict(verdict) => {
                object.insert("code".to_owned(), json!(code(verdict.code)));
                object.insert("shadow_mode".to_owned(), json!(verdict.shadowed));
                object.insert("binding".to_owned(), json!(verdict.binding));
            }
        }
        let descriptors: Vec<Value> = self.rows().map(|row| self.row_json(&row)).collect();
        object.insert("descriptors".to_owned(), Value::Array(descriptors));
        Value::Object(object)
    }

    fn row_json(&self, row: &Row<'_>) -> Value {
        let entries: Vec<Value> = row.descriptor.entries.iter().map(entry).collect();
        let mut object = Map::new();
        let mut set = |name: &str, value: Value| object.insert(name.to_owned(), value);
        set("entries", Value::Array(entries));
        set("walk", walk(row.walk));
        set("result", json!(meaning(row.step).0));
        if let Some(rule) = row.rule {
            set(
                "rule",
                json!({
                    "path": rule.path,
                    "name": rule.name,
                    "place": rule.place.to_string(),
                    "shadow": rule.shadow,
                    "quota": rule.quota,
                }),
            );
        }
        if let (Some(limit), Step::Limited { counter, .. }) = (row.limit, row.step) {
            let counter = &self.plan.counters[*counter];
            set(
                "limit",
                json!({
                    "requests_per_unit": limit.requests_per_unit,
                    "unit": limit.unit.map(|unit| unit.name()),
                    "window_us": limit.window,
                    "algorithm": limit.quota.algorithm(),
                    "capacity": limit.quota.capacity(),
                    "cost": limit.cost,
                }),
            );
            set("counter", json!(format!("{:?}", counter.key)));
            set("takes", json!(counter.hits));
        }
        if let Some(outcome) = &row.outcome {
            set("state", state(outcome));
        }
        Value::Object(object)
    }
}

fn entry(entry: &Entry) -> Value {
    json!({
        "key": Shown(&entry.key).to_string(),
        "value": Shown(&entry.value).to_string(),
    })
}

fn walk(walk: &Walk) -> Value {
    let levels: Vec<Value> = walk
        .levels
        .iter()
        .map(|level| {
            let tried: Vec<Value> = level
                .tried
                .iter()
                .map(|tried| {
                    json!({
                        "node": tried.node,
                        "taken": tried.why.is_taken(),
                        "why": tried.why.text(),
                    })
                })
                .collect();
            json!({
                "key": Shown(&level.entry.key).to_string(),
                "value": Shown(&level.entry.value).to_string(),
                "tried": tried,
                "not_shown": level.not_shown,
            })
        })
        .collect();
    json!({"levels": levels, "end": walk.end.text()})
}

fn state(outcome: &Outcome) -> Value {
    json!({
        "allowed": outcome.allowed,
        "used": outcome.used,
        "remaining": outcome.remaining,
        "reset_after_us": outcome.reset_after,
        "retry_after_us": outcome.retry_after,
        "source": match outcome.source {
            Source::Counter => "store",
            Source::DenyCache => "deny_cache",
            Source::Local => "local",
        },
    })
}

const fn code(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::OverLimit => "OVER_LIMIT",
    }
}
