//! One round trip: the requests of a batch, as script calls on one connection, and each caller's own answer.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use deadpool_redis::{Connection, redis::Cmd};
use tokio::{
    sync::oneshot,
    time::{Instant, timeout, timeout_at},
};

use crate::store::{StoreError, Trouble, follow::Trip};

use super::{
    Shared,
    node::{Node, Place},
    pack::Packed,
    script::{Answer, Bounce, Group, store_error},
};

/// One request's counters of one group.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) packed: Packed,
    /// Pieces of the same group have their keys in one slot, and go in one script call.
    pub(super) group: u16,
    pub(super) company: Company,
}

/// What may go with a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Company {
    /// Others of its group.
    Group,
    /// Nothing: its slot is being moved, and others' keys may be elsewhere.
    Alone,
    /// Nothing, and the node is told that it is asked for a slot that is on its way to it.
    Asking,
}

/// What a caller wants of a line.
#[derive(Debug)]
pub(super) enum Request {
    Take {
        piece: Piece,
        reply: oneshot::Sender<Answer>,
    },
    Ping(oneshot::Sender<Result<(), StoreError>>),
}

impl Request {
    /// Is the caller gone?
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            Self::Take { reply, .. } => reply.is_closed(),
            Self::Ping(reply) => reply.is_closed(),
        }
    }

    pub(super) fn keys(&self) -> usize {
        match self {
            Self::Take { piece, .. } => piece.packed.keys.len(),
            Self::Ping(_) => 0,
        }
    }
}

/// A connection that calls use now.
pub(super) struct Held {
    /// Gone only while it is dropped.
    connection: Option<Connection>,
    pub(super) place: Arc<Place>,
    pub(super) doubtful: AtomicBool,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.doubtful.load(Ordering::Relaxed)
            && let Some(connection) = self.connection.take()
        {
            // Out of the pool and closed: an answer that may still come must not meet another call.
            drop(Connection::take(connection));
        }
    }
}

/// One round trip for `batch`. Returns the connection it used.
pub(super) async fn call(
    shared: Arc<Shared>,
    node: Arc<Node>,
    held: Option<Arc<Held>>,
    batch: Vec<Request>,
) -> Option<Arc<Held>> {
    // The callers time themselves: a connection that takes longer than they wait is made for those after them.
    let held = match held {
        Some(held) => held,
        None => match timeout(shared.config.connect_timeout, node.checkout()).await {
            Ok(Ok((connection, place))) => Arc::new(Held {
                connection: Some(connection),
                place,
                doubtful: AtomicBool::new(false),
            }),
            Ok(Err(error)) => {
                fail(batch, &error);
                return None;
            }
            Err(_) => {
                fail(batch, &StoreError::Timeout);
                return None;
            }
        },
    };
    let deadline = Instant::now() + shared.config.timeout;
    let mut pieces = Vec::with_capacity(batch.len());
    let mut pings = Vec::new();
    for request in batch {
        match request {
            Request::Take { piece, reply } if !reply.is_closed() => pieces.push((piece, reply)),
            Request::Take { .. } => {}
            Request::Ping(reply) => pings.push(reply),
        }
    }
    let mut failure = None;
    if !pieces.is_empty() {
        failure = decide(&shared, &node, &held, pieces, deadline).await;
    }
    if !pings.is_empty() && failure.is_none() {
        let pong = ping(&held, deadline).await;
        failure = pong.clone().err();
        for reply in pings {
            let _ = reply.send(pong.clone());
        }
    }
    if let Some(error) = failure
        && Trouble::of(&error).reconnect
    {
        held.doubtful.store(true, Ordering::Relaxed);
        node.doubt(&held.place);
    }
    Some(held)
}

