//! A cluster's layout: which partition a key belongs to, and which node has it now.
//!
//! A script may only touch one slot, and the keys of a batch would rarely share one. So every key carries a hash tag,
//! one of a settable number of partitions: keys of a partition share a slot and go in one script call, and the calls
//! for one node go in one round trip. The tags are chosen so that the partitions lie evenly over the slots, whatever
//! node those belong to. What a client sends cannot choose a slot: it is behind the tag, and has no braces.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use redis::{Cmd, Value, from_redis_value};
use tokio::{sync::watch, task::JoinHandle};

use super::{
    address::{Address, Site},
    config::{Config, ConfigError},
    node::{Node, Whereabouts},
    pool::Access,
    script::store_error,
};
use crate::{counter::CounterKey, store::StoreError};

/// Slots of a cluster.
const SLOTS: usize = 16_384;

/// Least time between two questions for the layout.
const PAUSE: Duration = Duration::from_secs(1);

/// Longest time one node may take to tell the layout: the next one is asked then.
const PATIENCE: Duration = Duration::from_millis(500);

/// A cluster as all lanes of a process see it.
pub(super) struct Cluster {
    access: Access,
    seeds: Vec<Address>,
    tag_entry: Option<Box<str>>,
    tags: Box<[Tag]>,
    nodes: Mutex<HashMap<Address, Arc<Node>>>,
    layout: watch::Sender<Layout>,
    refresh: Mutex<Refresh>,
    refreshes: AtomicU64,
}

#[derive(Default)]
struct Refresh {
    last: Option<Instant>,
    task: Option<JoinHandle<()>>,
}

struct Tag {
    slot: u16,
    /// The key prefix of the process, and the tag.
    prefix: Box<[u8]>,
}

/// Which node has each partition.
#[derive(Clone, Default)]
pub(super) struct Layout {
    /// Empty before the first answer.
    owners: Arc<[Option<Arc<Node>>]>,
    /// Why the last question was not answered.
    error: Option<StoreError>,
    /// How often it was asked, or changed.
    pub(super) round: u64,
}

impl Cluster {
    pub(super) fn new(config: &Config, seeds: &[Site]) -> Result<Self, ConfigError> {
        let first = seeds
            .first()
            .ok_or(ConfigError::List("a cluster needs at least one node"))?;
        let tags = tags(usize::from(config.partitions))
            .into_iter()
            .map(|(number, slot)| Tag {
                slot,
                prefix: format!("{}{{{number}}}", config.prefix).into_bytes().into(),
            })
            .collect();
        Ok(Self {
            access: Access::to_data(config, first)?,
            seeds: seeds.iter().map(|seed| seed.address.clone()).collect(),
            tag_entry: config.tag_entry.as_deref().map(Box::from),
            tags,
            nodes: Mutex::default(),
            layout: watch::Sender::new(Layout::default()),
            refresh: Mutex::default(),
            refreshes: AtomicU64::new(0),
        })
    }

    /// The partition of a key: by the named entry where it has one, else by all of it.
    pub(super) fn partition(&self, key: &CounterKey) -> u16 {
        let crc = match self.tag_entry.as_deref().and_then(|name| key.entry(name)) {
            Some((domain, value)) => crc16(crc16(0, domain), value),
            None => crc16(0, key.as_bytes()),
        };
        let slot = usize::from(crc) % SLOTS;
        (slot * self.tags.len() / SLOTS) as u16
    }

    /// What goes in front of the keys of a partition.
    pub(super) fn prefix(&self, partition: u16) -> &[u8] {
        &self.tags[usize::from(partition)].prefix
    }

