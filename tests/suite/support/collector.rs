//! A collector of traces and metrics, over gRPC and over HTTP, in clear text and over TLS.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use axum::{Router, extract::State, http::HeaderMap, routing::post};
use bytes::Bytes;
use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use opentelemetry_proto::tonic::{
    collector::{
        metrics::v1::{
            ExportMetricsServiceRequest, ExportMetricsServiceResponse,
            metrics_service_server::{MetricsService, MetricsServiceServer},
        },
        trace::v1::{
            ExportTraceServiceRequest, ExportTraceServiceResponse,
            trace_service_server::{TraceService, TraceServiceServer},
        },
    },
    common::v1::{KeyValue, any_value::Value},
    resource::v1::Resource,
    trace::v1::Span,
};
use prost::Message as _;
use tokio::net::TcpListener;
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};
use tonic::{
    Request, Response, Status,
    transport::{
        Certificate, Identity, ServerTlsConfig,
        server::{Router as GrpcRouter, TcpIncoming},
    },
};

use super::pki::Pki;

/// A collector; it lives as long as the test's runtime.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collector(Arc<Mutex<Received>>);

#[derive(Debug, Default)]
struct Received {
    traces: Vec<ExportTraceServiceRequest>,
    metrics: Vec<ExportMetricsServiceRequest>,
    headers: Vec<HeaderMap>,
}

/// A free port of this machine.
const ANY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

impl Collector {
    pub(crate) async fn grpc() -> (Self, SocketAddr) {
        let (collector, listener, address) = bound(ANY).await;
        let router = collector.services(tonic::transport::Server::builder());
        tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener)));
        (collector, address)
    }

    pub(crate) async fn http() -> (Self, SocketAddr) {
        Self::http_at(ANY).await
    }

    /// The same at this address.
    pub(crate) async fn http_at(at: SocketAddr) -> (Self, SocketAddr) {
        let (collector, listener, address) = bound(at).await;
        let app = collector.paths();
        tokio::spawn(async move { axum::serve(listener, app).await });
        (collector, address)
    }

    /// Over TLS, for clients that `pki` vouches for only.
    pub(crate) async fn grpc_over_tls(pki: &Pki) -> (Self, SocketAddr) {
        let (collector, listener, address) = bound(ANY).await;
        let read = |name: &str| std::fs::read(pki.file(name)).expect("a file of the authority");
        let tls = ServerTlsConfig::new()
            .identity(Identity::from_pem(read("server.crt"), read("server.key")))
            .client_ca_root(Certificate::from_pem(read("ca.crt")));
        let server = tonic::transport::Server::builder().tls_config(tls);
        let router = collector.services(server.expect("a certificate and its key"));
        tokio::spawn(router.serve_with_incoming(TcpIncoming::from(listener)));
        (collector, address)
    }

    /// The same over HTTP/1.1.
    pub(crate) async fn http_over_tls(pki: &Pki) -> (Self, SocketAddr) {
        let (collector, listener, address) = bound(ANY).await;
        let app = collector.paths();
        let mut config = ServerConfig::clone(&pki.server());
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, app) = (acceptor.clone(), app.clone());
                tokio::spawn(async move {
                    // Who is not vouched for goes away with an alert.
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let service = TowerToHyperService::new(app);
                    hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await
                        .expect("a connection that ends well");
                });
            }
        });
        (collector, address)
    }

    fn services(&self, mut server: tonic::transport::Server) -> GrpcRouter {
        server
            .add_service(TraceServiceServer::new(self.clone()))
            .add_service(MetricsServiceServer::new(self.clone()))
    }

    fn paths(&self) -> Router {
        Router::new()
            .route("/v1/traces", post(receive_traces))
            .route("/v1/metrics", post(receive_metrics))
            .with_state(self.clone())
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let received = self.0.lock().expect("no panic while held");
        received
            .traces
            .iter()
            .flat_map(|request| &request.resource_spans)
            .flat_map(|resource| &resource.scope_spans)
            .flat_map(|scope| scope.spans.clone())
            .collect()
    }

    /// All messages with metrics so far.
    pub(crate) fn metrics(&self) -> Vec<ExportMetricsServiceRequest> {
        let received = self.0.lock().expect("no panic while held");
        received.metrics.clone()
    }

    /// The headers of all messages so far.
    pub(crate) fn headers(&self) -> Vec<HeaderMap> {
        let received = self.0.lock().expect("no panic while held");
        received.headers.clone()
    }

    /// Who sent the first trace.
    pub(crate) fn resource(&self) -> Option<Resource> {
        let received = self.0.lock().expect("no panic while held");
        received
            .traces
            .first()?
            .resource_spans
            .first()?
            .resource
            .clone()
    }

    fn take_traces(&self, request: ExportTraceServiceRequest, headers: HeaderMap) {
        let mut received = self.0.lock().expect("no panic while held");
        received.traces.push(request);
        received.headers.push(headers);
    }

    fn take_metrics(&self, request: ExportMetricsServiceRequest, headers: HeaderMap) {
        let mut received = self.0.lock().expect("no panic while held");
        received.metrics.push(request);
        received.headers.push(headers);
    }
}

/// An attribute as text.
pub(crate) fn attribute(attributes: &[KeyValue], name: &str) -> Option<String> {
    let found = attributes.iter().find(|attribute| attribute.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text.clone()),
        Value::IntValue(number) => Some(number.to_string()),
        other => Some(format!("{other:?}")),
    }
}

async fn bound(at: SocketAddr) -> (Collector, TcpListener, SocketAddr) {
    let listener = TcpListener::bind(at).await.expect("a free port");
    let address = listener
        .local_addr()
        .expect("a bound socket has an address");
    (Collector::default(), listener, address)
}

async fn receive_traces(
    State(collector): State<Collector>,
    headers: HeaderMap,
    body: Bytes,
) -> Bytes {
    let request = ExportTraceServiceRequest::decode(body).expect("protobuf");
    collector.take_traces(request, headers);
    Bytes::new()
}

async fn receive_metrics(
    State(collector): State<Collector>,
    headers: HeaderMap,
    body: Bytes,
) -> Bytes {
    let request = ExportMetricsServiceRequest::decode(body).expect("protobuf");
    collector.take_metrics(request, headers);
    Bytes::new()
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        self.take_traces(request.into_inner(), headers);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Collector {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        self.take_metrics(request.into_inner(), headers);
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}
