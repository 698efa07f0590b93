//! Takes counters out of Redis, for an operator who asks. Beside the lanes: it may take long, and waits for nobody.

use std::{sync::Arc, time::Duration};

use redis::{Cmd, FromRedisValue, from_redis_value};
use tokio::time::timeout;

use crate::{
    counter::{Selection, Under},
    store::{StoreError, Trouble},
};

use super::{Servers, Shared, node::Node, pool::Pooled, script::store_error};

/// Keys that Redis looks at in one step of a scan, and most that go in one command: it serves nobody else meanwhile.
const STEP: usize = 1_000;

/// Longest time for one command. An operator has more patience than a call.
const PATIENCE: Duration = Duration::from_secs(1);

/// Forgets the selected counters and says how many there were. Of a cluster each node is asked: who has a key now is
/// not worth knowing for what is done so rarely.
pub(super) async fn forget(shared: &Shared, selection: &Selection) -> Result<u64, StoreError> {
    let cluster = match &shared.servers {
        Servers::One(node) => return Forgetter::at(shared, node).await?.forget(selection).await,
        Servers::Cluster(cluster) => cluster,
    };
    // Waits for the layout, where there is none yet.
    cluster.owner(0).await?;
    let mut forgotten = 0;
    for node in cluster.owners() {
        let mut forgetter = Forgetter::at(shared, &node).await?;
        forgotten += match selection {
            Selection::One(key) => {
                let prefix = cluster.prefix(cluster.partition(key));
                forgetter
                    .unlink(&[[prefix, key.as_bytes()].concat()])
                    .await?
            }
            Selection::Under(_) => forgetter.forget(selection).await?,
        };
    }
    Ok(forgotten)
}

/// A connection to one server.
struct Forgetter<'s> {
    shared: &'s Shared,
    connection: Pooled,
    is_cluster: bool,
}

impl<'s> Forgetter<'s> {
    async fn at(shared: &'s Shared, node: &Arc<Node>) -> Result<Self, StoreError> {
        let (connection, _) = timeout(shared.config.connect_timeout, node.checkout())
            .await
            .map_err(|_| StoreError::Timeout)??;
        Ok(Self {
            shared,
            connection,
            is_cluster: matches!(shared.servers, Servers::Cluster(_)),
        })
    }

    async fn forget(mut self, selection: &Selection) -> Result<u64, StoreError> {
        let prefix = self.shared.config.prefix.as_bytes();
        match selection {
            Selection::One(key) => self.unlink(&[[prefix, key.as_bytes()].concat()]).await,
            Selection::Under(under) => self.scan(prefix, under).await,
        }
    }

    async fn scan(&mut self, prefix: &[u8], under: &Under) -> Result<u64, StoreError> {
        let pattern = pattern(prefix, under);
        let mut cursor: u64 = 0;
        let mut forgotten = 0;
        loop {
            let mut command = Cmd::new();
            command.arg("SCAN").arg(cursor);
            command.arg("MATCH").arg(&*pattern);
            command.arg("COUNT").arg(STEP);
            let (next, mut keys): (u64, Vec<Vec<u8>>) =
                query(&mut self.connection, command).await?;
            keys.retain(|key| {
                let own = key.strip_prefix(prefix);
                own.is_some_and(|key| under.matches(untagged(key)))
            });
            forgotten += self.unlink(&keys).await?;
            if next == 0 {
                return Ok(forgotten);
            }
            cursor = next;
        }
    }

    async fn unlink(&mut self, keys: &[Vec<u8>]) -> Result<u64, StoreError> {
        // Keys of one command have to be in one slot.
        let most = if self.is_cluster { 1 } else { STEP };
        let mut forgotten = 0;
        for keys in keys.chunks(most) {
            let mut command = Cmd::new();
            command.arg("UNLINK").arg(keys);
            forgotten += match query::<u64>(&mut self.connection, command).await {
                // Another node has it.
                Err(error) if Trouble::of(&error).elsewhere && self.is_cluster => 0,
                answer => answer?,
            };
        }
        Ok(forgotten)
    }
}

/// A key without the hash tag that a cluster's keys begin with. A counter's own key has no braces.
fn untagged(key: &[u8]) -> &[u8] {
    let tagged = key.starts_with(b"{");
    let end = key.iter().position(|byte| *byte == b'}').filter(|_| tagged);
    end.map_or(key, |end| &key[end + 1..])
}

async fn query<T: FromRedisValue>(connection: &mut Pooled, command: Cmd) -> Result<T, StoreError> {
    let answer = timeout(PATIENCE, connection.query(&command))
        .await
        .map_err(|_| StoreError::Timeout)?
        .map_err(|error| store_error(&error))?;
    from_redis_value(answer).map_err(|error| store_error(&error.into()))
}

/// A pattern that every key looked for fits. Others may fit it too.
fn pattern(prefix: &[u8], under: &Under) -> Vec<u8> {
    let mut pattern = literal(prefix);
    // The tag of a cluster's key, version, letter, window.
    pattern.extend_from_slice(b"*1?*");
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
        let under = Under::new("d*", [("k", "[a]")]).expect("short");
        assert_eq!(
            String::from_utf8_lossy(&pattern(b"p?:", &under)),
            r"p\?:*1?*|2:d\*|1:k=3:\[a\]*"
        );
    }
}
