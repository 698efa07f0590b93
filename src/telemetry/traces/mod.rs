//! Traces: which calls are followed, what is told of them, and how that reaches a collector.
//!
//! The decision whether to follow a call is its parent's, else a share of all, and is made before anything else: a
//! call that is not followed costs the reading of three headers, and nothing at all where traces are off. Spans are put
//! together here rather than by a tracer, so that a call that is not followed makes none.

mod args;
mod context;
mod conventions;
mod counts;
mod export;
mod store;

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use opentelemetry::{
    KeyValue,
    trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{
    IdGenerator as _, RandomIdGenerator, SpanData, SpanEvents, SpanLinks,
};

pub use args::{Args, Rate};
pub(super) use conventions::METHOD;
pub(super) use counts::SpanCounts;
pub use export::Exporting;
pub use store::Asking;

use crate::{
    time::{Clock, Timestamp},
    verdict::{Code, Verdict},
};
use context::Parent;
use conventions as name;
use export::Outbox;

/// Follows calls.
#[derive(Debug)]
pub struct Traces {
    outbox: Arc<Outbox>,
    rate: Rate,
    clock: Clock,
}

/// What is told of one call; most of the time nothing. The span ends when it is dropped.
#[derive(Debug, Default)]
pub struct Trace(Option<Box<Followed>>);

#[derive(Debug)]
struct Followed {
    traces: Arc<Traces>,
    context: Parent,
    span: SpanId,
    method: &'static str,
    since: Timestamp,
    attributes: Vec<KeyValue>,
    status: Option<&'static str>,
}

impl Traces {
    /// Starts to follow a call of `method`, if it is one to be followed. `header` reads what came with it.
    pub(super) fn call<'h>(
        self: &Arc<Self>,
        method: &'static str,
        header: impl Fn(&str) -> Option<&'h str>,
    ) -> Trace {
        let ids = RandomIdGenerator::default();
        let context = match Parent::read(header) {
            Some(parent) if parent.is_sampled == Some(false) => return Trace::default(),
            Some(parent) if parent.is_sampled == Some(true) => parent,
            Some(parent) if self.rate.holds(parent.trace) => parent,
            None => {
                let trace = ids.new_trace_id();
                if !self.rate.holds(trace) {
                    return Trace::default();
                }
                Parent::none(trace)
            }
            Some(_) => return Trace::default(),
        };
        Trace(Some(Box::new(Followed {
            traces: Arc::clone(self),
            context,
            span: ids.new_span_id(),
            method,
            since: self.clock.now(),
            attributes: Vec::with_capacity(8),
            status: None,
        })))
    }
}

impl Trace {
    /// The trace's id, as it is written everywhere; `None` when the call is not followed.
    pub fn id(&self) -> Option<String> {
        self.0
            .as_ref()
            .map(|followed| followed.context.trace.to_string())
    }

    /// Begins to tell of a call of the store for so many counters; `None` when the call is not followed.
    pub fn asks_store(&self, counters: usize) -> Option<Asking> {
        let followed = self.0.as_ref()?;
        let traces = &followed.traces;
        Some(Asking::begin(
            traces,
            followed.context.trace,
            followed.span,
            counters,
        ))
    }

    /// Tells what was decided.
    pub fn decided(&mut self, verdict: &Verdict, domain: &str) {
        let Some(followed) = &mut self.0 else { return };
        let code = match verdict.code {
            Code::Ok => "OK",
            Code::OverLimit => "OVER_LIMIT",
        };
        followed.attributes.extend([
            KeyValue::new(name::DOMAIN, domain.to_owned()),
            KeyValue::new(name::CODE, code),
            KeyValue::new(name::DESCRIPTORS, verdict.statuses.len() as i64),
        ]);
        if let Some(rule) = verdict.binding.and_then(|binding| verdict.rule(binding)) {
            let path = rule.path.to_string();
            followed.attributes.push(KeyValue::new(name::RULE, path));
        }
    }

    /// Says how the call ends: the name of a gRPC status.
    pub fn ends(&mut self, status: &'static str) {
        if let Some(followed) = &mut self.0 {
            followed.status = Some(status);
        }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        let mut attributes = std::mem::take(&mut self.attributes);
        attributes.extend([
            KeyValue::new(name::RPC_SYSTEM, "grpc"),
            KeyValue::new(name::RPC_METHOD, self.method),
        ]);
        // The caller may be gone before there is an answer.
        let ended = self.status.unwrap_or("CANCELLED");
        attributes.push(KeyValue::new(name::RPC_STATUS, ended));
        let status = if name::SERVER_ERRORS.contains(&ended) {
            attributes.push(KeyValue::new(name::ERROR_TYPE, ended));
            Status::error(ended)
        } else {
            Status::Unset
        };
        self.traces.send(Span {
            trace: self.context.trace,
            state: self.context.state.clone(),
            span: self.span,
            parent: self.context.span,
            parent_is_remote: self.context.span != SpanId::INVALID,
            kind: SpanKind::Server,
            name: self.method,
            since: self.since,
            until: self.traces.clock.now(),
            attributes,
            links: Vec::new(),
            status,
        });
    }
}

/// A span that is over.
struct Span {
    trace: TraceId,
    state: TraceState,
    span: SpanId,
    parent: SpanId,
    parent_is_remote: bool,
    kind: SpanKind,
    name: &'static str,
    since: Timestamp,
    until: Timestamp,
    attributes: Vec<KeyValue>,
    links: Vec<Link>,
    status: Status,
}

impl Traces {
    fn send(&self, span: Span) {
        let flags = TraceFlags::SAMPLED;
        let mut links = SpanLinks::default();
        links.links = span.links;
        self.outbox.send(SpanData {
            span_context: SpanContext::new(span.trace, span.span, flags, false, span.state),
            parent_span_id: span.parent,
            parent_span_is_remote: span.parent_is_remote,
            span_kind: span.kind,
            name: span.name.into(),
            start_time: wall(span.since),
            end_time: wall(span.until),
            attributes: span.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: span.status,
            instrumentation_scope: self.outbox.scope.clone(),
        });
    }

    /// Spans by what became of them: exported, dropped because too many waited, failed.
    pub(super) fn spans(&self) -> [(&'static str, u64); 3] {
        let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
        [
            ("exported", read(&self.outbox.exported)),
            ("dropped", read(&self.outbox.dropped)),
            ("failed", read(&self.outbox.failed)),
        ]
    }
}

fn wall(time: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(time.as_micros())
}
