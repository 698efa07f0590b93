//! A statsd receiver, over TCP or UDP: it keeps the lines it is sent.

use std::{
    io::{BufRead as _, BufReader},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use super::eventually;

/// Lines, in the order they came.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    fn push(&self, line: &str) {
        self.0
            .lock()
            .expect("no panic while held")
            .push(line.to_owned());
    }
}

/// A receiver. It hangs up when dropped.
#[derive(Debug)]
pub(crate) struct Receiver {
    address: SocketAddr,
    lines: Lines,
    /// What a drop of the receiver closes.
    streams: Arc<Mutex<Vec<TcpStream>>>,
    listener: Option<TcpListener>,
}

impl Receiver {
    pub(crate) fn tcp() -> Self {
        Self::tcp_at("127.0.0.1:0".parse().expect("an address"))
    }

    /// Over TCP at this address, such as one that a receiver had before.
    pub(crate) fn tcp_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).expect("a free port");
        let lines = Lines::default();
        let streams = Arc::new(Mutex::new(Vec::new()));
        let address = listener.local_addr().expect("a bound socket has one");
        let accepting = listener.try_clone().expect("a second handle");
        let (kept, open) = (lines.clone(), Arc::clone(&streams));
        thread::spawn(move || {
            // Ends when the drop shuts the socket.
            while let Ok((stream, _)) = accepting.accept() {
                open.lock()
                    .expect("no panic while held")
                    .push(stream.try_clone().expect("a second handle"));
                let kept = kept.clone();
                thread::spawn(move || {
                    for line in BufReader::new(stream).lines().map_while(Result::ok) {
                        kept.push(&line);
                    }
                });
            }
        });
        Self {
            address,
            lines,
            streams,
            listener: Some(listener),
        }
    }

    pub(crate) fn udp() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a timeout");
        let address = socket.local_addr().expect("a bound socket has one");
        let lines = Lines::default();
        let kept = lines.clone();
        thread::spawn(move || {
            let mut datagram = [0; 65_536];
            while let Ok(length) = socket.recv(&mut datagram) {
                assert!(length <= 1_432, "{length} bytes are no packet");
                for line in String::from_utf8_lossy(&datagram[..length]).lines() {
                    kept.push(line);
                }
            }
        });
        Self {
            address,
            lines,
            streams: Arc::default(),
            listener: None,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.0.lock().expect("no panic while held").clone()
    }

    /// Waits for this very line.
    pub(crate) async fn line(&self, wanted: &str) {
        eventually(&format!("{wanted} in {:?}", self.lines()), async || {
            self.lines().iter().any(|line| line == wanted).then_some(())
        })
        .await;
    }

    /// What was added up for a counter so far.
    pub(crate) fn sum(&self, name: &str) -> u64 {
        self.lines()
            .iter()
            .filter_map(|line| {
                let value = line.strip_prefix(name)?.strip_prefix(':')?;
                value.strip_suffix("|c")?.parse::<u64>().ok()
            })
            .sum()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        if let Some(listener) = self.listener.take() {
            let _ = socket2::SockRef::from(&listener).shutdown(std::net::Shutdown::Both);
        }
        for stream in self.streams.lock().expect("no panic while held").drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}
