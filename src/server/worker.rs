//! The threads that serve: one current-thread runtime each, with its own limiter and its own connections. A call never
//! leaves the thread its connection was given to.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use tokio::{
    runtime,
    sync::{
        OwnedSemaphorePermit, Semaphore,
        mpsc::{self, UnboundedReceiver, UnboundedSender},
        oneshot,
    },
};
use tokio_util::task::TaskTracker;

use super::{
    answer::{Answers, Settings},
    connection::{self, Age},
    drain::Drain,
    health::{HealthService, Readiness},
    http,
    rls::Grpc,
    socket::{Moving, Socket},
    tls::Tls,
};
use crate::{
    limiter::Limiter,
    store::Store,
    telemetry::metrics::{Metrics, Open},
};

/// Which port a connection came in on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// gRPC.
    Grpc,
    /// HTTP.
    Http,
}

impl Port {
    /// Its name in logs and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Grpc => "grpc",
            Self::Http => "http",
        }
    }
}

/// What the workers serve with.
#[derive(Clone, Debug)]
pub struct Serving {
    /// What all answers share.
    pub answers: Arc<Settings>,
    /// Whether the process is ready.
    pub readiness: Readiness,
    /// How long a gRPC connection lives.
    pub age: Age,
    /// TLS on the gRPC port, if it has that.
    pub tls: Option<Arc<Tls>>,
    /// Most connections of each port.
    pub max_connections: usize,
    /// When to stop.
    pub drain: Drain,
}

/// The running workers.
#[derive(Debug)]
pub struct Workers {
    workers: Vec<Worker>,
    rooms: [Arc<Semaphore>; 2],
    metrics: Arc<Metrics>,
}

#[derive(Debug)]
struct Worker {
    connections: UnboundedSender<Connection>,
    live: Live,
    done: oneshot::Receiver<()>,
}

/// Connections of one worker, for each port.
#[derive(Clone, Debug, Default)]
struct Live(Arc<[AtomicUsize; 2]>);

struct Connection {
    port: Port,
    stream: Moving,
    /// Everything that says the connection is there, until it is dropped.
    presence: Presence,
}

struct Presence {
    port: Port,
    live: Live,
    _room: OwnedSemaphorePermit,
    _open: Open,
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.live.0[self.port as usize].fetch_sub(1, Ordering::Relaxed);
    }
}

impl Workers {
    /// Starts `count` workers. Each makes its own limiter, on its own runtime.
    ///
    /// # Errors
    /// When the system has no thread or runtime to give, or a worker cannot be made ready.
    pub async fn start<S, M>(count: usize, serving: &Serving, limiter: M) -> io::Result<Self>
    where
        S: Store + 'static,
        M: Fn() -> Limiter<S> + Clone + Send + 'static,
    {
        let mut workers = Vec::with_capacity(count);
        for number in 0..count {
            let (connections, incoming) = mpsc::unbounded_channel();
            let (started, ready) = oneshot::channel();
            let (ended, done) = oneshot::channel();
            serving.answers.metrics.worker(number);
            let serving = serving.clone();
            let limiter = limiter.clone();
            thread::Builder::new()
                .name(format!("worker-{number}"))
                .spawn(move || {
                    run(&serving, &limiter, incoming, started);
                    // Nobody may be waiting any more.
                    let _ = ended.send(());
                })?;
            ready.await.map_err(io::Error::other)??;
            workers.push(Worker {
                connections,
                live: Live::default(),
                done,
            });
        }
        let room = || Arc::new(Semaphore::new(serving.max_connections));
        Ok(Self {
            workers,
            rooms: [room(), room()],
            metrics: Arc::clone(&serving.answers.metrics),
        })
    }

    /// Gives a connection to the worker with the fewest of its kind. It is closed when there are too many already.
    pub fn take(&self, port: Port, stream: Socket) {
        let Ok(room) = Arc::clone(&self.rooms[port as usize]).try_acquire_owned() else {
            self.metrics.refused_connection(port.name());
            return;
        };
        let least = self
            .workers
            .iter()
            .enumerate()
            .min_by_key(|(_, worker)| worker.live.load(port));
        let Some((number, worker)) = least else {
            return;
        };
        let Ok(stream) = stream.leave() else {
            return;
        };
        worker.live.0[port as usize].fetch_add(1, Ordering::Relaxed);
        let presence = Presence {
            port,
            live: worker.live.clone(),
            _room: room,
            _open: self.metrics.connection(port.name(), number),
        };
        let connection = Connection {
            port,
            stream,
            presence,
        };
        if worker.connections.send(connection).is_err() {
            tracing::debug!("a connection came after the end");
        }
    }

    /// Waits until every worker has ended.
    pub async fn ended(self) {
        for worker in self.workers {
            drop(worker.connections);
            // An error says the same: the thread is gone.
            let _ = worker.done.await;
        }
    }
}

impl Live {
    /// Connections of that port, then of both.
    fn load(&self, port: Port) -> (usize, usize) {
        let [grpc, http] = self.0.as_ref();
        let (grpc, http) = (grpc.load(Ordering::Relaxed), http.load(Ordering::Relaxed));
        match port {
            Port::Grpc => (grpc, grpc + http),
            Port::Http => (http, grpc + http),
        }
    }
}

/// A worker's whole life.
fn run<S: Store + 'static>(
    serving: &Serving,
    limiter: &impl Fn() -> Limiter<S>,
    incoming: UnboundedReceiver<Connection>,
    started: oneshot::Sender<io::Result<()>>,
) {
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(cause) => {
            let _ = started.send(Err(cause));
            return;
        }
    };
    runtime.block_on(async {
        let answers = Arc::new(Answers::new(limiter(), Arc::clone(&serving.answers)));
        let health = HealthService::new(
            serving.readiness.clone(),
            Arc::clone(&serving.answers.metrics),
        );
        let grpc = match Grpc::new(Arc::clone(&answers), health, serving.drain.clone()) {
            Ok(grpc) => grpc,
            Err(cause) => {
                let _ = started.send(Err(io::Error::other(cause)));
                return;
            }
        };
        let http = http::router(answers, serving.readiness.clone(), serving.drain.clone());
        let _ = started.send(Ok(()));
        serve(serving, &grpc, &http, incoming).await;
    });
    // The connections that are left are dropped. A name that is being looked up is not waited for.
    runtime.shutdown_background();
}

async fn serve<S: Store + 'static>(
    serving: &Serving,
    grpc: &Grpc<S>,
    http: &axum::Router,
    mut incoming: UnboundedReceiver<Connection>,
) {
    let connections = TaskTracker::new();
    let begin = |connection: Connection| {
        let Connection {
            port,
            stream,
            presence,
        } = connection;
        let (grpc, http) = (grpc.clone(), http.clone());
        let (age, drain) = (serving.age, serving.drain.clone());
        let tls = serving.tls.clone();
        connections.spawn(async move {
            let _presence = presence;
            let Ok(stream) = stream.arrive() else {
                return;
            };
            match port {
                Port::Grpc => connection::grpc(stream, tls.as_deref(), grpc, age, &drain).await,
                Port::Http => connection::http(stream, http, &drain).await,
            }
        });
    };
    loop {
        tokio::select! {
            connection = incoming.recv() => match connection {
                Some(connection) => begin(connection),
                None => break,
            },
            () = serving.drain.begun() => break,
        }
    }
    // What was handed over before the end is served too, if only to be told to go.
    incoming.close();
    while let Some(connection) = incoming.recv().await {
        begin(connection);
    }
    connections.close();
    tokio::select! {
        () = connections.wait() => {}
        () = serving.drain.over() => {}
    }
}
