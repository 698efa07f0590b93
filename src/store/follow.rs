//! For calls that are followed by a trace: what the round trip was that carried them, and who shared it.
//!
//! A lane puts many requests into one round trip, on a task of its own. A request that is followed says so by its task,
//! not by an argument, so that nothing else between the caller and the lane has to know.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::task_local;

use crate::{
    store::StoreError,
    time::{Clock, Timestamp},
};

task_local! {
    static FOLLOWED: Follow;
}

/// A request that is followed.
#[derive(Clone, Debug)]
pub struct Follow(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    member: Member,
    clock: Clock,
    trip: Mutex<Option<RoundTrip>>,
}

/// A span, as other spans refer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// The trace's id.
    pub trace: [u8; 16],
    /// The span's id.
    pub span: [u8; 8],
}

/// One round trip to a store.
#[derive(Clone, Debug)]
pub struct RoundTrip {
    /// The command.
    pub operation: &'static str,
    /// When it was sent.
    pub since: Timestamp,
    /// When it was answered, or given up.
    pub until: Timestamp,
    /// Requests it carried.
    pub requests: usize,
    /// Counters of these requests.
    pub counters: usize,
    /// Those of the requests that are followed, this one included.
    pub members: Vec<Member>,
    /// What became of it, where that is no answer.
    pub error: Option<StoreError>,
}

/// A round trip that is under way. It is told to one of its followed requests, so that it is told once.
#[derive(Debug)]
pub(super) struct Trip {
    leader: Follow,
    trip: RoundTrip,
}

impl Follow {
    /// Follows a request on behalf of the span `member`; times are of `clock`.
    pub fn new(member: Member, clock: Clock) -> Self {
        Self(Arc::new(Inner {
            member,
            clock,
            trip: Mutex::default(),
        }))
    }

    /// Runs a call of a store that is followed.
    pub async fn over<T>(self, call: impl Future<Output = T>) -> T {
        FOLLOWED.scope(self, call).await
    }

    /// The round trip, where this request is the one that is told.
    pub fn trip(&self) -> Option<RoundTrip> {
        let mut trip = self.0.trip.lock().unwrap_or_else(PoisonError::into_inner);
        trip.take()
    }

    /// What follows the request of this task.
    pub(super) fn current() -> Option<Self> {
        FOLLOWED.try_with(Clone::clone).ok()
    }
}

impl Trip {
    /// A round trip begins, with so many counters for each request; `None` when none of them is followed.
    pub(super) fn begin<'f>(
        operation: &'static str,
        requests: impl Iterator<Item = (Option<&'f Follow>, usize)>,
    ) -> Option<Self> {
        let mut leader: Option<&Follow> = None;
        let (mut count, mut counters, mut members) = (0, 0, Vec::new());
        for (follow, own) in requests {
            count += 1;
            counters += own;
            if let Some(follow) = follow {
                members.push(follow.0.member);
                leader = leader.or(Some(follow));
            }
        }
        let leader = leader?.clone();
        let since = leader.0.clock.now();
        Some(Self {
            leader,
            trip: RoundTrip {
                operation,
                since,
                until: since,
                requests: count,
                counters,
                members,
                error: None,
            },
        })
    }

    /// It ends now.
    pub(super) fn end(self, error: Option<&StoreError>) {
        let Inner { clock, trip, .. } = &*self.leader.0;
        let ended = RoundTrip {
            until: clock.now(),
            error: error.cloned(),
            ..self.trip
        };
        *trip.lock().unwrap_or_else(PoisonError::into_inner) = Some(ended);
    }
}
