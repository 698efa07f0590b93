//! A TCP proxy in front of a Redis of a test, that drops, delays, or stays silent when it is told to.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, UnixStream},
    sync::watch,
    task::JoinHandle,
    time::sleep,
};

/// What the proxy does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Passes everything on to this socket.
    To(PathBuf),
    /// The same, but each answer takes so much longer.
    Late(PathBuf, Duration),
    /// Closes what is open, and whatever comes.
    Drop,
    /// Accepts, reads, and never says a word; also on connections that were fine before, and for ever.
    Silent,
}

/// A running proxy; gone when dropped.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub(crate) at: SocketAddr,
    mode: watch::Sender<Mode>,
    task: JoinHandle<()>,
}

impl Proxy {
    pub(crate) async fn start(to: PathBuf) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .expect("a free port");
        let at = listener.local_addr().expect("bound");
        let (mode, modes) = watch::channel(Mode::To(to));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serve(client, modes.clone()));
            }
        });
        Self { at, mode, task }
    }

    pub(crate) fn turn(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut client: tokio::net::TcpStream, mut modes: watch::Receiver<Mode>) {
    let mode = modes.borrow_and_update().clone();
    let target = match mode {
        Mode::Drop => return,
        Mode::Silent => return swallow(client).await,
        Mode::To(target) | Mode::Late(target, _) => target,
    };
    let Ok(server) = UnixStream::connect(&target).await else {
        return;
    };
    let (mut from_server, mut to_server) = server.into_split();
    let turned = {
        let (mut from_client, mut to_client) = client.split();
        let answers = pump(&mut from_server, &mut to_client, modes.clone());
        let questions = pump(&mut from_client, &mut to_server, modes.clone());
        let changed = async {
            loop {
                if modes.changed().await.is_err() {
                    return std::future::pending().await;
                }
                // A server that is somewhere else now keeps the connections it has, as after a failover.
                let mode = modes.borrow_and_update().clone();
                if matches!(mode, Mode::Drop | Mode::Silent) {
                    return mode;
                }
            }
        };
        tokio::select! {
            () = answers => return,
            () = questions => return,
            mode = changed => mode,
        }
    };
    if turned == Mode::Silent {
        swallow(client).await;
    }
}

async fn pump(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    modes: watch::Receiver<Mode>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let late = match &*modes.borrow() {
            Mode::Late(_, late) => Some(*late / 2),
            _ => None,
        };
        if let Some(late) = late {
            sleep(late).await;
        }
        if to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}

async fn swallow(mut client: tokio::net::TcpStream) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(1..) = client.read(&mut buffer).await {}
}
