//! Names of rules, and whom they replace: checked when all files are read.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::rules::{limit::Place, report::Report};

/// The named rules and the `replaces` of each domain. A request has one domain, so names mean nothing across.
#[derive(Debug, Default)]
pub(super) struct Names {
    domains: HashMap<Box<str>, Domain>,
}

#[derive(Debug, Default)]
struct Domain {
    named: BTreeMap<Box<str>, Place>,
    replaces: Vec<Replaces>,
}

#[derive(Debug)]
struct Replaces {
    place: Place,
    rule: Box<str>,
    own: Box<str>,
    target: Box<str>,
}

impl Names {
    pub(super) fn named(
        &mut self,
        domain: &str,
        name: &str,
        place: Place,
        rule: &str,
        report: &mut Report,
    ) {
        let named = &mut self.domains.entry(domain.into()).or_default().named;
        if let Some(first) = named.get(name) {
            report.warnings.add(
                place,
                rule,
                format!(
                    "the name '{}' is also that of the rule at {first}: whoever replaces one replaces both",
                    name
                ),
            );
        } else {
            named.insert(name.into(), place);
        }
    }

    pub(super) fn replaces(
        &mut self,
        domain: &str,
        own: &str,
        target: &str,
        place: Place,
        rule: &str,
    ) {
        let domain = self.domains.entry(domain.into()).or_default();
        domain.replaces.push(Replaces {
            place,
            rule: rule.into(),
            own: own.into(),
            target: target.into(),
        });
    }

    /// Warns of what replaces nothing and of what replaces each other.
    pub(super) fn check(&self, report: &mut Report) {
        for domain in self.domains.values() {
            let pairs: HashSet<(&str, &str)> = domain
                .replaces
                .iter()
                .map(|entry| (&*entry.own, &*entry.target))
                .collect();
            for entry in &domain.replaces {
                let target = &entry.target;
                let message = if !domain.named.contains_key(&entry.target) {
                    let nearest = if report.warnings.is_full() {
                        None
                    } else {
                        domain.nearest(&entry.target)
                    };
                    match nearest {
                        Some(known) => format!(
                            "no rule of the domain is named '{target}': did you mean '{known}'?"
                        ),
                        None => format!("no rule of the domain is named '{target}'"),
                    }
                } else if !entry.own.is_empty() && pairs.contains(&(&*entry.target, &*entry.own)) {
                    format!(
                        "this rule and '{target}' replace each other: where both match, neither applies"
                    )
                } else {
                    continue;
                };
                report
                    .warnings
                    .add(entry.place.clone(), &entry.rule, message);
            }
        }
    }
}

impl Domain {
    fn nearest(&self, name: &str) -> Option<&str> {
        // Each name is compared with each: with very many of them that would take longer than it helps.
        let known = self.named.keys().take(1_000).map(AsRef::as_ref);
        super::vocabulary::nearest(name, known)
    }
}
