//! Watches rule files and loads them again when they change.
//!
//! Two ways lead to a reload: the kernel's notice of a change in one of the directories, and a look at the disk twice
//! a second. The look alone suffices, on file systems that send no notices and for changes that send odd ones; the
//! notice only makes it faster.

use std::{
    collections::{BTreeSet, HashSet},
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use notify::{
    EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode},
};
use tracing::{debug, error, info, warn};

use super::{
    files::{BadFile, Layout, Loaded, Notices, Options, Snapshot},
    last_good::{Instead, LastGood, Stale},
    scan::{Ignored, Scan},
};
use crate::rules::{CompileError, Mistake};

/// Time between two looks at the disk.
const POLL: Duration = Duration::from_millis(500);

/// Time for the other changes that come with a first one.
const COALESCE: Duration = Duration::from_millis(50);

/// Time in which the files must stand still before they are compiled: a file may be written in several steps.
const SETTLE: Duration = Duration::from_millis(25);

/// How often we wait for files to stand still.
const SETTLE_ATTEMPTS: usize = 8;

/// How many looks after a change read the content whatever the metadata says: two writes within one tick of the
/// kernel's clock can look like one.
const WARY_LOOKS: usize = 4;

/// What came of a change.
#[derive(Clone, Debug)]
pub enum Reload {
    /// New rules, to be put in force.
    Loaded(Loaded),
    /// They cannot be used; what was in force stays in force.
    Failed(CompileError),
}

/// Loads the rules at once and again after every change, on a thread of its own. Stops when dropped.
#[derive(Debug)]
pub struct Watcher {
    wake: SyncSender<Wake>,
    /// A reload is asked for. Not a message: it must not be lost when the channel is full of changes.
    demand: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    Changed,
    /// Look at once; `demand` is set.
    Demand,
    Stop,
}

impl Watcher {
    /// Starts watching. `on_change` is called on the watcher's thread: with the outcome of the first load, and then
    /// once for each change of content. The log has been told by then.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn spawn(
        layout: Layout,
        options: Options,
        on_change: impl FnMut(Reload) + Send + 'static,
    ) -> io::Result<Self> {
        let (wake, woken) = sync_channel(16);
        let demand = Arc::new(AtomicBool::new(true));
        let room = Room {
            layout,
            options,
            on_change,
            wake: wake.clone(),
            demand: Arc::clone(&demand),
            notices: None,
            watched: BTreeSet::new(),
            scan: None,
            wary: 0,
            fingerprint: None,
            listed: HashSet::new(),
            good: LastGood::default(),
            in_force: false,
        };
        let thread = thread::Builder::new()
            .name("rules".to_owned())
            .spawn(move || room.run(&woken))?;
        Ok(Self {
            wake,
            demand,
            thread: Some(thread),
        })
    }

    /// Loads the rules again even if nothing changed, such as on SIGHUP. Returns at once.
    pub fn reload(&self) {
        self.demand.store(true, Ordering::Release);
        // The channel is closed only when the thread is gone, and full only when a look is due anyway.
        let _ = self.wake.try_send(Wake::Demand);
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.wake.send(Wake::Stop);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            error!("the rule watcher panicked");
        }
    }
}

struct Room<F> {
    layout: Layout,
    options: Options,
    on_change: F,
    wake: SyncSender<Wake>,
    demand: Arc<AtomicBool>,
    notices: Option<RecommendedWatcher>,
    watched: BTreeSet<(PathBuf, u64, u64)>,
    /// The last look, `None` before the first.
    scan: Option<Scan>,
    wary: usize,
    /// Content of what was loaded, or failed to, last.
    fingerprint: Option<u64>,
    /// Ignored entries that the log has been told of.
    listed: HashSet<Ignored>,
    /// What is compiled in the place of files that went bad.
    good: LastGood,
    /// Whether rules have been loaded before.
    in_force: bool,
}

/// Why we look at the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Change,
    Demand,
}

