//! The end of serving, as the ports see it: first no more work, then no more time.

use tokio_util::sync::CancellationToken;

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
}
