//! Envoy's messages on one side, [`Request`] and [`Verdict`] on the other. Refuses what makes no sense or is over a
//! bound, before anything is charged.

use std::fmt;

use super::{
    bounds::{Bound, Bounds},
    figures::whole_seconds,
};
use crate::{
    algorithm::MAX,
    counter::OnFailure,
    proto::envoy::{
        extensions::common::ratelimit::v3::{RateLimitDescriptor, rate_limit_descriptor as wire},
        service::ratelimit::v3::{
            RateLimitRequest, RateLimitResponse,
            rate_limit_response::{self, DescriptorStatus, RateLimit, rate_limit},
        },
    },
    request::{Descriptor, Entry, Override, Request},
    rules::Step,
    unit::Unit,
    verdict::{Code, Verdict},
};

/// A request that is not answered: which field, and what is wrong with it. Never holds the caller's own text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadRequest {
    /// Such as `descriptors[2].entries[0].value`.
    pub field: String,
    /// What is wrong with it.
    pub reason: Reason,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// No domain.
    NoDomain,
    /// No descriptors.
    NoDescriptors,
    /// The unit of a limit is missing, or a number that names none.
    Unit(i32),
    /// More elements than the bound.
    TooMany(Bound, usize),
    /// More bytes than the bound.
    TooLong(Bound, usize),
}

impl BadRequest {
    /// What to count it under.
    pub(super) fn bound(&self) -> Bound {
        match self.reason {
            Reason::NoDomain | Reason::NoDescriptors | Reason::Unit(_) => Bound::Meaning,
            Reason::TooMany(bound, _) | Reason::TooLong(bound, _) => bound,
        }
    }
}

impl std::error::Error for BadRequest {}

impl fmt::Display for BadRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let field = &self.field;
        match self.reason {
            // The reference's words: callers match on them.
            Reason::NoDomain => f.write_str("rate limit domain must not be empty"),
            Reason::NoDescriptors => f.write_str("rate limit descriptor list must not be empty"),
            Reason::Unit(0) => write!(f, "{field}: a limit needs a unit"),
            Reason::Unit(number) => write!(f, "{field}: there is no unit {number}"),
            Reason::TooMany(_, most) => write!(f, "{field}: more than {most} elements"),
            Reason::TooLong(_, most) => write!(f, "{field}: longer than {most} bytes"),
        }
    }
}

/// What the wire said of hits, kept for the dynamic metadata, which repeats it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Addends {
    /// The request's own; 0 when it said none.
    pub request: u32,
    /// Each descriptor's own.
    pub descriptors: Vec<Option<u64>>,
}

impl Addends {
    /// The hits as `message` says them.
    pub(super) fn of(message: &RateLimitRequest) -> Self {
        Self {
            request: message.hits_addend,
            descriptors: message
                .descriptors
                .iter()
                .map(|descriptor| descriptor.hits_addend)
                .collect(),
        }
    }
}

