//! Where rules come in.

use std::sync::Arc;

use crate::{
    limiter::InForce,
    rules::{Rules, source},
    server::Readiness,
    telemetry::metrics::Metrics,
};

/// Where a source of rules hands in what it has read. Cloning it gives another handle on the same.
#[derive(Clone, Debug)]
pub struct Intake {
    pub(super) rules: Arc<InForce>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) readiness: Readiness,
}

impl Intake {
    /// Puts `rules` in force for every request that starts from now on.
    pub fn accept(&self, rules: Arc<Rules>) {
        let domains = rules.domains().count();
        self.rules.swap(Arc::clone(&rules), &self.metrics);
        self.metrics.rules_loaded(&rules);
        self.readiness.rules_loaded(domains);
        tracing::debug!(domains, "rules in force");
    }

    /// Takes in what a source has read: what cannot be used is counted and shown, and changes nothing of what is in
    /// force.
    pub fn take(&self, read: source::Reload) {
        match read {
            source::Reload::Loaded(loaded) => {
                self.accept(loaded.rules);
                // What could not be taken in is a failed load, whatever else was.
                if !loaded.stale.is_empty() {
                    self.metrics.rules_stale(&loaded.stale);
                }
            }
            source::Reload::Failed(error) => self.metrics.rules_refused(&error),
        }
    }
}
