//! A connection of either kind: over TCP or a Unix socket.

use std::{
    io::{self, IoSlice},
    net,
    os::unix,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};

/// An accepted connection, watched by the runtime it was accepted on.
#[derive(Debug)]
pub enum Socket {
    /// Over TCP.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

/// A connection on its way from one runtime to another.
#[derive(Debug)]
pub(super) enum Moving {
    Tcp(net::TcpStream),
    Unix(unix::net::UnixStream),
}

impl Socket {
    /// Takes it off this runtime.
    pub(super) fn leave(self) -> io::Result<Moving> {
        Ok(match self {
            Self::Tcp(stream) => {
                // Small answers must not wait for more to send. A socket that refuses is already broken.
                let _ = stream.set_nodelay(true);
                Moving::Tcp(stream.into_std()?)
            }
            Self::Unix(stream) => Moving::Unix(stream.into_std()?),
        })
    }

    /// Waits until there is something to read.
    pub(super) async fn readable(&self) -> io::Result<()> {
        match self {
            // A socket that was accepted on this runtime passes for readable until somebody has looked.
            Self::Tcp(stream) => stream.peek(&mut [0]).await.map(drop),
            Self::Unix(stream) => stream.readable().await,
        }
    }
}

impl Moving {
    /// Puts it on this runtime.
    pub(super) fn arrive(self) -> io::Result<Socket> {
        Ok(match self {
            Self::Tcp(stream) => Socket::Tcp(TcpStream::from_std(stream)?),
            Self::Unix(stream) => Socket::Unix(UnixStream::from_std(stream)?),
        })
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Self::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Self::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Self::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Self::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
