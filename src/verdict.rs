//! From plan and outcomes to the answer. Pure.

use crate::{
    algorithm::{Outcome, Quota, Source},
    counter::{Counter, OnFailure},
    rules::{Limit, Plan, Rule, Step},
    store::StoreError,
};

/// May it go through?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// It may.
    Ok,
    /// It is refused.
    OverLimit,
}

/// The answer for a request. `statuses[i]` answers `request.descriptors[i]`.
#[derive(Debug)]
pub struct Verdict {
    /// The overall answer.
    pub code: Code,
    /// One for each descriptor, in order.
    pub statuses: Vec<Status>,
    /// Index of the status whose figures the caller should see; `None` when no limit was asked.
    ///
    /// As the reference picks it: the last enforced status over its limit, else the first one with the least
    /// remaining. A shadow rule is never picked, and of a refusal nothing that did not refuse: `None` where only rules
    /// refuse that nobody counted.
    pub binding: Option<usize>,
    /// The process-wide shadow mode turned a refusal into this OK.
    pub shadowed: bool,
    /// What the statuses come from.
    pub plan: Plan,
}

/// The answer for one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its own answer. OK where a shadow rule is over its limit.
    pub code: Code,
    /// What the store said; `None` when no limit was asked, or nobody counted.
    pub outcome: Option<Outcome>,
    /// Whether the counter is a fixed window, whose end is known whatever was asked.
    is_aligned: bool,
    /// The policy that answered, because the store could not. [`OnFailure::Error`]: nobody answered, and the others
    /// made the verdict certain without it.
    pub policy: Option<OnFailure>,
}

impl Verdict {
    /// Judges a plan by what the store said. `outcomes[i]` answers `plan.counters[i]`. Where the store could not say,
    /// the counter's policy does.
    ///
    /// # Errors
    /// The first counter that the store could not decide and whose policy is [`OnFailure::Error`], unless the answer
    /// is the same whatever it would have said: another rule refuses, or it is a shadow rule, or one of several
    /// quota buckets of which another one passes.
    pub fn new(plan: Plan, outcomes: Vec<Result<Outcome, StoreError>>) -> Result<Self, StoreError> {
        let statuses: Vec<Status> = plan
            .steps
            .iter()
            .map(|step| Status::new(&plan, step, &outcomes))
            .collect();
        let refused = is_refused(&plan, &statuses);
        let undecided = outcomes
            .iter()
            .zip(&plan.counters)
            .filter(|(_, counter)| {
                !matches!(counter.on_failure, OnFailure::Allow | OnFailure::Deny)
            })
            .find_map(|(outcome, _)| outcome.as_ref().err());
        if let Some(error) = undecided
            && !plan.modes.shadow
            && refused != is_refused(&plan, &pessimistic(&plan, &statuses))
        {
            return Err(error.clone());
        }
        Ok(Self {
            code: if refused && !plan.modes.shadow {
                Code::OverLimit
            } else {
                Code::Ok
            },
            shadowed: refused && plan.modes.shadow,
            binding: binding(&plan, &statuses, refused),
            statuses,
            plan,
        })
    }

    /// The rule (absent when the limit came with the request) and the limit behind a status.
    pub fn limit(&self, index: usize) -> Option<(Option<&Rule>, &Limit)> {
        self.plan.limit(&self.plan.steps[index])
    }

    /// The rule behind a status: the one that limits it, or says `unlimited`. `None` where no rule applies.
    pub fn rule(&self, index: usize) -> Option<&Rule> {
        match &self.plan.steps[index] {
            Step::Unlimited(rule) => Some(self.plan.rules.rule(*rule)),
            step => self.plan.limit(step).and_then(|(rule, _)| rule),
        }
    }

    /// Time after which the same request would be admitted, if nobody else came: the longest of the limits that
    /// refuse, microseconds. `None` when it was admitted, or when one of them can never admit it.
    pub fn retry_after(&self) -> Option<u64> {
        if self.code == Code::Ok {
            return None;
        }
        self.statuses
            .iter()
            .filter(|status| status.code == Code::OverLimit)
            .map(|status| status.outcome.and_then(|outcome| outcome.retry_after))
            .try_fold(0, |longest, retry| Some(longest.max(retry?)))
    }

    /// The policies that answered for the store, each once, in the order of [`OnFailure::ALL`].
    pub fn policies(&self) -> impl Iterator<Item = OnFailure> {
        OnFailure::ALL.into_iter().filter(|policy| {
            let answered = |status: &Status| status.policy == Some(*policy);
            self.statuses.iter().any(answered)
        })
    }

    /// How long a queue asks the caller to wait before it goes ahead, microseconds; 0 without a queue.
    pub fn delay(&self) -> u64 {
        if self.code == Code::OverLimit {
            return 0;
        }
        self.statuses
            .iter()
            .filter_map(|status| status.outcome)
            .map(|outcome| outcome.delay)
            .max()
            .unwrap_or(0)
    }
}

