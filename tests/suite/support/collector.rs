//! A collector of traces, over gRPC and over HTTP.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use axum::{Router, extract::State, routing::post};
use bytes::Bytes;
use opentelemetry_proto::tonic::{
    collector::trace::v1::{
        ExportTraceServiceRequest, ExportTraceServiceResponse,
        trace_service_server::{TraceService, TraceServiceServer},
    },
    common::v1::{KeyValue, any_value::Value},
    trace::v1::Span,
};
use prost::Message as _;
use tokio::net::TcpListener;
use tonic::{Request, Response, Status, transport::server::TcpIncoming};

/// A collector; it lives as long as the test's runtime.
#[derive(Clone, Debug, Default)]
pub(crate) struct Collector(Arc<Mutex<Vec<ExportTraceServiceRequest>>>);

impl Collector {
    pub(crate) async fn grpc() -> (Self, SocketAddr) {
        let (collector, listener, address) = bound(([127, 0, 0, 1], 0).into()).await;
        let service = TraceServiceServer::new(collector.clone());
        let server = tonic::transport::Server::builder().add_service(service);
        tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));
        (collector, address)
    }

    pub(crate) async fn http() -> (Self, SocketAddr) {
        Self::http_at(([127, 0, 0, 1], 0).into()).await
    }

    /// The same at this address.
    pub(crate) async fn http_at(at: SocketAddr) -> (Self, SocketAddr) {
        let (collector, listener, address) = bound(at).await;
        let app = Router::new()
            .route("/v1/traces", post(receive))
            .with_state(collector.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (collector, address)
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let received = self.0.lock().expect("no panic while held");
        received
            .iter()
            .flat_map(|request| &request.resource_spans)
            .flat_map(|resource| &resource.scope_spans)
            .flat_map(|scope| scope.spans.clone())
            .collect()
    }

    /// An attribute of who sent.
    pub(crate) fn resource(&self, name: &str) -> Option<String> {
        let received = self.0.lock().expect("no panic while held");
        let resource = received.first()?.resource_spans.first()?.resource.clone()?;
        attribute(&resource.attributes, name)
    }

    fn take(&self, request: ExportTraceServiceRequest) {
        self.0.lock().expect("no panic while held").push(request);
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

async fn receive(State(collector): State<Collector>, body: Bytes) -> Bytes {
    collector.take(ExportTraceServiceRequest::decode(body).expect("protobuf"));
    Bytes::new()
}

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        self.take(request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
