//! The script's arguments. `lua/README.md` states the format.

use crate::{
    algorithm::{MAX, Quota},
    counter::{Atomicity, Counter, Role},
    store::follow::Follow,
    time::Timestamp,
};

/// One request, as it goes on the wire.
#[derive(Debug)]
pub(super) struct Packed {
    pub(super) keys: Vec<Box<[u8]>>,
    records: Vec<u8>,
    /// Who wants to know of the round trip.
    pub(super) follow: Option<Follow>,
}

impl Packed {
    pub(super) fn new(counters: &[Counter], atomicity: Atomicity, prefix: &[u8]) -> Self {
        let mut records = Vec::with_capacity(counters.len() * 36);
        for (place, counter) in counters.iter().enumerate() {
            let role = match counter.role {
                Role::Enforced => 0,
                Role::Quota => 1,
                Role::Shadow => 2,
            };
            let together = u8::from(atomicity == Atomicity::AllOrNothing);
            let opens = u8::from(place == 0);
            records.extend_from_slice(&[counter.quota.letter(), role, together, opens]);
            // Beyond 2^53 hits are as good as 2^53: more than any counter grants or holds.
            let bound = MAX as i64 + 1;
            push(&mut records, counter.hits.clamp(-bound, bound) as f64);
            for number in numbers(&counter.quota) {
                push(&mut records, number as f64);
            }
        }
        let keys = counters
            .iter()
            .map(|counter| [prefix, counter.key.as_bytes()].concat().into_boxed_slice())
            .collect();
        Self {
            keys,
            records,
            follow: Follow::current(),
        }
    }
}

/// The one argument of a script call that decides `requests`.
pub(super) fn arguments(requests: &[&Packed], pinned: Option<Timestamp>) -> Vec<u8> {
    let length = requests
        .iter()
        .map(|request| request.records.len())
        .sum::<usize>();
    let mut arguments = Vec::with_capacity(8 + length);
    push(
        &mut arguments,
        pinned.map_or(0.0, |now| now.as_micros() as f64),
    );
    for request in requests {
        arguments.extend_from_slice(&request.records);
    }
    arguments
}

fn numbers(quota: &Quota) -> [u64; 3] {
    match *quota {
        Quota::FixedWindow { limit, window }
        | Quota::SlidingWindow { limit, window }
        | Quota::SlidingLog { limit, window } => [limit, window, 0],
        Quota::TokenBucket { capacity, rate } => [capacity, rate.tokens(), rate.period()],
        Quota::LeakyBucket { max_delay, rate } => [max_delay, rate.tokens(), rate.period()],
    }
}

fn push(bytes: &mut Vec<u8>, number: f64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}
