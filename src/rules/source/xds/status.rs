//! How the stream of configuration is doing, for metrics and pages: written by the client, read by whoever likes.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use arc_swap::ArcSwapOption;

use crate::time::Timestamp;

/// What is known of the control plane. Each figure is read by itself; two of them may be a moment apart.
#[derive(Debug, Default)]
pub struct Status {
    connected: AtomicBool,
    updated: AtomicU64,
    version: ArcSwapOption<String>,
    accepted: AtomicU64,
    rejected: AtomicU64,
    streams: AtomicU64,
}

impl Status {
    /// Whether there is a stream to the control plane.
    pub fn connected(&self) -> bool {
        self.connected.load(Ordering::Relaxed)
    }

    /// When a configuration was last accepted, the same content again included; `None` before the first.
    pub fn updated(&self) -> Option<Timestamp> {
        match self.updated.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(Timestamp::from_micros(micros)),
        }
    }

    /// The control plane's name for what is in force; `None` before the first.
    pub fn version(&self) -> Option<Arc<String>> {
        self.version.load_full()
    }

    /// Configurations accepted, the same content again included.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Configurations refused, the same content again included.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Streams opened since the start; each but the first is a reconnect.
    pub fn streams(&self) -> u64 {
        self.streams.load(Ordering::Relaxed)
    }

    /// Whether this changes anything.
    pub(super) fn set_connected(&self, connected: bool) -> bool {
        let changed = self.connected.swap(connected, Ordering::Relaxed) != connected;
        if changed && connected {
            self.streams.fetch_add(1, Ordering::Relaxed);
        }
        changed
    }

    pub(super) fn accept(&self, version: &str, now: Timestamp) {
        self.version.store(Some(Arc::new(version.to_owned())));
        self.updated.store(now.as_micros(), Ordering::Relaxed);
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn reject(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }
}
