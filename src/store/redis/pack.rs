//! The script's arguments. `lua/README.md` states the format.

use std::collections::HashMap;

use crate::{
    algorithm::{MAX, Quota},
    counter::{Atomicity, Counter, Role},
    store::{follow::Follow, group::Charge},
    time::Timestamp,
};

/// How a record is to be decided.
const COUNTED: u8 = 0;
const FREE: u8 = 1;
const TOGETHER: u8 = 2;

/// Bytes of the arguments' parts.
const HEADER: usize = 20;
const QUOTA: usize = 25;
const RECORD: usize = 22;

/// One request, before it goes on the wire.
#[derive(Debug)]
pub(super) struct Packed {
    /// Of each counter, prefix included.
    pub(super) keys: Vec<Box<[u8]>>,
    pub(super) charges: Vec<Charge>,
    pub(super) atomicity: Atomicity,
    /// Who wants to know of the round trip.
    pub(super) follow: Option<Follow>,
}

impl Packed {
    pub(super) fn new(counters: &[Counter], atomicity: Atomicity, prefix: &[u8]) -> Self {
        Self {
            keys: counters
                .iter()
                .map(|counter| [prefix, counter.key.as_bytes()].concat().into_boxed_slice())
                .collect(),
            charges: counters.iter().map(Charge::from).collect(),
            atomicity,
            follow: Follow::current(),
        }
    }
}

/// A script call, and what is needed to read its reply.
pub(super) struct Call<'a> {
    /// The distinct keys: those of sliding logs are the last.
    pub(super) keys: Vec<&'a [u8]>,
    pub(super) arguments: Vec<u8>,
    pub(super) layout: Layout,
}

/// What belongs where in a reply.
#[derive(Debug)]
pub(super) struct Layout {
    /// The place in `keys` of each counter, all requests in one row. One behind the last key where the key is asked
    /// for by counters of different algorithms: that of the first has it, and the others find foreign data.
    pub(super) slots: Vec<usize>,
    /// Of each key, the letter of its algorithm.
    pub(super) letters: Vec<u8>,
}

/// One distinct key, in the order they are met.
struct Slot<'a> {
    key: &'a [u8],
    letter: u8,
    /// The record that more of the same hits can be added to.
    last: Option<usize>,
}

/// What the script decides at once.
struct Record {
    how: u8,
    role: u8,
    slot: usize,
    /// From 0.
    quota: usize,
    /// So many times the same hits, or so many counters of a request that are decided together.
    times: u32,
    hits: i64,
}

impl<'a> Call<'a> {
    pub(super) fn pack(requests: &[&'a Packed], pinned: Option<Timestamp>) -> Self {
        let counters = requests.iter().map(|request| request.keys.len()).sum();
        let mut draft = Draft {
            slots: Vec::with_capacity(counters),
            by_key: HashMap::with_capacity(counters),
            quotas: Vec::new(),
            records: Vec::with_capacity(counters),
            together: 0,
        };
        let mut met: Vec<Option<usize>> = Vec::with_capacity(counters);
        for request in requests {
            let from = met.len();
            for (key, charge) in request.keys.iter().zip(&request.charges) {
                met.push(draft.slot(key, charge));
            }
            draft.add(request, &met[from..]);
        }
        draft.finish(&met, pinned)
    }
}

struct Draft<'a> {
    slots: Vec<Slot<'a>>,
    by_key: HashMap<&'a [u8], usize>,
    quotas: Vec<Quota>,
    records: Vec<Record>,
    /// Requests whose counters are decided together.
    together: usize,
}

impl<'a> Draft<'a> {
    /// The slot of a key, `None` if it is another algorithm's.
    fn slot(&mut self, key: &'a [u8], charge: &Charge) -> Option<usize> {
        let letter = charge.quota.letter();
        let slot = *self.by_key.entry(key).or_insert_with(|| {
            self.slots.push(Slot {
                key,
                letter,
                last: None,
            });
            self.slots.len() - 1
        });
        (self.slots[slot].letter == letter).then_some(slot)
    }

