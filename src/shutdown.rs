//! From signals to one wish to stop. Does not stop anything itself: whoever works listens, and finishes.

use std::{
    io, process,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    signal::unix::{SignalKind, signal},
    sync::Notify,
};
use tokio_util::sync::CancellationToken;

/// The wish to stop. Cloning it gives another handle on the same.
#[derive(Clone, Debug, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    /// Asks everybody to finish.
    pub fn begin(&self) {
        self.0.cancel();
    }

    /// Waits until somebody asked.
    pub async fn begun(&self) {
        self.0.cancelled().await;
    }
}

/// Told by SIGHUP: rules and certificates are to be read again.
#[derive(Clone, Debug, Default)]
pub struct Reload(Arc<Notify>);

impl Reload {
    /// Asks for it.
    pub fn ask(&self) {
        self.0.notify_one();
    }

    /// Waits until somebody asked. Asking several times in between counts once.
    pub async fn asked(&self) {
        self.0.notified().await;
    }
}

/// The same signal twice this close together is one wish: a supervisor that signals the process, and its group as well.
const TOGETHER: Duration = Duration::from_millis(200);

/// Turns the process' signals into `shutdown` (SIGTERM, SIGINT) and `reload` (SIGHUP). A second SIGTERM or SIGINT ends
/// the process at once, with the exit code shells give it.
///
/// # Errors
/// When the system does not let us listen.
pub fn on_signals(shutdown: Shutdown, reload: Reload) -> io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        let mut asked: Option<(Instant, &str)> = None;
        loop {
            let (name, code) = tokio::select! {
                _ = terminate.recv() => ("SIGTERM", 128 + 15),
                _ = interrupt.recv() => ("SIGINT", 128 + 2),
                _ = hangup.recv() => {
                    tracing::info!(signal = "SIGHUP", "reading rules and certificates again");
                    reload.ask();
                    continue;
                }
            };
            match asked {
                Some((at, same)) if same == name && at.elapsed() < TOGETHER => continue,
                Some(_) => {
                    tracing::warn!(signal = name, "ending at once");
                    process::exit(code);
                }
                None => asked = Some((Instant::now(), name)),
            }
            tracing::info!(signal = name, "stopping");
            shutdown.begin();
        }
    })
}
