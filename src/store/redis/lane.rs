//! What a runtime takes decisions through: one line to one server, or a line to each node of a cluster.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{sleep, timeout};

use super::{
    Servers, Shared,
    batch::Line,
    call::{Company, Piece},
    cluster::Cluster,
    forget::forget,
    node::Node,
    pack::Packed,
    script::Bounce,
};
use crate::{
    algorithm::Outcome,
    counter::{Atomicity, Counter, Selection},
    store::{Store, StoreError, apart, in_time},
    time::Deadline,
};

/// How often a call follows a slot that is being moved. Each step is a fresh answer of a node.
const HOPS: usize = 8;

/// Pause before a request whose keys are on both sides of a move is tried again.
const MOVING: Duration = Duration::from_millis(2);

/// A handle on one lane. Clones share it; the lane ends with the last of them.
#[derive(Clone, Debug)]
pub struct Lane {
    shared: Arc<Shared>,
    timeout: Duration,
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    One { line: Line, prefix: Arc<[u8]> },
    Many(Router),
}

impl Lane {
    /// Starts a lane on the current runtime.
    pub(super) fn start(shared: Arc<Shared>) -> Self {
        let timeout = shared.config.timeout;
        let way = match &shared.servers {
            Servers::One(node) => Way::One {
                prefix: shared.config.prefix.as_bytes().into(),
                line: Line::start(Arc::clone(&shared), Arc::clone(node)),
            },
            Servers::Cluster(cluster) => Way::Many(Router {
                cluster: Arc::clone(cluster),
                lines: Arc::default(),
                shared: Arc::clone(&shared),
            }),
        };
        Self {
            shared,
            timeout,
            way,
        }
    }
}

impl Store for Lane {
    async fn take_by(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        deadline: Deadline,
    ) -> Vec<Result<Outcome, StoreError>> {
        if counters.is_empty() {
            return Vec::new();
        }
        let (line, prefix) = match &self.way {
            Way::One { line, prefix } => (line, prefix),
            Way::Many(router) => {
                let take = router.take(counters, atomicity, self.timeout);
                return in_time(deadline, counters.len(), take).await;
            }
        };
        let piece = Piece {
            packed: Packed::new(counters, atomicity, prefix),
            group: 0,
            company: Company::Group,
        };
        let within = deadline
            .left()
            .map_or(self.timeout, |left| left.min(self.timeout));
        match timeout(within, line.take(piece)).await {
            Ok(Ok(outcomes)) => outcomes,
            Ok(Err(bounce)) => vec![Err(bounce.into_error()); counters.len()],
            Err(_) => vec![Err(StoreError::Timeout); counters.len()],
        }
    }

    async fn forget(&self, selection: &Selection) -> Result<u64, StoreError> {
        forget(&self.shared, selection).await
    }
}

/// Sends counters to the nodes that have them.
#[derive(Clone)]
struct Router {
    shared: Arc<Shared>,
    cluster: Arc<Cluster>,
    lines: Arc<Mutex<Lines>>,
}

/// A line to each node, started when it is first needed.
#[derive(Default)]
struct Lines {
    /// The layout in which unused lines were last looked for.
    round: u64,
    /// By the node's address in memory, which the node held beside it keeps its own.
    lines: HashMap<usize, (Arc<Node>, Line)>,
}

impl std::fmt::Debug for Router {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Router").finish_non_exhaustive()
    }
}

impl Router {
    async fn take(
        &self,
        counters: &[Counter],
        atomicity: Atomicity,
        within: Duration,
    ) -> Vec<Result<Outcome, StoreError>> {
        let parts = apart::parts(counters, |counter| self.cluster.partition(&counter.key));
        let ask = move |router: Self| {
            move |part: &u16, own: Vec<Counter>, how| {
                let (router, partition) = (router.clone(), *part);
                async move { router.part(partition, &own, how, within).await }
            }
        };
        match &parts[..] {
            [(partition, _)] => self.part(*partition, counters, atomicity, within).await,
            _ if atomicity == Atomicity::PerCounter => {
                apart::each(counters, &parts, atomicity, ask(self.clone())).await
            }
            _ => {
                // In a task, so that a caller that goes away does not leave a charge that was to be undone. Its parts
                // time themselves.
                let (router, counters) = (self.clone(), counters.to_vec());
                let amount = counters.len();
                let task = tokio::spawn(async move {
                    apart::all_or_nothing(&counters, &parts, within, ask(router)).await
                });
                task.await.unwrap_or_else(|_| {
                    vec![Err(StoreError::Unavailable("the lane has ended".into())); amount]
                })
            }
        }
    }

