//! What came back, and whether it was right.

use std::{collections::BTreeMap, time::Instant};

use hdrhistogram::Histogram;

use super::{
    bound::{Bound, Check, Expected, Finding},
    template::Template,
};
use crate::proto::envoy::service::ratelimit::v3::{RateLimitResponse, rate_limit_response::Code};

/// The answers of one thread, or of all of them.
#[derive(Debug)]
pub(super) struct Tally {
    /// Microseconds until the answer, of all calls that were answered.
    pub(super) latency: Histogram<u64>,
    pub(super) allowed: u64,
    pub(super) over_limit: u64,
    /// Answers in which no limit stands behind one of the descriptors.
    pub(super) unlimited: u64,
    /// Calls without an answer, by the reason.
    pub(super) failures: BTreeMap<String, u64>,
    counters: Option<Counters>,
}

/// What is known of each counter, in hits.
#[derive(Clone, Debug)]
struct Counters {
    rows: Vec<usize>,
    hits: u64,
    counters: Vec<Counter>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counter {
    /// When it was first asked, and when it last answered.
    asked: Option<(Instant, Instant)>,
    answered: u64,
    /// By calls without an answer: counted or not, nobody knows.
    unknown: u64,
    /// By calls that may go through.
    passed: u64,
    /// The descriptor itself was within its limit, whatever became of the call.
    within: u64,
}

impl Tally {
    /// Nothing yet. With `check`, each counter is followed.
    pub(super) fn new(template: &Template, check: bool) -> Self {
        let mut latency = Histogram::new(3).expect("3 digits are within the crate's 0 to 5");
        latency.auto(true);
        let rows = template.rows();
        let counters = check.then(|| Counters {
            counters: vec![Counter::default(); rows.len() * template.keys.count()],
            rows,
            hits: template.hits(),
        });
        Self {
            latency,
            allowed: 0,
            over_limit: 0,
            unlimited: 0,
            failures: BTreeMap::new(),
            counters,
        }
    }

    /// Adds an answer, which came at `until` to a call that was due at `since`.
    pub(super) fn answered(
        &mut self,
        answer: &RateLimitResponse,
        keys: &[usize],
        (since, until): (Instant, Instant),
    ) {
        let passed = answer.overall_code() == Code::Ok;
        if passed {
            self.allowed += 1;
        } else {
            self.over_limit += 1;
        }
        let no_limit = |status: &super::Status| status.current_limit.is_none();
        self.unlimited += u64::from(answer.statuses.iter().any(no_limit));
        // The histogram grows by itself, so every time fits.
        let time = until.saturating_duration_since(since);
        let _ = self.latency.record(time.as_micros() as u64);
        if let Some(counters) = &mut self.counters {
            let hits = counters.hits;
            counters.each(keys, |place, counter| {
                counter.was_asked((since, until));
                counter.answered += hits;
                counter.passed += if passed { hits } else { 0 };
                let status = answer.statuses.get(place);
                if status.is_some_and(|status| status.code() == Code::Ok) {
                    counter.within += hits;
                }
            });
        }
    }

    /// Adds a call that was not answered.
    pub(super) fn failed(&mut self, reason: String, keys: &[usize]) {
        *self.failures.entry(reason).or_default() += 1;
        if let Some(counters) = &mut self.counters {
            let hits = counters.hits;
            counters.each(keys, |_, counter| counter.unknown += hits);
        }
    }

    /// Calls without an answer.
    pub(super) fn failures(&self) -> u64 {
        self.failures.values().sum()
    }

    /// Calls with one.
    pub(super) const fn answers(&self) -> u64 {
        self.allowed + self.over_limit
    }

    /// Adds those of another thread.
    pub(super) fn merge(&mut self, other: Self) {
        // Both have the same precision, and grow.
        let _ = self.latency.add(&other.latency);
        self.allowed += other.allowed;
        self.over_limit += other.over_limit;
        self.unlimited += other.unlimited;
        for (reason, times) in other.failures {
            *self.failures.entry(reason).or_default() += times;
        }
        if let (Some(counters), Some(others)) = (&mut self.counters, other.counters) {
            for (counter, other) in counters.counters.iter_mut().zip(others.counters) {
                if let Some(asked) = other.asked {
                    counter.was_asked(asked);
                }
                counter.answered += other.answered;
                counter.unknown += other.unknown;
                counter.passed += other.passed;
                counter.within += other.within;
            }
        }
    }

