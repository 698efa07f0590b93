//! The script's reply, and the outcomes it leads to. `lua/README.md` states the format.
//!
//! The script decides what becomes of the states; the reply holds them as they were before, and the instant. With these
//! the batch is decided once more, here, by the code of the memory store, which gives every answer. Both have to come
//! to the same end: `tests/suite/model.rs` holds the states they leave against each other.

use std::collections::VecDeque;

use crate::{
    algorithm::{MAX, State, debt::Debt, fixed_window, sliding_window},
    store::{
        StoreError,
        group::{self, Slot},
    },
    time::Timestamp,
};

use super::{
    pack::{LOG, Layout, Packed},
    script::{Answer, Bounce},
};

/// In place of a state: the key held nothing.
const NONE: u8 = b'-';
/// The key holds something that is no state of its algorithm.
const FOREIGN: u8 = b'!';

/// The longest list that is a log.
const LONGEST: usize = 10_000;

/// The outcomes of all requests of a call, in one row.
pub(super) fn outcomes<'p>(
    requests: impl IntoIterator<Item = &'p Packed>,
    layout: &Layout,
    reply: &[u8],
) -> Answer {
    let Some((mut slots, now)) = found(layout, reply) else {
        let error = StoreError::Refused("a reply that is none".into());
        return Err(Bounce::Failed(error));
    };
    // Of counters whose key is another's.
    slots.push(Slot::foreign());
    let mut outcomes = Vec::with_capacity(layout.slots.len());
    for request in requests {
        let from = outcomes.len();
        let index = &layout.slots[from..from + request.charges.len()];
        let charges = request.charges.iter().copied();
        group::decide(
            charges,
            index,
            &mut slots,
            request.atomicity,
            now,
            &mut outcomes,
        );
    }
    Ok(outcomes)
}

/// What the script found in each slot, and when.
fn found(layout: &Layout, reply: &[u8]) -> Option<(Vec<Slot>, Timestamp)> {
    let mut slots = Vec::with_capacity(layout.letters.len() + 1);
    let mut rest = reply;
    for letter in &layout.letters {
        let tag = take(&mut rest, 1)?[0];
        slots.push(match tag {
            NONE => Slot::new(None),
            FOREIGN => Slot::foreign(),
            tag if tag == *letter => Slot::new(Some(state(tag, &mut rest)?)),
            // Another algorithm's, and no record asked for it.
            tag => {
                take(&mut rest, if tag == b'f' { 16 } else { 24 })?;
                Slot::foreign()
            }
        });
    }
    let now = Timestamp::from_micros(number(&mut rest)?);
    rest.is_empty().then_some((slots, now))
}

fn state(letter: u8, rest: &mut &[u8]) -> Option<State> {
    if letter == LOG {
        return Some(State::SlidingLog(Box::new(log(rest)?)));
    }
    let (first, second) = (number(rest)?, number(rest)?);
    if letter == b'f' {
        return Some(State::FixedWindow(fixed_window::State {
            start: first,
            count: second,
        }));
    }
    let third = number(rest)?;
    let debt = Debt {
        amount: first,
        at: second,
        period: third,
    };
    match letter {
        b's' => Some(State::SlidingWindow(sliding_window::State {
            start: first,
            count: second,
            previous: third,
        })),
        b't' if third > 0 => Some(State::TokenBucket(debt)),
        b'q' if third > 0 => Some(State::LeakyBucket(debt)),
        _ => None,
    }
}

/// A log of which only some entries were read: those that decide. The others are put at the time of the one before
/// them, which changes nothing, because between two entries that are read none is looked for.
fn log(rest: &mut &[u8]) -> Option<VecDeque<u64>> {
    let length = count(rest)?;
    let entries = count(rest)?;
    if length > LONGEST || entries > length {
        return None;
    }
    let mut read = Vec::with_capacity(entries);
    for _ in 0..entries {
        read.push((number(rest)? as usize, number(rest)?));
    }
    read.sort_unstable();
    let mut log = VecDeque::with_capacity(length);
    let mut newest = 0;
    for (index, at) in read {
        if index >= length {
            return None;
        }
        log.resize(index, newest);
        // Not sorted only where somebody else has written.
        newest = at.max(newest);
        log.push_back(newest);
    }
    log.resize(length, newest);
    Some(log)
}

fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (head, tail) = rest.split_at_checked(length)?;
    *rest = tail;
    Some(head)
}

fn number(rest: &mut &[u8]) -> Option<u64> {
    let number = f64::from_le_bytes(take(rest, 8)?.try_into().ok()?);
    (number >= 0.0 && number <= MAX as f64).then_some(number as u64)
}

fn count(rest: &mut &[u8]) -> Option<usize> {
    let count = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?);
    usize::try_from(count).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        algorithm::Quota,
        counter::{Atomicity, Counter, CounterKey, OnFailure, Role},
        store::redis::pack::{Call, Packed},
    };

    fn numbers() -> impl Strategy<Value = u64> {
        prop_oneof![
            0..20u64,
            0..=MAX,
            Just(MAX),
            1_767_571_199_000_000..1_767_571_201_000_000u64
        ]
    }

    fn quotas() -> impl Strategy<Value = Quota> {
        (
            0..5,
            prop_oneof![0..20u64, 0..=MAX],
            1..100_000_000u64,
            1..100u64,
        )
            .prop_filter_map("a legal quota", |(algorithm, limit, window, other)| {
                match algorithm {
                    0 => Quota::fixed_window(limit, window),
                    1 => Quota::sliding_window(limit, window),
                    2 => Quota::sliding_log(limit % 10_000, window),
                    3 => Quota::token_bucket(limit, window, other),
                    _ => Quota::leaky_bucket(limit, window, window * other),
                }
                .ok()
            })
    }

    fn counter(quota: Quota, hits: i64) -> Counter {
        Counter {
            key: CounterKey::new("d", quota.letter(), 1, []),
            quota,
            hits,
            role: Role::Enforced,
            on_failure: OnFailure::Error,
        }
    }

    fn push(reply: &mut Vec<u8>, number: u64) {
        reply.extend_from_slice(&(number as f64).to_le_bytes());
    }

    proptest! {
        /// Whoever wrote it: a state that the script takes for one ends no lane.
        #[test]
        fn any_state_gets_an_answer(
            quota in quotas(),
            hits in prop_oneof![-3..4i64, Just(i64::MAX), Just(i64::MIN)],
            found in [numbers(), numbers(), numbers()],
            together: bool,
        ) {
            let atomicity = if together { Atomicity::AllOrNothing } else { Atomicity::PerCounter };
            let counters = vec![counter(quota, hits); 3];
            let packed = Packed::new(&counters, atomicity, b"");
            let requests = [&packed];
            let call = Call::pack(&requests, None);
            let [first, second, third] = found;
            let mut reply = vec![quota.letter()];
            match quota.letter() {
                LOG => {
                    let length = third % LONGEST as u64;
                    reply.extend_from_slice(&(length as u32).to_le_bytes());
                    let entries = length.min(2);
                    reply.extend_from_slice(&(entries as u32).to_le_bytes());
                    for (index, at) in [(0, first), (length.max(1) - 1, second)]
                        .into_iter()
                        .take(entries as usize)
                    {
                        push(&mut reply, index);
                        push(&mut reply, at);
                    }
                }
                b'f' => [first, second].into_iter().for_each(|number| push(&mut reply, number)),
                b's' => found.into_iter().for_each(|number| push(&mut reply, number)),
                _ => [first, second, third.max(1)]
                    .into_iter()
                    .for_each(|number| push(&mut reply, number)),
            }
            push(&mut reply, 1_767_571_200_000_000);
            let outcomes = outcomes(requests, &call.layout, &reply).expect("an answer");
            prop_assert_eq!(outcomes.len(), 3);
            prop_assert!(outcomes.iter().all(Result::is_ok));
        }

        #[test]
        fn what_is_no_reply_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let counters = [counter(Quota::fixed_window(1, 1).expect("legal"), 1)];
            let packed = Packed::new(&counters, Atomicity::PerCounter, b"");
            let requests = [&packed];
            let call = Call::pack(&requests, None);
            // Or is one, by chance.
            let _ = outcomes(requests, &call.layout, &bytes);
        }
    }
}
