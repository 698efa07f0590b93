//! What a finished verdict adds to the instruments. On the way of every decision: handles are resolved when rules are
//! put in force, and nothing is allocated here for a rule that asks for no text of the request in its series.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use super::{
    decisions::{BROUGHT, Handles},
    metrics::Metrics,
    series::{Decided, RuleSeries},
    top::{Ask, DomainTop},
    traces::Trace,
};
use crate::{
    algorithm::Source,
    counter::{Counter, OnFailure},
    request::{Descriptor, Request},
    rules::{Rules, Series, Step},
    shown,
    time::Timestamp,
    verdict::{Code, Verdict},
};

/// The instruments that belong to one snapshot of the rules.
#[derive(Debug, Default)]
pub struct RuleHandles {
    series: Vec<Arc<RuleSeries>>,
    own: Handles,
    top: HashMap<Box<str>, Arc<DomainTop>>,
}

/// When a request was decided. One reading of the clock serves many purposes: it costs as much as most of them.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// When it came.
    pub since: Timestamp,
    /// When all was known.
    pub until: Timestamp,
}

impl Metrics {
    /// The instruments of these rules, which are in force from now on.
    pub fn in_force(&self, rules: &Rules) -> RuleHandles {
        self.catalogue.make_room(rules.rules().len());
        let mut series = vec![Arc::default(); rules.rules().len()];
        for (domain, id) in rules.placed() {
            let rule = rules.rule(id);
            if let (Some(_), Series::Rule(levels)) = (&rule.limit, &rule.series) {
                series[id.index()] = self.catalogue.of_rule(domain, levels);
            }
        }
        let domains = rules.domains();
        RuleHandles {
            series,
            own: self.decisions.in_force(rules),
            top: domains
                .filter_map(|(domain, _)| Some((domain.into(), self.top.domain(domain)?)))
                .collect(),
        }
    }

    /// The time now, for [`Metrics::decided`].
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Measures a store that was asked at `since` and has answered now, which is returned. `trace` is what the call is
    /// followed by.
    pub fn store_answered(&self, since: Timestamp, trace: &Trace) -> Timestamp {
        let now = self.clock.now();
        let taken = now.as_micros().saturating_sub(since.as_micros());
        self.own.store_time.observe(taken);
        if let Some(trace) = trace.id() {
            self.own.store_time.example(taken, &trace, now);
        }
        now
    }

    /// Counts a finished verdict. `handles` are those of the rules it was made under, `trace` is what it is
    /// followed by.
    pub fn decided(
        &self,
        verdict: &Verdict,
        request: &Request,
        handles: &RuleHandles,
        times: Times,
        trace: Option<&str>,
    ) {
        let plan = &verdict.plan;
        if !plan.known_domain {
            let descriptors = plan.steps.len() as u64;
            self.catalogue.unknown_domain(&request.domain, descriptors);
        }
        if verdict.shadowed {
            self.shadowed.fetch_add(1, Ordering::Relaxed);
        }
        let now = times.until;
        // What a limit would have refused is refused only where the call is: SHADOW_MODE and quotas let it through.
        let is_let_through = verdict.code == Code::Ok;
        let top = handles.top.get(request.domain.as_str());
        for (index, (step, status)) in plan.steps.iter().zip(&verdict.statuses).enumerate() {
            if let Some(policy) = status.policy.filter(|policy| *policy != OnFailure::Error) {
                self.policy_answer(policy);
            }
            if let (Step::Limited { rule, .. }, None, Some(_)) =
                (step, status.outcome, status.policy)
                && let Some(own) = handles.own.of(*rule, &request.domain)
            {
                own.add_policy(status.code == Code::OverLimit, is_let_through);
            }
            let (
                Step::Limited {
                    rule,
                    counter,
                    series: text,
                    ..
                },
                Some(outcome),
            ) = (step, status.outcome)
            else {
                if plan.known_domain && matches!(step, Step::Unmatched) {
                    self.own.unmatched.fetch_add(1, Ordering::Relaxed);
                }
                continue;
            };
            self.sources.answered(outcome.source);
            let is_refused = status.code == Code::OverLimit && !is_let_through;
            let counter = &plan.counters[*counter];
            let decided = Decided {
                quota: counter.quota,
                hits: counter.hits,
                outcome,
                atomicity: plan.atomicity,
                shadow: rule.is_some_and(|rule| plan.rules.rule(rule).shadow),
            };
            match (text, rule) {
                (Some(levels), _) => self.catalogue.of_text(&request.domain, levels, |series| {
                    series.add(&decided, self.ratio);
                }),
                (None, Some(rule)) => handles.series[rule.index()].add(&decided, self.ratio),
                (None, None) => {}
            }
            if let Some(own) = handles.own.of(*rule, &request.domain) {
                let is_shadow = decided.shadow || is_let_through;
                own.add(&outcome, &counter.quota, counter.hits, is_shadow);
                if is_refused && let Some(trace) = trace {
                    own.example(trace, now);
                }
            }
            if outcome.source == Source::DenyCache {
                self.own.deny_cache_hits.fetch_add(1, Ordering::Relaxed);
            }
            if let Some(top) = top
                && counter.hits > 0
            {
                top.add(Ask {
                    key: &counter.key,
                    rule: rule.map_or(BROUGHT, |rule| &plan.rules.rule(rule).path),
                    entries: &request.descriptors[index].entries,
                    hits: counter.hits.unsigned_abs(),
                    is_refused,
                    now,
                });
            }
            if is_refused && let Some(not_shown) = self.denials.pass(now) {
                let refusal = Refusal {
                    verdict,
                    index,
                    domain: &request.domain,
                    descriptor: &request.descriptors[index],
                    counter,
                    trace,
                };
                refusal.tell(not_shown);
            }
        }
        let since = times.since.as_micros();
        let taken = now.as_micros().saturating_sub(since);
        self.own.decision_time.observe(taken);
        if let Some(trace) = trace {
            self.own.decision_time.example(taken, trace, now);
        }
    }
}

/// One descriptor that is over its limit.
struct Refusal<'a> {
    verdict: &'a Verdict,
    index: usize,
    domain: &'a str,
    descriptor: &'a Descriptor,
    counter: &'a Counter,
    trace: Option<&'a str>,
}

impl Refusal<'_> {
    /// Writes it to the log.
    #[cold]
    fn tell(&self, not_shown: u64) {
        let mut key = String::new();
        shown::entries(&mut key, &self.descriptor.entries);
        let (rule, limit) = match self.verdict.limit(self.index) {
            Some((rule, limit)) => (rule, limit.requests_per_unit),
            None => (None, 0),
        };
        let outcome = self.verdict.statuses[self.index].outcome;
        tracing::info!(
            domain = self.domain,
            rule = rule.map_or(BROUGHT, |rule| &rule.path),
            place = rule.map(|rule| rule.place.to_string()),
            key,
            hits = self.counter.hits,
            limit,
            algorithm = self.counter.quota.algorithm(),
            used = outcome.map(|outcome| outcome.used),
            retry_after_ms = outcome
                .and_then(|outcome| outcome.retry_after)
                .map(|micros| micros.div_ceil(1_000)),
            trace_id = self.trace,
            not_shown,
            "refused"
        );
    }
}
