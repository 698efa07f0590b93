//! What a verdict says in headers. Pure: the same headers go into a gRPC answer and onto an HTTP one.
//!
//! A shadow rule never shows, and neither does what was not counted: a call that failed has no headers.

use std::fmt::Write as _;

use super::figures::whole_seconds;
use crate::{
    algorithm::Outcome,
    counter::OnFailure,
    time::SECOND,
    verdict::{Code, Verdict},
};

/// Which headers an answer carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers {
    /// The reference's three, under these names.
    pub triple: Option<Triple>,
    /// Further styles, in the order they are written.
    pub styles: Vec<Style>,
    /// Name of the header that says which policies answered because the store could not; none without it.
    pub policy: Option<String>,
}

/// Names of the reference's three headers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Triple {
    /// For the limit's requests per unit.
    pub limit: String,
    /// For what is left of it.
    pub remaining: String,
    /// For the seconds until that changes.
    pub reset: String,
}

/// A style of headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Style {
    /// `RateLimit` and `RateLimit-Policy` of the IETF draft, as structured fields (RFC 9651).
    Ietf,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last in seconds.
    XRateLimit,
    /// `Retry-After`, on a refusal that time can lift.
    RetryAfter,
}

/// A header's name and value. Both are printable ASCII.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// As it is written.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// The largest integer of a structured field.
const SF_MAX: u64 = 999_999_999_999_999;

impl Headers {
    /// The headers of this verdict, in order.
    pub fn of(&self, verdict: &Verdict) -> Vec<Header> {
        let mut headers = Vec::new();
        if let Some(figures) = Figures::of(verdict) {
            if let Some(triple) = &self.triple {
                figures.push_triple(
                    &mut headers,
                    &triple.limit,
                    &triple.remaining,
                    &triple.reset,
                );
            }
            for style in &self.styles {
                match style {
                    Style::Ietf => {
                        push(&mut headers, "RateLimit-Policy", policies(verdict));
                        push(&mut headers, "RateLimit", figures.ietf());
                    }
                    Style::XRateLimit => figures.push_triple(
                        &mut headers,
                        "X-RateLimit-Limit",
                        "X-RateLimit-Remaining",
                        "X-RateLimit-Reset",
                    ),
                    Style::RetryAfter => {
                        if let Some(retry) = figures.retry_after(verdict) {
                            push(&mut headers, "Retry-After", retry.to_string());
                        }
                    }
                }
            }
        }
        if let Some(name) = &self.policy {
            let policies: Vec<&str> = verdict.policies().map(OnFailure::name).collect();
            if !policies.is_empty() {
                push(&mut headers, name, policies.join(", "));
            }
        }
        // A caller of a queue that does not know the delay breaks the limit: this one needs no setting.
        if verdict.delay() > 0 {
            push(&mut headers, "X-RateLimit-Delay", decimal(verdict.delay()));
        }
        headers
    }
}

/// The binding limit's figures.
struct Figures {
    name: String,
    limit: u64,
    /// Seconds; `None` when no time helps.
    reset: Option<u64>,
    outcome: Outcome,
}

impl Figures {
    fn of(verdict: &Verdict) -> Option<Self> {
        let index = verdict.binding?;
        let status = verdict.statuses[index];
        let (_, limit) = verdict.limit(index)?;
        Some(Self {
            name: name(verdict, index),
            limit: limit.most(),
            reset: status.reset_after().map(whole_seconds),
            outcome: status.outcome?,
        })
    }

    fn push_triple(&self, headers: &mut Vec<Header>, limit: &str, remaining: &str, reset: &str) {
        push(headers, limit, self.limit.to_string());
        push(headers, remaining, self.outcome.remaining.to_string());
        if let Some(seconds) = self.reset {
            push(headers, reset, seconds.to_string());
        }
    }

    /// Seconds until more may be taken than now.
    fn more_in(&self) -> Option<u64> {
        self.outcome.next_after.map(whole_seconds)
    }

    fn ietf(&self) -> String {
        let mut value = format!(
            "{};r={}",
            sf_string(&self.name),
            self.outcome.remaining.min(SF_MAX)
        );
        if let Some(more_in) = self.more_in() {
            let _ = write!(value, ";t={more_in}");
        }
        value
    }

    fn retry_after(&self, verdict: &Verdict) -> Option<u64> {
        if verdict.code == Code::Ok {
            return None;
        }
        let retry = whole_seconds(verdict.retry_after()?);
        // The draft: not earlier than `t`, or a client that reads both would have to choose.
        Some(retry.max(self.more_in().unwrap_or(0)))
    }
}

/// One item for each limit that was asked and can refuse, in order, each once.
fn policies(verdict: &Verdict) -> String {
    let mut items: Vec<String> = Vec::new();
    for index in 0..verdict.statuses.len() {
        let Some((rule, limit)) = verdict.limit(index) else {
            continue;
        };
        let counted = verdict.statuses[index].outcome.is_some();
        if !counted || rule.is_some_and(|rule| rule.shadow) {
            continue;
        }
        let mut item = format!("{};q={}", sf_string(&name(verdict, index)), limit.most());
        // The draft counts whole seconds: a window that is none has no `w`.
        if limit.window.is_multiple_of(SECOND) {
            let _ = write!(item, ";w={}", limit.window / SECOND);
        }
        if !items.contains(&item) {
            items.push(item);
        }
    }
    items.join(", ")
}

/// What callers may call the limit: its rule's name, else its rule's path.
fn name(verdict: &Verdict, index: usize) -> String {
    match verdict.limit(index) {
        Some((Some(rule), _)) if rule.name.is_empty() => rule.path.to_string(),
        Some((Some(rule), _)) => rule.name.to_string(),
        _ => "request".to_owned(),
    }
}

/// A structured field's string: printable ASCII, with what is not written as percent escapes of its UTF-8 bytes.
fn sf_string(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => {
                quoted.push('\\');
                quoted.push(char::from(byte));
            }
            b' '..=b'~' => quoted.push(char::from(byte)),
            _ => {
                let _ = write!(quoted, "%{byte:02X}");
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Seconds as a decimal, without trailing zeros.
fn decimal(micros: u64) -> String {
    let (seconds, fraction) = (micros / SECOND, micros % SECOND);
    if fraction == 0 {
        return seconds.to_string();
    }
    let text = format!("{seconds}.{fraction:06}");
    text.trim_end_matches('0').to_owned()
}

fn push(headers: &mut Vec<Header>, name: &str, value: String) {
    headers.push(Header {
        name: name.to_owned(),
        value,
    });
}

#[cfg(test)]
mod tests;