    /// Decides counters of one partition.
    async fn part(
        &self,
        partition: u16,
        counters: &[Counter],
        atomicity: Atomicity,
        within: Duration,
    ) -> Vec<Result<Outcome, StoreError>> {
        match timeout(within, self.follow(partition, counters, atomicity)).await {
            Ok(Ok(outcomes)) => outcomes,
            Ok(Err(error)) => {
                if !matches!(error, StoreError::Full | StoreError::ForeignState) {
                    self.cluster.refresh();
                }
                vec![Err(error); counters.len()]
            }
            Err(_) => {
                // The node may be gone, and another in its place.
                self.cluster.refresh();
                vec![Err(StoreError::Timeout); counters.len()]
            }
        }
    }

    /// Follows the partition to where it is.
    async fn follow(
        &self,
        partition: u16,
        counters: &[Counter],
        atomicity: Atomicity,
    ) -> Result<Vec<Result<Outcome, StoreError>>, StoreError> {
        let (mut node, round) = self.cluster.owner(partition).await?;
        self.drop_unused(round);
        let mut company = Company::Group;
        let mut last = StoreError::Refused("MOVED".into());
        let mut hops = 0;
        while hops < HOPS {
            let packed = Packed::new(counters, atomicity, self.cluster.prefix(partition));
            let piece = Piece {
                packed,
                group: partition,
                company,
            };
            match self.line(&node).take(piece).await {
                Ok(outcomes) => return Ok(outcomes),
                Err(Bounce::Failed(error)) => return Err(error),
                Err(bounce @ Bounce::TryAgain) => {
                    if atomicity == Atomicity::PerCounter && counters.len() > 1 {
                        return Ok(self.singly(partition, counters, atomicity).await);
                    }
                    if company != Company::Group {
                        // Some of the request's own keys are here, some there, until the move is over.
                        sleep(MOVING).await;
                        node = self.cluster.owner(partition).await?.0;
                    } else {
                        hops += 1;
                    }
                    company = Company::Alone;
                    last = bounce.into_error();
                }
                Err(bounce) => {
                    last = bounce.clone().into_error();
                    hops += 1;
                    (node, company) = match bounce {
                        Bounce::Moved(address) => {
                            (self.cluster.moved(partition, &address), Company::Group)
                        }
                        // Also for a batch whose keys are all unknown here: each may be new.
                        Bounce::Ask(address) => (self.cluster.node(&address), Company::Asking),
                        Bounce::TryAgain | Bounce::Failed(_) => return Err(last),
                    };
                }
            }
        }
        Err(last)
    }

    /// Decides counters one by one: what has one key is never on both sides of a move.
    async fn singly(
        &self,
        partition: u16,
        counters: &[Counter],
        atomicity: Atomicity,
    ) -> Vec<Result<Outcome, StoreError>> {
        let mut outcomes = Vec::with_capacity(counters.len());
        for counter in counters {
            let one = std::slice::from_ref(counter);
            match Box::pin(self.follow(partition, one, atomicity)).await {
                Ok(own) => outcomes.extend(own),
                Err(error) => outcomes.push(Err(error)),
            }
        }
        outcomes
    }

    fn line(&self, node: &Arc<Node>) -> Line {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, line) = lines
            .lines
            .entry(Arc::as_ptr(node) as usize)
            .or_insert_with(|| {
                let line = Line::start(Arc::clone(&self.shared), Arc::clone(node));
                (Arc::clone(node), line)
            });
        line.clone()
    }

    /// Ends the lines to nodes that have left, once for each layout.
    fn drop_unused(&self, round: u64) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.round == round {
            return;
        }
        lines.round = round;
        let nodes = self.cluster.nodes();
        lines
            .lines
            .retain(|_, (node, _)| nodes.iter().any(|known| Arc::ptr_eq(known, node)));
    }
}
