//! The one contract every store keeps.

use std::{future::Future, sync::Arc};

use tokio::time::timeout_at;

use crate::{
    algorithm::{MAX, Outcome},
    counter::{Atomicity, Counter, Role, Selection},
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
    ///
    /// The caller is gone after `deadline`: its counters are then answered [`StoreError::Timeout`], and nothing is sent
    /// for them that was not sent yet. A store that stands before another passes the deadline on; one that counts may
    /// leave it to [`in_time`].
    fn take_by(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> impl Future<Output = Vec<Result<Outcome, StoreError>>> + Send;

    /// The same for a caller that waits as long as it takes.
    fn take(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
    ) -> impl Future<Output = Vec<Result<Outcome, StoreError>>> + Send {
        self.take_by(counters, atomicity, Deadline::NEVER)
    }

    /// What [`Store::take`] would answer now, without taking anything: a counter that would admit its hits is answered
    /// as it stands, one that would refuse them with its whole refusal. Never from a memory of refusals.
    ///
    /// It needs nothing of a store that the contract does not give: each counter is taken all or nothing together with
    /// more hits of the same key than any counter grants, so that the request is held back, and charged nothing. The
    /// same key, because that is on the same server, whichever way a store spreads its keys.
    fn peek(
        &self,
        counters: &[Counter],
    ) -> impl Future<Output = Vec<Result<Outcome, StoreError>>> + Send {
        async move {
            let held: Vec<Counter> = counters
                .iter()
                .flat_map(|counter| {
                    [counter.hits, MAX as i64].map(|hits| Counter {
                        hits,
                        role: Role::Enforced,
                        ..counter.clone()
                    })
                })
                .collect();
            let answers = self.take(&held, Atomicity::AllOrNothing).await;
            answers.into_iter().step_by(2).collect()
        }
    }

    /// Forgets what was taken from the selected counters, and says how many there were. For operators: it may take
    /// long, and a call that is decided at the same time may be counted before or after.
    fn forget(
        &self,
        selection: &Selection,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send {
        let _ = selection;
        async { Err(StoreError::Refused("this store forgets nothing".into())) }
    }
}

/// Ends the taking of `amount` counters at the deadline: dropping a call is how a caller goes.
pub async fn in_time(
    deadline: Deadline,
    amount: usize,
    take: impl Future<Output = Vec<Result<Outcome, StoreError>>> + Send,
) -> Vec<Result<Outcome, StoreError>> {
    match deadline.instant() {
        None => take.await,
        Some(at) => timeout_at(at.into(), take)
            .await
            .unwrap_or_else(|_| vec![Err(StoreError::Timeout); amount]),
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
    fn take_by(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> impl Future<Output = Vec<Result<Outcome, StoreError>>> + Send {
        (**self).take_by(counters, atomicity, deadline)
    }

    async fn peek(&self, counters: &[Counter]) -> Vec<Result<Outcome, StoreError>> {
        (**self).peek(counters).await
    }

    async fn forget(&self, selection: &Selection) -> Result<u64, StoreError> {
        (**self).forget(selection).await
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
    /// Every connection that may be made was in use for longer than a call may wait for one.
    #[error("no connection to the store was free")]
    NoConnection,
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
