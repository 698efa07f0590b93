//! Runs the calls: a few threads, each with a runtime and connections of its own.

use std::{
    cell::RefCell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tokio::{
    runtime,
    sync::{
        Semaphore,
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        oneshot,
    },
    task::LocalSet,
};
use tokio_util::task::TaskTracker;

use super::{connection::Connection, tally::Tally, template::Template};
use crate::{cli::client::Tls, proto::envoy::service::ratelimit::v3::RateLimitRequest};

/// A run, as the command line asks for it.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) address: String,
    pub(super) tls: Tls,
    pub(super) template: Template,
    pub(super) threads: usize,
    pub(super) connections: usize,
    /// Most calls in flight; in closed loop always that many.
    pub(super) inflight: usize,
    /// Calls a second in open loop; `None`: closed loop.
    pub(super) rate: Option<f64>,
    pub(super) duration: Duration,
    pub(super) timeout: Duration,
    /// Follow each counter.
    pub(super) check: bool,
}

/// What a run shows while it lasts.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Calls that were answered so far.
    pub(super) answers: AtomicU64,
    /// Calls that were not.
    pub(super) failures: AtomicU64,
}

/// What a thread is told when all are connected.
struct Start {
    at: Instant,
    /// Open loop: the moments at which its calls are due.
    due: Option<UnboundedReceiver<Instant>>,
}

/// A thread that is connected and waits.
struct Waiting {
    thread: JoinHandle<anyhow::Result<Tally>>,
    start: oneshot::Sender<Start>,
}

impl Load {
    /// Runs it, and says how long it took. Connecting is not part of it.
    ///
    /// # Errors
    /// When the service cannot be reached at the start.
    pub(super) fn run(self, progress: &Arc<Progress>) -> anyhow::Result<(Tally, Duration)> {
        let most = self.connections.min(self.inflight).max(1);
        let threads = self.threads.clamp(1, most);
        let mut starting = Vec::with_capacity(threads);
        for number in 0..threads {
            let load = Self {
                connections: share(self.connections, threads, number).max(1),
                inflight: share(self.inflight, threads, number).max(1),
                ..self.clone()
            };
            let progress = Arc::clone(progress);
            let (connected, is_connected) = mpsc::channel();
            let (start, started) = oneshot::channel();
            let thread = thread::Builder::new()
                .name(format!("bench-{number}"))
                .spawn(move || load.client(&progress, &connected, started))?;
            starting.push((is_connected, Waiting { thread, start }));
        }
        let mut waiting = Vec::with_capacity(threads);
        for (is_connected, thread) in starting {
            if is_connected.recv().is_err() {
                // It could not, and says why; the others are told by their senders' end.
                joined(thread.thread)?;
            } else {
                waiting.push(thread);
            }
        }
        let at = Instant::now();
        let mut moments = Vec::new();
        let mut running = Vec::with_capacity(threads);
        for Waiting { thread, start } in waiting {
            let due = self.rate.map(|_| {
                let (moment, due) = unbounded_channel();
                moments.push(moment);
                due
            });
            // One that is gone says why when it is joined.
            let _ = start.send(Start { at, due });
            running.push(thread);
        }
        if let Some(rate) = self.rate {
            pace(at, rate, self.duration, &moments);
            drop(moments);
        }
        let mut tally = Tally::new(&self.template, self.check);
        for thread in running {
            tally.merge(joined(thread)?);
        }
        Ok((tally, at.elapsed()))
    }

    /// The life of one thread.
    fn client(
        self,
        progress: &Arc<Progress>,
        connected: &mpsc::Sender<()>,
        started: oneshot::Receiver<Start>,
    ) -> anyhow::Result<Tally> {
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start a runtime")?;
        LocalSet::new().block_on(&runtime, async {
            let mut connections = Vec::with_capacity(self.connections);
            for _ in 0..self.connections {
                connections.push(Connection::open(&self.address, self.timeout, &self.tls).await?);
            }
            // Nobody listens when another thread could not connect.
            let _ = connected.send(());
            let caller = Rc::new(Caller {
                tally: RefCell::new(Tally::new(&self.template, self.check)),
                progress: Arc::clone(progress),
                connections,
            });
            if let Ok(Start { at, due }) = started.await {
                let end = at + self.duration;
                match due {
                    None => self.closed_loop(&caller, end).await,
                    Some(due) => self.open_loop(&caller, due, end).await,
                }
            }
            Ok(caller.tally.replace(Tally::new(&self.template, false)))
        })
    }

