//! A line to one server: requests that come while calls are in flight go together in the next one; with nothing in
//! flight a request goes at once. No timer, no window. One task a line, so that a runtime of one thread can have lines
//! of its own.
//!
//! Does not retry: whether a call that broke was counted is not known.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use deadpool_redis::{Connection, redis::Cmd};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

use crate::store::{StoreError, Trouble, follow::Trip};

use super::{
    Shared,
    node::{Node, Place},
    script::{Answer, Bounce, Group, Packed, store_error},
    tally::Tally,
};

/// A connection that was not used for this long goes back to the pool, which asks it for a PING before it is trusted
/// with a call again: an idle one may be dead.
const FRESH: Duration = Duration::from_millis(100);

/// A handle on one line. Clones share it; the line ends with the last of them.
#[derive(Clone, Debug)]
pub(super) struct Line {
    requests: mpsc::Sender<Request>,
    tally: Arc<Tally>,
    /// Ends the task with the last handle: nobody is left to wait for its answers.
    _task: Arc<Task>,
}

#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

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

#[derive(Debug)]
enum Request {
    Take {
        piece: Piece,
        reply: oneshot::Sender<Answer>,
    },
    Ping(oneshot::Sender<Result<(), StoreError>>),
}

impl Request {
    /// Is the caller gone?
    fn is_abandoned(&self) -> bool {
        match self {
            Self::Take { reply, .. } => reply.is_closed(),
            Self::Ping(reply) => reply.is_closed(),
        }
    }

    fn keys(&self) -> usize {
        match self {
            Self::Take { piece, .. } => piece.packed.keys.len(),
            Self::Ping(_) => 0,
        }
    }
}

impl Line {
    /// Starts a line to `node` on the current runtime.
    pub(super) fn start(shared: Arc<Shared>, node: Arc<Node>) -> Self {
        let (requests, waiting) = mpsc::channel(shared.config.queue);
        node.line_started();
        let tally = Arc::clone(&shared.tally);
        let worker = Worker {
            shared,
            node,
            waiting,
            postponed: VecDeque::new(),
            held: None,
        };
        Self {
            requests,
            tally,
            _task: Arc::new(Task(tokio::spawn(worker.run()))),
        }
    }

    /// Decides a piece. Waits as long as it takes: the caller has the timeout.
    pub(super) async fn take(&self, piece: Piece) -> Answer {
        let (reply, answer) = oneshot::channel();
        let _present = self.tally.request();
        self.send(Request::Take { piece, reply })
            .map_err(Bounce::Failed)?;
        answer.await.unwrap_or_else(|_| Err(Bounce::Failed(gone())))
    }

    /// Does the server answer?
    pub(super) async fn ping(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Ping(reply))?;
        answer.await.unwrap_or_else(|_| Err(gone()))
    }

    fn send(&self, request: Request) -> Result<(), StoreError> {
        self.requests
            .try_send(request)
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => StoreError::Full,
                mpsc::error::TrySendError::Closed(_) => gone(),
            })
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("the lane has ended".into())
}

/// The task behind a line.
struct Worker {
    shared: Arc<Shared>,
    node: Arc<Node>,
    waiting: mpsc::Receiver<Request>,
    /// Taken from the channel, but did not fit into the batch.
    postponed: VecDeque<Request>,
    held: Option<Arc<Held>>,
}

/// A connection that calls use now.
struct Held {
    /// Gone only while it is dropped.
    connection: Option<Connection>,
    place: Arc<Place>,
    doubtful: AtomicBool,
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

impl Worker {
    async fn run(mut self) {
        let mut calls = FuturesUnordered::new();
        let mut open = true;
        while open || !calls.is_empty() {
            let idle = calls.is_empty();
            let may_send = open && calls.len() < self.shared.config.depth;
            tokio::select! {
                biased;
                Some(held) = calls.next(), if !idle => self.ended(held),
                first = self.next(idle), if may_send => match first {
                    Some(first) => {
                        let batch = self.gather(first);
                        if !batch.is_empty() {
                            calls.push(call(
                                Arc::clone(&self.shared),
                                Arc::clone(&self.node),
                                self.held.clone(),
                                batch,
                            ));
                        }
                    }
                    None => open = false,
                },
            }
        }
    }

    /// A call has ended, and leaves the connection it used.
    fn ended(&mut self, used: Option<Arc<Held>>) {
        let spoilt =
            |held: &Held| held.doubtful.load(Ordering::Relaxed) || !self.node.is_at(&held.place);
        if self.held.as_deref().is_some_and(spoilt) {
            self.held = None;
        }
        if self.held.is_none()
            && self.node.may_hold(self.shared.config.pool_size)
            && let Some(used) = used
            && !spoilt(&used)
        {
            self.held = Some(used);
        }
    }

    async fn next(&mut self, idle: bool) -> Option<Request> {
        if let Some(request) = self.postponed.pop_front() {
            return Some(request);
        }
        if self.held.is_some() && idle {
            match timeout(FRESH, self.waiting.recv()).await {
                Ok(request) => return request,
                Err(_) => self.held = None,
            }
        }
        self.waiting.recv().await
    }

    /// The next batch: `first` and whatever waits, up to the bound.
    fn gather(&mut self, first: Request) -> Vec<Request> {
        let mut room = self.shared.config.max_batch;
        let mut batch = Vec::new();
        let mut next = Some(first);
        while let Some(request) = next {
            if !request.is_abandoned() {
                if request.keys() > room && !batch.is_empty() {
                    self.postponed.push_front(request);
                    break;
                }
                room = room.saturating_sub(request.keys());
                batch.push(request);
            }
            if room == 0 {
                break;
            }
            next = self
                .postponed
                .pop_front()
                .or_else(|| self.waiting.try_recv().ok());
        }
        batch
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.node.line_ended();
    }
}

/// One round trip for `batch`. Returns the connection it used.
async fn call(
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
        && Fate::of(&error) == Fate::Doubtful
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

/// What becomes of a connection after a call.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Sound,
    Doubtful,
}

impl Fate {
    fn of(error: &StoreError) -> Self {
        if Trouble::of(error).reconnect {
            Self::Doubtful
        } else {
            Self::Sound
        }
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
