//! A small HTTP client, and a backend that says yes.

use std::{collections::BTreeMap, net::SocketAddr};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, body::Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Names in lower case; several values of one name joined with a comma.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

/// GET.
pub(crate) async fn get(
    at: SocketAddr,
    path: &str,
    headers: &[(&str, &str)],
) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    send(at, "GET", path, headers, Bytes::new()).await
}

/// Any method, over a connection of its own.
pub(crate) async fn send(
    at: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let stream = TcpStream::connect(at).await?;
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("host", at.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let response = sender.send_request(request.body(Full::new(body))?).await?;
    let answer = collect(response).await?;
    drop(sender);
    connection.abort();
    Ok(answer)
}

async fn collect(
    response: hyper::Response<Incoming>,
) -> Result<Answer, Box<dyn std::error::Error + Send + Sync>> {
    let status = response.status().as_u16();
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in response.headers() {
        let value = value.to_str()?;
        headers
            .entry(name.to_string())
            .and_modify(|all| {
                all.push_str(", ");
                all.push_str(value);
            })
            .or_insert_with(|| value.to_owned());
    }
    let body = response.into_body().collect().await?.to_bytes();
    Ok(Answer {
        status,
        headers,
        body: String::from_utf8(body.to_vec())?,
    })
}

/// A server that answers 200 to everything; it lives as long as the test's runtime.
pub(crate) async fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener
        .local_addr()
        .expect("a bound socket has an address");
    let app = axum::Router::new().fallback(async || "yes");
    tokio::spawn(async move { axum::serve(listener, app).await });
    address
}
