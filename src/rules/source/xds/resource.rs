//! What a control plane sends, in the shape that a rule file has: both are compiled by the same code.

use std::rc::Rc;

use prost::Message as _;
use prost_types::{Any, ListValue, Struct, Value as Json, value::Kind};

use crate::{
    proto::ratelimit::config::ratelimit::v3::{
        RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitUnit,
    },
    rules::{
        CompileError, Compiled, Mistake, Place,
        compile::{self, Tree},
        file::{At, Node, Pair, Value},
        scalar::{Form, Scalar},
    },
};

/// The type of resource we ask for.
pub(super) const TYPE_URL: &str =
    "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// Its last part.
const TYPE: &str = "ratelimit.config.ratelimit.v3.RateLimitConfig";

/// The resources of one response.
pub(super) struct World {
    configs: Vec<(RateLimitConfig, Any)>,
    /// What cannot be read.
    faults: Vec<Mistake>,
    hash: u64,
}

impl World {
    /// Reads the resources. They come in no order; the names' order makes every replica compile the same rules.
    pub(super) fn read(mut resources: Vec<Any>) -> Self {
        // As bytes: what cannot be decoded needs a place too, and equal content an equal fingerprint.
        resources.sort_by(|a, b| (&a.value, &a.type_url).cmp(&(&b.value, &b.type_url)));
        let hash = compile::hash_of(
            resources
                .iter()
                .flat_map(|resource| [resource.type_url.as_bytes(), &resource.value])
                .chain([resources.len().to_le_bytes().as_slice()]),
        );
        let mut configs = Vec::with_capacity(resources.len());
        let mut faults = Vec::new();
        for (number, resource) in (1..).zip(resources) {
            match decode(&resource) {
                Ok(config) => configs.push((config, resource)),
                Err(message) => faults.push(fault(format!("resource {number}"), message)),
            }
        }
        configs.sort_by(|(a, x), (b, y)| (&a.name, &x.value).cmp(&(&b.name, &y.value)));
        Self {
            configs,
            faults,
            hash,
        }
    }

    /// Equal when the content is.
    pub(super) const fn hash(&self) -> u64 {
        self.hash
    }

    /// The rules, or every mistake in all of the resources.
    pub(super) fn compile(self, options: compile::Options) -> Result<Compiled, CompileError> {
        let trees: Vec<Tree> = self
            .configs
            .into_iter()
            .map(|(config, _)| tree(config))
            .collect();
        let compiled = compile::compile_trees(&trees, self.hash, options);
        if self.faults.is_empty() {
            return compiled;
        }
        let (mut mistakes, warnings) = match compiled {
            Ok(compiled) => (Vec::new(), compiled.warnings),
            Err(error) => (error.mistakes, error.warnings),
        };
        mistakes.extend(self.faults);
        mistakes.sort();
        Err(CompileError { mistakes, warnings })
    }
}

/// A mistake that is not in a rule.
pub(super) fn fault(place: String, message: String) -> Mistake {
    Mistake {
        place: Place {
            file: place.into(),
            line: 0,
            column: 0,
        },
        rule: "".into(),
        message: message.into(),
        untold: 0,
    }
}

fn decode(resource: &Any) -> Result<RateLimitConfig, String> {
    // Only what follows the last slash names the type.
    let name = resource.type_url.rsplit('/').next().unwrap_or_default();
    if name != TYPE {
        let shown: String = resource.type_url.escape_debug().take(200).collect();
        return Err(format!("is a '{shown}', not a '{TYPE_URL}'"));
    }
    RateLimitConfig::decode(resource.value.as_slice())
        .map_err(|error| format!("cannot be decoded as RateLimitConfig: {error}"))
}

fn tree(config: RateLimitConfig) -> Tree {
    let name = match config.name.as_str() {
        "" => "(resource without name)".into(),
        // It becomes part of lines of the log.
        name => name.escape_debug().collect::<String>().into(),
    };
    let mut fields = Fields::default();
    fields.text("domain", config.domain);
    fields.list(
        "descriptors",
        config.descriptors.into_iter().map(descriptor),
    );
    Tree {
        name,
        root: fields.map(),
    }
}

