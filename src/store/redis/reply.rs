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
    pack::{Call, LOG},
    script::{Answer, Bounce},
};

/// In place of a state: the key held nothing.
const NONE: u8 = b'-';
/// The key holds something that is no state of its algorithm.
const FOREIGN: u8 = b'!';

/// The longest list that is a log.
const LONGEST: usize = 10_000;

/// The outcomes of all requests of `call`, in one row.
pub(super) fn outcomes(call: &Call<'_>, reply: &[u8]) -> Answer {
    let Some((mut slots, now)) = found(call, reply) else {
        let error = StoreError::Refused("a reply that is none".into());
        return Err(Bounce::Failed(error));
    };
    // Of counters whose key is another's.
    slots.push(Slot::foreign());
    let mut outcomes = Vec::with_capacity(call.slots.len());
    for request in call.requests {
        let from = outcomes.len();
        let index = &call.slots[from..from + request.charges.len()];
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
fn found(call: &Call<'_>, reply: &[u8]) -> Option<(Vec<Slot>, Timestamp)> {
    let mut slots = Vec::with_capacity(call.letters.len() + 1);
    let mut rest = reply;
    for letter in &call.letters {
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
        b't' => Some(State::TokenBucket(debt)),
        b'q' => Some(State::LeakyBucket(debt)),
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
