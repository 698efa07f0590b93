//! The spans of the store: one for what the call waited for, and, of the requests that shared a round trip, one for that
//! trip with links to all of them.

use std::sync::Arc;

use opentelemetry::{
    KeyValue,
    trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState},
};
use opentelemetry_sdk::trace::{IdGenerator as _, RandomIdGenerator};

use super::{Span, Traces, conventions as name};
use crate::{
    store::{
        StoreError, Trouble,
        follow::{Follow, Member, RoundTrip},
    },
    time::Timestamp,
};

/// A followed call that waits for its store.
#[derive(Debug)]
pub struct Asking {
    traces: Arc<Traces>,
    trace: TraceId,
    parent: SpanId,
    span: SpanId,
    since: Timestamp,
    counters: usize,
    follow: Follow,
}

impl Asking {
    pub(super) fn begin(
        traces: &Arc<Traces>,
        trace: TraceId,
        parent: SpanId,
        counters: usize,
    ) -> Self {
        let span = RandomIdGenerator::default().new_span_id();
        let member = Member {
            trace: trace.to_bytes(),
            span: span.to_bytes(),
        };
        Self {
            traces: Arc::clone(traces),
            trace,
            parent,
            span,
            since: traces.clock.now(),
            counters,
            follow: Follow::new(member, traces.clock.clone()),
        }
    }

    /// What the call of the store runs under.
    pub fn follow(&self) -> Follow {
        self.follow.clone()
    }

    /// The store has answered, or said why it cannot.
    pub fn answered(self, error: Option<&StoreError>) {
        let mut attributes = vec![KeyValue::new(name::COUNTERS, self.counters as i64)];
        let status = failure(error, &mut attributes);
        self.traces.send(Span {
            trace: self.trace,
            state: TraceState::NONE,
            span: self.span,
            parent: self.parent,
            parent_is_remote: false,
            kind: SpanKind::Internal,
            name: name::STORE_SPAN,
            since: self.since,
            until: self.traces.clock.now(),
            attributes,
            links: Vec::new(),
            status,
        });
        if let Some(trip) = self.follow.trip() {
            self.round_trip(trip);
        }
    }

    fn round_trip(&self, trip: RoundTrip) {
        let mut attributes = vec![
            KeyValue::new(name::DB_SYSTEM, "redis"),
            KeyValue::new(name::DB_OPERATION, trip.operation),
            KeyValue::new(name::REQUESTS, trip.requests as i64),
            KeyValue::new(name::COUNTERS, trip.counters as i64),
        ];
        if let Some(StoreError::Refused(code)) = &trip.error {
            attributes.push(KeyValue::new(name::DB_STATUS, code.to_string()));
        }
        let status = failure(trip.error.as_ref(), &mut attributes);
        let link = |member: &Member| {
            let (trace, span) = (
                TraceId::from_bytes(member.trace),
                SpanId::from_bytes(member.span),
            );
            let flags = TraceFlags::SAMPLED;
            Link::with_context(SpanContext::new(
                trace,
                span,
                flags,
                false,
                TraceState::NONE,
            ))
        };
        self.traces.send(Span {
            trace: self.trace,
            state: TraceState::NONE,
            span: RandomIdGenerator::default().new_span_id(),
            parent: self.span,
            parent_is_remote: false,
            kind: SpanKind::Client,
            name: trip.operation,
            since: trip.since,
            until: trip.until,
            attributes,
            links: trip.members.iter().map(link).collect(),
            status,
        });
    }
}

fn failure(error: Option<&StoreError>, attributes: &mut Vec<KeyValue>) -> Status {
    match error {
        Some(error) => {
            attributes.push(KeyValue::new(name::ERROR_TYPE, Trouble::of(error).name));
            Status::error(Trouble::of(error).name)
        }
        None => Status::Unset,
    }
}
