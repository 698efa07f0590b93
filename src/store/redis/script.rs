//! The one script: its arguments, its reply, and how it gets into Redis. `lua/README.md` states the format.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, ErrorKind, RedisError, Script as Source, ServerErrorKind};
use tokio::sync::Mutex;

use crate::{
    algorithm::{self, Basis, MAX, Outcome, Quota},
    counter::{Atomicity, Counter, Role},
    store::{StoreError, follow::Follow},
    time::Timestamp,
};

use super::{
    address::{self, Address},
    wire::Wire,
};

/// Driver and algorithms as one text. What is used stands before what uses it.
const SOURCE: &str = concat!(
    include_str!("../../../lua/common.lua"),
    include_str!("../../../lua/fixed_window.lua"),
    include_str!("../../../lua/sliding_window.lua"),
    include_str!("../../../lua/sliding_log.lua"),
    include_str!("../../../lua/debt.lua"),
    include_str!("../../../lua/token_bucket.lua"),
    include_str!("../../../lua/leaky_bucket.lua"),
    include_str!("../../../lua/driver.lua"),
);

/// How often a call is tried again when Redis does not know the script. The second time is for a flush or a failover
/// between the load and the call.
pub(super) const TRIES: usize = 2;

/// What Redis says to a client too many.
const MAX_CLIENTS: &str = "max number of clients";

/// Bytes of one counter in the reply.
const REPLY: usize = 1 + 6 * 8;

/// What follows them where a refusal says what it is based on.
const BASIS: usize = 4 * 8;
const BASED: u8 = 3;

/// The script as this process knows it.
pub(super) struct Script {
    hash: String,
    /// Counts loads, so that of many calls that miss the script at once only the first loads it.
    loads: AtomicU64,
    loading: Mutex<()>,
}

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

/// Requests that one script call decides: all their keys are in one slot.
pub(super) struct Group<'a> {
    pub(super) requests: Vec<&'a Packed>,
    /// The slot is on its way to this node, which has to be told that we know.
    pub(super) asking: bool,
}

/// The outcomes of all requests of a group in one row.
pub(super) type Answer = Result<Vec<Result<Outcome, StoreError>>, Bounce>;

/// Why a script call was not run. Nothing was counted, unless the error says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bounce {
    /// The slot lives at another node.
    Moved(Address),
    /// The slot is on its way to another node, and these keys may be there.
    Ask(Address),
    /// The slot is on its way to another node, and these keys are some here, some there.
    TryAgain,
    /// Anything else.
    Failed(StoreError),
}

impl Group<'_> {
    fn counters(&self) -> usize {
        self.requests.iter().map(|request| request.keys.len()).sum()
    }

    pub(super) fn outcomes(&self, reply: &[u8]) -> Answer {
        let mut outcomes = Vec::with_capacity(self.counters());
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
        if !rest.is_empty() || outcomes.len() != self.counters() {
            let error = StoreError::Refused("a reply of another length".into());
            return Err(Bounce::Failed(error));
        }
        Ok(outcomes)
    }
}

impl Bounce {
    pub(super) fn of(error: &RedisError) -> Self {
        let target = error
            .redirect_node()
            .and_then(|(target, _)| address::told(target));
        match (error.kind(), target) {
            (ErrorKind::Server(ServerErrorKind::Moved), Some(target)) => Self::Moved(target),
            (ErrorKind::Server(ServerErrorKind::Ask), Some(target)) => Self::Ask(target),
            (ErrorKind::Server(ServerErrorKind::TryAgain), _) => Self::TryAgain,
            _ => Self::Failed(store_error(error)),
        }
    }

    /// What a caller that knows no other node is told.
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Moved(_) => StoreError::Refused("MOVED".into()),
            Self::Ask(_) => StoreError::Refused("ASK".into()),
            Self::TryAgain => StoreError::Refused("TRYAGAIN".into()),
            Self::Failed(error) => error,
        }
    }
}

impl Script {
    pub(super) fn new() -> Self {
        Self {
            hash: Source::new(SOURCE).get_hash().to_owned(),
            loads: AtomicU64::new(0),
            loading: Mutex::new(()),
        }
    }

    /// How often this process has put the script into Redis.
    pub(super) fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    /// The script call that decides a group.
    pub(super) fn command(&self, group: &Group<'_>, pinned: Option<Timestamp>) -> Cmd {
        let counters = group.counters();
        let mut arguments = Vec::with_capacity(8 + counters * 36);
        push(
            &mut arguments,
            pinned.map_or(0.0, |now| now.as_micros() as f64),
        );
        let mut command = Cmd::with_capacity(4 + counters, 128 + counters * 120);
        command.arg("EVALSHA").arg(&self.hash).arg(counters);
        for request in &group.requests {
            for key in &request.keys {
                command.arg(&**key);
            }
            arguments.extend_from_slice(&request.records);
        }
        command.arg(arguments);
        command
    }

    /// Puts the script there before the first call asks for it.
    pub(super) async fn put(&self, wire: &mut Wire) -> Result<(), RedisError> {
        self.load(wire, self.loads()).await
    }

    /// Loads the script unless somebody has since `seen`.
    pub(super) async fn load(&self, wire: &mut Wire, seen: u64) -> Result<(), RedisError> {
        let _one = self.loading.lock().await;
        if self.loads() == seen {
            let mut command = Cmd::new();
            command.arg("SCRIPT").arg("LOAD").arg(SOURCE);
            wire.query(&command).await?;
            self.loads.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// What a failed command means to a caller of the store.
pub(super) fn store_error(error: &RedisError) -> StoreError {
    if error.is_timeout() {
        return StoreError::Timeout;
    }
    // The library keeps Redis's word for that to itself.
    if error.kind() == ErrorKind::AuthenticationFailed {
        return StoreError::Refused("WRONGPASS".into());
    }
    match error.code() {
        // One of the few that Redis gives no word of its own.
        Some("ERR")
            if error
                .detail()
                .is_some_and(|text| text.contains(MAX_CLIENTS)) =>
        {
            StoreError::Refused("MAXCLIENTS".into())
        }
        Some(code) => StoreError::Refused(code.into()),
        None => StoreError::Unavailable(error.to_string().into()),
    }
}

pub(super) fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
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

fn push(bytes: &mut Vec<u8>, number: f64) {
    bytes.extend_from_slice(&number.to_le_bytes());
}
