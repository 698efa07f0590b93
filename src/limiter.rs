//! [`Limiter::decide`]: the whole service on one screen.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::{
    algorithm::Outcome,
    explain::Explanation,
    request::Request,
    rules::{Modes, Plan, Rules},
    store::{Store, StoreError},
    telemetry::{
        metrics::{Metrics, RuleHandles, Times},
        traces::Trace,
    },
    time::{Deadline, Timestamp},
    verdict::Verdict,
};

/// Decides requests: plans them against the rules in force, asks the store, judges.
#[derive(Debug)]
pub struct Limiter<S> {
    rules: Arc<InForce>,
    store: S,
    modes: Modes,
    metrics: Arc<Metrics>,
}

/// The rules in force, and the metric series that belong to them: swapped as one.
#[derive(Debug, Default)]
pub struct InForce(ArcSwapOption<Snapshot>);

#[derive(Debug)]
struct Snapshot {
    rules: Arc<Rules>,
    handles: RuleHandles,
}

/// Why a request could not be decided. Over limit is not one of these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// No rules have been loaded yet.
    #[error("no rate limit configuration loaded")]
    NoRules,
    /// The store could not say.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl<S: Store> Limiter<S> {
    /// A limiter over these rooms.
    pub fn new(rules: Arc<InForce>, store: S, modes: Modes, metrics: Arc<Metrics>) -> Self {
        Self {
            rules,
            store,
            modes,
            metrics,
        }
    }

    /// May the request go through? Charges the counters it touches. One snapshot of the rules serves the whole
    /// request, and there is one round trip to the store at most. After `deadline` nobody waits for the answer; `trace`
    /// is told what happened.
    ///
    /// # Errors
    /// [`Undecided`], when there is no answer to give.
    pub async fn decide(
        &self,
        request: &Request,
        deadline: Deadline,
        trace: &mut Trace,
    ) -> Result<Verdict, Undecided> {
        let since = self.metrics.now();
        let snapshot = self.rules.0.load_full().ok_or(Undecided::NoRules)?;
        let plan = snapshot.rules.plan(request, self.modes);
        let (outcomes, until) = self.ask(&plan, deadline, trace).await;
        let verdict = Verdict::new(plan, outcomes)?;
        trace.decided(&verdict, &request.domain);
        let (times, id) = (Times { since, until }, trace.id());
        self.metrics
            .decided(&verdict, request, &snapshot.handles, times, id.as_deref());
        Ok(verdict)
    }

    /// Asks the store for the counters of a plan, and says when it had answered.
    async fn ask(
        &self,
        plan: &Plan,
        deadline: Deadline,
        trace: &Trace,
    ) -> (Vec<Result<Outcome, StoreError>>, Timestamp) {
        if plan.counters.is_empty() {
            return (Vec::new(), self.metrics.now());
        }
        let asked = self.metrics.now();
        let call = self.store.take_by(&plan.counters, plan.atomicity, deadline);
        let outcomes = match trace.asks_store(plan.counters.len()) {
            None => call.await,
            Some(asking) => {
                let outcomes = asking.follow().over(call).await;
                let error = outcomes.iter().find_map(|outcome| outcome.as_ref().err());
                asking.answered(error);
                outcomes
            }
        };
        let until = self.metrics.store_answered(asked, trace);
        (outcomes, until)
    }

    /// What [`Limiter::decide`] would answer and why, without charging anything.
    ///
    /// # Errors
    /// [`Undecided::NoRules`]. What the store cannot say is part of the explanation.
    pub async fn explain(&self, request: Request) -> Result<Explanation, Undecided> {
        let rules = self.rules.rules().ok_or(Undecided::NoRules)?;
        let explanation = Explanation::of(&rules, request, self.modes);
        let counters = &explanation.plan().counters;
        let outcomes = if counters.is_empty() {
            Vec::new()
        } else {
            self.store.peek(counters).await
        };
        Ok(explanation.with(outcomes))
    }

    /// The store the limiter asks.
    pub fn store(&self) -> &S {
        &self.store
    }
}

impl InForce {
    /// Puts `rules` in force for every request that starts from now on.
    pub fn swap(&self, rules: Arc<Rules>, metrics: &Metrics) {
        let handles = metrics.in_force(&rules);
        self.0.store(Some(Arc::new(Snapshot { rules, handles })));
    }

    /// The rules in force, `None` before the first load.
    pub fn rules(&self) -> Option<Arc<Rules>> {
        self.0
            .load()
            .as_ref()
            .map(|snapshot| Arc::clone(&snapshot.rules))
    }
}
