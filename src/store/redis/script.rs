//! The one script: how it gets into Redis, and how it is called.

use std::sync::atomic::{AtomicU64, Ordering};

use deadpool_redis::redis::{
    Cmd, ErrorKind, Pipeline, RedisError, Script as Source, ServerErrorKind, Value,
    aio::MultiplexedConnection, from_redis_value,
};
use tokio::sync::Mutex;

use crate::{algorithm::Outcome, store::StoreError, time::Timestamp};

use super::{
    address::{self, Address},
    pack::{Call, Packed},
    reply::outcomes,
};

/// Driver and algorithms as one text. What is used stands before what uses it.
const SOURCE: &str = concat!(
    include_str!("../../../lua/common.lua"),
    include_str!("../../../lua/arguments.lua"),
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
const TRIES: usize = 2;

/// What Redis says to a client too many.
const MAX_CLIENTS: &str = "max number of clients";

/// The script as this process knows it.
pub(super) struct Script {
    hash: String,
    /// Counts loads, so that of many calls that miss the script at once only the first loads it.
    loads: AtomicU64,
    loading: Mutex<()>,
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

impl Bounce {
    fn of(error: &RedisError) -> Self {
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

/// Sends the commands of `open` in one write. `replies[i]` answers `open[i]`.
async fn send(
    connection: &mut MultiplexedConnection,
    open: &[usize],
    groups: &[Group<'_>],
    commands: &[Cmd],
) -> Result<Vec<Result<Vec<u8>, RedisError>>, StoreError> {
    if let [one] = *open
        && !groups[one].asking
    {
        let reply: Result<Vec<u8>, RedisError> = commands[one].query_async(connection).await;
        return match reply {
            Err(error) if error.code().is_none() => Err(store_error(&error)),
            reply => Ok(vec![reply]),
        };
    }
    let mut pipeline = Pipeline::with_capacity(open.len() * 2);
    pipeline.ignore_errors();
    for &index in open {
        if groups[index].asking {
            pipeline.cmd("ASKING").ignore();
        }
        pipeline.add_command(commands[index].clone());
    }
    let replies: Result<Vec<Result<Value, RedisError>>, RedisError> =
        pipeline.query_async(connection).await;
    replies
        .map_err(|error| store_error(&error))?
        .into_iter()
        .map(|reply| {
            Ok(reply.and_then(|reply| from_redis_value::<Vec<u8>>(reply).map_err(Into::into)))
        })
        .collect()
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

    /// Decides `groups` in one round trip, a script call for each. `answers[i]` answers `groups[i]`.
    ///
    /// # Errors
    /// What failed the round trip as a whole: whether it was counted is not known.
    pub(super) async fn call(
        &self,
        connection: &mut MultiplexedConnection,
        groups: &[Group<'_>],
        pinned: Option<Timestamp>,
    ) -> Result<Vec<Answer>, StoreError> {
        let calls: Vec<Call<'_>> = groups
            .iter()
            .map(|group| Call::pack(&group.requests, pinned))
            .collect();
        let commands: Vec<Cmd> = calls.iter().map(|call| self.command(call)).collect();
        let mut answers: Vec<Option<Answer>> = groups.iter().map(|_| None).collect();
        let mut tries = 0;
        loop {
            let seen = self.loads();
            let open: Vec<usize> = (0..groups.len())
                .filter(|index| answers[*index].is_none())
                .collect();
            let replies = send(connection, &open, groups, &commands).await?;
            let mut unknown = false;
            for (index, reply) in open.into_iter().zip(replies) {
                answers[index] = match reply {
                    // Nothing was done, so it may be done again.
                    Err(error) if is_unknown(&error) && tries < TRIES => {
                        unknown = true;
                        None
                    }
                    Err(error) => Some(Err(Bounce::of(&error))),
                    Ok(reply) => Some(outcomes(&calls[index], &reply)),
                };
            }
            if !unknown {
                return Ok(answers.into_iter().flatten().collect());
            }
            self.load(connection, seen).await?;
            tries += 1;
        }
    }

    fn command(&self, call: &Call<'_>) -> Cmd {
        // 20 bytes of framing an argument, and of each key what it is long.
        let length: usize = call.keys.iter().map(|key| key.len() + 20).sum();
        let mut command =
            Cmd::with_capacity(4 + call.keys.len(), 100 + length + call.arguments.len());
        command.arg("EVALSHA").arg(&self.hash).arg(call.keys.len());
        for key in &call.keys {
            command.arg(*key);
        }
        command.arg(&call.arguments[..]);
        command
    }

    /// Puts the script there before the first call asks for it.
    pub(super) async fn put(
        &self,
        connection: &mut MultiplexedConnection,
    ) -> Result<(), StoreError> {
        self.load(connection, self.loads()).await
    }

    /// Loads the script unless somebody has since `seen`.
    async fn load(
        &self,
        connection: &mut MultiplexedConnection,
        seen: u64,
    ) -> Result<(), StoreError> {
        let _one = self.loading.lock().await;
        if self.loads() == seen {
            let mut command = Cmd::new();
            command.arg("SCRIPT").arg("LOAD").arg(SOURCE);
            let loaded: Result<(), RedisError> = command.query_async(connection).await;
            loaded.map_err(|error| store_error(&error))?;
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

fn is_unknown(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}