/// As deep as the message is nested, which the decoder bounds at 100 levels.
fn descriptor(descriptor: RateLimitDescriptor) -> Node {
    let mut fields = Fields::default();
    fields.text("key", descriptor.key);
    fields.text("value", descriptor.value);
    // These do nothing on a level without a limit. A control plane sets them on every level, which is no mistake to
    // be warned of a thousand times.
    if descriptor.rate_limit.is_some() {
        fields.flag("shadow_mode", descriptor.shadow_mode);
        fields.flag("detailed_metric", descriptor.detailed_metric);
        fields.flag("quota_mode", descriptor.quota_mode);
        if let Some(metadata) = descriptor.metadata {
            fields.put("metadata", object(metadata));
        }
    }
    if let Some(limit) = descriptor.rate_limit {
        fields.put("rate_limit", policy(limit));
    }
    fields.list(
        "descriptors",
        descriptor.descriptors.into_iter().map(self::descriptor),
    );
    fields.map()
}

fn policy(policy: RateLimitPolicy) -> Node {
    let mut fields = Fields::default();
    let unit = match RateLimitUnit::try_from(policy.unit) {
        Ok(unit) => unit.as_str_name().to_owned(),
        Err(_) => policy.unit.to_string(),
    };
    // In a message a field that is not written reads as 0: beside `unlimited` that is nothing to speak of, and in a
    // limit it is meant.
    if !policy.unlimited || policy.unit != 0 {
        fields.text("unit", unit);
    }
    if !policy.unlimited || policy.requests_per_unit != 0 {
        fields.put(
            "requests_per_unit",
            plain(policy.requests_per_unit.to_string()),
        );
    }
    fields.flag("unlimited", policy.unlimited);
    fields.text("name", policy.name);
    fields.list(
        "replaces",
        policy.replaces.into_iter().map(|replaced| {
            let mut fields = Fields::default();
            fields.text("name", replaced.name);
            fields.map()
        }),
    );
    fields.map()
}

fn object(object: Struct) -> Node {
    let pairs = object
        .fields
        .into_iter()
        .map(|(key, value)| Pair {
            key: Rc::new(text(key)),
            value: Rc::new(json(value)),
            merged: None,
        })
        .collect();
    node(Value::Map(pairs))
}

fn json(value: Json) -> Node {
    match value.kind {
        None | Some(Kind::NullValue(_)) => plain("null".to_owned()),
        Some(Kind::BoolValue(flag)) => plain(flag.to_string()),
        Some(Kind::NumberValue(number)) => plain(if number.is_nan() {
            ".nan".to_owned()
        } else if number.is_infinite() {
            if number > 0.0 { ".inf" } else { "-.inf" }.to_owned()
        } else {
            number.to_string()
        }),
        Some(Kind::StringValue(string)) => text(string),
        Some(Kind::StructValue(inner)) => object(inner),
        Some(Kind::ListValue(ListValue { values })) => node(Value::List(
            values
                .into_iter()
                .map(|value| Rc::new(json(value)))
                .collect(),
        )),
    }
}

/// The fields of a mapping, those alone that a file would have.
#[derive(Default)]
struct Fields(Vec<Pair>);

impl Fields {
    fn put(&mut self, key: &str, value: Node) {
        self.0.push(Pair {
            key: Rc::new(text(key.to_owned())),
            value: Rc::new(value),
            merged: None,
        });
    }

    fn text(&mut self, key: &str, value: String) {
        if !value.is_empty() {
            self.put(key, text(value));
        }
    }

    fn flag(&mut self, key: &str, flag: bool) {
        if flag {
            self.put(key, plain("true".to_owned()));
        }
    }

    fn list(&mut self, key: &str, items: impl ExactSizeIterator<Item = Node>) {
        if items.len() > 0 {
            self.put(key, node(Value::List(items.map(Rc::new).collect())));
        }
    }

    fn map(self) -> Node {
        node(Value::Map(self.0))
    }
}

fn text(text: String) -> Node {
    scalar(text, Form::Quoted)
}

fn plain(text: String) -> Node {
    scalar(text, Form::Plain)
}

fn scalar(text: String, form: Form) -> Node {
    node(Value::Scalar(Scalar {
        text: text.into(),
        form,
    }))
}

/// A message has no lines: the mistake's rule path says where.
const fn node(value: Value) -> Node {
    Node {
        at: At { line: 0, column: 0 },
        value,
    }
}

#[cfg(test)]
mod tests;
