//! Where a call comes from: W3C Trace Context, else B3 in its single header or its several.

use std::str::FromStr as _;

use opentelemetry::trace::{SpanId, TraceId, TraceState};

/// The span a call was made from, or the trace that begins with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Parent {
    pub(super) trace: TraceId,
    /// Invalid where the trace begins here.
    pub(super) span: SpanId,
    pub(super) state: TraceState,
    /// Whether the parent is followed; `None` when it left that to us.
    pub(super) is_sampled: Option<bool>,
}

impl Parent {
    /// The beginning of a trace.
    pub(super) fn none(trace: TraceId) -> Self {
        Self {
            trace,
            span: SpanId::INVALID,
            state: TraceState::NONE,
            is_sampled: Some(true),
        }
    }

    /// Reads the parent from the call's headers. What makes no sense is as good as absent.
    pub(super) fn read<'h>(header: impl Fn(&str) -> Option<&'h str>) -> Option<Self> {
        if let Some(parent) = header("traceparent").and_then(w3c) {
            let state = header("tracestate").and_then(|state| TraceState::from_str(state).ok());
            return Some(Self {
                state: state.unwrap_or(TraceState::NONE),
                ..parent
            });
        }
        if let Some(single) = header("b3") {
            return b3(single);
        }
        let sampled = match (header("x-b3-flags"), header("x-b3-sampled")) {
            (Some("1"), _) => Some("d"),
            (_, sampled) => sampled,
        };
        parent(
            header("x-b3-traceid")?,
            header("x-b3-spanid")?,
            sampled.and_then(b3_sampled),
        )
    }
}

/// `version-trace-span-flags`; later versions may go on after that.
fn w3c(text: &str) -> Option<Parent> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let is_known = version == "00" && parts.next().is_none();
    let is_later = version.len() == 2 && version != "00" && version != "ff";
    if !(is_known || is_later) || trace.len() != 32 || flags.len() != 2 {
        return None;
    }
    let flags = u8::from_str_radix(flags, 16).ok()?;
    parent(trace, span, Some(flags & 1 == 1))
}

/// `trace-span-sampled-parent`, where the last two may be missing; or `0` alone.
fn b3(text: &str) -> Option<Parent> {
    let mut parts = text.trim().split('-');
    let (trace, span) = (parts.next()?, parts.next()?);
    parent(trace, span, parts.next().and_then(b3_sampled))
}

fn b3_sampled(text: &str) -> Option<bool> {
    match text {
        "1" | "d" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

/// B3 also knows traces of 64 bits.
fn parent(trace: &str, span: &str, is_sampled: Option<bool>) -> Option<Parent> {
    let is_hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !matches!(trace.len(), 16 | 32) || span.len() != 16 || !is_hex(trace) || !is_hex(span) {
        return None;
    }
    let trace = TraceId::from_hex(trace).ok()?;
    let span = SpanId::from_hex(span).ok()?;
    (trace != TraceId::INVALID && span != SpanId::INVALID).then_some(Parent {
        trace,
        span,
        state: TraceState::NONE,
        is_sampled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn read(headers: &[(&str, &str)]) -> Option<(String, String, Option<bool>)> {
        let header = |name: &str| {
            let mut headers = headers.iter();
            headers
                .find(|(found, _)| *found == name)
                .map(|(_, value)| *value)
        };
        let parent = Parent::read(header)?;
        Some((
            parent.trace.to_string(),
            parent.span.to_string(),
            parent.is_sampled,
        ))
    }

    #[test]
    fn both_styles_are_read() {
        let found = |sampled| Some((TRACE.to_owned(), SPAN.to_owned(), sampled));
        let w3c = |flags: &str| format!("00-{TRACE}-{SPAN}-{flags}");
        for (headers, expected) in [
            (vec![("traceparent", w3c("01"))], found(Some(true))),
            (vec![("traceparent", w3c("00"))], found(Some(false))),
            (
                vec![("traceparent", format!("cc-{TRACE}-{SPAN}-01-more"))],
                found(Some(true)),
            ),
            (vec![("b3", format!("{TRACE}-{SPAN}-d"))], found(Some(true))),
            (
                vec![("b3", format!("{TRACE}-{SPAN}-0-{SPAN}"))],
                found(Some(false)),
            ),
            (vec![("b3", format!("{TRACE}-{SPAN}"))], found(None)),
            (
                vec![
                    ("x-b3-traceid", TRACE.to_owned()),
                    ("x-b3-spanid", SPAN.to_owned()),
                    ("x-b3-flags", "1".to_owned()),
                ],
                found(Some(true)),
            ),
            // W3C wins; what makes no sense is passed over.
            (
                vec![
                    ("traceparent", w3c("00")),
                    ("b3", format!("{TRACE}-{SPAN}-1")),
                ],
                found(Some(false)),
            ),
            (
                vec![
                    ("traceparent", w3c("xx")),
                    ("b3", format!("{TRACE}-{SPAN}-1")),
                ],
                found(Some(true)),
            ),
            (
                vec![("traceparent", format!("00-{}-{SPAN}-01", "0".repeat(32)))],
                None,
            ),
            (vec![("traceparent", format!("ff-{TRACE}-{SPAN}-01"))], None),
            (vec![("traceparent", w3c("01-x"))], None),
            (vec![("b3", "0".to_owned())], None),
            (vec![("b3", format!("+{}-{SPAN}", &TRACE[1..]))], None),
            (vec![], None),
        ] {
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| (*name, &**value))
                .collect();
            assert_eq!(read(&headers), expected, "{headers:?}");
        }
        let short = read(&[("b3", &format!("{SPAN}-{SPAN}-1"))]).expect("64 bits");
        assert_eq!(short.0, format!("{}{SPAN}", "0".repeat(16)));
    }
}
