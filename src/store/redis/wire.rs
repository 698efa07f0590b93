//! One connection: a socket, what is on its way out, and what has come in. Replies come in the order of the commands,
//! so whoever sends keeps the order; a connection that owes a reply is nobody else's.
//!
//! Polled by its owner's task, without a task or a channel of its own: a round trip is one write and one read.

use std::{
    future::poll_fn,
    io,
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};

use redis::{Cmd, RedisError, Value, parse_redis_value};
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::client::TlsStream;

/// Room for what comes in. A reply that needs more gets it.
const ROOM: usize = 16 << 10;

/// What a connection is made of.
pub(super) enum Socket {
    Tcp(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

/// A connection.
pub(super) struct Wire {
    socket: Socket,
    outgoing: Vec<u8>,
    /// How much of `outgoing` is sent.
    sent: usize,
    incoming: Vec<u8>,
    /// What of `incoming` was read and is not taken yet.
    from: usize,
    to: usize,
    /// Replies that have not been taken yet.
    owed: usize,
}

/// A reply.
pub(super) enum Reply<'w> {
    /// A string of any bytes: what a script answers.
    Bytes(&'w [u8]),
    /// Anything else, errors included.
    Other(Value),
}

impl Wire {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            outgoing: Vec::new(),
            sent: 0,
            incoming: vec![0; ROOM],
            from: 0,
            to: 0,
            owed: 0,
        }
    }

    /// Puts a command behind those that are to be sent.
    pub(super) fn push(&mut self, command: &Cmd) {
        command.write_packed_command(&mut self.outgoing);
        self.owed += 1;
    }

    /// Is there nothing that a next user would have to know of?
    pub(super) const fn is_settled(&self) -> bool {
        self.owed == 0 && self.from == self.to && self.sent == self.outgoing.len()
    }

    /// Whether the server may have closed a settled connection, or said something unasked for. Asks the system, which
    /// knows before the runtime does.
    pub(super) fn is_silent(&mut self) -> bool {
        let mut byte = [MaybeUninit::uninit()];
        let peeked = match &self.socket {
            Socket::Tcp(socket) => SockRef::from(socket).peek(&mut byte),
            Socket::Tls(socket) => SockRef::from(socket.get_ref().0).peek(&mut byte),
            Socket::Unix(socket) => SockRef::from(socket).peek(&mut byte),
        };
        peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends what the socket takes now. The task of `cx` is woken when it takes more.
    pub(super) fn send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut wrote = false;
        while self.sent < self.outgoing.len() {
            match self.socket.poll_write(cx, &self.outgoing[self.sent..]) {
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(bytes)) => self.sent += bytes,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => return Ok(()),
            }
            wrote = true;
        }
        if wrote {
            self.outgoing.clear();
            self.sent = 0;
        }
        // Encryption may hold some of it back.
        match self.socket.poll_flush(cx) {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Ok(()),
        }
    }

    /// Reads what has come. An error when nothing will come any more.
    pub(super) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.from == self.to {
            (self.from, self.to) = (0, 0);
        } else if self.to == self.incoming.len() {
            self.incoming.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
            if self.to * 2 > self.incoming.len() {
                self.incoming.resize(self.incoming.len() * 2, 0);
            }
        }
        let mut room = ReadBuf::new(&mut self.incoming[self.to..]);
        ready!(self.socket.poll_read(cx, &mut room))?;
        let bytes = room.filled().len();
        if bytes == 0 {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed the connection",
            )));
        }
        self.to += bytes;
        Poll::Ready(Ok(()))
    }

    /// The next reply, when all of it was read. An error when it is none, or was not asked for.
    pub(super) fn reply(&mut self) -> Result<Option<Reply<'_>>, RedisError> {
        let unread = &self.incoming[self.from..self.to];
        let Some(length) = length(unread).ok_or_else(garbled)? else {
            return Ok(None);
        };
        self.owed = self.owed.checked_sub(1).ok_or_else(garbled)?;
        let bytes = &self.incoming[self.from..self.from + length.whole];
        self.from += length.whole;
        Ok(Some(match length.text {
            Some(start) => Reply::Bytes(&bytes[start..bytes.len() - 2]),
            None => Reply::Other(parse_redis_value(bytes)?),
        }))
    }

    /// Sends one command on a settled connection and waits for its reply. Whoever stops waiting leaves it unsettled.
    pub(super) async fn query(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        self.push(command);
        loop {
            match self.reply()? {
                Some(Reply::Bytes(bytes)) => return Ok(Value::BulkString(bytes.to_vec())),
                Some(Reply::Other(value)) => return value.extract_error(),
                None => {
                    poll_fn(|cx| {
                        self.send(cx)?;
                        self.poll_read(cx)
                    })
                    .await?;
                }
            }
        }
    }
}

