//! Messages that have come in part hold memory for somebody who may never send the rest. All of the process together get
//! so much for it, and no more: a bound for each message alone is none where a connection has thousands of calls.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of all messages that are not complete.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// The part of [`HELD`] that is one message's, until it is dropped.
#[derive(Debug, Default)]
pub(super) struct Unfinished(usize);

impl Unfinished {
    /// The message has `bytes` bytes by now, and goes on. False: that is more than `most` bytes of all such messages.
    pub(super) fn grow(&mut self, bytes: usize, most: usize) -> bool {
        let more = bytes.saturating_sub(self.0);
        self.0 += more;
        HELD.fetch_add(more, Ordering::Relaxed) + more <= most
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0, Ordering::Relaxed);
    }
}
