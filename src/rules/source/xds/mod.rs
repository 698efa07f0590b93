//! Rules from a control plane: a client of the aggregated discovery service, state of the world.
//!
//! The client opens one stream, asks for all resources of our type with a blank version and nonce, and takes every
//! response for the whole configuration. What compiles is handed on and then acknowledged; what does not is refused
//! with the paths of its mistakes, and what was in force stays in force. No response is applied in part.
//!
//! A stream that breaks is opened again after a wait that grows. Nothing of the old stream is told to the new one: a
//! control plane that starts again counts its versions from 1, and would take ours for its own. A control plane that
//! answers a refusal with the very same configuration is refused again, but no faster than it would be reconnected to.
//!
//! Does not decide when the process is ready, and counts nothing but [`Status`].

mod args;
mod backoff;
mod connect;
mod files;
mod resource;
mod status;
mod stream;
mod values;
mod words;

use std::{io, sync::Arc, thread, time::Duration};

use http::HeaderMap;
use tokio::{runtime, sync::Notify};
use tokio_util::sync::CancellationToken;
use tracing::error;

pub use self::{
    args::Args,
    backoff::Backoff,
    connect::{Server, Tls},
    files::FileError,
    status::Status,
    values::{HeadersError, Pairs},
};
use super::Reload;
use crate::rules::compile;

/// How the client works.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the control plane is.
    pub server: Server,
    /// Who we are.
    pub node: Node,
    /// Sent with the call. The values are marked as sensitive.
    pub headers: HeaderMap,
    /// How long to wait between attempts.
    pub backoff: Backoff,
    /// Largest response that is read.
    pub max_message_bytes: usize,
    /// How rules are compiled.
    pub compile: compile::Options,
}

/// Who we are to the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// A control plane may pick the configuration by it.
    pub id: String,
    /// More about us.
    pub metadata: Vec<(String, String)>,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            authority: "localhost:18000".to_owned(),
            tls: None,
            ping: Duration::from_secs(330),
        }
    }
}

/// Follows a control plane, on a thread of its own. Stops when dropped.
#[derive(Debug)]
pub struct Client {
    stop: CancellationToken,
    again: Arc<Notify>,
    status: Arc<Status>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Client {
    /// Starts following. `on_change` is called on the client's thread, once for each change of content; the log has
    /// been told by then, and the control plane has not.
    ///
    /// # Errors
    /// When the server's address is none, or the thread cannot be started.
    pub fn spawn(
        options: Options,
        on_change: impl FnMut(Reload) + Send + 'static,
    ) -> io::Result<Self> {
        let endpoint = options.server.endpoint().ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::InvalidInput,
                "the control plane's address is not host:port",
            )
        })?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (stop, again) = (CancellationToken::new(), Arc::new(Notify::new()));
        let status = Arc::new(Status::default());
        let room = stream::Room::new(
            options,
            endpoint,
            on_change,
            Arc::clone(&status),
            Arc::clone(&again),
        );
        let stopped = stop.clone();
        let thread = thread::Builder::new()
            .name("xds".to_owned())
            .spawn(move || {
                runtime.block_on(stopped.run_until_cancelled(room.run()));
                // A name that is being looked up cannot be told to stop.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            stop,
            again,
            status,
            thread: Some(thread),
        })
    }

    /// Asks the control plane anew, on a new stream and without a wait, such as on SIGHUP. Returns at once.
    pub fn reload(&self) {
        self.again.notify_one();
    }

    /// How it is going.
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("the client of the control plane panicked");
        }
    }
}
