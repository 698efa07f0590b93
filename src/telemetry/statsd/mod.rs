//! Statistics for a statsd receiver: what was counted since the last report, at each interval, from a thread of its
//! own.
//!
//! No decision waits for it: counters are read where they are, and the times of calls pass through a queue that is
//! never waited at. While the receiver is away nothing is lost of the counters and nothing piles up: what has not been
//! handed over is part of the next report.

mod args;
mod line;
mod mogrify;
mod socket;
mod timings;

use std::{
    collections::HashMap,
    io,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub use args::{Args, Names, Pairs};
use line::{Value, Writer};
pub use mogrify::{MogrifierError, Mogrifiers};
use socket::Socket;
pub(super) use timings::Timings;

use super::{exposition, metrics::Metrics};

/// Longest that times of calls wait for company.
const TIMERS: Duration = Duration::from_secs(1);

/// Time between two lines of the log about a receiver that is away.
const COMPLAIN: Duration = Duration::from_secs(60);

/// Time for the last report. A name server that says nothing could hold it up for much longer.
const LAST: Duration = Duration::from_secs(3);

/// How lines travel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// One stream of lines.
    #[default]
    Tcp,
    /// Datagrams of several lines.
    Udp,
}

/// What is sent and where to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The receiver.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// How lines travel.
    pub protocol: Protocol,
    /// Time between two reports.
    pub interval: Duration,
    /// On every statistic, sorted.
    pub tags: Vec<(String, String)>,
    /// For DogStatsD: tags are sent as tags, and names are changed by these.
    pub dog: Option<Mogrifiers>,
}

/// Sends until dropped; then sends what is left, if that takes no longer than three seconds.
#[derive(Debug)]
pub struct Reporter {
    /// Told by being dropped.
    stop: Option<Sender<()>>,
    /// Ends with the thread: nothing is ever sent.
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

impl Reporter {
    /// Starts to send.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn spawn(metrics: Arc<Metrics>, options: Options) -> io::Result<Self> {
        metrics.timings.listen();
        let (stop, stopped) = channel();
        let (end, ended) = channel();
        let mut room = Room {
            metrics,
            options,
            writer: Writer::default(),
            socket: Socket::default(),
            told: HashMap::new(),
            complained: None,
            away: false,
        };
        let thread = thread::Builder::new()
            .name("statsd".to_owned())
            .spawn(move || {
                // Dropped at the end, whichever way it comes.
                let _end: Sender<()> = end;
                room.run(&stopped);
            })?;
        Ok(Self {
            stop: Some(stop),
            ended,
            thread: Some(thread),
        })
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.ended.recv_timeout(LAST) == Err(RecvTimeoutError::Timeout) {
            tracing::warn!(
                "the last report to the statsd receiver takes too long: it is left behind"
            );
            return;
        }
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the statsd reporter panicked");
        }
    }
}

struct Room {
    metrics: Arc<Metrics>,
    options: Options,
    writer: Writer,
    socket: Socket,
    /// What the receiver knows of each counter.
    told: HashMap<String, u64>,
    complained: Option<Instant>,
    away: bool,
}

/// A line, and what the receiver knows once it has it.
struct Entry {
    line: String,
    counter: Option<(String, u64)>,
}

impl Room {
    fn run(&mut self, stopped: &Receiver<()>) {
        let tick = self.options.interval.min(TIMERS);
        let mut due = Instant::now() + self.options.interval;
        loop {
            let ends = stopped.recv_timeout(tick) != Err(RecvTimeoutError::Timeout);
            let mut entries = self.timers();
            if ends || Instant::now() >= due {
                due = Instant::now() + self.options.interval;
                entries.extend(self.counters());
                entries.extend(self.gauges());
            }
            self.send(entries);
            if ends {
                return;
            }
        }
    }

    fn timers(&self) -> Vec<Entry> {
        let (calls, skipped) = self.metrics.timings.take();
        let kept = calls.len() as f64;
        let rate = kept / (kept + skipped as f64);
        calls
            .into_iter()
            .filter_map(|call| {
                let name = format!("ratelimit_server.{}.response_time", call.method.name());
                let millis = call.micros as f64 / 1e3;
                self.entry(&name, Value::Timer { millis, rate })
            })
            .collect()
    }

