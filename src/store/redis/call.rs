//! One round trip: the requests of a batch, as script calls on one connection, and each caller's own answer.

use redis::Cmd;
use tokio::{sync::oneshot, time::Instant};

use crate::store::{StoreError, Trouble, follow::Trip};

use super::{
    Shared,
    pack::{self, Layout, Packed},
    reply::outcomes,
    script::{Answer, Bounce, Group, TRIES, is_unknown},
    tally::Present,
    wire::{Reply, Wire},
};

/// One request's counters of one group.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) packed: Packed,
    /// Pieces of the same group have their keys in one slot, and go in one script call.
    pub(super) group: u16,
    pub(super) company: Company,
}

/// What may go with a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Company {
    /// Others of its group.
    Group,
    /// Nothing: its slot is being moved, and others' keys may be elsewhere.
    Alone,
    /// Nothing, and the node is told that it is asked for a slot that is on its way to it.
    Asking,
}

/// What a caller wants of a line.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) piece: Piece,
    pub(super) reply: oneshot::Sender<Answer>,
}

impl Request {
    /// Is the caller gone?
    pub(super) fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    pub(super) fn keys(&self) -> usize {
        self.piece.packed.keys.len()
    }

    pub(super) fn fail(self, error: &StoreError) {
        // A caller that is gone needs no error.
        let _ = self.reply.send(Err(Bounce::Failed(error.clone())));
    }
}

/// Requests that were sent together, and what has come back.
pub(super) struct Call {
    requests: Vec<Request>,
    /// The group of each request.
    order: Vec<usize>,
    sent: Vec<Sent>,
    /// The answer to ASKING has come.
    asked: bool,
    /// Of each group that was answered; `None` where Redis did not know the script.
    answers: Vec<Option<Answer>>,
    /// When it has taken too long.
    pub(super) deadline: Instant,
    /// How often the script had been put there when this was sent, and how often this was sent.
    pub(super) loads: u64,
    tries: usize,
    trip: Option<Trip>,
    present: Option<Present>,
}

/// A script call of one group.
struct Sent {
    /// ASKING goes before it. Its own OK comes back first.
    asking: bool,
    layout: Layout,
}

/// What a call that is over leaves.
#[derive(Default)]
pub(super) struct Left {
    /// Those that Redis did not decide, as it did not know the script.
    pub(super) again: Vec<Request>,
    /// An error that says something of the server.
    pub(super) failure: Option<StoreError>,
}

impl Call {
    /// Puts the requests on the wire, in as few script calls as may be.
    pub(super) fn start(
        shared: &Shared,
        script: &super::script::Script,
        wire: &mut Wire,
        requests: Vec<Request>,
        tries: usize,
    ) -> Self {
        let (order, groups) = grouped(&requests);
        let pinned = shared.config.clock.pinned();
        let mut sent = Vec::with_capacity(groups.len());
        for group in groups {
            if group.asking {
                let mut asking = Cmd::new();
                asking.arg("ASKING");
                wire.push(&asking);
            }
            let call = pack::Call::pack(&group.requests, pinned);
            wire.push(&script.command(&call));
            sent.push(Sent {
                asking: group.asking,
                layout: call.layout,
            });
        }
        let followed = requests.iter().map(|request| {
            let packed = &request.piece.packed;
            (packed.follow.as_ref(), packed.keys.len())
        });
        Self {
            trip: Trip::begin("EVALSHA", followed),
            present: Some(shared.tally.call(requests.len() as u64)),
            requests,
            order,
            answers: Vec::with_capacity(sent.len()),
            sent,
            asked: false,
            deadline: Instant::now() + shared.config.timeout,
            loads: script.loads(),
            tries,
        }
    }

    pub(super) const fn tries(&self) -> usize {
        self.tries
    }

    /// Takes the next reply. True when it was the last.
    pub(super) fn take(&mut self, reply: Reply<'_>) -> bool {
        let place = self.answers.len();
        if self.sent[place].asking && !self.asked {
            // What it says shows in the reply to the call.
            self.asked = true;
            return false;
        }
        self.asked = false;
        let answer = match reply {
            Reply::Bytes(bytes) => {
                let own = self.requests.iter().zip(&self.order);
                let packed = own
                    .filter(|(_, group)| **group == place)
                    .map(|(request, _)| &request.piece.packed);
                Some(outcomes(packed, &self.sent[place].layout, bytes))
            }
            Reply::Other(value) => match value.extract_error() {
                // Nothing was done, so it may be done again.
                Err(error) if is_unknown(&error) && self.tries < TRIES => None,
                Err(error) => Some(Err(Bounce::of(&error))),
                // Whoever says that is no Redis, or answers something else.
                Ok(_) => Some(Err(Bounce::Failed(StoreError::Unavailable(
                    "a reply of another type".into(),
                )))),
            },
        };
        self.answers.push(answer);
        self.answers.len() == self.sent.len()
    }

    /// Answers the callers. Those whose reply never came are told `error`.
    pub(super) fn finish(mut self, shared: &Shared, error: Option<&StoreError>) -> Left {
        drop(self.present.take());
        let mut left = Left {
            failure: error.cloned(),
            ..Left::default()
        };
        if let Some(error) = error {
            self.answers
                .resize_with(self.sent.len(), || Some(Err(Bounce::Failed(error.clone()))));
        }
        for answer in self.answers.iter().flatten() {
            if let Err(Bounce::Failed(error)) = answer
                && left.failure.is_none()
                && Trouble::of(error).reconnect
            {
                left.failure = Some(error.clone());
            }
        }
        if let Some(trip) = self.trip.take() {
            trip.end(error);
        }
        // Each group's outcomes lie in the order its requests have: they are handed out from the back.
        for (request, group) in self.requests.into_iter().zip(self.order).rev() {
            let own = match &mut self.answers[group] {
                Some(Ok(outcomes)) => Ok(outcomes.split_off(outcomes.len() - request.keys())),
                Some(Err(bounce)) => Err(bounce.clone()),
                None => {
                    left.again.push(request);
                    continue;
                }
            };
            // A caller that is gone has no use for its answer.
            if request.reply.send(own).is_err() {
                shared.tally.late();
            }
        }
        left.again.reverse();
        left
    }
}

/// The group of each request, and the groups.
fn grouped(requests: &[Request]) -> (Vec<usize>, Vec<Group<'_>>) {
    let mut groups: Vec<(Option<u16>, Group<'_>)> = Vec::new();
    let mut order = Vec::with_capacity(requests.len());
    for Request { piece, .. } in requests {
        let shared = (piece.company == Company::Group).then_some(piece.group);
        let known = shared.and_then(|_| groups.iter().position(|(group, _)| *group == shared));
        let index = known.unwrap_or_else(|| {
            let group = Group {
                requests: Vec::new(),
                asking: piece.company == Company::Asking,
            };
            groups.push((shared, group));
            groups.len() - 1
        });
        groups[index].1.requests.push(&piece.packed);
        order.push(index);
    }
    (order, groups.into_iter().map(|(_, group)| group).collect())
}

pub(super) fn gone() -> StoreError {
    StoreError::Unavailable("the lane has ended".into())
}
