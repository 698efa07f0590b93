//! An answer with its reasons: how each descriptor walked down the rules, which limits that touched, how their counters
//! stand and what the answer would be. Pure; `rules/explain.rs` makes the walks.

mod json;
mod text;

use std::sync::Arc;

use crate::{
    algorithm::Outcome,
    counter::CounterKey,
    request::{Descriptor, Request},
    rules::{Limit, Modes, Plan, Rule, Rules, Step, Walk},
    store::StoreError,
    verdict::Verdict,
};

/// Why a request is answered as it is.
#[derive(Debug)]
pub struct Explanation {
    request: Request,
    walks: Vec<Walk>,
    plan: Plan,
    answer: Answer,
}

/// What would be answered.
#[derive(Debug)]
enum Answer {
    /// No counter was asked.
    NotAsked,
    /// This.
    Verdict(Verdict),
    /// Nothing, because the store could not say.
    Failed(StoreError),
}

impl Explanation {
    /// What the rules alone say of a request.
    pub fn of(rules: &Arc<Rules>, request: Request, modes: Modes) -> Self {
        Self {
            walks: rules.walks(&request),
            plan: rules.plan(&request, modes),
            answer: Answer::NotAsked,
            request,
        }
    }

    /// What the rules make of the request.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The same with what the counters said when they were looked at: `outcomes[i]` answers `plan().counters[i]`.
    #[must_use]
    pub fn with(self, outcomes: Vec<Result<Outcome, StoreError>>) -> Self {
        let plan = self.plan.rules.plan(&self.request, self.plan.modes);
        Self {
            answer: match Verdict::new(plan, outcomes) {
                Ok(verdict) => Answer::Verdict(verdict),
                Err(error) => Answer::Failed(error),
            },
            ..self
        }
    }

    /// The counters there are, in order of the descriptors, and how each stands where the store was asked and said it.
    pub fn counters(&self) -> impl Iterator<Item = (&CounterKey, Option<Outcome>)> {
        self.rows().filter_map(|row| match row.step {
            Step::Limited { counter, .. } => Some((&self.plan.counters[*counter].key, row.outcome)),
            _ => None,
        })
    }

    /// Why the counters could not be asked.
    pub fn failure(&self) -> Option<&StoreError> {
        match &self.answer {
            Answer::Failed(error) => Some(error),
            Answer::NotAsked | Answer::Verdict(_) => None,
        }
    }

    fn verdict(&self) -> Option<&Verdict> {
        match &self.answer {
            Answer::Verdict(verdict) => Some(verdict),
            Answer::NotAsked | Answer::Failed(_) => None,
        }
    }

    fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let steps = self.plan.steps.iter().zip(&self.walks);
        self.request.descriptors.iter().zip(steps).enumerate().map(
            |(index, (descriptor, (step, walk)))| Row {
                index,
                descriptor,
                step,
                walk,
                rule: self.rule(step),
                limit: self.plan.limit(step).map(|(_, limit)| limit),
                outcome: self
                    .verdict()
                    .and_then(|verdict| verdict.statuses[index].outcome),
            },
        )
    }

    fn rule<'e>(&'e self, step: &'e Step) -> Option<&'e Rule> {
        match step {
            Step::Unlimited(rule) | Step::Replaced(rule) => Some(self.plan.rules.rule(*rule)),
            step => self.plan.limit(step).and_then(|(rule, _)| rule),
        }
    }
}

/// One descriptor, and all that is known of it.
struct Row<'e> {
    index: usize,
    descriptor: &'e Descriptor,
    step: &'e Step,
    walk: &'e Walk,
    rule: Option<&'e Rule>,
    limit: Option<&'e Limit>,
    outcome: Option<Outcome>,
}

/// What a step means, in one word and in a sentence.
fn meaning(step: &Step) -> (&'static str, &'static str) {
    match step {
        Step::Unmatched => ("unmatched", "passes: no rule applies"),
        Step::Unlimited(_) => ("unlimited", "passes: the rule says unlimited"),
        Step::Replaced(_) => (
            "replaced",
            "passes: another rule of the request replaces this one",
        ),
        Step::Limited { rule: None, .. } => ("limited", "limited by what the request brings"),
        Step::Limited { .. } => ("limited", "limited by the rule"),
    }
}
