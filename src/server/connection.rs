//! One connection from its first byte to its end: age, graceful close, and what happens to those that never speak.

use std::{
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use hyper::{body::Incoming, server::conn::http2};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{conn::auto, graceful::GracefulConnection},
    service::TowerToHyperService,
};
use pin_project_lite::pin_project;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::{sleep, timeout},
};
use tower::Service;

use super::{calm::Calm, drain::Drain, flood::Flood, socket::Socket, tls::Tls, unary::Body};
use crate::time::jittered;

/// Time a connection has to send its first byte.
const FIRST_BYTE: Duration = Duration::from_secs(10);

/// Time an HTTP/1 client has to send a request's head, also between two requests.
const HEAD: Duration = Duration::from_secs(60);

/// Time a connection without calls gets to close by itself when the process stops. An honest client needs a round
/// trip; one that never spoke, or stopped answering, must not hold the stop up.
const LINGER: Duration = Duration::from_millis(500);

/// Time to tell a client why it is cut off.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// Interval of the pings on the HTTP ports, and the time they have to be answered.
const PING: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(20));

/// Calls one connection may have in flight.
const STREAMS: u32 = 2_048;

/// Calls a client may cancel before they were looked at. A proxy that gives up after 20 ms cancels hundreds at once
/// when the store is slow: the libraries' bound of 20 would cut it off then, of all times.
const RESETS: usize = 5_000;

/// Most bytes of a call's headers.
const HEADERS: u32 = 64 * 1024;

/// How long a gRPC connection lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// After this it is asked to go, give or take 10 %.
    pub limit: Duration,
    /// After this it is closed.
    pub grace: Duration,
    /// Pings, that find peers which vanished without a word, come in this interval...
    pub ping: Duration,
    /// ... and have this time to be answered.
    pub pong: Duration,
}

/// Serves gRPC on a connection until it ends.
pub(super) async fn grpc<S>(socket: Socket, tls: Option<&Tls>, service: S, age: Age, drain: &Drain)
where
    S: Handler,
    S::Future: Send,
{
    if !speaks(&socket, drain).await {
        return;
    }
    let Some(tls) = tls else {
        return grpc_over(socket, service, age, drain).await;
    };
    let stream = tokio::select! {
        stream = tls.accept(socket) => stream,
        // It never came to a call.
        () = drain.begun() => None,
    };
    if let Some(stream) = stream {
        grpc_over(stream, service, age, drain).await;
    }
}

async fn grpc_over<S>(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    service: S,
    age: Age,
    drain: &Drain,
) where
    S: Handler,
    S::Future: Send,
{
    let busy = Busy::default();
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(RESETS)
        .max_header_list_size(HEADERS)
        // gRPC has no use for it.
        .auto_date_header(false)
        .keep_alive_interval(age.ping)
        .keep_alive_timeout(age.pong)
        .serve_connection(
            TokioIo::new(Calm::new(stream, busy.flood())),
            TowerToHyperService::new(Counted {
                service,
                busy: busy.clone(),
            }),
        );
    drive(connection, &busy, Some(age), drain).await;
}

/// Serves HTTP/1 or HTTP/2, as the client speaks, until the connection ends.
pub(super) async fn http(stream: Socket, service: axum::Router, drain: &Drain) {
    if !speaks(&stream, drain).await {
        return;
    }
    let busy = Busy::default();
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(STREAMS)
        .max_pending_accept_reset_streams(RESETS)
        .max_header_list_size(HEADERS)
        .keep_alive_interval(PING.0)
        .keep_alive_timeout(PING.1);
    let service = Counted {
        service,
        busy: busy.clone(),
    };
    let stream = TokioIo::new(Calm::new(stream, busy.flood()));
    let connection = builder.serve_connection(stream, TowerToHyperService::new(service));
    drive(connection, &busy, None, drain).await;
}

/// What a connection is served with.
pub(super) trait Handler:
    Service<
        http::Request<Incoming>,
        Response = http::Response<Body>,
        Error = std::convert::Infallible,
    > + Clone
    + Send
    + 'static
{
}

impl<S> Handler for S where
    S: Service<
            http::Request<Incoming>,
            Response = http::Response<Body>,
            Error = std::convert::Infallible,
        > + Clone
        + Send
        + 'static
{
}

/// Waits for the first byte, or for the end of waiting.
async fn speaks(stream: &Socket, drain: &Drain) -> bool {
    tokio::select! {
        first = timeout(FIRST_BYTE, stream.readable()) => matches!(first, Ok(Ok(()))),
        () = drain.begun() => false,
    }
}

async fn drive<C: GracefulConnection>(connection: C, busy: &Busy, age: Option<Age>, drain: &Drain) {
    let mut connection = pin!(connection);
    let old = async {
        match age {
            Some(age) => sleep(jittered(age.limit, 0.1)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        // First: the flood ends the connection.
        biased;
        () = busy.0.flood.seen() => {
            tracing::warn!("a connection that does little but reset its calls is closed");
            // Nothing more is read. What it still says is why.
            let _ = timeout(LAST_WORDS, connection).await;
            return;
        }
        _ended = connection.as_mut() => return,
        () = drain.begun() => {}
        () = old => {}
    }
    // GOAWAY, or `Connection: close`.
    connection.as_mut().graceful_shutdown();
    let grace = async {
        match age {
            Some(age) => sleep(age.grace).await,
            None => std::future::pending().await,
        }
    };
    let lingered = async {
        drain.begun().await;
        busy.idle_for(LINGER).await;
    };
    tokio::select! {
        _ended = connection.as_mut() => {}
        () = lingered => {}
        () = grace => {}
    }
}

/// The calls of one connection that are in flight.
#[derive(Clone, Debug, Default)]
struct Busy(Arc<Calls>);

#[derive(Debug, Default)]
struct Calls {
    in_flight: AtomicUsize,
    answered: AtomicUsize,
    flood: Arc<Flood>,
}

impl Busy {
    fn flood(&self) -> Arc<Flood> {
        Arc::clone(&self.0.flood)
    }

    fn begin(&self) -> InFlight {
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight {
            busy: self.clone(),
            since: Instant::now(),
            answered: false,
        }
    }

    /// Waits until nothing has been in flight for that long.
    async fn idle_for(&self, time: Duration) {
        const STEPS: u32 = 10;
        let mut idle = 0;
        while idle < STEPS {
            sleep(time / STEPS).await;
            idle = if self.0.in_flight.load(Ordering::Relaxed) == 0 {
                idle + 1
            } else {
                0
            };
        }
    }
}

struct InFlight {
    busy: Busy,
    since: Instant,
    answered: bool,
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let calls = &self.busy.0;
        calls.in_flight.fetch_sub(1, Ordering::Relaxed);
        if self.answered {
            calls.answered.fetch_add(1, Ordering::Relaxed);
        } else {
            calls.flood.reset(self.since.elapsed(), &calls.answered);
        }
    }
}

/// Counts a service's calls while they are in flight.
#[derive(Clone)]
struct Counted<S> {
    service: S,
    busy: Busy,
}

impl<S, R> Service<R> for Counted<S>
where
    S: Service<R>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Counting<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        Counting {
            in_flight: self.busy.begin(),
            answer: self.service.call(request),
        }
    }
}

pin_project! {
    /// An answer that is counted as in flight until it is there, or nobody waits for it.
    struct Counting<F> {
        #[pin]
        answer: F,
        in_flight: InFlight,
    }
}

impl<F: Future> Future for Counting<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let own = self.project();
        let answer = own.answer.poll(context);
        own.in_flight.answered |= answer.is_ready();
        answer
    }
}
