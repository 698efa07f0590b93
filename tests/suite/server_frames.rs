//! gRPC's framing of one call, byte by byte: what a client library hides.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot unwrap hides what it found"
)]

use std::convert::Infallible;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;
use tokio::net::TcpStream;

use crate::server_harness::{Server, descriptor, request};

const OK: &str = "0";
const INVALID_ARGUMENT: &str = "3";
const UNIMPLEMENTED: &str = "12";

/// The status of a call whose body comes in these pieces.
async fn status(server: &Server, method: &str, pieces: &[&[u8]]) -> String {
    let stream = TcpStream::connect(server.at.grpc).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    tokio::spawn(connection);
    let frames: Vec<Result<_, Infallible>> = pieces
        .iter()
        .map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece))))
        .collect();
    let call = http::Request::post(format!(
        "http://test/envoy.service.ratelimit.v3.RateLimitService/{method}"
    ))
    .header("content-type", "application/grpc")
    .header("te", "trailers")
    .body(StreamBody::new(stream::iter(frames)))
    .unwrap();
    let (head, body) = sender.send_request(call).await.unwrap().into_parts();
    assert_eq!(head.status, 200, "gRPC's own errors are in grpc-status");
    assert_eq!(head.headers["content-type"], "application/grpc");
    let trailers = body.collect().await.unwrap().trailers().cloned();
    let status = head
        .headers
        .get("grpc-status")
        .or_else(|| trailers.as_ref()?.get("grpc-status"));
    status.unwrap().to_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_call_is_one_whole_message_in_any_pieces() {
    let server = Server::start(&[]);
    let message = request(vec![descriptor("k", "v")]).encode_to_vec();
    let framed = [&[0, 0, 0, 0, message.len() as u8], message.as_slice()].concat();
    let mut compressed = framed.clone();
    compressed[0] = 1;
    let twice = framed.repeat(2);
    let bytes: Vec<&[u8]> = framed.chunks(1).collect();
    for (what, pieces, expected) in [
        ("one piece", &[&framed[..]][..], OK),
        ("each byte alone", &bytes, OK),
        ("nothing", &[], INVALID_ARGUMENT),
        ("no whole prefix", &[&framed[..4]], INVALID_ARGUMENT),
        (
            "cut short",
            &[&framed[..framed.len() - 1]],
            INVALID_ARGUMENT,
        ),
        ("two messages", &[&twice], INVALID_ARGUMENT),
        ("compressed", &[&compressed], UNIMPLEMENTED),
    ] {
        let found = status(&server, "ShouldRateLimit", pieces).await;
        assert_eq!(found, expected, "{what}");
    }
    let unknown = status(&server, "ShouldRateLimits", &[&framed]).await;
    assert_eq!(unknown, UNIMPLEMENTED);
    assert_eq!(server.store.calls(), 2, "what is wrong is charged nowhere");
}