/// Decides the pieces and answers their callers. The error is one that says something of the server.
async fn decide(
    shared: &Shared,
    node: &Node,
    held: &Held,
    pieces: Vec<(Piece, oneshot::Sender<Answer>)>,
    deadline: Instant,
) -> Option<StoreError> {
    let (order, groups) = grouped(&pieces);
    let followed = pieces
        .iter()
        .map(|(piece, _)| (piece.packed.follow.as_ref(), piece.packed.keys.len()));
    let trip = Trip::begin("EVALSHA", followed);
    let present = shared.tally.call(pieces.len() as u64);
    let pinned = shared.config.clock.pinned();
    let answers = match held.connection.as_deref() {
        Some(connection) => {
            let mut connection = connection.clone();
            let call = node.script.call(&mut connection, &groups, pinned);
            timeout_at(deadline, call)
                .await
                .unwrap_or(Err(StoreError::Timeout))
        }
        None => Err(gone()),
    };
    drop(present);
    if let Some(trip) = trip {
        trip.end(answers.as_ref().err());
    }
    node.called(pieces.len() as u64);
    let mut failure = None;
    let mut answers = match answers {
        Ok(answers) => {
            for answer in &answers {
                if let Err(Bounce::Failed(error)) = answer {
                    failure = Some(error.clone());
                }
            }
            answers
        }
        Err(error) => {
            failure = Some(error.clone());
            groups
                .iter()
                .map(|_| Err(Bounce::Failed(error.clone())))
                .collect()
        }
    };
    drop(groups);
    // Each group's outcomes lie in the order its pieces have: they are handed out from the back.
    let mut replies: Vec<Option<oneshot::Sender<Answer>>> = Vec::with_capacity(pieces.len());
    let mut lengths = Vec::with_capacity(pieces.len());
    for (piece, reply) in pieces {
        lengths.push(piece.packed.keys.len());
        replies.push(Some(reply));
    }
    for (place, group) in order.iter().enumerate().rev() {
        let own = match &mut answers[*group] {
            Ok(outcomes) => Ok(outcomes.split_off(outcomes.len() - lengths[place])),
            Err(bounce) => Err(bounce.clone()),
        };
        if let Some(reply) = replies[place].take() {
            // A caller that is gone has no use for its answer.
            if reply.send(own).is_err() {
                shared.tally.late();
            }
        }
    }
    failure
}

/// The group of each piece, and the groups.
fn grouped<T>(pieces: &[(Piece, T)]) -> (Vec<usize>, Vec<Group<'_>>) {
    let mut groups: Vec<(Option<u16>, Group<'_>)> = Vec::new();
    let mut order = Vec::with_capacity(pieces.len());
    for (piece, _) in pieces {
        let shared = (piece.company == Company::Group).then_some(piece.group);
        let known = shared.and_then(|_| groups.iter().position(|(group, _)| *group == shared));
        let index = known.unwrap_or_else(|| {
            let group = Group {
                requests: Vec::new(),
                asking: piece.company == Company::Asking,
            };
            groups.push((shared, group));
            groups.len() - 1
        });
        groups[index].1.requests.push(&piece.packed);
        order.push(index);
    }
    (order, groups.into_iter().map(|(_, group)| group).collect())
}

async fn ping(held: &Held, deadline: Instant) -> Result<(), StoreError> {
    let Some(connection) = held.connection.as_deref() else {
        return Err(gone());
    };
    let mut connection = connection.clone();
    let mut command = Cmd::new();
    command.arg("PING");
    match timeout_at(deadline, command.query_async::<()>(&mut connection)).await {
        Ok(pong) => pong.map_err(|error| store_error(&error)),
        Err(_) => Err(StoreError::Timeout),
    }
}

fn fail(batch: Vec<Request>, error: &StoreError) {
    for request in batch {
        match request {
            Request::Take { reply, .. } => {
                let _ = reply.send(Err(Bounce::Failed(error.clone())));
            }
            Request::Ping(reply) => {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}

pub(super) fn gone() -> StoreError {
    StoreError::Unavailable("the lane has ended".into())
}
