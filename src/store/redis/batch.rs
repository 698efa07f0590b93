//! A line to one server: requests that come while calls are in flight go together in the next one; with nothing in
//! flight a request goes as soon as those have joined it that came at the same moment. No timer, no window. One task a
//! line, so that a runtime of one thread can have lines of its own; the task reads and writes its connection itself.
//!
//! Does not retry: whether a call that broke was counted is not known. A connection that was closed while nothing was
//! in flight is found out before the next call is sent on it.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use redis::RedisError;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, Sleep, sleep, timeout},
};

use crate::store::{StoreError, Trouble};

use super::{
    Shared,
    call::{Call, Piece, Request, gone},
    held::Held,
    node::Node,
    script::{Answer, Bounce, store_error},
    tally::Tally,
};

/// How often a busy line has its server looked up again, should it be time for that.
const LOOK: Duration = Duration::from_secs(1);

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
            in_flight: VecDeque::new(),
            again: None,
            timer: Box::pin(sleep(Duration::ZERO)),
            is_armed: false,
            look: Instant::now(),
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
        self.requests
            .try_send(Request { piece, reply })
            .map_err(|error| {
                Bounce::Failed(match error {
                    mpsc::error::TrySendError::Full(_) => StoreError::Full,
                    mpsc::error::TrySendError::Closed(_) => gone(),
                })
            })?;
        answer.await.unwrap_or_else(|_| Err(Bounce::Failed(gone())))
    }
}

/// The task behind a line.
struct Worker {
    shared: Arc<Shared>,
    node: Arc<Node>,
    waiting: mpsc::Receiver<Request>,
    /// Taken from the channel, and not sent yet.
    postponed: VecDeque<Request>,
    held: Option<Held>,
    /// In the order in which they were sent, which is that of their replies.
    in_flight: VecDeque<Call>,
    again: Option<Again>,
    /// Goes off when the oldest call may have taken too long; set anew only then.
    timer: Pin<Box<Sleep>>,
    is_armed: bool,
    /// When to ask again whether the server is to be looked up.
    look: Instant,
}

/// Requests that Redis did not decide, as it did not know the script.
struct Again {
    requests: Vec<Request>,
    /// How often the script had been put there when they were sent.
    loads: u64,
    tries: usize,
}

/// What a line cannot do while it looks after its connection.
enum Step {
    /// Get a connection for these.
    Connect(Vec<Request>),
    /// Put the script there, for these.
    Load(Again),
    /// Nobody is left to ask anything.
    End,
}