impl<F: FnMut(Reload)> Room<F> {
    fn run(mut self, woken: &Receiver<Wake>) {
        loop {
            let cause = if self.demand.swap(false, Ordering::Acquire) {
                Cause::Demand
            } else {
                Cause::Change
            };
            self.look(cause);
            let first = match woken.recv_timeout(POLL) {
                Ok(wake) => Some(wake),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            if first == Some(Wake::Changed) {
                thread::sleep(COALESCE);
            }
            // One look answers every wake-up there is.
            let stop = woken.try_iter().chain(first).any(|wake| wake == Wake::Stop);
            if stop {
                return;
            }
        }
    }

    fn look(&mut self, cause: Cause) {
        let scan = self.layout.scan();
        if self.scan.as_ref() != Some(&scan) {
            self.wary = WARY_LOOKS;
        } else if cause == Cause::Change {
            if self.wary == 0 {
                return;
            }
            self.wary -= 1;
        }
        let mut snapshot = Snapshot::take(&self.layout, &self.options);
        let mut fingerprint = snapshot.fingerprint();
        if cause == Cause::Change && self.fingerprint == Some(fingerprint) {
            self.seen(snapshot.scan);
            return;
        }
        // Before the first load there is nothing that a half-written file could spoil.
        if self.fingerprint.is_some() {
            for _ in 0..SETTLE_ATTEMPTS {
                thread::sleep(SETTLE);
                let again = Snapshot::take(&self.layout, &self.options);
                // Who deletes what links lead to deletes the links next, as the kubelet does: then it is no fault.
                let settled = again.fingerprint() == fingerprint && !again.scan.dangles();
                fingerprint = again.fingerprint();
                snapshot = again;
                if settled {
                    break;
                }
            }
        }
        if cause == Cause::Change && self.fingerprint == Some(fingerprint) {
            self.seen(snapshot.scan);
            return;
        }
        self.fingerprint = Some(fingerprint);
        self.seen(snapshot.scan.clone());
        self.tell(snapshot);
    }

    /// Remembers the look, and watches the directories that matter now.
    fn seen(&mut self, scan: Scan) {
        let fresh: Vec<String> = scan
            .ignored
            .iter()
            .filter(|ignored| self.listed.insert((*ignored).clone()))
            .map(|ignored| format!("{} ({})", ignored.path.display(), ignored.reason))
            .collect();
        if !fresh.is_empty() {
            info!(entries = fresh.join(", "), "ignored beside the rule files");
        }
        let stale = self.watched != scan.watched || self.notices.is_none();
        if stale && self.options.notices == Notices::Kernel {
            self.watch(&scan);
        }
        self.scan = Some(scan);
    }

    /// A watch sticks to the directory it was put on, not to the path, and a path may be another directory by now:
    /// all watches are made anew, which is rare enough.
    fn watch(&mut self, scan: &Scan) {
        let wake = self.wake.clone();
        let notices = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let matters = event.as_ref().map_or(true, |event| match event.kind {
                EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
                // Our own reading shows up as access.
                EventKind::Access(_) => false,
                _ => true,
            });
            if matters {
                // A full channel holds a wake-up already.
                let _ = wake.try_send(Wake::Changed);
            }
        });
        let mut notices = match notices {
            Ok(notices) => notices,
            Err(error) => {
                if self.watched.is_empty() {
                    warn!(%error, "no file notices from the kernel: rule files are looked at twice a second instead");
                }
                self.watched = scan.watched.clone();
                return;
            }
        };
        for (directory, ..) in &scan.watched {
            if let Err(error) = notices.watch(directory, RecursiveMode::NonRecursive) {
                debug!(%error, directory = %directory.display(), "not watched, only looked at");
            }
        }
        self.watched = scan.watched.clone();
        self.notices = Some(notices);
        // What changed between the scan and the watch made no notice.
        let _ = self.wake.try_send(Wake::Changed);
    }

    fn tell(&mut self, snapshot: Snapshot) {
        let loaded = match self.options.bad_file {
            BadFile::StaysAsItWas => self.good.load(snapshot, &self.options),
            BadFile::RefusesAll => snapshot.compile(&self.options),
        };
        let reload = match loaded {
            Ok(loaded) => {
                loaded.stale.iter().for_each(tell_stale);
                for warning in &loaded.warnings {
                    warn!("{warning}");
                }
                info!(
                    files = loaded.rules.files().len(),
                    domains = loaded.rules.domains().count(),
                    rules = loaded.rules.rules().len(),
                    hash = format_args!("{:016x}", loaded.rules.hash()),
                    "rules loaded"
                );
                if loaded.rules.domains().next().is_none() {
                    warn!("no domain has rules: every request passes");
                }
                self.in_force = true;
                Reload::Loaded(loaded)
            }
            Err(failed) => {
                for mistake in &failed.mistakes {
                    error!("{mistake}");
                }
                error!(
                    mistakes = Mistake::count(&failed.mistakes),
                    "{}",
                    if self.in_force {
                        "rules not loaded, what was in force stays in force"
                    } else {
                        "rules not loaded, and none are in force: no request can be decided"
                    }
                );
                Reload::Failed(failed)
            }
        };
        (self.on_change)(reload);
    }
}

fn tell_stale(stale: &Stale) {
    for mistake in &stale.mistakes {
        error!("{mistake}");
    }
    error!(
        file = %stale.file,
        mistakes = Mistake::count(&stale.mistakes),
        "{}",
        match stale.instead {
            Instead::LastGood => "bad file: it stays as it was when it was last good",
            Instead::Nothing => "bad file: none of its rules are in force",
        }
    );
}
