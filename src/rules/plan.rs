//! What a request means under the rules in force: which rule each descriptor hits, and which counters that touches.

use std::sync::Arc;

use super::{
    limit::{Limit, Rule, RuleId, Series},
    tree::{Domain, NodeId, Rules, Via},
};
use crate::{
    algorithm::MAX,
    counter::{Atomicity, Counter, CounterKey, OnFailure, Role},
    request::{Descriptor, Entry, Request},
};

/// Switches of the whole process that change what rules mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Nothing is refused; decisions are made and counted all the same.
    pub shadow: bool,
    /// Every limit is one of several buckets, of which any may let the request pass.
    pub quota: bool,
    /// Every request is charged all or nothing, also where the domain does not ask for it.
    pub all_or_nothing: bool,
    /// What is answered when the store cannot decide, where the rule does not say.
    pub on_store_failure: OnFailure,
}

/// A request's way through the rules. `steps[i]` belongs to `request.descriptors[i]`.
#[derive(Debug)]
pub struct Plan {
    /// The snapshot the plan was made from.
    pub rules: Arc<Rules>,
    /// What applies to each descriptor.
    pub steps: Vec<Step>,
    /// What the store is to decide, in order of the descriptors.
    pub counters: Vec<Counter>,
    /// How `counters` hang together.
    pub atomicity: Atomicity,
    /// Whether the domain has rules at all.
    pub known_domain: bool,
    /// The modes the plan was made under.
    pub modes: Modes,
}

/// What applies to one descriptor.
#[derive(Debug)]
pub enum Step {
    /// No rule: it passes.
    Unmatched,
    /// The rule says `unlimited`: it passes.
    Unlimited(RuleId),
    /// Another rule of the request replaces this one: it passes.
    Replaced(RuleId),
    /// A limit has to be asked.
    Limited {
        /// The rule; `None` when the limit came with the request.
        rule: Option<RuleId>,
        /// The limit that came with the request.
        brought: Option<Box<Limit>>,
        /// Index into [`Plan::counters`].
        counter: usize,
        /// The metric series, when it is made of the request's text.
        series: Option<Box<[Box<str>]>>,
    },
}

impl Rules {
    /// Plans a request. Pure.
    pub fn plan(self: &Arc<Self>, request: &Request, modes: Modes) -> Plan {
        let Some(domain) = self.domain(&request.domain) else {
            return Plan {
                rules: Arc::clone(self),
                steps: request
                    .descriptors
                    .iter()
                    .map(|_| Step::Unmatched)
                    .collect(),
                counters: Vec::new(),
                atomicity: Atomicity::PerCounter,
                known_domain: false,
                modes,
            };
        };
        let hits: Vec<Hit<'_>> = request
            .descriptors
            .iter()
            .map(|descriptor| self.find(domain, descriptor))
            .collect();
        let replaced = self.replaced(&hits);
        let mut counters = Vec::with_capacity(hits.len());
        let steps = hits
            .into_iter()
            .zip(&request.descriptors)
            .map(|(hit, descriptor)| {
                self.step(hit, descriptor, request, modes, &replaced, &mut counters)
            })
            .collect();
        let mut plan = Plan {
            rules: Arc::clone(self),
            steps,
            counters,
            atomicity: if modes.all_or_nothing || domain.all_or_nothing() {
                Atomicity::AllOrNothing
            } else {
                Atomicity::PerCounter
            },
            known_domain: true,
            modes,
        };
        plan.settle_roles();
        plan
    }

    fn find<'a>(&'a self, domain: &'a Domain, descriptor: &'a Descriptor) -> Hit<'a> {
        if descriptor.limit.is_some() {
            return Hit::Brought;
        }
        let mut at = NodeId::ROOT;
        let mut walk = Vec::with_capacity(descriptor.entries.len());
        for entry in &descriptor.entries {
            let Some((next, via)) = domain.step(at, entry) else {
                return Hit::None;
            };
            walk.push((next, via));
            at = next;
        }
        match domain.node(at).rule {
            Some(rule) => Hit::Rule { rule, domain, walk },
            None => Hit::None,
        }
    }

    /// The names that some matched rule replaces, as the reference collects them: from every matched rule, also from
    /// unlimited ones and from those that are themselves replaced. A list: mostly it is empty, else it is short.
    fn replaced(&self, hits: &[Hit<'_>]) -> Vec<&str> {
        hits.iter()
            .filter_map(|hit| match hit {
                Hit::Rule { rule, .. } => Some(self.rule(*rule)),
                Hit::Brought | Hit::None => None,
            })
            .flat_map(|rule| rule.replaces.iter().map(AsRef::as_ref))
            .collect()
    }

    fn step(
        &self,
        hit: Hit<'_>,
        descriptor: &Descriptor,
        request: &Request,
        modes: Modes,
        replaced: &[&str],
        counters: &mut Vec<Counter>,
    ) -> Step {
        let (id, domain, walk) = match hit {
            Hit::None => return Step::Unmatched,
            Hit::Brought => return brought(descriptor, request, modes, counters),
            Hit::Rule { rule, domain, walk } => (rule, domain, walk),
        };
        let rule = self.rule(id);
        let Some(limit) = &rule.limit else {
            return Step::Unlimited(id);
        };
        if !rule.name.is_empty() && replaced.contains(&rule.name.as_ref()) {
            return Step::Replaced(id);
        }
        let entries = descriptor
            .entries
            .iter()
            .zip(&walk)
            .map(|(entry, (node, via))| {
                let value = match via {
                    Via::Pattern(pattern) if domain.node(*node).share_threshold => pattern,
                    _ => entry.value.as_str(),
                };
                (entry.key.as_str(), value)
            });
        let step = Step::Limited {
            rule: Some(id),
            brought: None,
            counter: counters.len(),
            series: match rule.series {
                Series::Rule(_) => None,
                Series::Request { detailed } => {
                    Some(series(domain, &walk, &descriptor.entries, detailed))
                }
            },
        };
        counters.push(Counter {
            key: CounterKey::new(&request.domain, limit.quota.letter(), limit.window, entries),
            quota: limit.quota,
            hits: weigh(descriptor.hits, limit.cost),
            role: role(rule, modes),
            on_failure: limit.on_store_failure.unwrap_or(modes.on_store_failure),
        });
        step
    }
}

