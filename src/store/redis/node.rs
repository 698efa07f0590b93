//! One server as all lanes of a process see it: where it is now, and the pool of connections to it.
//!
//! A server may move: sentinels promote another one, or the password is changed. Then there is a new [`Place`] and the
//! old one's connections are let go. Nothing is asked while all is well; whoever meets a failure says so
//! ([`Node::doubt`]), and the next connection is looked for anew.

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{sync::Mutex, task::JoinHandle};

use super::{
    address::Address,
    dials::Dials,
    pool::{self, Access, Login, Pool, Pooled},
    script::Script,
    sentinel::Sentinels,
};
use crate::{store::StoreError, time::Clock};

/// Least time between two searches for a server: callers that all meet the same failure ask once.
const PAUSE: Duration = Duration::from_millis(50);

/// A server that sentinels know is looked up again after this, also when all seems well: one that was cut off from its
/// sentinels does not know that it was replaced.
const AGE: Duration = Duration::from_secs(5);

/// One server, wherever it is.
pub(super) struct Node {
    whereabouts: Whereabouts,
    access: Access,
    place: arc_swap::ArcSwapOption<Place>,
    search: Mutex<Option<Instant>>,
    born: Instant,
    /// Milliseconds from `born` to the last time the server was found.
    found: AtomicU64,
    /// Looks a server up again that is thought to be well.
    check: std::sync::Mutex<Option<JoinHandle<()>>>,
    dials: Dials,
    pub(super) script: Script,
    calls: AtomicU64,
    requests: AtomicU64,
    lines: AtomicUsize,
    /// Connections made, also to where it was before.
    opened: Arc<AtomicU64>,
    closed: AtomicU64,
}

/// How a server is found.
#[derive(Debug)]
pub(super) enum Whereabouts {
    Fixed(Address),
    Sentinels(Sentinels),
}

/// Where a server was when it was last looked for.
pub(super) struct Place {
    address: Address,
    login: Login,
    pool: Pool,
    doubted: AtomicBool,
    /// The script was put there, or that was tried, when we first connected.
    greeted: AtomicBool,
}

impl Node {
    pub(super) fn new(whereabouts: Whereabouts, access: Access) -> Self {
        Self {
            whereabouts,
            place: arc_swap::ArcSwapOption::empty(),
            search: Mutex::new(None),
            born: Instant::now(),
            found: AtomicU64::new(0),
            check: std::sync::Mutex::new(None),
            // The store's clock may be a test's, which stands still.
            dials: Dials::new(access.connections(), Clock::system()),
            access,
            script: Script::new(),
            calls: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            lines: AtomicUsize::new(0),
            opened: Arc::default(),
            closed: AtomicU64::new(0),
        }
    }

    /// A connection that answered a PING just now, or is new. Of new ones there are few each second
    /// while the server is in trouble.
    pub(super) async fn checkout(self: &Arc<Self>) -> Result<(Pooled, Arc<Place>), StoreError> {
        let place = self.place().await?;
        // With more lines than connections the wait may be for one that is there already.
        let made = self.may_hold(self.access.connections()) && place.pool.status().available == 0;
        if made && !self.dials.pass() {
            return Err(StoreError::Unavailable(
                "too many connections were made just now".into(),
            ));
        }
        match pool::checkout(&place.pool).await {
            Ok(mut connection) => {
                if !place.greeted.swap(true, Ordering::Relaxed) {
                    // If that fails, the first call that needs it finds out and tells its callers.
                    let _ = self.script.put(&mut connection).await;
                }
                Ok((connection, place))
            }
            // That is no fault of the server.
            Err(StoreError::NoConnection) => Err(StoreError::NoConnection),
            Err(error) => {
                self.doubt(&place);
                Err(error)
            }
        }
    }

    /// Where it is, if that is known.
    pub(super) fn address(&self) -> Option<Address> {
        match &self.whereabouts {
            Whereabouts::Fixed(address) => Some(address.clone()),
            Whereabouts::Sentinels(_) => self
                .place
                .load()
                .as_ref()
                .map(|place| place.address.clone()),
        }
    }

