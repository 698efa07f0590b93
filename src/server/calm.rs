//! The stream of a connection that can be told to calm down: it then reads nothing more, and its last words are a GOAWAY
//! that says why. The libraries send one only for floods that they find themselves.

use std::{
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::flood::Flood;

/// A GOAWAY frame (RFC 9113, 6.8): any stream may have been looked at, and the reason is ENHANCE_YOUR_CALM.
const GOAWAY: [u8; 17] = [
    0, 0, 8, 7, 0, 0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0x0b,
];

/// A stream that ends when its connection was flooded.
#[derive(Debug)]
pub(super) struct Calm<T: AsyncWrite + Unpin> {
    stream: T,
    flood: Arc<Flood>,
    /// Bytes of the last words that are out.
    said: usize,
}

impl<T: AsyncWrite + Unpin> Calm<T> {
    /// `stream`, until `flood` was seen.
    pub(super) const fn new(stream: T, flood: Arc<Flood>) -> Self {
        Self {
            stream,
            flood,
            said: 0,
        }
    }

    /// Says what is left to say to who floods.
    fn say(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.flood.is_seen() && self.said < GOAWAY.len() {
            let rest = &GOAWAY[self.said..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.said += written,
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// An end within a frame is an error to the library, which then shuts nothing down.
impl<T: AsyncWrite + Unpin> Drop for Calm<T> {
    fn drop(&mut self) {
        // As far as it can be said without waiting for somebody who floods.
        let _ = self.say(&mut Context::from_waker(Waker::noop()));
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for Calm<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.flood.is_seen() {
            // The end, to whoever reads.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Calm<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// Whole frames are out by now.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.say(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
