//! The results as one table in Markdown.

use std::fmt::Write as _;

use crate::{
    cases::Case,
    sample::{Results, Sample},
};

/// The table. `x` stands for the ratio to the floor with as many calls in flight.
pub(crate) fn of(cases: &[Case], results: &Results) -> String {
    let mut text = String::from(
        "| case, in flight | decisions/s | x | CPU us | x | redis us | x | p50 us | x | p99 us | x | p99.9 us |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    for case in cases {
        let floor = case.floor();
        let median = |figure: fn(&Sample) -> f64| results.median(case.name, figure);
        let ratio = |figure: fn(&Sample) -> f64, to: fn(&Sample) -> f64| {
            results.ratio((case.name, figure), (floor, to))
        };
        // A String takes every write.
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {:.2} | {:.0} | {:.2} | {:.0} |",
            case.name,
            median(|sample| sample.per_second),
            ratio(|sample| sample.per_second, |floor| floor.per_second),
            median(|sample| sample.cpu),
            ratio(|sample| sample.cpu, |floor| floor.cpu),
            median(|sample| sample.redis),
            ratio(|sample| sample.redis, |floor| floor.cpu),
            median(|sample| sample.p50),
            ratio(|sample| sample.p50, |floor| floor.p50),
            median(|sample| sample.p99),
            ratio(|sample| sample.p99, |floor| floor.p99),
            median(|sample| sample.p999),
        );
    }
    text
}
