//! Two stores: one for the limits of seconds, one for all others. The first has many short-lived counters, and is the
//! one whose loss hurts least.

use std::time::Duration;

use super::{Store, StoreError, apart};
use crate::{
    algorithm::Outcome,
    counter::{Atomicity, Counter, Selection},
    time::{Deadline, SECOND},
};

/// Windows shorter than this are limits of seconds. By the window, as the key is, and not by the word in the rule: 60
/// seconds and 1 minute are one counter.
const MINUTE: u64 = 60 * SECOND;

/// A store in front of two.
#[derive(Clone, Debug)]
pub struct PerSecond<S> {
    seconds: S,
    others: S,
    timeout: Duration,
}

impl<S: Store> PerSecond<S> {
    /// Counters of windows under a minute in `seconds`, all others in `others`. No store takes longer than `timeout`.
    pub const fn new(seconds: S, others: S, timeout: Duration) -> Self {
        Self {
            seconds,
            others,
            timeout,
        }
    }

    async fn ask(
        &self,
        seconds: bool,
        counters: Vec<Counter>,
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> Vec<Result<Outcome, StoreError>> {
        let lane = if seconds { &self.seconds } else { &self.others };
        lane.take_by(&counters, atomicity, deadline).await
    }
}

impl<S: Store + Clone + 'static> Store for PerSecond<S> {
    async fn take_by(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> Vec<Result<Outcome, StoreError>> {
        let is_seconds = |counter: &Counter| counter.key.window() < MINUTE;
        let parts = apart::parts(counters, is_seconds);
        let within = self.timeout;
        let ask = move |stores: Self| {
            move |seconds: &bool, own: Vec<Counter>, how| {
                let (stores, seconds) = (stores.clone(), *seconds);
                // What takes a charge back has its own time, whatever the caller has left.
                let deadline = match how {
                    Atomicity::PerCounter if atomicity == Atomicity::AllOrNothing => {
                        Deadline::NEVER
                    }
                    Atomicity::PerCounter | Atomicity::AllOrNothing => deadline,
                };
                async move { stores.ask(seconds, own, how, deadline).await }
            }
        };
        match &parts[..] {
            [] => Vec::new(),
            [(true, _)] => self.seconds.take_by(counters, atomicity, deadline).await,
            [(false, _)] => self.others.take_by(counters, atomicity, deadline).await,
            _ if atomicity == Atomicity::PerCounter => {
                apart::each(counters, &parts, atomicity, ask(self.clone())).await
            }
            _ => {
                // In a task, so that a caller that goes away does not leave a charge that was to be undone.
                let (stores, counters) = (self.clone(), counters.to_vec());
                let amount = counters.len();
                let task = tokio::spawn(async move {
                    apart::all_or_nothing(&counters, &parts, within, ask(stores)).await
                });
                task.await.unwrap_or_else(|_| {
                    vec![Err(StoreError::Unavailable("the lane has ended".into())); amount]
                })
            }
        }
    }

    async fn forget(&self, selection: &Selection) -> Result<u64, StoreError> {
        let seconds = self.seconds.forget(selection).await?;
        Ok(seconds + self.others.forget(selection).await?)
    }
}
