//! The one contract every store keeps.

use std::{future::Future, sync::Arc};

use tokio::time::timeout_at;

use crate::{
    algorithm::Outcome,
    counter::{Atomicity, Counter},
    time::Deadline,
};

/// Where counters live.
///
/// A store knows no rule and no wire, and owns its clock: all counters of a call are decided at one instant of it.
pub trait Store: Send + Sync {
    /// Decides and charges the counters of one request, in order. `outcomes[i]` answers `counters[i]`.
    ///
    /// Each counter is decided atomically. Two counters with the same key are decided one after the other. With
    /// [`Atomicity::AllOrNothing`] either every counter is charged or none; a counter that would have been allowed
    /// in a request that was held back is answered as a peek, allowed. Errors are per counter: the failure of one
    /// touches only itself, except that an all-or-nothing request with a failed counter charges none and fails whole.
    fn take(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
    ) -> impl Future<Output = Vec<Result<Outcome, StoreError>>> + Send;

    /// The same, for a caller that is gone after `deadline`: its counters are then answered [`StoreError::Timeout`],
    /// and nothing is sent for them that was not sent yet. A store that stands before another passes the deadline on.
    fn take_by(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> impl Future<Output = Vec<Result<Outcome, StoreError>>> + Send {
        async move {
            let Some(at) = deadline.instant() else {
                return self.take(counters, atomicity).await;
            };
            // Dropping a call is how a caller goes.
            timeout_at(at.into(), self.take(counters, atomicity))
                .await
                .unwrap_or_else(|_| vec![Err(StoreError::Timeout); counters.len()])
        }
    }
}

impl StoreError {
    /// For the log: with the store's own words, which may name an address, and never a password.
    pub fn cause(&self) -> String {
        match self {
            Self::Unavailable(cause) => format!("{self}: {cause}"),
            _ => self.to_string(),
        }
    }
}

impl<S: Store> Store for Arc<S> {
    fn take(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
    ) -> impl Future<Output = Vec<Result<Outcome, StoreError>>> + Send {
        (**self).take(counters, atomicity)
    }

    fn take_by(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> impl Future<Output = Vec<Result<Outcome, StoreError>>> + Send {
        (**self).take_by(counters, atomicity, deadline)
    }
}

/// Why a store could not decide a counter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// No answer within the time a call may take. The hits may or may not have been counted.
    #[error("the store did not answer in time")]
    Timeout,
    /// No connection, or it broke. The text is for the log, never for the caller: it may name an address.
    #[error("the store is unavailable")]
    Unavailable(Arc<str>),
    /// The store answered with an error; its first word (`READONLY`, `OOM`, ...).
    #[error("the store refused the call: {0}")]
    Refused(Arc<str>),
    /// The counter's key holds something that is not a state of its algorithm.
    #[error("the counter holds foreign data")]
    ForeignState,
    /// The store is at its bound (keys in memory, calls in a queue).
    #[error("the store is full")]
    Full,
    /// The store failed just now, and is left alone for a while.
    #[error("the store is not asked, it failed just now")]
    Open,
    /// So many calls wait for the store already that one more would only wait too.
    #[error("too many calls wait for the store")]
    Overloaded,
}
