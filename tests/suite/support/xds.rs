//! A control plane that behaves as Envoy Gateway's: a snapshot for one node, versions that count from 1 after each
//! start, an answer whenever the version a client names is not the current one, and TLS 1.3 with client certificates.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpListener as StdListener},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Instant,
};

use palang::proto::{
    envoy::service::discovery::v3::{
        DiscoveryRequest, DiscoveryResponse,
        aggregated_discovery_service_server::{
            AggregatedDiscoveryService, AggregatedDiscoveryServiceServer,
        },
    },
    ratelimit::config::ratelimit::v3::RateLimitConfig,
};
use prost::Message as _;
use prost_types::Any;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{mpsc, oneshot, watch},
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};
use tokio_stream::{Stream, StreamExt as _, wrappers::ReceiverStream};
use tonic::{Request, Response, Status, Streaming, transport::server::Connected};

/// The type of resource.
pub(crate) const TYPE_URL: &str =
    "type.googleapis.com/ratelimit.config.ratelimit.v3.RateLimitConfig";

/// What the control plane saw of its clients.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Which of the streams, from 1, restarts included.
    pub(crate) stream: usize,
    /// When.
    pub(crate) at: Instant,
    /// The headers of its call.
    pub(crate) headers: BTreeMap<String, String>,
    /// What it said.
    pub(crate) request: DiscoveryRequest,
}

impl Seen {
    /// Whether it opens a stream.
    pub(crate) fn is_first(&self) -> bool {
        self.request.response_nonce.is_empty()
    }

    /// Why it refuses a configuration, if it does.
    pub(crate) fn refusal(&self) -> Option<&str> {
        let detail = self.request.error_detail.as_ref()?;
        Some(&detail.message)
    }
}

/// What happens to a stream after a push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AfterPush {
    /// It goes on.
    #[default]
    Stay,
    /// It is reset.
    Reset,
}

#[derive(Debug, Default)]
struct Shared {
    seen: Mutex<Vec<Seen>>,
    streams: AtomicUsize,
    refused_handshakes: AtomicUsize,
}

/// A running control plane; stopped when dropped.
pub(crate) struct ControlPlane {
    listener: StdListener,
    node: String,
    after_push: AfterPush,
    tls: Option<Arc<ServerConfig>>,
    shared: Arc<Shared>,
    version: u64,
    running: Option<Running>,
}

/// From one start to the next restart.
struct Running {
    snapshot: watch::Sender<Option<Snapshot>>,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

#[derive(Clone, Debug)]
struct Snapshot {
    version: u64,
    resources: Vec<Any>,
}

impl ControlPlane {
    /// Starts on a free port, for the node `envoy-ratelimit`.
    pub(crate) fn start() -> Self {
        Self::start_with(AfterPush::Stay, None)
    }

    /// The same, with a behaviour and TLS.
    pub(crate) fn start_with(after_push: AfterPush, tls: Option<Arc<ServerConfig>>) -> Self {
        Self::start_at(([127, 0, 0, 1], 0).into(), after_push, tls)
    }

    /// The same at this address.
    pub(crate) fn start_at(
        at: SocketAddr,
        after_push: AfterPush,
        tls: Option<Arc<ServerConfig>>,
    ) -> Self {
        let listener = StdListener::bind(at).expect("a free port");
        listener.set_nonblocking(true).expect("can be set");
        let mut plane = Self {
            listener,
            node: "envoy-ratelimit".to_owned(),
            after_push,
            tls,
            shared: Arc::default(),
            version: 0,
            running: None,
        };
        plane.run();
        plane
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.local_addr().expect("bound")
    }

    /// Cuts every connection and starts anew, with nothing to serve and versions that count from 1 again. The port is
    /// open meanwhile, as that of a Service is.
    pub(crate) fn restart(&mut self) {
        self.stop();
        self.version = 0;
        self.run();
    }

    /// Restarts with other certificates.
    pub(crate) fn restart_with(&mut self, tls: Arc<ServerConfig>) {
        self.tls = Some(tls);
        self.restart();
    }

    /// Replaces the configuration by these.
    pub(crate) fn push(&mut self, configs: &[RateLimitConfig]) {
        self.push_raw(
            configs
                .iter()
                .map(|config| Any {
                    type_url: TYPE_URL.to_owned(),
                    value: config.encode_to_vec(),
                })
                .collect(),
        );
    }

    /// Replaces the configuration by whatever this is.
    pub(crate) fn push_raw(&mut self, resources: Vec<Any>) {
        self.version += 1;
        let running = self.running.as_ref().expect("running");
        running.snapshot.send_replace(Some(Snapshot {
            version: self.version,
            resources,
        }));
    }

    /// What clients said so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.shared
            .seen
            .lock()
            .expect("no panic while held")
            .clone()
    }

    /// Connections that came to nothing because of their certificates.
    pub(crate) fn refused_handshakes(&self) -> usize {
        self.shared.refused_handshakes.load(Ordering::Relaxed)
    }

