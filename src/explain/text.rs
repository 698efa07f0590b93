//! An explanation for people.

use std::fmt::{self, Display};

use super::{Answer, Explanation, Row, meaning};
use crate::{
    algorithm::{Outcome, Source},
    request::Entry,
    rules::Limit,
    shown::{Escaped, Shown},
    verdict::Code,
};

impl Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = self.plan.rules.hash();
        writeln!(
            f,
            "domain {} (rules {hash:016x})",
            Shown(&self.request.domain)
        )?;
        for row in self.rows() {
            self.row(&row, f)?;
        }
        match &self.answer {
            Answer::NotAsked => Ok(()),
            Answer::Failed(error) => writeln!(f, "answer   none: {error}"),
            Answer::Verdict(verdict) => {
                let code = match verdict.code {
                    Code::Ok if verdict.shadowed => "OK, by SHADOW_MODE: it would be over limit",
                    Code::Ok => "OK",
                    Code::OverLimit => "OVER_LIMIT",
                };
                write!(f, "answer   {code}")?;
                if let Some(binding) = verdict.binding {
                    write!(f, ", bound by descriptor {}", binding + 1)?;
                }
                writeln!(f, "; nothing was charged")
            }
        }
    }
}

impl Explanation {
    fn row(&self, row: &Row<'_>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "descriptor {}:", row.index + 1)?;
        for (place, entry) in row.descriptor.entries.iter().enumerate() {
            let comma = if place == 0 { "" } else { "," };
            write!(f, "{comma} {}", ShownEntry(entry))?;
        }
        writeln!(f)?;
        for level in &row.walk.levels {
            writeln!(f, "  {}", ShownEntry(&level.entry))?;
            for tried in &level.tried {
                let mark = if tried.why.is_taken() { '+' } else { '-' };
                writeln!(
                    f,
                    "    {mark} {}: {}",
                    Escaped(&tried.node),
                    tried.why.text()
                )?;
            }
            if level.not_shown > 0 {
                writeln!(f, "    - {} more that do not fit", level.not_shown)?;
            }
        }
        writeln!(f, "  walk    {}", row.walk.end.text())?;
        if let Some(rule) = row.rule {
            write!(f, "  rule    {} at {}", Escaped(&rule.path), rule.place)?;
            for (holds, word) in [(rule.shadow, "shadow"), (rule.quota, "quota")] {
                if holds {
                    write!(f, ", {word}")?;
                }
            }
            if !rule.name.is_empty() {
                write!(f, ", named {}", Escaped(&rule.name))?;
            }
            writeln!(f)?;
        }
        writeln!(f, "  so it   {}", meaning(row.step).1)?;
        let (Some(limit), super::Step::Limited { counter, .. }) = (row.limit, row.step) else {
            return Ok(());
        };
        let counter = &self.plan.counters[*counter];
        writeln!(f, "  limit   {}", ShownLimit(limit))?;
        writeln!(f, "  counter {:?}", counter.key)?;
        writeln!(f, "  takes   {}", counter.hits)?;
        let Some(outcome) = row.outcome else {
            return Ok(());
        };
        let binds = self.verdict().and_then(|verdict| verdict.binding) == Some(row.index);
        let binds = if binds { " (binding)" } else { "" };
        writeln!(f, "  state   {}{binds}", ShownOutcome(&outcome))
    }
}

struct ShownEntry<'a>(&'a Entry);

impl Display for ShownEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", Shown(&self.0.key), Shown(&self.0.value))
    }
}

struct ShownLimit<'a>(&'a Limit);

impl Display for ShownLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(limit) = self;
        write!(f, "{} per ", limit.requests_per_unit)?;
        match limit.unit {
            Some(unit) => write!(f, "{}", unit.name())?,
            None => write!(f, "{}", ShownTime(limit.window))?,
        }
        write!(f, ", {}", limit.quota.algorithm())?;
        let capacity = limit.quota.capacity();
        if capacity != u64::from(limit.requests_per_unit) {
            write!(f, ", at most {capacity} at once")?;
        }
        if limit.cost > 1 {
            write!(f, ", each hit counts {}", limit.cost)?;
        }
        Ok(())
    }
}

struct ShownOutcome<'a>(&'a Outcome);

impl Display for ShownOutcome<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(outcome) = self;
        let verb = if outcome.allowed { "admits" } else { "refuses" };
        write!(
            f,
            "{verb}: {} used, {} left, as new in {}",
            outcome.used,
            outcome.remaining,
            ShownTime(outcome.reset_after)
        )?;
        if !outcome.allowed {
            match outcome.retry_after {
                Some(retry) => write!(f, ", would admit in {}", ShownTime(retry))?,
                None => write!(f, ", never admits as much")?,
            }
        }
        match outcome.source {
            Source::Counter => Ok(()),
            Source::DenyCache => write!(f, ", remembered"),
            Source::Local => write!(f, ", counted by this replica alone"),
        }
    }
}

struct ShownTime(u64);

impl Display for ShownTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(micros) = *self;
        if micros.is_multiple_of(1_000_000) {
            write!(f, "{} s", micros / 1_000_000)
        } else {
            write!(f, "{}.{:06} s", micros / 1_000_000, micros % 1_000_000)
        }
    }
}