impl Worker {
    async fn run(mut self) {
        loop {
            match poll_fn(|cx| self.poll(cx)).await {
                Step::Connect(batch) => match self.connect().await {
                    Ok(()) => {
                        // With whatever has come meanwhile.
                        for request in batch.into_iter().rev() {
                            self.postponed.push_front(request);
                        }
                    }
                    Err(error) => batch.into_iter().for_each(|request| request.fail(&error)),
                },
                Step::Load(again) => self.load(again).await,
                Step::End => return,
            }
        }
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Step> {
        loop {
            self.exchange(cx);
            self.check_time(cx);
            let is_idle = self.in_flight.is_empty();
            if is_idle {
                if let Some(again) = self.again.take() {
                    return Poll::Ready(Step::Load(again));
                }
                let is_spoilt = self.held.as_ref().is_some_and(|held| held.is_spoilt);
                let was_used = self.held.as_ref().is_some_and(|held| held.has_answered);
                if is_spoilt || (was_used && !self.may_hold()) {
                    self.release();
                }
            }
            let is_spoilt = self.held.as_ref().is_some_and(|held| held.is_spoilt);
            let is_full = self.in_flight.len() >= self.shared.config.depth;
            if is_full || is_spoilt || self.again.is_some() {
                return Poll::Pending;
            }
            let Poll::Ready(first) = self.poll_next(cx) else {
                if is_idle && !self.may_hold() {
                    self.release();
                }
                return Poll::Pending;
            };
            let Some(first) = first else {
                return if is_idle {
                    Poll::Ready(Step::End)
                } else {
                    Poll::Pending
                };
            };
            let batch = self.gather(first);
            if batch.is_empty() {
                continue;
            }
            if is_idle {
                self.check_connection();
            }
            if self.held.is_none() {
                return Poll::Ready(Step::Connect(batch));
            }
            self.send(batch, 0);
        }
    }

    /// Writes what is to be written, and hands out what has come.
    fn exchange(&mut self, cx: &mut Context<'_>) {
        while let Some(held) = &mut self.held {
            let sent = held.wire().send(cx);
            match (held.wire().poll_read(cx), sent) {
                (Poll::Pending, Ok(())) => return,
                // What was said before that has been read.
                (Poll::Pending, Err(error)) | (Poll::Ready(Err(error)), _) => {
                    return self.broke(&store_error(&RedisError::from(error)));
                }
                (Poll::Ready(Ok(())), _) => {}
            }
            if let Err(error) = self.replies() {
                return self.broke(&store_error(&error));
            }
        }
    }

    fn replies(&mut self) -> Result<(), RedisError> {
        while let Some(held) = &mut self.held
            && let Some(reply) = held.wire().reply()?
        {
            let Some(call) = self.in_flight.front_mut() else {
                break;
            };
            if !call.take(reply) {
                continue;
            }
            if let Some(call) = self.in_flight.pop_front() {
                let failed = self.finish(call, None);
                if let Some(held) = &mut self.held {
                    held.has_answered = true;
                    if failed {
                        held.is_spoilt = true;
                        self.node.doubt(held.place());
                    }
                }
            }
        }
        Ok(())
    }

    /// Answers the callers of a call. True when it failed in a way that says something of the server.
    fn finish(&mut self, call: Call, error: Option<&StoreError>) -> bool {
        let (loads, tries) = (call.loads, call.tries());
        let left = call.finish(&self.shared, error);
        if !left.again.is_empty() {
            let again = self.again.get_or_insert_with(|| Again {
                requests: Vec::new(),
                loads,
                tries,
            });
            again.requests.extend(left.again);
            again.tries = again.tries.max(tries);
        }
        left.failure.is_some()
    }

    /// The connection is of no more use, and what was in flight on it will not be answered.
    fn broke(&mut self, error: &StoreError) {
        let Some(mut held) = self.held.take() else {
            return;
        };
        held.is_spoilt = true;
        while let Some(call) = self.in_flight.pop_front() {
            self.finish(call, Some(error));
        }
        // A sound server may close a connection, and a short stall ends one, too; one on which no call was ever answered
        // is a sign of trouble.
        if held.has_answered {
            self.node.closed(held.place());
        } else {
            self.node.doubt(held.place());
        }
        held.release();
    }

    /// Gives up what has taken too long.
    fn check_time(&mut self, cx: &mut Context<'_>) {
        loop {
            if self.is_armed && !self.timer.is_elapsed() {
                return;
            }
            self.is_armed = false;
            let Some(call) = self.in_flight.front() else {
                return;
            };
            if call.deadline <= Instant::now() {
                return self.broke(&StoreError::Timeout);
            }
            self.timer.as_mut().reset(call.deadline);
            self.is_armed = self.timer.as_mut().poll(cx).is_pending();
        }
    }

    /// Lets a connection go that was closed, or leads to where the server was, before a call is trusted to it.
    fn check_connection(&mut self) {
        let Some(held) = &mut self.held else {
            return;
        };
        if !self.node.is_at(held.place()) {
            self.release();
        } else if held.has_answered && !held.wire().is_silent() {
            held.is_spoilt = true;
            self.node.closed(held.place());
            self.release();
        }
    }

    /// May it keep a connection between calls?
    fn may_hold(&self) -> bool {
        self.node.may_hold(self.shared.config.pool_size)
    }

    fn release(&mut self) {
        if let Some(held) = self.held.take() {
            held.release();
        }
    }

    fn send(&mut self, batch: Vec<Request>, tries: usize) {
        let Some(held) = &mut self.held else {
            return;
        };
        self.node.called(batch.len() as u64);
        let call = Call::start(&self.shared, &self.node.script, held.wire(), batch, tries);
        if call.deadline >= self.look {
            self.look = call.deadline + LOOK;
            self.node.check_if_old();
        }
        self.in_flight.push_back(call);
    }

    async fn connect(&mut self) -> Result<(), StoreError> {
        // The callers time themselves: a connection that takes longer than they wait is made for those after them.
        let within = self.shared.config.connect_timeout;
        let (connection, place) = timeout(within, self.node.checkout())
            .await
            .unwrap_or(Err(StoreError::Timeout))?;
        self.held = Some(Held::new(connection, place));
        Ok(())
    }

    /// Puts the script where it is missing, and sends the requests that missed it once more.
    async fn load(&mut self, mut again: Again) {
        again.requests.retain(|request| !request.is_abandoned());
        if again.requests.is_empty() {
            return;
        }
        let mut loaded = Ok(());
        if self.held.is_none() {
            loaded = self.connect().await;
        }
        if let (Ok(()), Some(held)) = (&loaded, &mut self.held) {
            let load = self.node.script.load(held.wire(), again.loads);
            loaded = match timeout(self.shared.config.timeout, load).await {
                Ok(loaded) => loaded.map_err(|error| store_error(&error)),
                Err(_) => Err(StoreError::Timeout),
            };
        }
        match loaded {
            Ok(()) => self.send(again.requests, again.tries + 1),
            Err(error) => {
                if Trouble::of(&error).reconnect {
                    self.broke(&error);
                }
                for request in again.requests {
                    request.fail(&error);
                }
            }
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Request>> {
        match self.postponed.pop_front() {
            Some(request) => Poll::Ready(Some(request)),
            None => self.waiting.poll_recv(cx),
        }
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
        // Its socket is watched by the runtime it was made on, which need not be the next line's.
        if let Some(held) = &mut self.held {
            held.is_spoilt = true;
        }
        self.release();
        self.node.line_ended();
    }
}