    fn run(&mut self) {
        let (snapshot, snapshots) = watch::channel(None);
        let (stop, stopped) = oneshot::channel();
        let service = AggregatedDiscoveryServiceServer::new(Service {
            snapshots,
            shared: Arc::clone(&self.shared),
            node: self.node.clone(),
            after_push: self.after_push,
        });
        let listener = self.listener.try_clone().expect("can be shared");
        let (tls, shared) = (self.tls.clone(), Arc::clone(&self.shared));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async {
                let incoming = accept(TcpListener::from_std(listener).expect("bound"), tls, shared);
                let server = tonic::transport::Server::builder()
                    .add_service(service)
                    .serve_with_incoming(incoming);
                tokio::select! {
                    ended = server => ended.expect("serves"),
                    // Gone with its sender is as good as told.
                    _ = stopped => {}
                }
            });
            // With the runtime every connection is gone.
        });
        self.running = Some(Running {
            snapshot,
            stop,
            thread,
        });
    }

    fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            // The thread may have panicked, which the join tells.
            let _ = running.stop.send(());
            running
                .thread
                .join()
                .expect("no panic in the control plane");
        }
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.stop.send(());
            // A panic in it has already been printed.
            let _ = running.thread.join();
        }
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection of either kind.
struct Connection(Box<dyn Io>);

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

fn accept(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    shared: Arc<Shared>,
) -> impl Stream<Item = std::io::Result<Connection>> {
    let (connections, incoming) = mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (connections, tls) = (connections.clone(), tls.clone());
            let shared = Arc::clone(&shared);
            tokio::spawn(async move {
                let connection = match tls {
                    None => Connection(Box::new(stream)),
                    Some(tls) => match TlsAcceptor::from(tls).accept(stream).await {
                        Ok(stream) => Connection(Box::new(stream)),
                        Err(_) => {
                            shared.refused_handshakes.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                    },
                };
                // The server may be stopping.
                let _ = connections.send(Ok(connection)).await;
            });
        }
    });
    ReceiverStream::new(incoming)
}

struct Service {
    snapshots: watch::Receiver<Option<Snapshot>>,
    shared: Arc<Shared>,
    node: String,
    after_push: AfterPush,
}

#[tonic::async_trait]
impl AggregatedDiscoveryService for Service {
    type StreamAggregatedResourcesStream = ReceiverStream<Result<DiscoveryResponse, Status>>;

    async fn stream_aggregated_resources(
        &self,
        request: Request<Streaming<DiscoveryRequest>>,
    ) -> Result<Response<Self::StreamAggregatedResourcesStream>, Status> {
        let headers = request
            .metadata()
            .clone()
            .into_headers()
            .iter()
            .map(|(name, value)| {
                let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
                (name.to_string(), value)
            })
            .collect();
        let (responses, stream) = mpsc::channel(4);
        let conversation = Conversation {
            requests: request.into_inner(),
            responses,
            snapshots: self.snapshots.clone(),
            shared: Arc::clone(&self.shared),
            node: self.node.clone(),
            after_push: self.after_push,
            headers,
            stream: self.shared.streams.fetch_add(1, Ordering::Relaxed) + 1,
        };
        tokio::spawn(conversation.run());
        Ok(Response::new(ReceiverStream::new(stream)))
    }
}

struct Conversation {
    requests: Streaming<DiscoveryRequest>,
    responses: mpsc::Sender<Result<DiscoveryResponse, Status>>,
    snapshots: watch::Receiver<Option<Snapshot>>,
    shared: Arc<Shared>,
    node: String,
    after_push: AfterPush,
    headers: BTreeMap<String, String>,
    stream: usize,
}

impl Conversation {
    async fn run(mut self) {
        let mut nonce = 0_u64;
        // The version that the client named last, while it waits for another one.
        let mut waits: Option<String> = None;
        loop {
            let current = self.snapshots.borrow_and_update().clone();
            if let Some(version) = &waits
                && let Some(snapshot) = current
                && *version != snapshot.version.to_string()
            {
                waits = None;
                nonce += 1;
                let response = DiscoveryResponse {
                    version_info: snapshot.version.to_string(),
                    resources: snapshot.resources,
                    type_url: TYPE_URL.to_owned(),
                    nonce: nonce.to_string(),
                    ..DiscoveryResponse::default()
                };
                if self.responses.send(Ok(response)).await.is_err() {
                    return;
                }
                if self.after_push == AfterPush::Reset {
                    let reset = Err(Status::unavailable("reset by the test"));
                    // The client may be gone.
                    let _ = self.responses.send(reset).await;
                    return;
                }
            }
            tokio::select! {
                request = self.requests.next() => {
                    let Some(Ok(request)) = request else { return };
                    let (version, answers) = (request.version_info.clone(), request.response_nonce.clone());
                    let known = request.node.as_ref().is_some_and(|node| node.id == self.node);
                    let of_our_type = request.type_url == TYPE_URL && request.resource_names.is_empty();
                    self.saw(request);
                    // What answers an older response is ignored; a node without a snapshot waits for ever.
                    if known && of_our_type && (answers.is_empty() || answers == nonce.to_string()) {
                        waits = Some(version);
                    }
                }
                changed = self.snapshots.changed() => if changed.is_err() { return },
            }
        }
    }

    fn saw(&self, request: DiscoveryRequest) {
        self.shared
            .seen
            .lock()
            .expect("no panic while held")
            .push(Seen {
                stream: self.stream,
                at: Instant::now(),
                headers: self.headers.clone(),
                request,
            });
    }
}
