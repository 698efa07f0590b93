//! The one script: how it gets into Redis, and how it is called.

use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, ErrorKind, RedisError, Script as Source, ServerErrorKind};
use tokio::sync::Mutex;

use crate::{algorithm::Outcome, store::StoreError};

use super::{
    address::{self, Address},
    pack::{Call, Packed},
    wire::Wire,
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
pub(super) const TRIES: usize = 2;

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
    pub(super) fn command(&self, call: &Call<'_>) -> Cmd {
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
