//! What a run found, as text and as JSON.

use std::{fmt::Write as _, time::Duration};

use serde_json::{Value, json};

use super::{
    bound::{Check, Finding},
    load::Load,
    tally::Tally,
};

/// A finished run.
#[derive(Debug)]
pub(super) struct Report<'r> {
    pub(super) load: &'r Load,
    pub(super) tally: &'r Tally,
    pub(super) took: Duration,
    /// `None` when no limit was given.
    pub(super) check: Option<&'r Check>,
}

/// The shares of calls whose time is shown.
const PERCENTILES: [(&str, f64); 6] = [
    ("p50", 50.0),
    ("p75", 75.0),
    ("p90", 90.0),
    ("p99", 99.0),
    ("p99.9", 99.9),
    ("p99.99", 99.99),
];

impl Report<'_> {
    fn per_second(&self) -> f64 {
        self.tally.answers() as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// The descriptor of a counter, with its key in place.
    fn name(&self, finding: &Finding) -> String {
        let template = &self.load.template;
        let (place, key) = self.tally.name(finding.counter, template.keys.count());
        template.shown(place, key)
    }

    fn mode(&self) -> &'static str {
        match self.load.rate {
            Some(_) => "open",
            None => "closed",
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let Self { load, tally, .. } = self;
        let mut text = String::new();
        // A String takes every write.
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:<11}{value}");
        };
        let mode = match load.rate {
            Some(rate) => format!("{rate} calls a second (open loop), at most"),
            None => "closed loop,".to_owned(),
        };
        line(
            "load",
            format!(
                "{mode} {} in flight, {} connections, {} keys",
                load.inflight,
                load.connections,
                load.template.keys.count()
            ),
        );
        line(
            "calls",
            format!(
                "{} answered in {:.2} s, {:.0} a second",
                tally.answers(),
                self.took.as_secs_f64(),
                self.per_second()
            ),
        );
        line("allowed", tally.allowed.to_string());
        line("over limit", tally.over_limit.to_string());
        for (reason, times) in &tally.failures {
            line("failed", format!("{times}: {reason}"));
        }
        if tally.answers() > 0 {
            let times: Vec<String> = PERCENTILES
                .iter()
                .map(|(name, share)| {
                    format!(
                        "{name} {}",
                        millis(tally.latency.value_at_percentile(*share))
                    )
                })
                .collect();
            let longest = millis(tally.latency.max());
            line("ms", format!("{}, max {longest}", times.join(", ")));
        }
        if tally.unlimited > 0 {
            line(
                "note",
                format!(
                    "{} answers had a descriptor that no limit applies to",
                    tally.unlimited
                ),
            );
        }
        if let Some(check) = self.check {
            line(
                "limit",
                format!(
                    "{}: {} counters, {} asked for more than the limit",
                    if check.holds() { "held" } else { "BROKEN" },
                    check.counters,
                    check.exhausted,
                ),
            );
            if check.over > 0 {
                line(
                    "",
                    format!("{} granted {} hits too many", check.over, check.over_hits),
                );
            }
            if check.under > 0 {
                line(
                    "",
                    format!("{} granted {} hits too few", check.under, check.under_hits),
                );
            }
            for finding in &check.closest {
                line(
                    "",
                    format!(
                        "{}: granted {} of {} asked, at most {} ({})",
                        self.name(finding),
                        finding.granted,
                        finding.answered,
                        finding.bound.hits,
                        finding.bound.how
                    ),
                );
            }
            if check.counters > check.closest.len() as u64 {
                line("", "all others were further from their bounds".to_owned());
            }
        }
        text
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let Self { load, tally, .. } = self;
        let mut latency = serde_json::Map::new();
        latency.insert("min".to_owned(), json!(tally.latency.min()));
        latency.insert("mean".to_owned(), json!(tally.latency.mean()));
        for (name, share) in PERCENTILES {
            latency.insert(
                name.to_owned(),
                json!(tally.latency.value_at_percentile(share)),
            );
        }
        latency.insert("max".to_owned(), json!(tally.latency.max()));
        json!({
            "mode": self.mode(),
            "rate": load.rate,
            "inflight": load.inflight,
            "connections": load.connections,
            "keys": load.template.keys.count(),
            "seconds": self.took.as_secs_f64(),
            "calls": tally.answers(),
            "calls_per_second": self.per_second(),
            "allowed": tally.allowed,
            "over_limit": tally.over_limit,
            "without_limit": tally.unlimited,
            "failed": tally.failures(),
            "failures": tally.failures,
            "latency_us": latency,
            "check": self.check.map(|check| json!({
                "held": check.holds(),
                "counters": check.counters,
                "exhausted": check.exhausted,
                "over": {"counters": check.over, "hits": check.over_hits},
                "under": {"counters": check.under, "hits": check.under_hits},
                "closest": check.closest.iter().map(|finding| json!({
                    "counter": self.name(finding),
                    "asked": finding.answered,
                    "granted": finding.granted,
                    "bound": finding.bound.hits,
                    "how": finding.bound.how,
                })).collect::<Vec<_>>(),
            })),
        })
    }
}

fn millis(micros: u64) -> String {
    format!("{:.3}", micros as f64 / 1_000.0)
}
