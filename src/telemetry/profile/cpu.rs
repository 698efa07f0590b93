//! Where the CPU time goes. The kernel interrupts whichever thread of ours is running, about a hundred times for each
//! second of CPU time, and the thread's stack is noted before it goes on.

use std::{io::Write as _, time::Duration};

use flate2::{Compression, write::GzEncoder};
use rpprof::{ProfilerGuard, ProfilerGuardBuilder, protos::Message as _};
use tokio::{task::spawn_blocking, time::sleep};

use super::{Turn, Unprofiled, scratch};

/// Samples for each second of CPU time. Not a round number, so that what happens at round times is not missed or met each
/// time.
const FREQUENCY: i32 = 99;

/// Samples for so long and returns the profile, gzipped. When the future is dropped, sampling ends.
///
/// # Errors
/// See [`Unprofiled`].
pub async fn cpu(length: Duration) -> Result<Vec<u8>, Unprofiled> {
    let turn = Turn::take()?;
    scratch().await?;
    // It reads the tables of all libraries for the walk through stacks, before the first sample.
    // What runs there goes on when the future is dropped: the turn goes with it, and ends after it.
    let sampling = spawn_blocking(|| {
        let guard = ProfilerGuardBuilder::new().frequency(FREQUENCY).build();
        guard.map(|guard| (guard, turn))
    });
    let sampling = sampling.await??;
    sleep(length).await;
    spawn_blocking(move || finish(sampling)).await?
}

fn finish((guard, _turn): (ProfilerGuard<'static>, Turn)) -> Result<Vec<u8>, Unprofiled> {
    let report = guard.report().build()?;
    drop(guard);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&report.pprof()?.encode_to_vec())?;
    Ok(gzip.finish()?)
}