    /// The node that has a partition, and the round of the layout that says so. Waits for the first layout.
    pub(super) async fn owner(
        self: &Arc<Self>,
        partition: u16,
    ) -> Result<(Arc<Node>, u64), StoreError> {
        let mut layouts = self.layout.subscribe();
        loop {
            let (owner, error, round) = {
                let layout = layouts.borrow_and_update();
                let owner = layout.owners.get(usize::from(partition)).cloned().flatten();
                (owner, layout.error.clone(), layout.round)
            };
            if let Some(owner) = owner {
                return Ok((owner, round));
            }
            if let Some(error) = error {
                // For those who come later.
                self.refresh();
                return Err(error);
            }
            if !self.refresh() && !layouts.has_changed().unwrap_or(false) {
                // It was asked just now, and nobody has the partition.
                return Err(StoreError::Refused("CLUSTERDOWN".into()));
            }
            if layouts.changed().await.is_err() {
                return Err(StoreError::Unavailable("the cluster is gone".into()));
            }
        }
    }

    /// A partition turned out to live at `address`.
    pub(super) fn moved(self: &Arc<Self>, partition: u16, address: &Address) -> Arc<Node> {
        let node = self.node(address);
        self.layout.send_if_modified(|layout| {
            let place = usize::from(partition);
            let known = layout.owners.get(place).and_then(Option::as_ref);
            if layout.owners.is_empty() || known.is_some_and(|known| Arc::ptr_eq(known, &node)) {
                return false;
            }
            let mut owners = layout.owners.to_vec();
            owners[place] = Some(Arc::clone(&node));
            layout.owners = owners.into();
            layout.round += 1;
            true
        });
        // Others have moved too, most likely.
        self.refresh();
        node
    }

    /// The node at `address`.
    pub(super) fn node(&self, address: &Address) -> Arc<Node> {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(nodes.entry(address.clone()).or_insert_with(|| {
            let whereabouts = Whereabouts::Fixed(address.clone());
            Arc::new(Node::new(whereabouts, self.access.clone()))
        }))
    }

    /// Every node that was met.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.values().cloned().collect()
    }

    /// The nodes that have partitions now.
    pub(super) fn owners(&self) -> Vec<Arc<Node>> {
        let mut owners: Vec<Arc<Node>> = Vec::new();
        for owner in self.layout.borrow().owners.iter().flatten() {
            if !owners.iter().any(|known| Arc::ptr_eq(known, owner)) {
                owners.push(Arc::clone(owner));
            }
        }
        owners
    }

    /// How often the layout was asked for.
    pub(super) fn refreshes(&self) -> u64 {
        self.refreshes.load(Ordering::Relaxed)
    }

    /// Has the layout asked for, beside the calls and once a second at most. False when that was just done.
    pub(super) fn refresh(self: &Arc<Self>) -> bool {
        let mut refresh = self.refresh.lock().unwrap_or_else(PoisonError::into_inner);
        if refresh
            .task
            .as_ref()
            .is_some_and(|task| !task.is_finished())
        {
            return true;
        }
        if refresh.last.is_some_and(|last| last.elapsed() < PAUSE) {
            return false;
        }
        refresh.last = Some(Instant::now());
        self.refreshes.fetch_add(1, Ordering::Relaxed);
        let cluster = Arc::clone(self);
        refresh.task = Some(tokio::spawn(async move { cluster.ask().await }));
        true
    }

    async fn ask(&self) {
        let mut asked: Vec<Address> = Vec::new();
        let known = self.owners().into_iter().filter_map(|node| node.address());
        let mut last = StoreError::Unavailable("no node to ask".into());
        for address in known.chain(self.seeds.iter().cloned()) {
            if asked.contains(&address) {
                continue;
            }
            let answer = tokio::time::timeout(PATIENCE, self.slots(&address)).await;
            match answer.unwrap_or(Err(StoreError::Timeout)) {
                Ok(ranges) => return self.adopt(&ranges),
                Err(error) => last = error,
            }
            asked.push(address);
        }
        tracing::warn!(error = ?last, "no node tells the cluster's layout");
        self.layout.send_modify(|layout| {
            layout.error = Some(last);
            layout.round += 1;
        });
    }

    fn adopt(&self, ranges: &[(u16, u16, Address)]) {
        let owners: Vec<Option<Arc<Node>>> = self
            .tags
            .iter()
            .map(|tag| {
                ranges
                    .iter()
                    .find(|(from, to, _)| (*from..=*to).contains(&tag.slot))
                    .map(|(_, _, address)| self.node(address))
            })
            .collect();
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.retain(|address, _| ranges.iter().any(|(_, _, known)| known == address));
        drop(nodes);
        self.layout.send_modify(|layout| {
            layout.owners = owners.into();
            layout.error = None;
            layout.round += 1;
        });
    }

    /// The slots of each primary, as the node at `address` knows them.
    async fn slots(&self, address: &Address) -> Result<Vec<(u16, u16, Address)>, StoreError> {
        let mut command = Cmd::new();
        command.arg("CLUSTER").arg("SLOTS");
        let answer = self.access.ask(address, &command).await?;
        let rows: Vec<Vec<Value>> =
            from_redis_value(answer).map_err(|error| store_error(&error.into()))?;
        let ranges: Vec<_> = rows
            .into_iter()
            .filter_map(|row| range(row, address))
            .collect();
        if ranges.is_empty() {
            return Err(StoreError::Refused("CLUSTERDOWN".into()));
        }
        Ok(ranges)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let refresh = self
            .refresh
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = refresh.task.take() {
            task.abort();
        }
    }
}

