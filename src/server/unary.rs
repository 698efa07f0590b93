//! One message in, one message out, as gRPC puts them on HTTP/2.
//!
//! tonic serves every call as a stream of messages: two buffers of 8 KiB, and a box around each of four layers. For
//! calls of a hundred bytes that was a fifth of their whole cost. The statuses are tonic's still.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Response, header::CONTENT_TYPE};
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use tonic::Status;

use super::unfinished::Unfinished;

/// Bytes in front of each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// Why a message cannot be read.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// More bytes than the bound.
    TooLarge,
    /// It took too long to arrive.
    TooSlow,
    /// It is one of too many that are not complete.
    Crowded,
    /// It is not one gRPC message of that type; with what the caller is told.
    Malformed(Status),
}

impl Unreadable {
    /// What the caller is told, where `most` bytes are the bound.
    pub(super) fn status(self, most: usize) -> Status {
        match self {
            Self::TooLarge => {
                Status::invalid_argument(format!("message: larger than {most} bytes"))
            }
            Self::TooSlow => Status::cancelled("message: it did not arrive in time"),
            Self::Crowded => Status::resource_exhausted("message: too many are not complete"),
            Self::Malformed(status) => status,
        }
    }
}

/// Reads the one message of a call, of at most `most` bytes; while it is not complete, of at most `together` bytes with
/// all others.
///
/// # Errors
/// [`Unreadable`].
pub(super) async fn read<M>(
    mut body: Incoming,
    most: usize,
    together: usize,
) -> Result<M, Unreadable>
where
    M: prost::Message + Default,
{
    let mut received = Received::default();
    let mut unfinished = Unfinished::default();
    // To the end, also when the message is there already: what is left unread would hold up the connection.
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else {
            // The call was reset, or its connection is gone. Nobody waits for an answer, and it shall not count as one.
            return std::future::pending().await;
        };
        if let Ok(data) = frame.into_data() {
            received.push(data);
        }
        let bytes = received.bytes();
        let announced = length(bytes).unwrap_or(0);
        if announced.max(bytes.len().saturating_sub(PREFIX)) > most {
            return Err(Unreadable::TooLarge);
        }
        if bytes.len() < PREFIX + announced && !unfinished.grow(bytes.len(), together) {
            return Err(Unreadable::Crowded);
        }
    }
    let bytes = received.bytes();
    let Some(length) = length(bytes) else {
        return Err(malformed("no message"));
    };
    if bytes[0] != 0 {
        let status = Status::unimplemented("compressed messages are not supported");
        return Err(Unreadable::Malformed(status));
    }
    let message = &bytes[PREFIX..];
    if message.len() != length {
        return Err(malformed("not one whole message"));
    }
    M::decode(message).map_err(|cause| malformed(&cause.to_string()))
}

/// What has come of a call: nearly always one piece, which is not copied.
#[derive(Debug, Default)]
struct Received {
    first: Bytes,
    /// All pieces, once there are several.
    all: Vec<u8>,
}

impl Received {
    fn push(&mut self, data: Bytes) {
        if self.bytes().is_empty() {
            self.first = data;
            return;
        }
        if self.all.is_empty() {
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&data);
    }

    fn bytes(&self) -> &[u8] {
        if self.all.is_empty() {
            &self.first
        } else {
            &self.all
        }
    }
}

fn malformed(reason: &str) -> Unreadable {
    Unreadable::Malformed(Status::invalid_argument(format!("message: {reason}")))
}

/// The length that the prefix announces.
fn length(read: &[u8]) -> Option<usize> {
    let length = read.get(1..PREFIX)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok()
}

/// The answer that is `message`.
pub(super) fn answer(message: &impl prost::Message) -> Response<Body> {
    let length = message.encoded_len();
    let Ok(announced) = u32::try_from(length) else {
        return Status::internal("the answer is larger than 4 GiB").into_http();
    };
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(announced);
    message
        .encode(&mut bytes)
        .expect("the buffer has the message's length, and grows");
    let mut response = Response::new(Body::Message(bytes.freeze()));
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response
}

/// What a gRPC answer carries.
#[derive(Debug, Default)]
pub(super) enum Body {
    /// Nothing: the headers say it all.
    #[default]
    Empty,
    /// A message with its prefix, and that it went well.
    Message(Bytes),
    /// The message is out.
    Ok,
    /// What tonic serves.
    Tonic(tonic::body::Body),
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if let Self::Tonic(body) = &mut *self {
            return Pin::new(body).poll_frame(context);
        }
        Poll::Ready(match std::mem::take(&mut *self) {
            Self::Message(bytes) => {
                *self = Self::Ok;
                Some(Ok(Frame::data(bytes)))
            }
            Self::Ok => Some(Ok(Frame::trailers(ok()))),
            Self::Empty | Self::Tonic(_) => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Message(_) | Self::Ok => false,
            Self::Tonic(body) => body.is_end_stream(),
        }
    }
}

fn ok() -> HeaderMap {
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(Status::GRPC_STATUS, HeaderValue::from_static("0"));
    trailers
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::envoy::service::ratelimit::v3::RateLimitRequest;

    #[test]
    fn the_prefix_tells_the_length() {
        assert_eq!(length(&[0, 0, 0, 1]), None);
        assert_eq!(length(&[0, 0, 0, 1, 2, 9]), Some(258));
    }

    #[tokio::test]
    async fn an_answer_is_prefix_message_and_status() {
        let message = RateLimitRequest {
            domain: "d".to_owned(),
            ..RateLimitRequest::default()
        };
        let answer = answer(&message);
        assert_eq!(answer.headers()[CONTENT_TYPE], "application/grpc");
        let collected = answer.into_body().collect().await.expect("no error");
        let status = collected.trailers().expect("trailers")[Status::GRPC_STATUS].clone();
        assert_eq!(status, "0");
        assert_eq!(collected.to_bytes().as_ref(), b"\0\0\0\0\x03\x0a\x01d");
    }

    #[test]
    fn pieces_are_joined() {
        let mut received = Received::default();
        for (piece, all) in [("", ""), ("ab", "ab"), ("", "ab"), ("c", "abc")] {
            received.push(Bytes::from_static(piece.as_bytes()));
            assert_eq!(received.bytes(), all.as_bytes());
        }
    }
}
