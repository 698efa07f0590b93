//! Profiles of the running process, in the format of pprof: where its CPU time goes, and who holds its memory. Nothing
//! is sampled unless one is being taken, and one is taken at a time: what samples the CPU interrupts threads, and must
//! not meet what walks their stacks for the heap.

mod cpu;
mod heap;

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use tokio::task::{JoinError, spawn_blocking};

pub use cpu::cpu;
pub use heap::heap;

/// Why there is no profile.
#[derive(Debug, thiserror::Error)]
pub enum Unprofiled {
    /// Another one is being taken.
    #[error("a profile is being taken: one at a time")]
    Busy,
    /// Samples need a file to overflow into, and the heap is written to one.
    #[error("no directory for temporary files can be written ({0}): set TMPDIR to one that can")]
    NoScratch(io::Error),
    /// The CPU cannot be sampled.
    #[error("the CPU cannot be sampled: {0}")]
    Cpu(#[from] rpprof::Error),
    /// The allocator was started without it.
    #[error(
        "the allocator of this process cannot sample: it was built or started without prof:true"
    )]
    NoHeapProfile,
    /// The allocator refuses.
    #[error("the heap cannot be sampled: {0}")]
    Heap(String),
    /// The profile was taken and cannot be written.
    #[error("the profile cannot be written: {0}")]
    Unwritten(#[from] io::Error),
    /// What put it together ended before its time.
    #[error("the profile was not put together: {0}")]
    Lost(#[from] JoinError),
}

static TAKEN: AtomicBool = AtomicBool::new(false);

/// The right to take a profile, given back when dropped.
#[derive(Debug)]
struct Turn;

impl Turn {
    fn take() -> Result<Self, Unprofiled> {
        if TAKEN.swap(true, Ordering::AcqRel) {
            return Err(Unprofiled::Busy);
        }
        Ok(Self)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        TAKEN.store(false, Ordering::Release);
    }
}

/// Memory as a file, where a container's own file system is read-only.
const MEMORY: &str = "/dev/shm";

/// Makes sure that temporary files can be made.
async fn scratch() -> Result<(), Unprofiled> {
    let found = spawn_blocking(|| {
        let Err(error) = tempfile::tempfile() else {
            return Ok(());
        };
        tempfile::tempfile_in(MEMORY).map_err(|_| error)?;
        // Somebody else may have chosen already, and then it is no choice of ours.
        let _ = tempfile::env::override_temp_dir(Path::new(MEMORY));
        tempfile::tempfile().map(drop)
    });
    found.await?.map_err(Unprofiled::NoScratch)
}