impl Plan {
    /// The rule and limit behind a step that has a limit.
    pub fn limit<'p>(&'p self, step: &'p Step) -> Option<(Option<&'p Rule>, &'p Limit)> {
        match step {
            Step::Limited {
                brought: Some(limit),
                ..
            } => Some((None, limit)),
            Step::Limited {
                rule: Some(rule), ..
            } => {
                let rule = self.rules.rule(*rule);
                rule.limit.as_ref().map(|limit| (Some(rule), limit))
            }
            _ => None,
        }
    }

    /// A bucket that passes whatever the store says (a descriptor without a rule under the global quota mode, or a
    /// quota rule in shadow mode) lets the request pass: the other buckets can no longer hold it back.
    fn settle_roles(&mut self) {
        let passes = self.steps.iter().any(|step| match step {
            Step::Unmatched | Step::Replaced(_) => self.modes.quota,
            Step::Limited {
                rule: Some(rule), ..
            } => {
                let rule = self.rules.rule(*rule);
                rule.shadow && (rule.quota || self.modes.quota)
            }
            Step::Limited { .. } | Step::Unlimited(_) => false,
        });
        if passes {
            for counter in &mut self.counters {
                if counter.role == Role::Quota {
                    counter.role = Role::Shadow;
                }
            }
        }
    }
}

/// Where a descriptor's walk through the tree ended.
enum Hit<'r> {
    None,
    Brought,
    Rule {
        rule: RuleId,
        domain: &'r Domain,
        walk: Vec<(NodeId, Via<'r>)>,
    },
}

fn brought(
    descriptor: &Descriptor,
    request: &Request,
    modes: Modes,
    counters: &mut Vec<Counter>,
) -> Step {
    let Some(limit) = descriptor.limit.map(Limit::from_override) else {
        return Step::Unmatched;
    };
    let step = Step::Limited {
        rule: None,
        counter: counters.len(),
        series: Some(
            descriptor
                .entries
                .iter()
                .map(|entry| joined(&entry.key, &entry.value, EmptyValue::Omitted))
                .collect(),
        ),
        brought: Some(Box::new(limit.clone())),
    };
    counters.push(Counter {
        key: CounterKey::new(
            &request.domain,
            limit.quota.letter(),
            limit.window,
            descriptor
                .entries
                .iter()
                .map(|entry| (entry.key.as_str(), entry.value.as_str())),
        ),
        quota: limit.quota,
        hits: descriptor.hits,
        role: match modes {
            Modes { shadow: true, .. } => Role::Shadow,
            Modes { quota: true, .. } => Role::Quota,
            _ => Role::Enforced,
        },
        on_failure: modes.on_store_failure,
    });
    step
}

fn role(rule: &Rule, modes: Modes) -> Role {
    if rule.shadow || modes.shadow {
        Role::Shadow
    } else if rule.quota || modes.quota {
        Role::Quota
    } else {
        Role::Enforced
    }
}

fn weigh(hits: i64, cost: u64) -> i64 {
    let bound = MAX as i64;
    let cost = i64::try_from(cost).unwrap_or(bound);
    hits.saturating_mul(cost).clamp(-bound, bound)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EmptyValue {
    Kept,
    Omitted,
}

fn joined(key: &str, value: &str, empty: EmptyValue) -> Box<str> {
    if value.is_empty() && empty == EmptyValue::Omitted {
        return key.into();
    }
    format!("{key}_{value}").into()
}

/// The series of a rule that asked for the request's text in it: level by level what the reference writes.
fn series(
    domain: &Domain,
    walk: &[(NodeId, Via<'_>)],
    entries: &[Entry],
    detailed: bool,
) -> Box<[Box<str>]> {
    let shared = walk
        .iter()
        .any(|(node, via)| is_shared(domain, *node, *via));
    let empty = if detailed && !shared {
        EmptyValue::Kept
    } else {
        EmptyValue::Omitted
    };
    walk.iter()
        .zip(entries)
        .map(|((id, via), entry)| {
            let node = domain.node(*id);
            if is_shared(domain, *id, *via) {
                return node.label.clone();
            }
            if detailed || (node.value_to_metric && *via != Via::Value) {
                return joined(&entry.key, &entry.value, empty);
            }
            match via {
                // A star in the key: the reference writes the key it met before the rule's own text.
                Via::KeyPattern => joined(&entry.key, &node.label, EmptyValue::Omitted),
                _ => node.label.clone(),
            }
        })
        .collect()
}

fn is_shared(domain: &Domain, node: NodeId, via: Via<'_>) -> bool {
    matches!(via, Via::Pattern(_)) && domain.node(node).share_threshold
}
