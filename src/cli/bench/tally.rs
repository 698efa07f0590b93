//! What came back, and whether it was right.

use std::{collections::BTreeMap, time::Duration};

use hdrhistogram::Histogram;

use super::template::Template;
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
    answered: u64,
    /// By calls without an answer: counted or not, nobody knows.
    unknown: u64,
    /// By calls that may go through.
    passed: u64,
    /// The descriptor itself was within its limit, whatever became of the call.
    within: u64,
}

/// What a limit has to look like from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Expected {
    /// Hits a counter grants in one window.
    pub(super) limit: u64,
    /// The window; `None` when it outlasts the run.
    pub(super) per: Option<Duration>,
}

/// Whether the limit held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Check {
    /// Counters that were asked.
    pub(super) counters: u64,
    /// Of these, those that were asked for more than they could grant.
    pub(super) exhausted: u64,
    /// Those that granted too much, and by how many hits in all.
    pub(super) over: u64,
    pub(super) over_hits: u64,
    /// Those that refused too early, and how many hits in all.
    pub(super) under: u64,
    pub(super) under_hits: u64,
}

impl Check {
    /// No counter granted too much or too little.
    pub(super) const fn holds(&self) -> bool {
        self.over == 0 && self.under == 0
    }
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

    /// Adds an answer that took `time`.
    pub(super) fn answered(&mut self, answer: &RateLimitResponse, keys: &[usize], time: Duration) {
        let passed = answer.overall_code() == Code::Ok;
        if passed {
            self.allowed += 1;
        } else {
            self.over_limit += 1;
        }
        let no_limit = |status: &super::Status| status.current_limit.is_none();
        self.unlimited += u64::from(answer.statuses.iter().any(no_limit));
        // The histogram grows by itself, so every time fits.
        let _ = self.latency.record(time.as_micros() as u64);
        if let Some(counters) = &mut self.counters {
            let hits = counters.hits;
            counters.each(keys, |place, counter| {
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
                counter.answered += other.answered;
                counter.unknown += other.unknown;
                counter.passed += other.passed;
                counter.within += other.within;
            }
        }
    }

    /// Compares each counter with the limit, after a run of `time`.
    pub(super) fn check(&self, expected: Expected, time: Duration) -> Check {
        let mut check = Check::default();
        let Some(counters) = &self.counters else {
            return check;
        };
        let hits = counters.hits.max(1);
        let most = expected.most(time);
        for counter in &counters.counters {
            if counter.answered == 0 {
                continue;
            }
            check.counters += 1;
            check.exhausted += u64::from(counter.answered > expected.limit);
            let over = counter.passed.saturating_sub(most);
            check.over += u64::from(over > 0);
            check.over_hits += over;
            // A call is granted whole or not at all, and one that was not answered may have taken its hits.
            let least = counter.answered.min(expected.limit / hits * hits);
            let under = least.saturating_sub(counter.within + counter.unknown);
            check.under += u64::from(under > 0);
            check.under_hits += under;
        }
        check
    }
}

impl Counters {
    fn each(&mut self, keys: &[usize], mut change: impl FnMut(usize, &mut Counter)) {
        for (place, (row, key)) in self.rows.iter().zip(keys).enumerate() {
            change(place, &mut self.counters[row + key]);
        }
    }
}

impl Expected {
    /// The most that any algorithm grants in `time`: each window that a run of that length can touch is granted in
    /// full, or refilled for.
    fn most(self, time: Duration) -> u64 {
        let windows = match self.per {
            None => 1,
            Some(per) => {
                let begun = time.as_nanos().div_ceil(per.as_nanos().max(1));
                u64::try_from(begun).unwrap_or(u64::MAX).saturating_add(1)
            }
        };
        self.limit.saturating_mul(windows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::bench::{Distribution, Status, keys::Keys, template::DescriptorTemplate};

    const RUN: Duration = Duration::from_secs(1);

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
    fn check(answers: &[Option<Code>], expected: Expected, over: u64, under: u64) {
        let mut tally = tally();
        for code in answers {
            match code {
                Some(code) => tally.answered(&answer(*code), &[1], RUN),
                None => tally.failed("lost".to_owned(), &[1]),
            }
        }
        let mut both = self::tally();
        both.merge(tally);
        let check = both.check(expected, RUN);
        assert_eq!((check.over_hits, check.under_hits), (over, under));
        assert_eq!(check.counters, 1);
    }

    #[test]
    fn too_much_and_too_little_are_seen() {
        use Code::{Ok, OverLimit};
        // 5 hits in units of 2: two calls.
        let limit = Expected {
            limit: 5,
            per: None,
        };
        check(&[Some(Ok), Some(Ok), Some(OverLimit)], limit, 0, 0);
        check(&[Some(Ok), Some(Ok), Some(Ok)], limit, 1, 0);
        check(&[Some(Ok), Some(OverLimit)], limit, 0, 2);
        check(&[Some(Ok)], limit, 0, 0);
        check(&[Some(Ok), None, Some(OverLimit)], limit, 0, 0);
        let refilled = Expected {
            limit: 5,
            per: Some(RUN / 2),
        };
        check(&[Some(Ok); 7], refilled, 0, 0);
        check(&[Some(Ok); 8], refilled, 1, 0);
    }
}
