//! The way to the receiver: a sink of cadence's, its own over UDP, and one of ours over TCP, which it has none for. It is
//! made when there is something to say, and made anew after it broke.

use std::{
    fmt,
    io::{self, ErrorKind, Write as _},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket},
    time::Duration,
};

use cadence::{MetricSink, UdpMetricSink};

use super::{Options, Protocol};

/// Longest time to connect, and to hand over one piece. Nobody waits for it but the sender itself.
const TIMEOUT: Duration = Duration::from_secs(1);

/// What goes over an Ethernet in one packet, so that a datagram is lost whole or not at all.
const DATAGRAM: usize = 1_432;

/// A stream's pieces may be larger.
const PIECE: usize = 16 << 10;

#[derive(Default)]
pub(super) struct Socket(Option<Box<dyn MetricSink + Send>>);

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let open = self.0.is_some();
        f.debug_struct("Socket").field("open", &open).finish()
    }
}

impl Socket {
    /// Most bytes of a piece.
    pub(super) const fn piece(options: &Options) -> usize {
        match options.protocol {
            Protocol::Tcp => PIECE,
            Protocol::Udp => DATAGRAM,
        }
    }

    /// Hands over a piece: lines, without the end of the last. After an error the next one goes over a new socket.
    pub(super) fn send(&mut self, options: &Options, piece: &str) -> io::Result<()> {
        let sink = match self.0.take() {
            Some(sink) => sink,
            None => connect(options)?,
        };
        let sink = match sink.emit(piece) {
            // It hung up at some time before. Nothing of this piece was sent.
            Err(error) if error.kind() == ErrorKind::NotConnected => {
                let sink = connect(options)?;
                sink.emit(piece)?;
                sink
            }
            Err(error) => return Err(error),
            Ok(_) => sink,
        };
        self.0 = Some(sink);
        Ok(())
    }
}

/// Lines over one stream.
struct TcpMetricSink(TcpStream);

impl MetricSink for TcpMetricSink {
    /// As all of them does it take no end of the last line; the stream has one there.
    fn emit(&self, lines: &str) -> io::Result<usize> {
        if !self.is_there() {
            return Err(ErrorKind::NotConnected.into());
        }
        let bytes = [lines.as_bytes(), b"\n"].concat();
        (&self.0).write_all(&bytes)?;
        Ok(bytes.len())
    }
}

impl TcpMetricSink {
    /// Whether the other end has not hung up. Receivers say nothing, so that anything to read is the end.
    fn is_there(&self) -> bool {
        let looked = self
            .0
            .set_nonblocking(true)
            .and_then(|()| self.0.peek(&mut [0]));
        let blocking = self.0.set_nonblocking(false);
        let waits = looked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        waits && blocking.is_ok()
    }
}

fn connect(options: &Options) -> io::Result<Box<dyn MetricSink + Send>> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in (options.host.as_str(), options.port).to_socket_addrs()? {
        match connect_to(address, options.protocol) {
            Ok(sink) => return Ok(sink),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_to(address: SocketAddr, protocol: Protocol) -> io::Result<Box<dyn MetricSink + Send>> {
    match protocol {
        Protocol::Tcp => {
            let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            stream.set_nodelay(true)?;
            Ok(Box::new(TcpMetricSink(stream)))
        }
        Protocol::Udp => {
            let any: SocketAddr = if address.is_ipv4() {
                ([0, 0, 0, 0], 0).into()
            } else {
                ([0_u16; 8], 0).into()
            };
            let socket = UdpSocket::bind(any)?;
            socket.set_write_timeout(Some(TIMEOUT))?;
            // So that it is told when nobody is there.
            socket.connect(address)?;
            let sink = UdpMetricSink::from(address, socket).map_err(io::Error::other)?;
            Ok(Box::new(sink))
        }
    }
}
