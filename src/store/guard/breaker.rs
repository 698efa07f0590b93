//! A circuit breaker: a store that failed again and again is left alone for a while, then tried with few calls.
//!
//! While all is well it costs two loads and writes nothing. From the first failure on calls are counted, under a lock
//! that is held for nanoseconds, until a window has passed without one.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use crate::time::{Clock, jittered};

/// When a breaker opens and how it closes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    /// Opens after that many failures in a row...
    pub failures: u32,
    /// ... when they also came over at least that time: one hiccup fails many calls at once, and is over then.
    pub spread: Duration,
    /// Opens when at least this share of a window's calls failed.
    pub ratio: f64,
    /// Length of a window.
    pub window: Duration,
    /// Calls a window needs before its share means something.
    pub least: u32,
    /// Time it stays open at first; twice as long after each failed try, give or take a quarter.
    pub backoff: Duration,
    /// The longest it stays open between two tries.
    pub backoff_max: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            failures: 5,
            spread: Duration::from_millis(15),
            ratio: 0.5,
            window: Duration::from_secs(5),
            least: 20,
            backoff: Duration::from_millis(100),
            backoff_max: Duration::from_secs(1),
        }
    }
}

/// Calls in flight that try a half-open breaker.
const PROBES: u32 = 2;

/// Tries that have to succeed, one after the other, for it to close.
const SUCCESSES: u32 = 3;

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Every call goes.
    Closed,
    /// Few calls go, to see.
    HalfOpen,
    /// No call goes.
    Open,
}

impl State {
    /// Every state, in the order of its number.
    pub const ALL: [Self; 3] = [Self::Closed, Self::HalfOpen, Self::Open];

    /// Its name in logs and labels.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::HalfOpen => "half_open",
            Self::Open => "open",
        }
    }
}

/// The breaker of one store, shared by everybody who calls it.
#[derive(Debug)]
pub struct Breaker {
    config: Config,
    clock: Clock,
    state: AtomicU8,
    /// Closed, and no failure is remembered: a success has nothing to say.
    quiet: AtomicBool,
    /// Until when it stays open, microseconds of the clock.
    until: AtomicU64,
    opened: AtomicU64,
    inner: Mutex<Inner>,
    changes: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Failures since the last success, and when the first of them was.
    in_a_row: u32,
    row_since: u64,
    window_since: u64,
    calls: u32,
    failed: u32,
    /// How often it opened without closing in between.
    attempts: u32,
    probing: u32,
    succeeded: u32,
}

/// How a call went, as far as the store is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Went {
    /// The store answered.
    Well,
    /// It did not, or it is in trouble.
    Badly,
    /// The call says nothing about it: its caller went away, say.
    Unknown,
}

/// The leave to make one call. Dropped without a word it says [`Went::Unknown`].
#[derive(Debug)]
pub struct Pass<'b> {
    breaker: &'b Breaker,
    probe: bool,
    told: bool,
}

impl Breaker {
    /// A closed one, that tells time by `clock`.
    pub fn new(config: Config, clock: Clock) -> Self {
        Self {
            config,
            clock,
            state: AtomicU8::new(State::Closed as u8),
            quiet: AtomicBool::new(true),
            until: AtomicU64::new(0),
            opened: AtomicU64::new(0),
            inner: Mutex::default(),
            changes: watch::Sender::new(State::Closed),
        }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        State::ALL[usize::from(self.state.load(Ordering::Relaxed)) % State::ALL.len()]
    }

    /// How often it has opened.
    pub fn times_opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Tells of each change of state.
    pub fn changes(&self) -> watch::Receiver<State> {
        self.changes.subscribe()
    }

