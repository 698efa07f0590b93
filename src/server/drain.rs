//! The end of serving, as the ports see it: first no more work, then no more time.

use std::{pin::pin, time::Duration};

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// What comes within this time has no need to look out for the end: nearly everything is there at once.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Time that a half-sent message has to become whole once the process stops.
const GRACE: Duration = Duration::from_millis(300);

/// Both ends. Cloning it gives another handle on the same.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    begun: CancellationToken,
    over: CancellationToken,
}

impl Drain {
    /// From now on connections are asked to go.
    pub fn begin(&self) {
        self.begun.cancel();
    }

    /// From now on what is left is dropped.
    pub fn end(&self) {
        self.begun.cancel();
        self.over.cancel();
    }

    /// Waits for [`Self::begin`].
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// Waits for [`Self::end`].
    pub async fn over(&self) {
        self.over.cancelled().await;
    }

    /// Waits for what a caller is still sending: for `limit` at most, and only shortly once connections are asked to
    /// go. `None` when it did not come.
    pub async fn arrival<F: Future>(&self, limit: Duration, arrival: F) -> Option<F::Output> {
        let mut arrival = pin!(arrival);
        if let Ok(arrived) = timeout(AT_ONCE.min(limit), arrival.as_mut()).await {
            return Some(arrived);
        }
        let ending = async {
            self.begun().await;
            sleep(GRACE).await;
        };
        tokio::select! {
            arrived = timeout(limit, arrival) => arrived.ok(),
            () = ending => None,
        }
    }
}
