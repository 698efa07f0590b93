//! One connection to the service, below tonic's channel: a load generator that costs more than the service it asks
//! measures itself.

use std::{
    cell::RefCell,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use anyhow::Context as _;
use hyper::{body::Incoming, client::conn::http2::SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{net::TcpStream, sync::Mutex, time::timeout};
use tonic::{body::Body, transport::Channel};
use tower::Service;

use crate::{
    cli::client::{self, Tls},
    proto::envoy::service::ratelimit::v3::{
        RateLimitRequest, RateLimitResponse, rate_limit_service_client::RateLimitServiceClient,
    },
};

/// Pause after a connection that could not be made.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection that is made anew when the service ends it.
#[derive(Debug)]
pub(super) enum Connection {
    /// HTTP/2 over TCP.
    Plain(Plain),
    /// What else there is: TLS, and Unix sockets.
    Other { channel: Channel, timeout: Duration },
}

#[derive(Debug)]
pub(super) struct Plain {
    address: String,
    origin: http::Uri,
    timeout: Duration,
    sender: RefCell<SendRequest<Body>>,
    /// Of all calls that find it closed, one connects.
    connecting: Mutex<()>,
}

impl Connection {
    /// Connects to `address`, `host:port` or a URL.
    pub(super) async fn open(address: &str, timeout: Duration, tls: &Tls) -> anyhow::Result<Self> {
        let plain = address.strip_prefix("http://").unwrap_or(address);
        if plain.contains("://") || tls.is_asked_for() {
            let channel = client::connect(address, timeout, tls).await?;
            return Ok(Self::Other { channel, timeout });
        }
        Ok(Self::Plain(Plain {
            sender: RefCell::new(connect(plain, timeout).await?),
            address: plain.to_owned(),
            origin: format!("http://{plain}")
                .parse()
                .with_context(|| format!("{address} is no address: expected host:port"))?,
            timeout,
            connecting: Mutex::new(()),
        }))
    }

    /// Asks.
    ///
    /// # Errors
    /// Why there is no answer, in few words: equal reasons are counted together.
    pub(super) async fn ask(&self, request: RateLimitRequest) -> Result<RateLimitResponse, String> {
        let (answer, patience) = match self {
            Self::Plain(plain) => {
                let sender = Sender(plain.sender().await?);
                let mut client = RateLimitServiceClient::with_origin(sender, plain.origin.clone());
                let asked = client.should_rate_limit(request);
                (timeout(plain.timeout, asked).await, plain.timeout)
            }
            Self::Other {
                channel,
                timeout: patience,
            } => {
                let mut client = RateLimitServiceClient::new(channel.clone());
                let asked = client.should_rate_limit(request);
                (timeout(*patience, asked).await, *patience)
            }
        };
        match answer {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(format!("{:?}: {}", status.code(), status.message())),
            Err(_) => Err(format!("no answer within {patience:?}")),
        }
    }
}

impl Plain {
    async fn sender(&self) -> Result<SendRequest<Body>, String> {
        if self.sender.borrow().is_closed() {
            let _one = self.connecting.lock().await;
            if self.sender.borrow().is_closed() {
                match connect(&self.address, self.timeout).await {
                    Ok(sender) => *self.sender.borrow_mut() = sender,
                    Err(cause) => {
                        tokio::time::sleep(PAUSE).await;
                        return Err(format!("{cause:#}"));
                    }
                }
            }
        }
        Ok(self.sender.borrow().clone())
    }
}

async fn connect(address: &str, patience: Duration) -> anyhow::Result<SendRequest<Body>> {
    let stream = timeout(patience, TcpStream::connect(address))
        .await
        .map_err(anyhow::Error::from)
        .and_then(|stream| Ok(stream?))
        .with_context(|| format!("cannot reach {address}"))?;
    stream.set_nodelay(true)?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    // Ends with the last sender, or when the service closes; the callers see why.
    tokio::spawn(connection);
    Ok(sender)
}

/// What tonic's client sends through.
#[derive(Clone, Debug)]
struct Sender(SendRequest<Body>);

impl Service<http::Request<Body>> for Sender {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}
