//! A lane to Redis: requests that come while a call is in flight go together in the next one; with nothing in flight a
//! request goes at once. No timer, no window. One task and one call at a time, so that a runtime of one thread can have
//! a lane of its own.
//!
//! Does not retry: whether a call that broke was counted is not known.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use deadpool_redis::{Connection, redis::Cmd};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    algorithm::Outcome,
    counter::{Atomicity, Counter},
    store::{Store, StoreError, Trouble},
};

use super::{
    Shared,
    script::{Packed, store_error},
};

/// A connection that was not used for this long goes back to the pool, which asks it for a PING before it is trusted
/// with a call again: an idle one may be dead.
const FRESH: Duration = Duration::from_millis(100);

/// A handle on one lane. Clones share it; the lane ends with the last of them.
#[derive(Clone, Debug)]
pub struct Lane {
    requests: mpsc::Sender<Request>,
    prefix: Arc<[u8]>,
    timeout: Duration,
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

#[derive(Debug)]
enum Request {
    Take {
        packed: Packed,
        reply: oneshot::Sender<Vec<Result<Outcome, StoreError>>>,
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
}

impl Lane {
    /// Starts a lane on the current runtime.
    pub(super) fn start(shared: Arc<Shared>) -> Self {
        let (requests, waiting) = mpsc::channel(shared.config.queue);
        let prefix = shared.config.prefix.as_bytes().into();
        let timeout = shared.config.timeout;
        shared.lane_started();
        let worker = Worker {
            shared,
            waiting,
            postponed: VecDeque::new(),
            held: None,
        };
        Self {
            requests,
            prefix,
            timeout,
            _task: Arc::new(Task(tokio::spawn(worker.run()))),
        }
    }

    /// Does Redis answer? Goes through the lane, with the timeout of a call.
    ///
    /// # Errors
    /// What a call would get.
    pub async fn ping(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(Request::Ping(reply))?;
        self.answer(answer).await?
    }

    fn send(&self, request: Request) -> Result<(), StoreError> {
        self.requests
            .try_send(request)
            .map_err(|error| match error {
                mpsc::error::TrySendError::Full(_) => StoreError::Full,
                mpsc::error::TrySendError::Closed(_) => gone(),
            })
    }

    async fn answer<T>(&self, answer: oneshot::Receiver<T>) -> Result<T, StoreError> {
        match timeout(self.timeout, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(gone()),
            Err(_) => Err(StoreError::Timeout),
        }
    }
}

impl Store for Lane {
    async fn take(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
    ) -> Vec<Result<Outcome, StoreError>> {
        if counters.is_empty() {
            return Vec::new();
        }
        let (reply, answer) = oneshot::channel();
        let packed = Packed::new(counters, atomicity, &self.prefix);
        let outcomes = match self.send(Request::Take { packed, reply }) {
            Ok(()) => self.answer(answer).await,
            Err(error) => Err(error),
        };
        outcomes.unwrap_or_else(|error| vec![Err(error); counters.len()])
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable("the lane has ended".into())
}

/// The task behind a lane.
struct Worker {
    shared: Arc<Shared>,
    waiting: mpsc::Receiver<Request>,
    /// Taken from the channel, but did not fit into the batch.
    postponed: VecDeque<Request>,
    held: Option<Connection>,
}

impl Worker {
    async fn run(mut self) {
        let mut batch = Vec::new();
        loop {
            self.gather(&mut batch).await;
            if batch.is_empty() {
                break;
            }
            // The callers time themselves: a connection that takes longer than they wait is made for those after them.
            match timeout(self.shared.config.connect_timeout, self.connection()).await {
                Ok(Ok(connection)) => {
                    let deadline = Instant::now() + self.shared.config.timeout;
                    self.serve(connection, batch.drain(..), deadline).await;
                }
                Ok(Err(error)) => fail(batch.drain(..), &error),
                Err(_) => fail(batch.drain(..), &StoreError::Timeout),
            }
        }
    }

