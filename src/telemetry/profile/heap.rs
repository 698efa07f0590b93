//! Who holds memory. The allocator notes the stack of one allocation in each half MiB, while it is asked to.

use std::{sync::Arc, time::Duration};

use jemalloc_pprof::{JemallocProfCtl, PROF_CTL};
use tokio::{sync::OwnedMutexGuard, task::spawn_blocking, time::sleep};

use super::{Turn, Unprofiled, scratch};

/// Samples for so long and returns what was allocated in that time and is still held, as a gzipped profile. A process
/// that samples from its start, by `prof_active:true` in its allocator's settings, goes on doing so, and the profile is
/// of all it holds. When the future is dropped, sampling ends.
///
/// # Errors
/// See [`Unprofiled`].
pub async fn heap(length: Duration) -> Result<Vec<u8>, Unprofiled> {
    let turn = Turn::take()?;
    let control = PROF_CTL.as_ref().ok_or(Unprofiled::NoHeapProfile)?;
    scratch().await?;
    let mut control = Sampling::begin(Arc::clone(control).lock_owned().await, turn)?;
    sleep(length).await;
    spawn_blocking(move || {
        let profile = control.allocator.dump_pprof();
        profile.map_err(|error| Unprofiled::Heap(error.to_string()))
    })
    .await?
}

/// Sampling ends when it is dropped, unless it had begun before.
struct Sampling {
    allocator: OwnedMutexGuard<JemallocProfCtl>,
    is_ours: bool,
    /// Kept until sampling has ended, which may be after the caller has gone.
    _turn: Turn,
}

impl Sampling {
    fn begin(
        mut allocator: OwnedMutexGuard<JemallocProfCtl>,
        turn: Turn,
    ) -> Result<Self, Unprofiled> {
        let is_ours = !allocator.activated();
        if is_ours {
            let begun = allocator.activate();
            begun.map_err(|error| Unprofiled::Heap(error.to_string()))?;
        }
        Ok(Self {
            allocator,
            is_ours,
            _turn: turn,
        })
    }
}

impl Drop for Sampling {
    fn drop(&mut self) {
        if self.is_ours
            && let Err(error) = self.allocator.deactivate()
        {
            tracing::warn!(%error, "the allocator goes on sampling");
        }
    }
}
