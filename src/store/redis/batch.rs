//! A line to one server: requests that come while calls are in flight go together in the next one; with nothing in
//! flight a request goes at once. No timer, no window. One task a line, so that a runtime of one thread can have lines
//! of its own.
//!
//! Does not retry: whether a call that broke was counted is not known.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};

use crate::store::StoreError;

use super::{
    Shared,
    call::{Held, Piece, Request, call, gone},
    node::Node,
    script::{Answer, Bounce},
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

/// The task behind a line.
struct Worker {
    shared: Arc<Shared>,
    node: Arc<Node>,
    waiting: mpsc::Receiver<Request>,
    /// Taken from the channel, but did not fit into the batch.
    postponed: VecDeque<Request>,
    held: Option<Arc<Held>>,
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
