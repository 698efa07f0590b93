//! Decides the counters of one request over states held in hand. The memory store's engine, and the reference for
//! `lua/driver.lua`, which has the same steps.

use crate::{
    algorithm::{self, Basis, Outcome, Refused, State},
    counter::{Atomicity, Counter, Role},
    time::Timestamp,
};

use super::StoreError;

/// One key's state while a request is decided.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    pub(super) state: Option<State>,
    /// Microseconds after which a changed state can be forgotten; `None` while it is as it was.
    pub(super) changed: Option<u64>,
}

impl Slot {
    pub(super) fn new(state: Option<State>) -> Self {
        Self {
            state,
            changed: None,
        }
    }

    /// Decides one counter on its own.
    fn take(
        &mut self,
        counter: &Counter,
        hits: i64,
        now: Timestamp,
        refused: Refused,
    ) -> Result<Outcome, StoreError> {
        let taken = algorithm::take(&mut self.state, &counter.quota, hits, now, refused)
            .map_err(|algorithm::Foreign| StoreError::ForeignState)?;
        self.changed = taken.changed.or(self.changed);
        let state = self.state.as_ref().filter(|_| !taken.outcome.allowed);
        Ok(Outcome {
            basis: state.and_then(|state| Basis::of(state, now)),
            ..taken.outcome
        })
    }

    fn mend(&mut self, counter: &Counter, now: Timestamp) {
        let mended = algorithm::mend(&mut self.state, &counter.quota, now);
        self.changed = mended.or(self.changed);
    }
}

/// Decides `counters` in order; the state of `counters[i]` is `slots[index[i]]`.
pub(super) fn decide(
    counters: &[Counter],
    index: &[usize],
    slots: &mut [Slot],
    atomicity: Atomicity,
    now: Timestamp,
) -> Vec<Result<Outcome, StoreError>> {
    match atomicity {
        Atomicity::PerCounter => counters
            .iter()
            .zip(index)
            .map(|(counter, slot)| {
                slots[*slot].mend(counter, now);
                slots[*slot].take(counter, counter.hits, now, Refused::Counted)
            })
            .collect(),
        Atomicity::AllOrNothing => all_or_nothing(counters, index, slots, now),
    }
}

fn all_or_nothing(
    counters: &[Counter],
    index: &[usize],
    slots: &mut [Slot],
    now: Timestamp,
) -> Vec<Result<Outcome, StoreError>> {
    for (counter, slot) in counters.iter().zip(index) {
        slots[*slot].mend(counter, now);
    }
    let untouched = slots.to_vec();

    let first: Result<Vec<Outcome>, StoreError> = counters
        .iter()
        .zip(index)
        .map(|(counter, slot)| slots[*slot].take(counter, counter.hits, now, Refused::Free))
        .collect();
    let first = match first {
        Ok(first) => first,
        Err(error) => {
            slots.clone_from_slice(&untouched);
            return vec![Err(error); counters.len()];
        }
    };
    if !held(counters, &first) {
        return first.into_iter().map(Ok).collect();
    }

    slots.clone_from_slice(&untouched);
    counters
        .iter()
        .zip(index)
        .zip(first)
        .map(|((counter, slot), first)| {
            let slot = &mut slots[*slot];
            if counter.role == Role::Shadow {
                slot.take(counter, counter.hits, now, Refused::Free)
            } else if first.allowed {
                let look = slot.take(counter, 0, now, Refused::Free)?;
                Ok(Outcome {
                    allowed: true,
                    retry_after: Some(0),
                    basis: None,
                    ..look
                })
            } else {
                Ok(first)
            }
        })
        .collect()
}

/// Does a refusal hold the whole request back?
fn held(counters: &[Counter], outcomes: &[Outcome]) -> bool {
    let mut quotas = 0;
    let mut quotas_refused = 0;
    for (counter, outcome) in counters.iter().zip(outcomes) {
        match counter.role {
            Role::Enforced if !outcome.allowed => return true,
            Role::Quota => {
                quotas += 1;
                quotas_refused += usize::from(!outcome.allowed);
            }
            Role::Enforced | Role::Shadow => {}
        }
    }
    quotas > 0 && quotas == quotas_refused
}