    /// Is that still where the server is?
    pub(super) fn is_at(&self, place: &Arc<Place>) -> bool {
        self.place
            .load()
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, place))
    }

    /// The server failed in a way that may mean it is elsewhere now.
    pub(super) fn doubt(&self, place: &Place) {
        place.doubted.store(true, Ordering::Relaxed);
        self.dials.failed();
    }

    /// The server closed a connection that it had served well. It may go on elsewhere, or let us in under another name
    /// only, but is not in trouble: others may be made at once.
    pub(super) fn closed(&self, place: &Place) {
        place.doubted.store(true, Ordering::Relaxed);
    }

    pub(super) fn line_started(&self) {
        self.lines.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn line_ended(&self) {
        self.lines.fetch_sub(1, Ordering::Relaxed);
    }

    /// May each line keep a connection between calls? Else one could wait for ever for one that idles elsewhere.
    pub(super) fn may_hold(&self, connections: usize) -> bool {
        self.lines.load(Ordering::Relaxed) <= connections
    }

    pub(super) fn called(&self, requests: u64) {
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(requests, Ordering::Relaxed);
    }

    /// Adds what this node did to `figures`.
    pub(super) fn add_to(&self, figures: &mut super::Figures) {
        figures.calls += self.calls.load(Ordering::Relaxed);
        figures.requests += self.requests.load(Ordering::Relaxed);
        figures.script_loads += self.script.loads();
        let place = self.place.load();
        let size = place.as_ref().map_or(0, |place| place.pool.status().size);
        let opened = self.opened.load(Ordering::Relaxed);
        // One that is being made is in the pool already, and not yet made.
        let closed = opened.saturating_sub(size as u64);
        let before = self.closed.fetch_max(closed, Ordering::Relaxed);
        figures.opened += opened;
        figures.closed += before.max(closed);
        if let Some(place) = place.as_ref() {
            let status = place.pool.status();
            figures.connections += status.size;
            figures.idle += status.available;
            figures.waiting += status.waiting;
        }
    }

    async fn place(self: &Arc<Self>) -> Result<Arc<Place>, StoreError> {
        let known = self.place.load_full();
        if let Some(place) = &known
            && !place.doubted.load(Ordering::Relaxed)
        {
            self.check_if_old();
            return Ok(Arc::clone(place));
        }
        let mut last = self.search.lock().await;
        let current = self.place.load_full();
        if let Some(place) = &current {
            let moved = known
                .as_ref()
                .is_none_or(|known| !Arc::ptr_eq(known, place));
            let settled = !place.doubted.load(Ordering::Relaxed);
            if moved || settled || last.is_some_and(|last| last.elapsed() < PAUSE) {
                return Ok(Arc::clone(place));
            }
        }
        *last = Some(Instant::now());
        self.search(current).await
    }

    /// Looks a server up again beside the calls, when it was not for some time and sentinels may know better.
    pub(super) fn check_if_old(self: &Arc<Self>) {
        let age = self
            .age()
            .saturating_sub(self.found.load(Ordering::Relaxed));
        if matches!(self.whereabouts, Whereabouts::Fixed(_)) || age < AGE.as_millis() as u64 {
            return;
        }
        let mut check = self.check.lock().unwrap_or_else(PoisonError::into_inner);
        if check.as_ref().is_some_and(|running| !running.is_finished()) {
            return;
        }
        let node = Arc::clone(self);
        *check = Some(tokio::spawn(async move {
            let mut last = node.search.lock().await;
            *last = Some(Instant::now());
            // What it finds is in place for the next call; that it finds nothing changes nothing.
            let _ = node.search(node.place.load_full()).await;
        }));
    }

    fn age(&self) -> u64 {
        self.born.elapsed().as_millis() as u64
    }

    /// Looks for the server. It may well be where it was.
    async fn search(&self, current: Option<Arc<Place>>) -> Result<Arc<Place>, StoreError> {
        let address = match &self.whereabouts {
            Whereabouts::Fixed(address) => address.clone(),
            Whereabouts::Sentinels(sentinels) => match (sentinels.primary().await, &current) {
                (Ok(address), _) => address,
                // The sentinels are there to tell of a change. Without them all stays as it is.
                (Err(_), Some(current)) => current.address.clone(),
                (Err(error), None) => return Err(error),
            },
        };
        let login = self.access.login()?;
        self.found.store(self.age(), Ordering::Relaxed);
        if let Some(same) = &current
            && same.address == address
            && same.login == login
        {
            same.doubted.store(false, Ordering::Relaxed);
            return Ok(Arc::clone(same));
        }
        let pool = self.access.pool(&address, &login, &self.opened)?;
        if let Some(old) = &current {
            tracing::info!(%address, "Redis is reached anew");
            // The idle ones go now, the others when they come back.
            old.pool.close();
        }
        let place = Arc::new(Place {
            address,
            login,
            pool,
            doubted: AtomicBool::new(false),
            greeted: AtomicBool::new(false),
        });
        self.place.store(Some(Arc::clone(&place)));
        Ok(place)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let check = self.check.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(check) = check.take() {
            check.abort();
        }
    }
}