    /// Counters that grew.
    fn counters(&mut self) -> Vec<Entry> {
        let counters = exposition::counters(&self.metrics);
        // A series that was dropped begins again at zero if it is made again.
        self.told
            .retain(|name, told| counters.get(name).is_some_and(|now| now >= told));
        counters
            .into_iter()
            .filter_map(|(name, now)| {
                let grown = now - self.told.get(&name).copied().unwrap_or(0);
                if grown == 0 {
                    return None;
                }
                let entry = self.entry(&name, Value::Counter(grown))?;
                Some(Entry {
                    counter: Some((name, now)),
                    ..entry
                })
            })
            .collect()
    }

    fn gauges(&self) -> Vec<Entry> {
        exposition::gauges(&self.metrics)
            .into_iter()
            .filter_map(|(name, now)| self.entry(&name, Value::Gauge(now)))
            .collect()
    }

    fn entry(&self, name: &str, value: Value) -> Option<Entry> {
        Some(Entry {
            line: self.writer.line(&self.options, name, value)?,
            counter: None,
        })
    }

    /// Hands the lines over, piece by piece. After the first piece that cannot be, the rest waits for the next time.
    fn send(&mut self, entries: Vec<Entry>) {
        let most = Socket::piece(&self.options);
        let mut piece = String::new();
        let mut counters = Vec::new();
        for entry in entries {
            if !piece.is_empty() && piece.len() + entry.line.len() >= most {
                if !self.hand_over(&piece, &mut counters) {
                    return;
                }
                piece.clear();
            }
            if !piece.is_empty() {
                piece.push('\n');
            }
            piece.push_str(&entry.line);
            counters.extend(entry.counter);
        }
        if !piece.is_empty() {
            self.hand_over(&piece, &mut counters);
        }
    }

    fn hand_over(&mut self, piece: &str, counters: &mut Vec<(String, u64)>) -> bool {
        match self.socket.send(&self.options, piece) {
            Ok(()) => {
                self.told.extend(counters.drain(..));
                if self.away {
                    self.away = false;
                    tracing::info!(host = self.options.host, "the statsd receiver is back");
                }
                true
            }
            Err(cause) => {
                self.away = true;
                let quiet = self
                    .complained
                    .is_some_and(|complained| complained.elapsed() < COMPLAIN);
                if !quiet {
                    self.complained = Some(Instant::now());
                    tracing::warn!(
                        host = self.options.host,
                        port = self.options.port,
                        cause = cause.to_string(),
                        "the statsd receiver cannot be reached: its counters wait"
                    );
                }
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics;

    #[test]
    fn a_thread_that_hangs_is_left_behind() {
        let (stop, stopped) = channel();
        let (end, ended) = channel();
        let (release, released) = channel::<()>();
        let thread = thread::spawn(move || {
            let _end: Sender<()> = end;
            while stopped.recv().is_ok() {}
            // As in the resolver: until somebody answers.
            while released.recv().is_ok() {}
        });
        let began = Instant::now();
        drop(Reporter {
            stop: Some(stop),
            ended,
            thread: Some(thread),
        });
        let took = began.elapsed();
        assert!(took >= LAST && took < LAST * 3, "{took:?}");
        drop(release);
    }

    #[test]
    fn what_began_again_is_told_from_zero() {
        let hits = "ratelimit.service.call.should_rate_limit.service_error";
        let metrics = Arc::new(Metrics::new(metrics::Args::default()));
        metrics.no_rules();
        let mut room = Room {
            metrics,
            options: Options::default(),
            writer: Writer::default(),
            socket: Socket::default(),
            told: [(hits.to_owned(), 7), ("gone".to_owned(), 7)].into(),
            complained: None,
            away: false,
        };
        let told: Vec<_> = room
            .counters()
            .into_iter()
            .filter_map(|entry| Some((entry.line, entry.counter?)))
            .collect();
        assert_eq!(
            told,
            [(format!("{hits}:1|c"), (hits.to_owned(), 1))],
            "all of what is there now, and nothing else"
        );
        assert!(room.told.is_empty(), "{:?}", room.told);
    }
}
