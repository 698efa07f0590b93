//! The way to the receiver. It is made when there is something to say, and made anew after it broke.

use std::{
    io::{self, ErrorKind, Write},
    net::{SocketAddr, TcpStream, ToSocketAddrs as _, UdpSocket},
    time::Duration,
};

use super::{Options, Protocol};

/// Longest time to connect, and to hand over one piece. Nobody waits for it but the sender itself.
const TIMEOUT: Duration = Duration::from_secs(1);

/// What goes over an Ethernet in one packet, so that a datagram is lost whole or not at all.
const DATAGRAM: usize = 1_432;

/// A stream's pieces may be larger.
const PIECE: usize = 16 << 10;

#[derive(Debug, Default)]
pub(super) struct Socket(Option<Open>);

#[derive(Debug)]
enum Open {
    Tcp(TcpStream),
    Udp(UdpSocket),
}

impl Socket {
    /// Most bytes of a piece.
    pub(super) const fn piece(options: &Options) -> usize {
        match options.protocol {
            Protocol::Tcp => PIECE,
            Protocol::Udp => DATAGRAM,
        }
    }

    /// Hands a piece over. After an error the next one goes over a new socket.
    pub(super) fn send(&mut self, options: &Options, piece: &[u8]) -> io::Result<()> {
        if self.0.as_ref().is_some_and(|open| !open.is_there()) {
            self.0 = None;
        }
        let open = match &mut self.0 {
            Some(open) => open,
            empty => empty.insert(connect(options)?),
        };
        let sent = match open {
            Open::Tcp(stream) => stream.write_all(piece),
            // The end of the last line is the end of the datagram.
            Open::Udp(socket) => socket
                .send(piece.strip_suffix(b"\n").unwrap_or(piece))
                .map(|_| ()),
        };
        if sent.is_err() {
            self.0 = None;
        }
        sent
    }
}

impl Open {
    /// Whether the other end has not hung up. Receivers say nothing, so that anything to read is the end.
    fn is_there(&self) -> bool {
        let Self::Tcp(stream) = self else {
            return true;
        };
        let looked = stream
            .set_nonblocking(true)
            .and_then(|()| stream.peek(&mut [0]));
        let blocking = stream.set_nonblocking(false);
        let waits = looked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        waits && blocking.is_ok()
    }
}

fn connect(options: &Options) -> io::Result<Open> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the name has no address");
    for address in (options.host.as_str(), options.port).to_socket_addrs()? {
        match connect_to(address, options.protocol) {
            Ok(open) => return Ok(open),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn connect_to(address: SocketAddr, protocol: Protocol) -> io::Result<Open> {
    match protocol {
        Protocol::Tcp => {
            let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
            stream.set_write_timeout(Some(TIMEOUT))?;
            stream.set_nodelay(true)?;
            Ok(Open::Tcp(stream))
        }
        Protocol::Udp => {
            let any: SocketAddr = if address.is_ipv4() {
                ([0, 0, 0, 0], 0).into()
            } else {
                ([0_u16; 8], 0).into()
            };
            let socket = UdpSocket::bind(any)?;
            socket.set_write_timeout(Some(TIMEOUT))?;
            socket.connect(address)?;
            Ok(Open::Udp(socket))
        }
    }
}