/// First slot, last slot, primary. A node that does not know its own name leaves it empty.
fn range(row: Vec<Value>, asked: &Address) -> Option<(u16, u16, Address)> {
    let mut row = row.into_iter();
    let from: u16 = from_redis_value(row.next()?).ok()?;
    let to: u16 = from_redis_value(row.next()?).ok()?;
    let mut primary: Vec<Value> = from_redis_value(row.next()?).ok()?;
    if primary.len() < 2 {
        return None;
    }
    let port: u16 = from_redis_value(primary.swap_remove(1)).ok()?;
    let host: Option<String> = from_redis_value(primary.swap_remove(0)).ok()?;
    let host = match (host.filter(|host| !host.is_empty() && host != "?"), asked) {
        (Some(host), _) => host,
        (None, Address::Tcp { host, .. }) => host.clone(),
        (None, Address::Unix(_)) => return None,
    };
    Some((from, to, Address::Tcp { host, port }))
}

/// For each partition the number that is its tag, and the slot that the number has: the least number whose slot lies
/// in the middle quarter of the partition's share of the slots, or anywhere in it when the shares are small.
fn tags(partitions: usize) -> Vec<(u32, u16)> {
    let mut tags: Vec<Option<(u32, u16)>> = vec![None; partitions];
    let mut missing = partitions;
    let mut number = 0u32;
    while missing > 0 {
        let slot = usize::from(crc16(0, number.to_string().as_bytes())) % SLOTS;
        let partition = slot * partitions / SLOTS;
        // Twice and sixteen times the distance from the middle of the share, so that all is whole.
        let from_middle = (2 * slot * partitions).abs_diff((2 * partition + 1) * SLOTS);
        let near = SLOTS < 16 * partitions || 4 * from_middle <= SLOTS;
        if near && tags[partition].is_none() {
            tags[partition] = Some((number, slot as u16));
            missing -= 1;
        }
        number += 1;
    }
    tags.into_iter().flatten().collect()
}

/// CRC-16 as Redis Cluster takes it (XMODEM), going on from `crc`.
fn crc16(mut crc: u16, bytes: &[u8]) -> u16 {
    for byte in bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(0, b"123456789"), 0x31c3);
        assert_eq!(crc16(crc16(0, b"1234"), b"56789"), 0x31c3);
        assert_eq!(usize::from(crc16(0, b"foo")) % SLOTS, 12_182);
    }

    #[test]
    fn partitions_lie_evenly_over_the_slots() {
        for partitions in [1, 3, 24, 100, 4_096, 16_384] {
            let tags = tags(partitions);
            assert_eq!(tags.len(), partitions);
            for (partition, (_, slot)) in tags.iter().enumerate() {
                assert_eq!(usize::from(*slot) * partitions / SLOTS, partition);
            }
        }
        // What stands in keys must never change.
        let numbers: Vec<u32> = tags(6).into_iter().map(|(number, _)| number).collect();
        assert_eq!(numbers, GOLDEN);
    }

    const GOLDEN: [u32; 6] = [3, 11, 60, 1, 13, 66];
}
