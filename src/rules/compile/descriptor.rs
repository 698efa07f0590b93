//! Descriptors: the levels of a rule's tree.

use super::{
    Written,
    fields::Fields,
    metadata,
    names::Names,
    rate_limit::{self, RateLimit},
    vocabulary::{self, Level, shortened},
};
use crate::rules::{
    file::Node as Yaml,
    limit::{Rule, Series},
    report::Report,
    tree::{DomainBuilder, Node, NodeId},
};

/// The way to a node.
#[derive(Clone, Debug)]
pub(super) struct Trail {
    node: NodeId,
    /// Domain and composite keys, joined with dots.
    path: String,
    labels: Vec<Box<str>>,
    /// Some level puts text of the request into the metric series.
    personal: bool,
}

impl Trail {
    pub(super) fn root(domain: &str) -> Self {
        Self {
            node: NodeId::ROOT,
            path: domain.to_owned(),
            labels: Vec::new(),
            personal: false,
        }
    }
}

/// Whatever the descriptors of one document need.
pub(super) struct Scope<'c> {
    pub(super) domain: &'c str,
    pub(super) tree: DomainBuilder<'c>,
    pub(super) written: &'c mut Written,
    pub(super) names: &'c mut Names,
    pub(super) report: &'c mut Report,
}

impl Scope<'_> {
    /// Reads the field `descriptors`. As deep as the file is nested, which is bounded where it is read.
    pub(super) fn descriptors(&mut self, fields: &Fields<'_>, parent: &Trail) {
        let items = fields.list(
            "descriptors",
            "[]config.YamlDescriptor",
            &parent.path,
            self.report,
        );
        for item in items {
            // What is no mapping was reported by the sweep.
            if let Some(pairs) = item.as_map() {
                let path = vocabulary::path(pairs, Level::Descriptor, &parent.path);
                let fields = Fields::read(pairs, Level::Descriptor, &path, self.report);
                self.descriptor(item, &fields, parent);
            }
        }
    }

    fn descriptor(&mut self, item: &Yaml, fields: &Fields<'_>, parent: &Trail) {
        let key = fields.text("key", &parent.path, self.report);
        let value = fields.text("value", &parent.path, self.report);
        if key.is_empty()
            && fields
                .get("key")
                .is_none_or(|field| field.value.as_scalar().is_some())
        {
            let at = fields.get("key").map_or(item.at, |field| field.value.at);
            self.report.mistake(
                at,
                &parent.path,
                "descriptor has empty key: write `key: ...`",
            );
        }
        let composite = if value.is_empty() {
            key.to_owned()
        } else {
            format!("{key}_{value}")
        };
        let mut trail = parent.clone();
        trail.path = format!("{}.{composite}", parent.path);
        trail.labels.push(composite.as_str().into());

        let mut node = Node {
            label: composite.as_str().into(),
            share_threshold: self.share_threshold(fields, &composite, value, &trail.path),
            value_to_metric: fields.flag("value_to_metric", &trail.path, self.report),
            ..Node::default()
        };
        let open = value.is_empty() || (value.contains('*') && !node.share_threshold);
        trail.personal |= key.contains('*') || (node.value_to_metric && open);
        node.rule = self
            .rule(item, fields, &trail)
            .map(|rule| self.tree.rule(rule));

        trail.node = match self.tree.child(parent.node, key, value, node) {
            Ok(id) => {
                self.written.nodes.insert(id, self.report.place(item.at));
                id
            }
            Err(twin) => {
                let first = self.written.nodes.get(&twin).cloned().unwrap_or_default();
                // Two nameless keys are one mistake each, and not also a duplicate.
                if !key.is_empty() {
                    self.report.mistake(
                        item.at,
                        &trail.path,
                        format!(
                            "duplicate descriptor composite key '{}', first written at {first}: write it once, with \
                             one rate_limit, and put the descriptors of both below it; a second limit needs a \
                             descriptor of its own in the request",
                            shortened(&trail.path)
                        ),
                    );
                }
                twin
            }
        };
        self.descriptors(fields, &trail);
    }

    fn share_threshold(
        &mut self,
        fields: &Fields<'_>,
        composite: &str,
        value: &str,
        path: &str,
    ) -> bool {
        let shared = fields.flag("share_threshold", path, self.report);
        if !shared || value.contains('*') {
            return shared;
        }
        let Some(field) = fields.get("share_threshold") else {
            return shared;
        };
        if composite.contains('*') {
            self.report.warning(
                field.at,
                path,
                "'share_threshold' does nothing here: the '*' is in the key, and only values are shared",
            );
        } else {
            self.report.mistake(
                field.at,
                path,
                format!(
                    "share_threshold can only be used with wildcard values (containing '*'), but found key '{}'",
                    shortened(composite)
                ),
            );
        }
        shared
    }

    /// The rule of a descriptor that has a `rate_limit`.
    fn rule(&mut self, item: &Yaml, fields: &Fields<'_>, trail: &Trail) -> Option<Rule> {
        let path = trail.path.as_str();
        let shadow = fields.flag("shadow_mode", path, self.report);
        let quota = fields.flag("quota_mode", path, self.report);
        let detailed = fields.flag("detailed_metric", path, self.report);
        let metadata = fields
            .map("metadata", "map[string]interface {}", path, self.report)
            .map(|(_, pairs)| metadata::object(pairs, path, self.report));
        let Some(limit) = fields.map("rate_limit", "config.YamlRateLimit", path, self.report)
        else {
            // A rate_limit of the wrong type is already reported.
            if fields.get("rate_limit").is_none() {
                self.idle(
                    fields,
                    path,
                    &[
                        ("shadow_mode", shadow),
                        ("quota_mode", quota),
                        ("detailed_metric", detailed),
                        ("metadata", metadata.is_some()),
                    ],
                );
            }
            return None;
        };
        let RateLimit {
            limit,
            name,
            name_at,
            replaces,
        } = rate_limit::read(limit, path, self.report);
        if !name.is_empty() {
            let place = self.report.place(name_at);
            self.names
                .named(self.domain, name, place, path, self.report);
        }
        for (at, target) in &replaces {
            let place = self.report.place(*at);
            self.names.replaces(self.domain, name, target, place, path);
        }
        Some(Rule {
            limit,
            name: name.into(),
            replaces: replaces.into_iter().map(|(_, name)| name.into()).collect(),
            shadow,
            quota,
            path: path.into(),
            series: if detailed || trail.personal {
                Series::Request { detailed }
            } else {
                Series::Rule(trail.labels.clone().into())
            },
            metadata,
            place: self.report.place(item.at),
        })
    }

    /// Warns of fields that need a `rate_limit` beside them.
    fn idle(&mut self, fields: &Fields<'_>, path: &str, set: &[(&str, bool)]) {
        for (name, _) in set.iter().filter(|(_, set)| *set) {
            if let Some(field) = fields.get(name) {
                self.report.warning(
                    field.at,
                    path,
                    format!(
                        "'{name}' does nothing here: it needs a rate_limit in the same descriptor"
                    ),
                );
            }
        }
    }
}