impl Status {
    fn new(plan: &Plan, step: &Step, outcomes: &[Result<Outcome, StoreError>]) -> Self {
        let passes = Self {
            code: Code::Ok,
            outcome: None,
            is_aligned: false,
            policy: None,
        };
        let Step::Limited { rule, counter, .. } = step else {
            return passes;
        };
        let shadow = rule.is_some_and(|rule| plan.rules.rule(rule).shadow);
        let Counter {
            quota,
            on_failure,
            hits,
            ..
        } = &plan.counters[*counter];
        let Ok(mut outcome) = outcomes[*counter] else {
            // A rule that counts for itself and could not even do that is not decided.
            let policy = match on_failure {
                // A limit of nothing refuses whatever comes: that needs no store.
                _ if quota.capacity() == 0 && *hits > 0 => OnFailure::Deny,
                OnFailure::Local => OnFailure::Error,
                policy => *policy,
            };
            return Self {
                code: if policy == OnFailure::Deny && !shadow {
                    Code::OverLimit
                } else {
                    Code::Ok
                },
                policy: Some(policy),
                ..passes
            };
        };
        let is_aligned = matches!(quota, Quota::FixedWindow { .. });
        if !outcome.allowed && is_aligned {
            // As the reference says it: over limit is nothing left, also where all-or-nothing left room for less.
            outcome.remaining = 0;
        }
        Self {
            code: if outcome.allowed || shadow {
                Code::Ok
            } else {
                Code::OverLimit
            },
            outcome: Some(outcome),
            is_aligned,
            policy: (outcome.source == Source::Local).then_some(OnFailure::Local),
        }
    }

    /// Time until the figures change in the caller's favour, microseconds: when refused the retry time, else the
    /// time until the counter is fresh. `None` when no limit was asked, and when no time helps; but a fixed window
    /// always tells its end, as the reference does.
    pub fn reset_after(&self) -> Option<u64> {
        let outcome = self.outcome?;
        match self.code {
            Code::Ok => Some(outcome.reset_after),
            Code::OverLimit if self.is_aligned => outcome.retry_after.or(Some(outcome.reset_after)),
            Code::OverLimit => outcome.retry_after,
        }
    }
}

/// The statuses when everything that is not decided were over its limit.
fn pessimistic(plan: &Plan, statuses: &[Status]) -> Vec<Status> {
    let shadow = |step: &Step| {
        let rule = plan.limit(step).and_then(|(rule, _)| rule);
        rule.is_some_and(|rule| rule.shadow)
    };
    plan.steps
        .iter()
        .zip(statuses)
        .map(|(step, status)| match status.policy {
            Some(OnFailure::Error) if !shadow(step) => Status {
                code: Code::OverLimit,
                ..*status
            },
            _ => *status,
        })
        .collect()
}

/// Over limit if any enforced status is, or if there are quota buckets and all of them are.
fn is_refused(plan: &Plan, statuses: &[Status]) -> bool {
    let mut buckets = 0;
    let mut empty = 0;
    for (step, status) in plan.steps.iter().zip(statuses) {
        let over = status.code == Code::OverLimit;
        match bucket(plan, step) {
            Bucket::Quota => {
                buckets += 1;
                empty += usize::from(over);
            }
            Bucket::Enforced if over => return true,
            Bucket::Enforced | Bucket::Uncounted => {}
        }
    }
    buckets > 0 && empty == buckets
}

#[derive(PartialEq, Eq)]
enum Bucket {
    Enforced,
    Quota,
    Uncounted,
}

fn bucket(plan: &Plan, step: &Step) -> Bucket {
    match step {
        Step::Unlimited(_) => Bucket::Uncounted,
        _ if plan.modes.quota => Bucket::Quota,
        Step::Limited {
            rule: Some(rule), ..
        } if plan.rules.rule(*rule).quota => Bucket::Quota,
        _ => Bucket::Enforced,
    }
}

fn binding(plan: &Plan, statuses: &[Status], refused: bool) -> Option<usize> {
    let mut pick: Option<(usize, u64)> = None;
    for (index, (step, status)) in plan.steps.iter().zip(statuses).enumerate() {
        let Some(outcome) = status.outcome else {
            continue;
        };
        if let Some((Some(rule), _)) = plan.limit(step)
            && rule.shadow
        {
            continue;
        }
        let over = status.code == Code::OverLimit;
        if refused && !over {
            continue;
        }
        let tighter = pick.is_none_or(|(_, least)| outcome.remaining < least);
        if (over && bucket(plan, step) == Bucket::Enforced) || tighter {
            pick = Some((index, outcome.remaining));
        }
    }
    pick.map(|(index, _)| index)
}

#[cfg(test)]
mod tests;
