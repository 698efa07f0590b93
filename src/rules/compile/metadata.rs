//! `metadata`: any YAML, as JSON.

use serde_json::{Map, Number, Value as Json};

use super::vocabulary::shown;
use crate::rules::{
    file::{Node, Pair, Value},
    report::Report,
    scalar::Meaning,
};

/// The mapping as JSON. Keys that are no text are taken as they are written.
pub(super) fn object(pairs: &[Pair], rule: &str, report: &mut Report) -> Map<String, Json> {
    let mut object = Map::with_capacity(pairs.len());
    for pair in pairs {
        let Some(key) = pair.key.as_scalar() else {
            report.mistake(
                pair.key.at,
                rule,
                format!(
                    "error parsing metadata: a key is text, not {}",
                    shown(&pair.key)
                ),
            );
            continue;
        };
        let value = json(&pair.value, rule, report);
        if object.insert(key.text.to_string(), value).is_some() && pair.merged.is_none() {
            report.warning(
                pair.key.at,
                rule,
                format!(
                    "'{}' is written twice in metadata, and the last one wins",
                    shown(&pair.key)
                ),
            );
        }
    }
    object
}

fn json(node: &Node, rule: &str, report: &mut Report) -> Json {
    match &node.value {
        Value::Map(pairs) => Json::Object(object(pairs, rule, report)),
        Value::List(items) => {
            Json::Array(items.iter().map(|item| json(item, rule, report)).collect())
        }
        Value::Scalar(scalar) => {
            let text = || Json::String(scalar.text.to_string());
            match scalar.meaning() {
                Meaning::Null => Json::Null,
                Meaning::Bool(flag) => Json::Bool(flag),
                Meaning::Int(number) => Number::from_i128(number).map_or_else(text, Json::Number),
                Meaning::Float(number) => Number::from_f64(number).map_or_else(
                    || {
                        report.warning(
                            node.at,
                            rule,
                            "metadata has no infinity or NaN, it is given as text",
                        );
                        text()
                    },
                    Json::Number,
                ),
                Meaning::Text => text(),
            }
        }
    }
}