impl Socket {
    fn poll_read(&mut self, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tcp(socket) => Pin::new(socket).poll_read(cx, room),
            Self::Tls(socket) => Pin::new(socket).poll_read(cx, room),
            Self::Unix(socket) => Pin::new(socket).poll_read(cx, room),
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Tcp(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Unix(socket) => Pin::new(socket).poll_write(cx, bytes),
        }
    }

    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Tls(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tcp(_) | Self::Unix(_) => Poll::Ready(Ok(())),
        }
    }
}

/// Where a reply ends, and where its text starts if it is one.
struct Length {
    whole: usize,
    text: Option<usize>,
}

/// The length of the first reply in `bytes`. `Some(None)` when not all of it is there, `None` when it is no reply.
fn length(bytes: &[u8]) -> Option<Option<Length>> {
    let (mut at, mut left, mut text) = (0, 1usize, None);
    while left > 0 {
        left -= 1;
        let Some(line) = bytes[at..].iter().position(|byte| *byte == b'\n') else {
            return Some(None);
        };
        let start = at;
        at += line + 1;
        let number = || -> Option<i64> {
            let digits = bytes[start + 1..at].strip_suffix(b"\r\n")?;
            str::from_utf8(digits).ok()?.parse().ok()
        };
        match bytes[start] {
            b'+' | b'-' | b':' => {}
            b'$' => {
                if let Ok(count) = usize::try_from(number()?) {
                    if start == 0 {
                        text = Some(at);
                    }
                    at = at.checked_add(count)?.checked_add(2)?;
                }
            }
            b'*' => left = left.checked_add(usize::try_from(number()?).unwrap_or(0))?,
            _ => return None,
        }
        if at > bytes.len() {
            return Some(None);
        }
    }
    Some(Some(Length { whole: at, text }))
}

fn garbled() -> RedisError {
    let text = "the server sent what is no reply";
    io::Error::new(io::ErrorKind::InvalidData, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_ends_where_it_ends() {
        for reply in [
            "+OK\r\n",
            "-ERR no\r\n",
            ":12\r\n",
            "$0\r\n\r\n",
            "$4\r\na\r\nb\r\n",
            "$-1\r\n",
            "*-1\r\n",
            "*0\r\n",
            "*3\r\n:1\r\n*2\r\n$1\r\na\r\n$-1\r\n+x\r\n",
        ] {
            let more = format!("{reply}+next\r\n");
            let found = length(more.as_bytes()).expect("a reply").expect("whole");
            assert_eq!(found.whole, reply.len(), "{reply:?}");
            assert_eq!(
                found.text.is_some(),
                reply.starts_with('$') && reply.len() > 5
            );
            for end in 0..reply.len() {
                let part = length(&reply.as_bytes()[..end]).expect("the start of a reply");
                assert!(part.is_none(), "{:?}", &reply[..end]);
            }
        }
        for garbled in [
            "HTTP/1.1 400\r\n",
            "$x\r\n",
            "$9223372036854775807\r\n",
            "\r\n",
        ] {
            assert!(length(garbled.as_bytes()).is_none_or(|found| found.is_none()));
        }
        assert!(length(b"HTTP/1.1 400\r\n").is_none());
        assert!(length(b"$x\r\n").is_none());
    }
}
