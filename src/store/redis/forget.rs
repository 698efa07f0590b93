//! Takes counters out of Redis, for an operator who asks. Beside the lanes: it may take long, and waits for nobody.

use std::time::Duration;

use deadpool_redis::{
    Connection,
    redis::{Cmd, FromRedisValue},
};
use tokio::time::timeout;

use crate::{
    counter::{Selection, Under},
    store::StoreError,
};

use super::{Shared, pool::checkout, script::store_error};

/// Keys that Redis looks at in one step of a scan, and most that go in one command: it serves nobody else meanwhile.
const STEP: usize = 1_000;

/// Longest time for one command. An operator has more patience than a call.
const PATIENCE: Duration = Duration::from_secs(1);

/// Forgets the selected counters and says how many there were.
pub(super) async fn forget(shared: &Shared, selection: &Selection) -> Result<u64, StoreError> {
    let prefix = shared.config.prefix.as_bytes();
    let mut connection = timeout(shared.config.connect_timeout, checkout(&shared.pool))
        .await
        .map_err(|_| StoreError::Timeout)??;
    match selection {
        Selection::One(key) => {
            let key = [prefix, key.as_bytes()].concat();
            unlink(&mut connection, &[key]).await
        }
        Selection::Under(under) => scan(&mut connection, prefix, under).await,
    }
}

async fn scan(
    connection: &mut Connection,
    prefix: &[u8],
    under: &Under,
) -> Result<u64, StoreError> {
    let pattern = pattern(prefix, under);
    let mut cursor: u64 = 0;
    let mut forgotten = 0;
    loop {
        let mut command = Cmd::new();
        command.arg("SCAN").arg(cursor);
        command.arg("MATCH").arg(&*pattern);
        command.arg("COUNT").arg(STEP);
        let (next, mut keys): (u64, Vec<Vec<u8>>) = query(connection, command).await?;
        keys.retain(|key| {
            let own = key.strip_prefix(prefix);
            own.is_some_and(|key| under.matches(key))
        });
        forgotten += unlink(connection, &keys).await?;
        if next == 0 {
            return Ok(forgotten);
        }
        cursor = next;
    }
}

async fn unlink(connection: &mut Connection, keys: &[Vec<u8>]) -> Result<u64, StoreError> {
    let mut forgotten = 0;
    for keys in keys.chunks(STEP) {
        let mut command = Cmd::new();
        command.arg("UNLINK").arg(keys);
        forgotten += query::<u64>(connection, command).await?;
    }
    Ok(forgotten)
}

async fn query<T: FromRedisValue>(
    connection: &mut Connection,
    command: Cmd,
) -> Result<T, StoreError> {
    timeout(PATIENCE, command.query_async(&mut **connection))
        .await
        .map_err(|_| StoreError::Timeout)?
        .map_err(|error| store_error(&error))
}

/// A pattern that every key looked for fits. Others may fit it too.
fn pattern(prefix: &[u8], under: &Under) -> Vec<u8> {
    let mut pattern = literal(prefix);
    // Version, letter, window.
    pattern.extend_from_slice(b"1?*");
    pattern.extend(literal(under.text()));
    pattern.push(b'*');
    pattern
}

/// Text as a pattern that only that text fits.
fn literal(text: &[u8]) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(text.len());
    for byte in text {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\' | b'^') {
            pattern.push(b'\\');
        }
        pattern.push(*byte);
    }
    pattern
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_pattern_is_text() {
        let under = Under::new("d*", [("k", "[a]")]);
        assert_eq!(
            String::from_utf8_lossy(&pattern(b"p?:", &under)),
            r"p\?:1?*|2:d\*|1:k=3:\[a\]*"
        );
    }
}
