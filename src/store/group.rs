//! Decides the counters of one request over states held in hand. The memory store's engine; and what gives the answers
//! of `lua/driver.lua`, which has the same steps, but leaves only states behind.

use crate::{
    algorithm::{self, Basis, Outcome, Quota, Refused, State},
    counter::{Atomicity, Counter, Role},
    time::Timestamp,
};

use super::StoreError;

/// What is asked of one counter, whatever its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Charge {
    pub(super) quota: Quota,
    pub(super) hits: i64,
    pub(super) role: Role,
}

impl From<&Counter> for Charge {
    fn from(counter: &Counter) -> Self {
        Self {
            quota: counter.quota,
            hits: counter.hits,
            role: counter.role,
        }
    }
}

/// One key's state while a request is decided.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    pub(super) state: Option<State>,
    /// Microseconds after which a changed state can be forgotten; `None` while it is as it was.
    pub(super) changed: Option<u64>,
    /// The key holds something that is no state.
    foreign: bool,
}

impl Slot {
    pub(super) fn new(state: Option<State>) -> Self {
        Self {
            state,
            ..Self::default()
        }
    }

    pub(super) fn foreign() -> Self {
        Self {
            foreign: true,
            ..Self::default()
        }
    }

    /// Decides one counter on its own.
    fn take(
        &mut self,
        charge: &Charge,
        hits: i64,
        now: Timestamp,
        refused: Refused,
    ) -> Result<Outcome, StoreError> {
        if self.foreign {
            return Err(StoreError::ForeignState);
        }
        let taken = algorithm::take(&mut self.state, &charge.quota, hits, now, refused)
            .map_err(|algorithm::Foreign| StoreError::ForeignState)?;
        self.changed = taken.changed.or(self.changed);
        let state = self.state.as_ref().filter(|_| !taken.outcome.allowed);
        Ok(Outcome {
            basis: state.and_then(|state| Basis::of(state, now)),
            ..taken.outcome
        })
    }

    fn mend(&mut self, charge: &Charge, now: Timestamp) {
        let mended = algorithm::mend(&mut self.state, &charge.quota, now);
        self.changed = mended.or(self.changed);
    }
}

/// Decides `charges` in order, and adds their outcomes to `outcomes`. The state of `charges[i]` is `slots[index[i]]`.
pub(super) fn decide(
    charges: impl Iterator<Item = Charge> + Clone,
    index: &[usize],
    slots: &mut [Slot],
    atomicity: Atomicity,
    now: Timestamp,
    outcomes: &mut Vec<Result<Outcome, StoreError>>,
) {
    match atomicity {
        Atomicity::PerCounter => outcomes.extend(charges.zip(index).map(|(charge, slot)| {
            slots[*slot].mend(&charge, now);
            slots[*slot].take(&charge, charge.hits, now, Refused::Counted)
        })),
        Atomicity::AllOrNothing => all_or_nothing(charges, index, slots, now, outcomes),
    }
}

fn all_or_nothing(
    charges: impl Iterator<Item = Charge> + Clone,
    index: &[usize],
    slots: &mut [Slot],
    now: Timestamp,
    outcomes: &mut Vec<Result<Outcome, StoreError>>,
) {
    let from = outcomes.len();
    if index.iter().any(|slot| slots[*slot].foreign) {
        outcomes.resize(from + index.len(), Err(StoreError::ForeignState));
        return;
    }
    for (charge, slot) in charges.clone().zip(index) {
        slots[*slot].mend(&charge, now);
    }
    let untouched: Vec<Slot> = index.iter().map(|slot| slots[*slot].clone()).collect();
    let restore = |slots: &mut [Slot]| {
        for (slot, untouched) in index.iter().zip(&untouched) {
            slots[*slot].clone_from(untouched);
        }
    };

    outcomes.extend(
        charges
            .clone()
            .zip(index)
            .map(|(charge, slot)| slots[*slot].take(&charge, charge.hits, now, Refused::Free)),
    );
    let first = &mut outcomes[from..];
    if let Some(Err(error)) = first.iter().find(|outcome| outcome.is_err()).cloned() {
        restore(slots);
        first.fill(Err(error));
        return;
    }
    if !held(charges.clone(), first) {
        return;
    }

    restore(slots);
    for ((charge, slot), outcome) in charges.zip(index).zip(first) {
        let slot = &mut slots[*slot];
        if charge.role == Role::Shadow {
            *outcome = slot.take(&charge, charge.hits, now, Refused::Free);
        } else if is_allowed(outcome) {
            *outcome = slot
                .take(&charge, 0, now, Refused::Free)
                .map(|look| Outcome {
                    allowed: true,
                    retry_after: Some(0),
                    basis: None,
                    ..look
                });
        }
    }
}

/// Does a refusal hold the whole request back?
fn held(charges: impl Iterator<Item = Charge>, outcomes: &[Result<Outcome, StoreError>]) -> bool {
    let mut quotas = 0;
    let mut quotas_refused = 0;
    for (charge, outcome) in charges.zip(outcomes) {
        match charge.role {
            Role::Enforced if !is_allowed(outcome) => return true,
            Role::Quota => {
                quotas += 1;
                quotas_refused += usize::from(!is_allowed(outcome));
            }
            Role::Enforced | Role::Shadow => {}
        }
    }
    quotas > 0 && quotas == quotas_refused
}

fn is_allowed(outcome: &Result<Outcome, StoreError>) -> bool {
    outcome.as_ref().is_ok_and(|outcome| outcome.allowed)
}