/// Reads a request, within `bounds`.
///
/// # Errors
/// The first field that is wrong.
pub(super) fn request(message: RateLimitRequest, bounds: &Bounds) -> Result<Request, BadRequest> {
    let refuse = |field: &str, reason| {
        Err(BadRequest {
            field: field.to_owned(),
            reason,
        })
    };
    if message.domain.is_empty() {
        return refuse("domain", Reason::NoDomain);
    }
    if message.domain.len() > bounds.max_key_length {
        return refuse(
            "domain",
            Reason::TooLong(Bound::KeyLength, bounds.max_key_length),
        );
    }
    if message.descriptors.is_empty() {
        return refuse("descriptors", Reason::NoDescriptors);
    }
    if message.descriptors.len() > bounds.max_descriptors {
        return refuse(
            "descriptors",
            Reason::TooMany(Bound::Descriptors, bounds.max_descriptors),
        );
    }
    let default_hits = u64::from(message.hits_addend.max(1));
    let descriptors = message
        .descriptors
        .into_iter()
        .enumerate()
        .map(|(index, descriptor)| {
            read_descriptor(descriptor, default_hits, bounds).map_err(|(field, reason)| {
                BadRequest {
                    field: format!("descriptors[{index}].{field}"),
                    reason,
                }
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(Request {
        domain: message.domain,
        descriptors,
    })
}

fn read_descriptor(
    descriptor: RateLimitDescriptor,
    default_hits: u64,
    bounds: &Bounds,
) -> Result<Descriptor, (String, Reason)> {
    if descriptor.entries.len() > bounds.max_entries {
        let reason = Reason::TooMany(Bound::Entries, bounds.max_entries);
        return Err(("entries".to_owned(), reason));
    }
    let entries = descriptor
        .entries
        .into_iter()
        .enumerate()
        .map(|(index, entry)| read_entry(index, entry, bounds))
        .collect::<Result<_, _>>()?;
    let limit = descriptor
        .limit
        .map(|limit| {
            unit(limit.unit)
                .map(|unit| Override {
                    requests_per_unit: limit.requests_per_unit,
                    unit,
                })
                .ok_or_else(|| ("limit.unit".to_owned(), Reason::Unit(limit.unit)))
        })
        .transpose()?;
    let hits = descriptor.hits_addend.unwrap_or(default_hits).min(MAX);
    // At most 2^53 - 1, so it fits.
    let hits = i64::try_from(hits).unwrap_or(i64::MAX);
    Ok(Descriptor {
        entries,
        hits: if descriptor.is_negative_hits {
            -hits
        } else {
            hits
        },
        limit,
    })
}

fn read_entry(
    index: usize,
    entry: wire::Entry,
    bounds: &Bounds,
) -> Result<Entry, (String, Reason)> {
    let wire::Entry { key, value } = entry;
    if key.len() > bounds.max_key_length {
        let reason = Reason::TooLong(Bound::KeyLength, bounds.max_key_length);
        return Err((format!("entries[{index}].key"), reason));
    }
    if value.len() > bounds.max_value_length {
        let reason = Reason::TooLong(Bound::ValueLength, bounds.max_value_length);
        return Err((format!("entries[{index}].value"), reason));
    }
    Ok(Entry { key, value })
}

/// The enum of requests ends at YEAR; 7 is the week of the enum of answers, and the reference takes it here too.
fn unit(number: i32) -> Option<Unit> {
    Some(match number {
        1 => Unit::Second,
        2 => Unit::Minute,
        3 => Unit::Hour,
        4 => Unit::Day,
        5 => Unit::Month,
        6 => Unit::Year,
        7 => Unit::Week,
        _ => return None,
    })
}

/// Writes the answer, without headers and metadata.
pub(super) fn response(verdict: &Verdict) -> RateLimitResponse {
    RateLimitResponse {
        overall_code: code(verdict.code).into(),
        statuses: (0..verdict.statuses.len())
            .map(|index| status(verdict, index))
            .collect(),
        ..RateLimitResponse::default()
    }
}

fn status(verdict: &Verdict, index: usize) -> DescriptorStatus {
    let status = &verdict.statuses[index];
    // What nobody counted has no figures.
    let counted = status.policy.is_none() || status.outcome.is_some();
    let limit = verdict
        .limit(index)
        .filter(|_| counted)
        .map(|(rule, limit)| RateLimit {
            name: rule.map_or_else(String::new, |rule| rule.name.to_string()),
            requests_per_unit: limit.requests_per_unit,
            unit: limit
                .unit
                .map_or(rate_limit::Unit::Unknown, wire_unit)
                .into(),
        });
    DescriptorStatus {
        code: match status.policy {
            Some(OnFailure::Error) => rate_limit_response::Code::Unknown,
            _ => code(status.code),
        }
        .into(),
        current_limit: limit,
        limit_remaining: match (&verdict.plan.steps[index], status.outcome) {
            (Step::Unlimited(_), _) => u32::MAX,
            (_, Some(outcome)) => u32::try_from(outcome.remaining).unwrap_or(u32::MAX),
            (_, None) => 0,
        },
        duration_until_reset: status.reset_after().map(|micros| prost_types::Duration {
            // A year at most.
            seconds: i64::try_from(whole_seconds(micros)).unwrap_or(i64::MAX),
            nanos: 0,
        }),
        quota: None,
    }
}

const fn code(code: Code) -> rate_limit_response::Code {
    match code {
        Code::Ok => rate_limit_response::Code::Ok,
        Code::OverLimit => rate_limit_response::Code::OverLimit,
    }
}

const fn wire_unit(unit: Unit) -> rate_limit::Unit {
    match unit {
        Unit::Second => rate_limit::Unit::Second,
        Unit::Minute => rate_limit::Unit::Minute,
        Unit::Hour => rate_limit::Unit::Hour,
        Unit::Day => rate_limit::Unit::Day,
        Unit::Week => rate_limit::Unit::Week,
        Unit::Month => rate_limit::Unit::Month,
        Unit::Year => rate_limit::Unit::Year,
    }
}

#[cfg(test)]
mod tests;