    /// Compares each counter with the limit.
    pub(super) fn check(&self, expected: &Expected) -> Check {
        let mut check = Check::default();
        let Some(counters) = &self.counters else {
            return check;
        };
        let hits = counters.hits.max(1);
        for (number, counter) in counters.counters.iter().enumerate() {
            let Some((from, to)) = counter.asked else {
                continue;
            };
            let bound: Bound = expected.most(from, to);
            // A call is granted whole or not at all, and one that was not answered may have taken its hits.
            let least = counter.answered.min(expected.at_once() / hits * hits);
            check.add(Finding {
                counter: number,
                answered: counter.answered,
                granted: counter.passed,
                under: least.saturating_sub(counter.within + counter.unknown),
                exhausted: counter.answered > expected.limit,
                bound,
            });
        }
        check
    }

    /// The descriptor, by its place, and the key's number of a counter.
    pub(super) fn name(&self, counter: usize, keys: usize) -> (usize, usize) {
        let row = counter / keys.max(1) * keys.max(1);
        let rows = self.counters.as_ref().map(|counters| &counters.rows);
        let place = rows.and_then(|rows| rows.iter().position(|first| *first == row));
        (place.unwrap_or(0), counter - row)
    }
}

impl Counter {
    fn was_asked(&mut self, (since, until): (Instant, Instant)) {
        let (from, to) = self.asked.unwrap_or((since, until));
        self.asked = Some((from.min(since), to.max(until)));
    }
}

impl Counters {
    fn each(&mut self, keys: &[usize], mut change: impl FnMut(usize, &mut Counter)) {
        for (place, (row, key)) in self.rows.iter().zip(keys).enumerate() {
            change(place, &mut self.counters[row + key]);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::cli::bench::{Distribution, Status, keys::Keys, template::DescriptorTemplate};

    fn tally() -> Tally {
        let template = Template {
            domain: "d".to_owned(),
            descriptors: vec![DescriptorTemplate::parse("k=%").expect("good")],
            hits: Some(2),
            prefix: String::new(),
            keys: Keys::new(3, Distribution::Uniform, 1.0),
        };
        Tally::new(&template, true)
    }

    fn answer(code: Code) -> RateLimitResponse {
        RateLimitResponse {
            overall_code: code.into(),
            statuses: vec![Status {
                code: code.into(),
                ..Status::default()
            }],
            ..RateLimitResponse::default()
        }
    }

    #[track_caller]
    fn check(answers: &[Option<Code>], per: Option<Duration>, over: u64, under: u64) {
        let start = Instant::now();
        let run = (start, start + Duration::from_secs(1));
        let mut tally = tally();
        for code in answers {
            match code {
                Some(code) => tally.answered(&answer(*code), &[1], run),
                None => tally.failed("lost".to_owned(), &[1]),
            }
        }
        let mut both = self::tally();
        both.merge(tally);
        let expected = Expected {
            limit: 5,
            per,
            algorithm: None,
            burst: None,
        };
        let check = both.check(&expected);
        assert_eq!((check.over_hits, check.under_hits), (over, under));
        assert_eq!(check.counters, 1);
        assert_eq!(both.name(1, 3), (0, 1));
    }

    #[test]
    fn too_much_and_too_little_are_seen() {
        use Code::{Ok, OverLimit};
        // 5 hits in units of 2: two calls.
        check(&[Some(Ok), Some(Ok), Some(OverLimit)], None, 0, 0);
        check(&[Some(Ok), Some(Ok), Some(Ok)], None, 1, 0);
        check(&[Some(Ok), Some(OverLimit)], None, 0, 2);
        check(&[Some(Ok)], None, 0, 0);
        check(&[Some(Ok), None, Some(OverLimit)], None, 0, 0);
        // In a second three windows of half a second can be touched.
        let refilled = Some(Duration::from_millis(500));
        check(&[Some(Ok); 7], refilled, 0, 0);
        check(&[Some(Ok); 8], refilled, 1, 0);
    }
}
