//! The script's reply. `lua/README.md` states the format.

use crate::{
    algorithm::{self, Basis, Outcome},
    store::StoreError,
    time::Timestamp,
};

/// Bytes of one counter in the reply.
const REPLY: usize = 1 + 6 * 8;

/// What follows them where a refusal says what it is based on.
const BASIS: usize = 4 * 8;
const BASED: u8 = 3;

/// The outcomes of `counters` counters, in order.
///
/// # Errors
/// A reply that is none to so many.
pub(super) fn outcomes(
    reply: &[u8],
    counters: usize,
) -> Result<Vec<Result<Outcome, StoreError>>, StoreError> {
    let mut outcomes = Vec::with_capacity(counters);
    let mut rest = reply;
    while let Some(&status) = rest.first() {
        let length = if status == BASED {
            REPLY + BASIS
        } else {
            REPLY
        };
        let Some((record, after)) = rest.split_at_checked(length) else {
            break;
        };
        outcomes.push(outcome(record));
        rest = after;
    }
    if !rest.is_empty() || outcomes.len() != counters {
        return Err(StoreError::Refused("a reply of another length".into()));
    }
    Ok(outcomes)
}

fn outcome(record: &[u8]) -> Result<Outcome, StoreError> {
    let number = |place: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&record[1 + place * 8..9 + place * 8]);
        f64::from_le_bytes(bytes)
    };
    let some = |number: f64| (number >= 0.0).then_some(number as u64);
    match record[0] {
        status @ (0 | 1 | BASED) => Ok(Outcome {
            allowed: status == 1,
            remaining: number(0) as u64,
            reset_after: number(1) as u64,
            retry_after: some(number(2)),
            next_after: some(number(3)),
            delay: number(4) as u64,
            used: number(5) as u64,
            source: algorithm::Source::Counter,
            basis: (status == BASED).then(|| Basis {
                at: Timestamp::from_micros(number(9) as u64),
                numbers: [number(6) as u64, number(7) as u64, number(8) as u64],
            }),
        }),
        _ => Err(StoreError::ForeignState),
    }
}
