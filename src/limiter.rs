//! [`Limiter::decide`]: the whole service on one screen.

use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::{
    request::Request,
    rules::{Modes, Rules},
    store::{Store, StoreError},
    telemetry::metrics::{Metrics, RuleSeries},
    time::Deadline,
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
    series: Vec<Arc<RuleSeries>>,
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
    /// request, and there is one round trip to the store at most. After `deadline` nobody waits for the answer.
    ///
    /// # Errors
    /// [`Undecided`], when there is no answer to give.
    pub async fn decide(
        &self,
        request: &Request,
        deadline: Deadline,
    ) -> Result<Verdict, Undecided> {
        let snapshot = self.rules.0.load_full().ok_or(Undecided::NoRules)?;
        let plan = snapshot.rules.plan(request, self.modes);
        let outcomes = if plan.counters.is_empty() {
            Vec::new()
        } else {
            self.store
                .take_by(&plan.counters, plan.atomicity, deadline)
                .await
        };
        let verdict = Verdict::new(plan, outcomes)?;
        self.metrics.decided(&verdict, request, &snapshot.series);
        Ok(verdict)
    }

    /// The store the limiter asks.
    pub fn store(&self) -> &S {
        &self.store
    }
}

impl InForce {
    /// Puts `rules` in force for every request that starts from now on.
    pub fn swap(&self, rules: Arc<Rules>, metrics: &Metrics) {
        let series = metrics.series(&rules);
        self.0.store(Some(Arc::new(Snapshot { rules, series })));
    }

    /// The rules in force, `None` before the first load.
    pub fn rules(&self) -> Option<Arc<Rules>> {
        self.0
            .load()
            .as_ref()
            .map(|snapshot| Arc::clone(&snapshot.rules))
    }
}