    fn add(&mut self, request: &Packed, slots: &[Option<usize>]) {
        let counters = request.charges.len();
        let together = request.atomicity == Atomicity::AllOrNothing;
        if !together || counters == 1 {
            let how = if together { FREE } else { COUNTED };
            for (charge, slot) in request.charges.iter().zip(slots) {
                if let Some(slot) = *slot {
                    self.alone(how, charge, slot);
                }
            }
            return;
        }
        if slots.contains(&None) {
            // Fails as a whole, and charges nothing.
            return;
        }
        self.together += 1;
        for (charge, slot) in request.charges.iter().zip(slots.iter().flatten()) {
            let quota = self.quota(charge.quota);
            self.slots[*slot].last = None;
            self.records.push(Record {
                how: TOGETHER,
                role: role(charge.role),
                slot: *slot,
                quota,
                times: counters as u32,
                hits: charge.hits,
            });
        }
    }

    /// A counter that is decided on its own. It joins the last record of its key, if that asks for the same: those of
    /// other keys in between may as well be decided before it as after it.
    fn alone(&mut self, how: u8, charge: &Charge, slot: usize) {
        let quota = self.quota(charge.quota);
        if let Some(last) = self.slots[slot].last {
            let record = &mut self.records[last];
            if charge.hits > 0
                && (record.how, record.quota, record.hits) == (how, quota, charge.hits)
            {
                record.times += 1;
                return;
            }
        }
        self.slots[slot].last = Some(self.records.len());
        self.records.push(Record {
            how,
            role: role(charge.role),
            slot,
            quota,
            times: 1,
            hits: charge.hits,
        });
    }

    fn quota(&mut self, quota: Quota) -> usize {
        // The newest first: requests of one rule tend to come together.
        let known = self.quotas.iter().rposition(|known| *known == quota);
        known.unwrap_or_else(|| {
            self.quotas.push(quota);
            self.quotas.len() - 1
        })
    }

    fn finish(self, met: &[Option<usize>], pinned: Option<Timestamp>) -> Call<'a> {
        // Logs are read in another way, and stand last.
        let log = |slot: &Slot| slot.letter == LOG;
        let logs = self.slots.iter().filter(|slot| log(slot)).count();
        let (mut string, mut list) = (0, self.slots.len() - logs);
        let places: Vec<usize> = self
            .slots
            .iter()
            .map(|slot| {
                let next = if log(slot) { &mut list } else { &mut string };
                *next += 1;
                *next - 1
            })
            .collect();
        let mut keys: Vec<&[u8]> = vec![&[]; self.slots.len()];
        let mut letters = vec![0; self.slots.len()];
        for (slot, place) in self.slots.iter().zip(&places) {
            keys[*place] = slot.key;
            letters[*place] = slot.letter;
        }

        let length = HEADER + self.quotas.len() * QUOTA + self.records.len() * RECORD;
        let mut arguments = Vec::with_capacity(length);
        push(
            &mut arguments,
            pinned.map_or(0.0, |now| now.as_micros() as f64),
        );
        push_count(&mut arguments, self.quotas.len());
        push_count(&mut arguments, logs);
        push_count(&mut arguments, self.together);
        for quota in &self.quotas {
            arguments.push(quota.letter());
            for number in numbers(quota) {
                push(&mut arguments, number as f64);
            }
        }
        for record in &self.records {
            arguments.extend_from_slice(&[record.how, record.role]);
            push_count(&mut arguments, places[record.slot] + 1);
            push_count(&mut arguments, record.quota + 1);
            arguments.extend_from_slice(&record.times.to_le_bytes());
            // Beyond 2^53 hits are as good as 2^53: more than any counter grants or holds.
            let bound = MAX as i64 + 1;
            push(&mut arguments, record.hits.clamp(-bound, bound) as f64);
        }
        let slots = met
            .iter()
            .map(|slot| slot.map_or(keys.len(), |slot| places[slot]))
            .collect();
        Call {
            keys,
            arguments,
            layout: Layout { slots, letters },
        }
    }
}

/// Letter of a sliding log.
pub(super) const LOG: u8 = b'l';

fn role(role: Role) -> u8 {
    match role {
        Role::Enforced => 0,
        Role::Quota => 1,
        Role::Shadow => 2,
    }
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

/// A call has no more of anything than it has counters, of which memory has no room for 2^32.
fn push_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend_from_slice(&(count as u32).to_le_bytes());
}
