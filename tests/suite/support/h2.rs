//! A gRPC client on one bare connection, that tells a call which was never sent from one that was lost: a proxy sends
//! the former on another connection by itself.

use std::{net::SocketAddr, time::Duration};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use palang::proto::envoy::service::ratelimit::v3::RateLimitRequest;
use prost::Message as _;
use tokio::{net::TcpStream, task::JoinHandle};

/// An open connection.
#[derive(Debug)]
pub(crate) struct Connection {
    at: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
    task: JoinHandle<()>,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// Answered, with this gRPC status.
    Answered(i32),
    /// The connection was closed or closing before anything was sent.
    NeverSent,
    /// Sent, and no answer came.
    Lost(String),
}

impl Connection {
    /// `None` when nobody accepts.
    pub(crate) async fn open(at: SocketAddr) -> Option<Self> {
        let stream = TcpStream::connect(at).await.ok()?;
        stream.set_nodelay(true).ok()?;
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .ok()?;
        let task = tokio::spawn(async move {
            // How it ends shows in the calls.
            let _ = connection.await;
        });
        Some(Self { at, sender, task })
    }

    /// Waits for the end of the connection.
    pub(crate) async fn closed(&mut self) {
        // A task that only drives the connection does not panic.
        let _ = (&mut self.task).await;
    }

    /// One call, with this `grpc-timeout` that the client itself does not keep.
    pub(crate) async fn call(
        &mut self,
        request: &RateLimitRequest,
        timeout: Option<Duration>,
    ) -> Fate {
        let message = request.encode_to_vec();
        let mut body = vec![0];
        body.extend_from_slice(&u32::try_from(message.len()).expect("short").to_be_bytes());
        body.extend_from_slice(&message);
        let mut call = hyper::Request::post(format!(
            "http://{}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit",
            self.at
        ))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
        if let Some(timeout) = timeout {
            call = call.header("grpc-timeout", format!("{}n", timeout.as_nanos()));
        }
        let call = call
            .body(Full::new(Bytes::from(body)))
            .expect("a fine request");
        if self.sender.ready().await.is_err() {
            return Fate::NeverSent;
        }
        let answer = match self.sender.send_request(call).await {
            Ok(answer) => answer,
            // After GOAWAY the library opens no stream any more. One that was open goes on.
            Err(error) if error.is_canceled() || format!("{error:?}").contains("NO_ERROR") => {
                return Fate::NeverSent;
            }
            Err(error) => return Fate::Lost(format!("{error:?}")),
        };
        let (head, body) = answer.into_parts();
        let body = match body.collect().await {
            Ok(body) => body,
            Err(error) => return Fate::Lost(format!("{error:?}")),
        };
        let status = |headers: &hyper::HeaderMap| -> Option<i32> {
            headers.get("grpc-status")?.to_str().ok()?.parse().ok()
        };
        let status = status(&head.headers).or_else(|| body.trailers().and_then(status));
        match status {
            Some(status) => Fate::Answered(status),
            None => Fate::Lost("no status".to_owned()),
        }
    }
}
