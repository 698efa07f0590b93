//! Every instrument of the process, in one struct.

use std::sync::Arc;

use crate::{request::Request, rules::Rules, verdict::Verdict};

/// Every instrument.
#[derive(Debug, Default)]
pub struct Metrics {}

/// The counters of one rule.
#[derive(Debug, Default)]
pub struct RuleSeries {}

impl Metrics {
    /// The series of each rule, in the order of [`Rules::rules`].
    pub fn series(&self, rules: &Rules) -> Vec<Arc<RuleSeries>> {
        rules.rules().iter().map(|_| Arc::default()).collect()
    }

    /// Counts a finished verdict.
    pub fn decided(&self, _verdict: &Verdict, _request: &Request, _series: &[Arc<RuleSeries>]) {}
}
