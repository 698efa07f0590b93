//! What the service has to reach, and whether it does.

use std::fmt::Write as _;

use crate::{
    cases::Case,
    sample::{Results, Sample},
};

struct Bar {
    what: &'static str,
    found: f64,
    bound: Bound,
}

enum Bound {
    Most(f64),
    Least(f64),
}

impl Bar {
    const fn most(what: &'static str, found: f64, bound: f64) -> Self {
        Self {
            what,
            found,
            bound: Bound::Most(bound),
        }
    }

    const fn least(what: &'static str, found: f64, bound: f64) -> Self {
        Self {
            what,
            found,
            bound: Bound::Least(bound),
        }
    }
}

const fn cpu(sample: &Sample) -> f64 {
    sample.cpu
}

const fn redis(sample: &Sample) -> f64 {
    sample.redis
}

const fn throughput(sample: &Sample) -> f64 {
    sample.per_second
}

const fn p50(sample: &Sample) -> f64 {
    sample.p50
}

const fn p99(sample: &Sample) -> f64 {
    sample.p99
}

/// Each bar whose cases were measured, what was found, and whether it holds.
pub(crate) fn of(cases: &[Case], results: &Results, bytes_per_key: Option<u64>) -> String {
    let ratio = |case: &str, to: &str, figure: fn(&Sample) -> f64| {
        results.ratio((case, figure), (to, figure))
    };
    let (floor, memory, stored) = ("floor, 64", "memory, 64", "redis, 64");
    let mut bars = vec![
        Bar::most(
            "memory: CPU to the floor's",
            ratio(memory, floor, cpu),
            0.85,
        ),
        Bar::least(
            "memory: throughput to the floor's",
            ratio(memory, floor, throughput),
            1.05,
        ),
        Bar::least(
            "memory, 1 % of the calls followed: throughput",
            ratio("memory, traced", memory, throughput),
            0.97,
        ),
        Bar::least(
            "redis, 1 % of the calls followed: throughput",
            ratio("redis, traced", stored, throughput),
            0.97,
        ),
        Bar::most("redis: CPU to the floor's", ratio(stored, floor, cpu), 1.0),
        Bar::least(
            "redis: throughput to the floor's",
            ratio(stored, floor, throughput),
            0.8,
        ),
        Bar::most(
            "redis: Redis's CPU to the floor's",
            results.ratio((stored, redis), (floor, cpu)),
            0.65,
        ),
        Bar::most("redis: p99 to the floor's", ratio(stored, floor, p99), 1.0),
        Bar::most(
            "redis, hot key: Redis's CPU, us",
            results.median("redis, hot key", redis),
            2.0,
        ),
        Bar::most(
            "redis, refused: store calls a decision",
            results.median("redis, refused", |sample| sample.store_calls),
            0.01,
        ),
        Bar::least(
            "redis, refused: throughput to memory's",
            ratio("redis, refused", memory, throughput),
            0.9,
        ),
        Bar::most(
            "redis, 8 in flight: p50 to the floor's",
            ratio("redis, 8", "floor, 8", p50),
            2.2,
        ),
        Bar::most(
            "memory, 4 descriptors: CPU to that of one",
            ratio("memory, 4 descriptors", memory, cpu),
            1.8,
        ),
        Bar::most(
            "redis, 4 descriptors: CPU to that of one",
            ratio("redis, 4 descriptors", stored, cpu),
            1.8,
        ),
        Bar::most(
            "memory, 10,000 rules: CPU to that of one",
            ratio("memory, 10,000 rules", memory, cpu),
            1.1,
        ),
        Bar::most(
            "memory, 1,000,000 live keys: CPU to that of 10,000",
            ratio("memory, 1,000,000 keys", memory, cpu),
            1.1,
        ),
        Bar::most(
            "memory: CPU to that without /top",
            ratio(memory, "memory, no /top", cpu),
            1.03,
        ),
        Bar::most(
            "memory, refused: CPU to that without /top",
            ratio("memory, refused", "memory, no /top, refused", cpu),
            1.03,
        ),
        Bar::most(
            "memory: bytes a live key",
            bytes_per_key.map_or(f64::NAN, |bytes| bytes as f64),
            200.0,
        ),
    ];
    bars.extend(cases.iter().filter(|case| case.is_other()).map(|case| {
        let what = String::leak(format!("redis: throughput to that of {}", case.name));
        Bar::least(what, ratio(stored, case.name, throughput), 3.0)
    }));
    let mut text = String::from("\n| bar | found | wanted | |\n|---|--:|--:|---|\n");
    for Bar { what, found, bound } in bars {
        if found.is_nan() {
            continue;
        }
        let (wanted, holds) = match bound {
            Bound::Most(most) => (format!("<= {most}"), found <= most),
            Bound::Least(least) => (format!(">= {least}"), found >= least),
        };
        let holds = if holds { "holds" } else { "MISSED" };
        // A String takes every write.
        let _ = writeln!(text, "| {what} | {found:.3} | {wanted} | {holds} |");
    }
    text
}
