//! The rules as text, for `/rlconfig`.

use std::fmt::{self, Write};

use super::{
    limit::{Limit, Rule},
    tree::Rules,
};
use crate::{algorithm::Quota, time::SECOND};

impl Rules {
    /// One line for each node with a limit, sorted, in the reference's form. What only our own fields say is
    /// appended to a line that uses them. An `unlimited` rule shows the unit `UNKNOWN`.
    pub fn dump(&self) -> String {
        let mut lines: Vec<String> = self.rules().iter().map(line).collect();
        lines.sort();
        let mut text = lines.join("\n");
        if !text.is_empty() {
            text.push('\n');
        }
        text
    }
}

fn line(rule: &Rule) -> String {
    let (unit, requests) = match &rule.limit {
        Some(limit) => (
            limit
                .unit
                .map_or_else(|| "UNKNOWN".to_owned(), |unit| unit.name().to_uppercase()),
            limit.requests_per_unit,
        ),
        None => ("UNKNOWN".to_owned(), 0),
    };
    let mut line = format!(
        "{}: unit={unit} requests_per_unit={requests}, shadow_mode: {}, quota_mode: {}",
        rule.path, rule.shadow, rule.quota
    );
    if let Some(limit) = &rule.limit {
        // Writing to a String cannot fail.
        let _ = own(limit, &mut line);
    }
    line
}

fn own(limit: &Limit, line: &mut String) -> fmt::Result {
    if limit.unit.is_none() {
        write!(line, ", window={}", Span(limit.window))?;
    }
    match limit.quota {
        Quota::FixedWindow { .. } => {}
        Quota::SlidingWindow { .. } => line.push_str(", algorithm=sliding_window"),
        Quota::SlidingLog { .. } => line.push_str(", algorithm=sliding_log"),
        Quota::TokenBucket { capacity, .. } => {
            write!(line, ", algorithm=token_bucket, burst={capacity}")?;
        }
        Quota::LeakyBucket { max_delay, .. } => {
            write!(
                line,
                ", algorithm=leaky_bucket, max_delay={}",
                Span(max_delay)
            )?;
        }
    }
    if limit.cost > 1 {
        write!(line, ", cost={}", limit.cost)?;
    }
    if let Some(policy) = limit.on_store_failure {
        write!(line, ", on_store_failure={}", policy.name())?;
    }
    Ok(())
}

/// Microseconds in the largest unit that is exact.
struct Span(u64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(micros) = *self;
        let units = [
            ("h", 3_600 * SECOND),
            ("m", 60 * SECOND),
            ("s", SECOND),
            ("ms", 1_000),
        ];
        match units
            .iter()
            .find(|(_, unit)| micros > 0 && micros.is_multiple_of(*unit))
        {
            Some((name, unit)) => write!(f, "{}{name}", micros / unit),
            None => write!(f, "{micros}us"),
        }
    }
}