    /// So many callers, each of which asks again when it has its answer.
    async fn closed_loop(&self, caller: &Rc<Caller>, end: Instant) {
        let callers = TaskTracker::new();
        let load = Rc::new(self.clone());
        for number in 0..self.inflight {
            let (caller, load) = (Rc::clone(caller), Rc::clone(&load));
            callers.spawn_local(async move {
                let mut random = fastrand::Rng::new();
                loop {
                    let since = Instant::now();
                    if since >= end {
                        break;
                    }
                    let (request, keys) = load.template.draw(&mut random);
                    caller.call(number, request, &keys, since).await;
                }
            });
        }
        callers.close();
        callers.wait().await;
    }

    /// A call for each moment that is due, whatever became of those before. What a call waits for room in flight is
    /// part of its time: its moment was when it was due, not when it was sent.
    async fn open_loop(
        &self,
        caller: &Rc<Caller>,
        mut due: UnboundedReceiver<Instant>,
        end: Instant,
    ) {
        let calls = TaskTracker::new();
        let room = Arc::new(Semaphore::new(self.inflight));
        let mut random = fastrand::Rng::new();
        let mut number = 0;
        while let Some(since) = due.recv().await {
            let Ok(room) = Arc::clone(&room).acquire_owned().await else {
                break;
            };
            let (request, keys) = self.template.draw(&mut random);
            if Instant::now() > end + self.timeout {
                caller.failed("never sent: too many calls were in flight".to_owned(), &[]);
                continue;
            }
            let caller = Rc::clone(caller);
            calls.spawn_local(async move {
                caller.call(number, request, &keys, since).await;
                drop(room);
            });
            number = number.wrapping_add(1);
        }
        calls.close();
        calls.wait().await;
    }
}

/// What the calls of one thread share.
struct Caller {
    connections: Vec<Connection>,
    tally: RefCell<Tally>,
    progress: Arc<Progress>,
}

impl Caller {
    async fn call(&self, number: usize, request: RateLimitRequest, keys: &[usize], since: Instant) {
        let connection = &self.connections[number % self.connections.len()];
        match connection.ask(request).await {
            Ok(answer) => {
                let mut tally = self.tally.borrow_mut();
                tally.answered(&answer, keys, (since, Instant::now()));
                self.progress.answers.fetch_add(1, Ordering::Relaxed);
            }
            Err(reason) => self.failed(reason, keys),
        }
    }

    fn failed(&self, reason: String, keys: &[usize]) {
        self.tally.borrow_mut().failed(reason, keys);
        self.progress.failures.fetch_add(1, Ordering::Relaxed);
    }
}

/// Says when each call is due. On a thread of its own: the runtimes' timers count whole milliseconds.
fn pace(start: Instant, rate: f64, duration: Duration, threads: &[UnboundedSender<Instant>]) {
    for number in 0u64.. {
        let after = Duration::from_secs_f64(number as f64 / rate);
        if after >= duration {
            break;
        }
        let due = start + after;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let thread = &threads[number as usize % threads.len()];
        if thread.send(due).is_err() {
            break;
        }
    }
}

/// What one of `parts` gets of `whole`.
const fn share(whole: usize, parts: usize, part: usize) -> usize {
    whole / parts + (part < whole % parts) as usize
}

fn joined(thread: JoinHandle<anyhow::Result<Tally>>) -> anyhow::Result<Tally> {
    thread
        .join()
        .map_err(|_| anyhow::anyhow!("a thread of the benchmark panicked"))?
}