    /// The next batch: whatever waits, up to the bound, or the first that comes. Empty when all handles are gone.
    async fn gather(&mut self, batch: &mut Vec<Request>) {
        let mut room = self.shared.config.max_batch;
        while batch.is_empty() {
            let Some(first) = self.next().await else {
                return;
            };
            push(batch, first, &mut room);
        }
        while room > 0 {
            let Some(next) = self
                .postponed
                .pop_front()
                .or_else(|| self.waiting.try_recv().ok())
            else {
                return;
            };
            if let Request::Take { packed, .. } = &next
                && packed.keys.len() > room
            {
                self.postponed.push_front(next);
                return;
            }
            push(batch, next, &mut room);
        }
    }

    async fn next(&mut self) -> Option<Request> {
        if let Some(request) = self.postponed.pop_front() {
            return Some(request);
        }
        if self.held.is_some() {
            match timeout(FRESH, self.waiting.recv()).await {
                Ok(request) => return request,
                Err(_) => self.held = None,
            }
        }
        self.waiting.recv().await
    }

    /// The connection of the last call if that was just now, else one that answered a PING or is new.
    async fn connection(&mut self) -> Result<Connection, StoreError> {
        match self.held.take() {
            Some(connection) => Ok(connection),
            None => self.shared.connection().await,
        }
    }

    async fn serve(
        &mut self,
        mut connection: Connection,
        batch: impl Iterator<Item = Request>,
        deadline: Instant,
    ) {
        let mut requests = Vec::with_capacity(batch.size_hint().0);
        let mut pings = Vec::new();
        for request in batch.filter(|request| !request.is_abandoned()) {
            match request {
                Request::Take { packed, reply } => requests.push((packed, reply)),
                Request::Ping(reply) => pings.push(reply),
            }
        }
        let mut fate = Fate::Sound;
        if !requests.is_empty() {
            let packed = requests.iter().map(|(packed, _)| packed);
            let pinned = self.shared.config.clock.pinned();
            let call = self.shared.script.call(&mut connection, packed, pinned);
            let outcomes = match timeout_at(deadline, call).await {
                Ok(outcomes) => outcomes,
                Err(_) => Err(StoreError::Timeout),
            };
            self.shared.called(requests.len() as u64);
            match outcomes {
                Ok(outcomes) => {
                    let mut outcomes = outcomes.into_iter();
                    for (packed, reply) in requests {
                        let own = outcomes.by_ref().take(packed.keys.len()).collect();
                        // A caller that is gone has no use for its answer.
                        let _ = reply.send(own);
                    }
                }
                Err(error) => {
                    fate = Fate::of(&error);
                    let trouble = Trouble::of(&error);
                    if trouble.reconnect && trouble.elsewhere {
                        self.shared.moved();
                    }
                    for (packed, reply) in requests {
                        let _ = reply.send(vec![Err(error.clone()); packed.keys.len()]);
                    }
                }
            }
        }
        if !pings.is_empty() && fate == Fate::Sound {
            let mut command = Cmd::new();
            command.arg("PING");
            let ping = command.query_async::<()>(&mut *connection);
            let pong = match timeout_at(deadline, ping).await {
                Ok(pong) => pong.map_err(|error| store_error(&error)),
                Err(_) => Err(StoreError::Timeout),
            };
            if let Err(error) = &pong {
                fate = Fate::of(error);
            }
            for reply in pings {
                let _ = reply.send(pong.clone());
            }
        }
        match fate {
            Fate::Sound if self.shared.may_hold() => self.held = Some(connection),
            Fate::Sound => {}
            // Out of the pool and closed: an answer that may still come must not meet another call.
            Fate::Doubtful => drop(Connection::take(connection)),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.lane_ended();
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

fn push(batch: &mut Vec<Request>, request: Request, room: &mut usize) {
    if request.is_abandoned() {
        return;
    }
    if let Request::Take { packed, .. } = &request {
        *room = room.saturating_sub(packed.keys.len());
    }
    batch.push(request);
}

fn fail(batch: impl Iterator<Item = Request>, error: &StoreError) {
    for request in batch {
        match request {
            Request::Take { packed, reply } => {
                let _ = reply.send(vec![Err(error.clone()); packed.keys.len()]);
            }
            Request::Ping(reply) => {
                let _ = reply.send(Err(error.clone()));
            }
        }
    }
}
