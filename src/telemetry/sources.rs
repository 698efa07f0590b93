//! What other rooms know and only show: where the rules come from, which of them are not in force as they are
//! written, and the memory of refusals. Read when somebody asks.

use std::{
    fmt::Write as _,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use arc_swap::ArcSwap;

use super::{
    exposition::{head, line, typed_head},
    metrics::Metrics,
    names::Label,
};
use crate::{
    algorithm::Source,
    rules::{
        self, CompileError,
        source::{Instead, Stale, xds},
    },
    store::deny_cache::Refusals,
    time::{Clock, Timestamp},
};

/// Longest text of a version that becomes a label, characters: it is the control plane's own.
const LONGEST: usize = 200;

/// Most reasons that are shown for one file.
const REASONS: usize = 20;

/// The state of the rules, as far as somebody has to act on it.
#[derive(Debug, Default)]
struct Rules {
    /// Of what is in force; `None` before the first.
    hash: Option<u64>,
    /// What is not in force as it is written, one line each.
    stale: Vec<String>,
    /// Files among them.
    files: usize,
}

/// A control plane, and since when it is followed.
#[derive(Debug)]
struct Followed {
    status: Arc<xds::Status>,
    clock: Clock,
    since: Timestamp,
}

/// Where the figures are.
#[derive(Debug, Default)]
pub(super) struct Sources {
    rules: ArcSwap<Rules>,
    xds: OnceLock<Followed>,
    refusals: OnceLock<Arc<Refusals>>,
    /// Counters that were answered by the memory of refusals, and those that the store decided.
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Sources {
    pub(super) fn follow(&self, status: Arc<xds::Status>) {
        let clock = Clock::system();
        let since = clock.now();
        let _ = self.xds.set(Followed {
            status,
            clock,
            since,
        });
    }

    pub(super) fn remember(&self, refusals: Arc<Refusals>) {
        let _ = self.refusals.set(refusals);
    }

    /// Counts who answered for a counter: one look at the memory of refusals for each, as in the reference.
    pub(super) fn answered(&self, source: Source) {
        if self.refusals.get().is_some() {
            let counter = match source {
                Source::DenyCache => &self.hits,
                _ => &self.misses,
            };
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn loaded(&self, hash: u64) {
        self.rules.store(Arc::new(Rules {
            hash: Some(hash),
            ..Rules::default()
        }));
    }

    /// Some files are not in force as they are written.
    pub(super) fn stale(&self, stale: &[Stale]) {
        let mut lines = Vec::new();
        for stale in stale {
            let instead = match stale.instead {
                Instead::LastGood => "stale, as it last was",
                Instead::Nothing => "stale, not in force at all",
            };
            for mistake in stale.mistakes.iter().take(REASONS) {
                lines.push(format!("# {instead}: {}", one_line(&mistake.to_string())));
            }
        }
        self.set_stale(lines, stale.len());
    }

    /// Nothing was taken: what is in force stays as a whole.
    pub(super) fn refused(&self, error: &CompileError) {
        let mut files: Vec<&str> = error
            .mistakes
            .iter()
            .map(|mistake| &*mistake.place.file)
            .collect();
        files.sort_unstable();
        files.dedup();
        let lines = error.mistakes.iter().take(REASONS).map(|mistake| {
            format!(
                "# stale, all as they last were: {}",
                one_line(&mistake.to_string())
            )
        });
        self.set_stale(lines.collect(), files.len());
    }

    fn set_stale(&self, stale: Vec<String>, files: usize) {
        let hash = self.rules.load().hash;
        self.rules.store(Arc::new(Rules { hash, stale, files }));
    }

    /// What is not in force as it is written, as lines; empty when all is.
    pub(super) fn stale_lines(&self) -> String {
        let mut text = String::new();
        for line in &self.rules.load().stale {
            text.push_str(line);
            text.push('\n');
        }
        text
    }

    /// The reference's gauges, by their statsd names.
    pub(super) fn gauges(&self) -> Vec<(String, u64)> {
        let Some(refusals) = self.refusals.get() else {
            return Vec::new();
        };
        let hits = self.hits.load(Ordering::Relaxed);
        let misses = self.misses.load(Ordering::Relaxed);
        let gone = refusals.gone();
        // The first is a moment in the reference's cache, by which it chooses what goes. Here nothing goes by it.
        [
            ("averageAccessTime", 0),
            ("entryCount", refusals.len() as u64),
            ("evacuateCount", gone.evicted),
            ("expiredCount", gone.expired),
            ("hitCount", hits),
            ("lookupCount", hits + misses),
            ("missCount", misses),
            ("overwriteCount", gone.overwritten),
        ]
        .into_iter()
        .map(|(name, value)| (format!("ratelimit.localcache.{name}"), value))
        .collect()
    }

    pub(super) fn prometheus(&self, text: &mut String) {
        let rules = self.rules.load();
        let name = "palang_rules_stale_files";
        typed_head(
            text,
            name,
            "Rule files that are not in force as they are written",
            "gauge",
        );
        line(text, name, rules.files);
        if let Some(hash) = rules.hash {
            let name = "palang_rules_info";
            typed_head(text, name, "The rules in force", "gauge");
            let _ = writeln!(text, "{name}{{hash=\"{hash:016x}\"}} 1");
        }
        for (name, now) in self.gauges() {
            let name = name.replace('.', "_");
            typed_head(text, &name, "Figure of the memory of refusals", "gauge");
            line(text, &name, now);
        }
        if let Some(followed) = self.xds.get() {
            followed.write(text);
        }
    }
}

impl Metrics {
    /// Counts rules that were put in force.
    pub fn rules_loaded(&self, rules: &rules::Rules) {
        self.own.loaded(self.clock.now());
        self.sources.loaded(rules.hash());
    }

    /// Counts rules that were refused.
    pub fn rules_refused(&self, error: &CompileError) {
        self.own.refused();
        self.sources.refused(error);
    }

    /// Counts a load that left these files as they last were. Comes after the rules it did load.
    pub fn rules_stale(&self, stale: &[Stale]) {
        self.own.refused();
        self.sources.stale(stale);
    }

    /// What of the rules is not in force as it is written, one line each; empty when all is.
    pub fn stale_rules(&self) -> String {
        self.sources.stale_lines()
    }

    /// Shows how the stream of the control plane is doing from now on.
    pub fn show_xds(&self, status: Arc<xds::Status>) {
        self.sources.follow(status);
    }

    /// Shows the memory of refusals from now on.
    pub fn show_refusals(&self, refusals: Arc<Refusals>) {
        self.sources.remember(refusals);
    }
}

impl Followed {
    fn write(&self, text: &mut String) {
        let status = &self.status;
        let name = "palang_xds_connected";
        typed_head(
            text,
            name,
            "Whether there is a stream to the control plane",
            "gauge",
        );
        line(text, name, u8::from(status.connected()));
        // One that never pushed anything is to be noticed as one that stopped.
        let updated = status.updated().unwrap_or(self.since).as_micros();
        let age = self.clock.now().as_micros().saturating_sub(updated);
        let name = "palang_xds_last_update_age_seconds";
        typed_head(
            text,
            name,
            "Time since the control plane's rules were last accepted, or since the start",
            "gauge",
        );
        line(text, name, age as f64 / 1e6);
        let version = status.version().unwrap_or_default();
        let version: String = version.chars().take(LONGEST).collect();
        let name = "palang_xds_version_info";
        typed_head(
            text,
            name,
            "The control plane's name for the rules in force",
            "gauge",
        );
        let _ = writeln!(text, "{name}{{version=\"{}\"}} 1", Label(&version));
        for (name, help, value) in [
            (
                "palang_xds_accepted_total",
                "Pushes of the control plane that were accepted",
                status.accepted(),
            ),
            (
                "palang_xds_rejected_total",
                "Pushes of the control plane that were refused",
                status.rejected(),
            ),
            (
                "palang_xds_streams_total",
                "Streams to the control plane since the start",
                status.streams(),
            ),
        ] {
            head(text, name, help);
            line(text, name, value);
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