    /// May a call be made now?
    pub fn admit(&self) -> Option<Pass<'_>> {
        let pass = |probe| Pass {
            breaker: self,
            probe,
            told: false,
        };
        match self.state() {
            State::Closed => Some(pass(false)),
            State::Open if self.now() < self.until.load(Ordering::Relaxed) => None,
            State::Open | State::HalfOpen => {
                let mut inner = self.lock();
                match self.state() {
                    // Somebody else was faster.
                    State::Closed => return Some(pass(false)),
                    State::Open if self.now() < self.until.load(Ordering::Relaxed) => return None,
                    State::Open => {
                        inner.probing = 0;
                        inner.succeeded = 0;
                        self.turn(State::HalfOpen);
                    }
                    State::HalfOpen => {}
                }
                if inner.probing >= PROBES {
                    return None;
                }
                inner.probing += 1;
                Some(pass(true))
            }
        }
    }

    fn tell(&self, probe: bool, went: Went) {
        if probe {
            self.tell_probe(went);
            return;
        }
        if went == Went::Unknown || (went == Went::Well && self.quiet.load(Ordering::Relaxed)) {
            return;
        }
        let now = self.now();
        let mut inner = self.lock();
        if self.state() != State::Closed {
            // From before it opened.
            return;
        }
        let window = micros(self.config.window);
        if now.saturating_sub(inner.window_since) > window {
            if inner.failed == 0 && went == Went::Well {
                self.quiet.store(true, Ordering::Relaxed);
            }
            inner.window_since = now;
            inner.calls = 0;
            inner.failed = 0;
        }
        inner.calls = inner.calls.saturating_add(1);
        if went == Went::Well {
            inner.in_a_row = 0;
            return;
        }
        self.quiet.store(false, Ordering::Relaxed);
        inner.failed = inner.failed.saturating_add(1);
        if inner.in_a_row == 0 {
            inner.row_since = now;
        }
        inner.in_a_row = inner.in_a_row.saturating_add(1);
        let row = inner.in_a_row >= self.config.failures
            && now.saturating_sub(inner.row_since) >= micros(self.config.spread);
        let share = inner.calls >= self.config.least
            && f64::from(inner.failed) >= f64::from(inner.calls) * self.config.ratio
            && now.saturating_sub(inner.window_since) >= micros(self.config.spread);
        if row || share {
            self.open(&mut inner, now);
        }
    }

    fn tell_probe(&self, went: Went) {
        let now = self.now();
        let mut inner = self.lock();
        inner.probing = inner.probing.saturating_sub(1);
        if self.state() != State::HalfOpen {
            return;
        }
        match went {
            Went::Unknown => {}
            Went::Badly => self.open(&mut inner, now),
            Went::Well => {
                inner.succeeded += 1;
                if inner.succeeded >= SUCCESSES {
                    *inner = Inner::default();
                    self.quiet.store(true, Ordering::Relaxed);
                    self.turn(State::Closed);
                }
            }
        }
    }

    fn open(&self, inner: &mut Inner, now: u64) {
        let longer = 1_u32 << inner.attempts.min(16);
        let wait = (self.config.backoff * longer).min(self.config.backoff_max);
        self.until.store(
            now.saturating_add(micros(jittered(wait, 0.25))),
            Ordering::Relaxed,
        );
        *inner = Inner {
            attempts: inner.attempts.saturating_add(1),
            ..Inner::default()
        };
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.turn(State::Open);
    }

    /// Under the lock.
    fn turn(&self, state: State) {
        let from = self.state();
        self.state.store(state as u8, Ordering::Relaxed);
        self.changes.send_replace(state);
        // One line for each change that matters: an outage would otherwise say "open" and "half open" every second.
        match (from, state) {
            (State::Closed, State::Open) => tracing::error!(
                state = state.name(),
                "the store fails: it is left alone, and the failure policy answers"
            ),
            (_, State::Closed) => {
                tracing::info!(state = state.name(), "the store answers again");
            }
            _ => tracing::debug!(state = state.name(), "the store is tried"),
        }
    }

    fn now(&self) -> u64 {
        self.clock.now().as_micros()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Counts are as good after a panic as before it.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pass<'_> {
    /// Tells how the call went.
    pub fn tell(mut self, went: Went) {
        self.told = true;
        self.breaker.tell(self.probe, went);
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if !self.told {
            self.breaker.tell(self.probe, Went::Unknown);
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
