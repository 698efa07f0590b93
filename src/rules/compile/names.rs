//! Names of rules, and whom they replace: checked when all files are read.

use std::collections::HashMap;

use crate::rules::{
    limit::Place,
    report::{Mistake, Report},
};

/// The named rules and the `replaces` of each domain. A request has one domain, so names mean nothing across.
#[derive(Debug, Default)]
pub(super) struct Names {
    domains: HashMap<Box<str>, Domain>,
}

#[derive(Debug, Default)]
struct Domain {
    named: HashMap<Box<str>, Place>,
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
            report.warnings.push(Mistake {
                place,
                rule: rule.into(),
                message: format!(
                    "the name '{}' is also that of the rule at {first}: whoever replaces one replaces both",
                    name.escape_debug()
                )
                .into(),
            });
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
            for entry in &domain.replaces {
                let target = entry.target.escape_debug();
                let message = if !domain.named.contains_key(&entry.target) {
                    let known = domain.named.keys().map(AsRef::as_ref);
                    match super::vocabulary::nearest(&entry.target, known) {
                        Some(known) => format!(
                            "no rule of the domain is named '{target}': did you mean '{known}'?"
                        ),
                        None => format!("no rule of the domain is named '{target}'"),
                    }
                } else if domain.replaces.iter().any(|other| {
                    !entry.own.is_empty() && other.own == entry.target && other.target == entry.own
                }) {
                    format!(
                        "this rule and '{target}' replace each other: where both match, neither applies"
                    )
                } else {
                    continue;
                };
                report.warnings.push(Mistake {
                    place: entry.place.clone(),
                    rule: entry.rule.clone(),
                    message: message.into(),
                });
            }
        }
    }
}
