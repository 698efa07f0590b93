//! Samples of cases, and the medians over their rounds.

use std::collections::HashMap;

/// One case in one round. Times are microseconds, CPU is for each decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) per_second: f64,
    pub(crate) cpu: f64,
    pub(crate) redis: f64,
    /// Calls to the store for each decision.
    pub(crate) store_calls: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
}

/// The samples of each case, round by round.
#[derive(Debug, Default)]
pub(crate) struct Results(HashMap<&'static str, Vec<Sample>>);

impl Results {
    /// Adds the next round of a case.
    pub(crate) fn add(&mut self, case: &'static str, sample: Sample) {
        self.0.entry(case).or_default().push(sample);
    }

    /// The samples of a case; none when it was left out.
    pub(crate) fn of(&self, case: &str) -> &[Sample] {
        self.0.get(case).map_or(&[], Vec::as_slice)
    }

    /// The median of one figure.
    pub(crate) fn median(&self, case: &str, figure: impl Fn(&Sample) -> f64) -> f64 {
        middle(self.of(case).iter().map(figure).collect())
    }

    /// The median of a figure's ratio to another case's, each within its round.
    pub(crate) fn ratio(
        &self,
        (case, figure): (&str, impl Fn(&Sample) -> f64),
        (to, other): (&str, impl Fn(&Sample) -> f64),
    ) -> f64 {
        let rounds = self.of(case).iter().zip(self.of(to));
        middle(
            rounds
                .map(|(sample, to)| figure(sample) / other(to))
                .collect(),
        )
    }
}

/// No number when there are no values.
fn middle(mut values: Vec<f64>) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 {
        values[half]
    } else {
        (values[half - 1] + values[half]) / 2.0
    }
}
