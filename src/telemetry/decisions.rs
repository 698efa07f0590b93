//! Our own counters of decisions, by rule. Their labels come from rules only, so that what operators wrote bounds them.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric as _, MetricEncoder, NoLabelSet},
    metrics::{MetricType, exemplar::CounterWithExemplar},
};

use super::buckets::{Buckets, SHARE};
use crate::{
    algorithm::{Outcome, Quota, Source},
    rules::{Limit, RuleId, Rules},
    time::Timestamp,
};

/// What stands for the rule where the limit came with the request.
pub(super) const BROUGHT: &str = "(request)";

/// For how many loads the counters of a rule that is gone are kept: it may come back.
const KEPT: u64 = 10;

/// How a decision came out for one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Code {
    Ok,
    OverLimit,
    /// Over the limit of a rule in shadow mode, or of one in a call that was let through, and so OK.
    Shadow,
}

impl Code {
    const ALL: [Self; 3] = [Self::Ok, Self::OverLimit, Self::Shadow];

    const fn of(is_allowed: bool, is_shadow: bool) -> Self {
        match (is_allowed, is_shadow) {
            (true, _) => Self::Ok,
            (false, true) => Self::Shadow,
            (false, false) => Self::OverLimit,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::OverLimit => "over_limit",
            Self::Shadow => "shadow",
        }
    }
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Store,
    DenyCache,
    /// This replica's own count, while the store cannot decide.
    Local,
    /// Nobody counted: the failure policy answered.
    Policy,
}

impl Mode {
    const ALL: [Self; 4] = [Self::Store, Self::DenyCache, Self::Local, Self::Policy];

    const fn of(source: Source) -> Self {
        match source {
            Source::Counter => Self::Store,
            Source::DenyCache => Self::DenyCache,
            Source::Local => Self::Local,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::DenyCache => "deny_cache",
            Self::Local => "local",
            Self::Policy => "policy",
        }
    }
}

/// The counters of one rule.
#[derive(Debug)]
pub(super) struct RuleMetrics {
    decisions: [[AtomicU64; Mode::ALL.len()]; Code::ALL.len()],
    hits_over: AtomicU64,
    utilization: Buckets,
    /// The load it was last in force with.
    generation: AtomicU64,
    limit: AtomicU64,
    window: AtomicU64,
    is_bucket: AtomicU64,
    /// The trace of a call that was refused, and when.
    example: Mutex<Option<(String, Timestamp)>>,
}

impl RuleMetrics {
    fn new() -> Self {
        Self {
            decisions: Default::default(),
            hits_over: AtomicU64::new(0),
            utilization: Buckets::new(SHARE),
            generation: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            window: AtomicU64::new(0),
            is_bucket: AtomicU64::new(0),
            example: Mutex::default(),
        }
    }

    /// Remembers the trace of a call that was refused. Only calls that are followed come here.
    pub(super) fn example(&self, trace: &str, now: Timestamp) {
        let mut example = self.example.lock().unwrap_or_else(PoisonError::into_inner);
        *example = Some((trace.to_owned(), now));
    }

    /// Adds a decision that the failure policy made.
    pub(super) fn add_policy(&self, is_over: bool, is_shadow: bool) {
        let code = Code::of(!is_over, is_shadow);
        self.decisions[code as usize][Mode::Policy as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds one decision of `hits`.
    pub(super) fn add(&self, outcome: &Outcome, quota: &Quota, hits: i64, is_shadow: bool) {
        let code = Code::of(outcome.allowed, is_shadow);
        let mode = Mode::of(outcome.source);
        self.decisions[code as usize][mode as usize].fetch_add(1, Ordering::Relaxed);
        if code == Code::OverLimit {
            self.hits_over
                .fetch_add(hits.unsigned_abs(), Ordering::Relaxed);
        }
        let capacity = quota.capacity();
        let share = if capacity == 0 {
            1_000
        } else {
            (u128::from(outcome.used) * 1_000 / u128::from(capacity)).min(u64::MAX.into()) as u64
        };
        self.utilization.observe(share);
    }
}

/// The counters of all rules. Cloning it gives another handle on the same.
#[derive(Clone, Debug, Default)]
pub(super) struct Decisions(Arc<Inner>);

/// A rule's domain and path, or what stands for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Name {
    domain: Box<str>,
    rule: Box<str>,
}

#[derive(Debug, Default)]
struct Inner {
    rules: RwLock<BTreeMap<Name, Arc<RuleMetrics>>>,
    generation: AtomicU64,
}

/// The counters that belong to one snapshot of the rules.
#[derive(Debug, Default)]
pub(super) struct Handles {
    /// By [`RuleId::index`]; `None` for a rule without a limit.
    rules: Vec<Option<Arc<RuleMetrics>>>,
    /// By domain, for limits that come with requests.
    brought: HashMap<Box<str>, Arc<RuleMetrics>>,
}

impl Handles {
    pub(super) fn of(&self, rule: Option<RuleId>, domain: &str) -> Option<&RuleMetrics> {
        match rule {
            Some(rule) => self.rules.get(rule.index())?.as_deref(),
            None => self.brought.get(domain).map(AsRef::as_ref),
        }
    }
}

impl Decisions {
    /// The counters of these rules, which are in force from now on.
    pub(super) fn in_force(&self, rules: &Rules) -> Handles {
        let mut known = self.0.rules.write().unwrap_or_else(PoisonError::into_inner);
        let generation = self.0.generation.fetch_add(1, Ordering::Relaxed) + 1;
        let mut of = |domain: &str, rule: &str| {
            let name = Name {
                domain: domain.into(),
                rule: rule.into(),
            };
            let found = known
                .entry(name)
                .or_insert_with(|| Arc::new(RuleMetrics::new()));
            found.generation.store(generation, Ordering::Relaxed);
            Arc::clone(found)
        };
        let mut handles = Handles {
            rules: vec![None; rules.rules().len()],
            brought: rules
                .domains()
                .map(|(domain, _)| (domain.into(), of(domain, BROUGHT)))
                .collect(),
        };
        for (domain, id) in rules.placed() {
            let rule = rules.rule(id);
            if let Some(limit) = &rule.limit {
                let found = of(domain, &rule.path);
                found.configure(limit);
                handles.rules[id.index()] = Some(found);
            }
        }
        known.retain(|_, rule| rule.generation.load(Ordering::Relaxed) + KEPT > generation);
        handles
    }

    /// How often rules have been put in force.
    pub(super) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Relaxed)
    }
}

impl RuleMetrics {
    fn encode_hits_over(
        &self,
        family: &mut MetricEncoder<'_>,
        label: &[(&str, &str); 2],
    ) -> Result<(), fmt::Error> {
        let example = self.example.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((trace, at)) = example.clone() else {
            return counter(family, label, &self.hits_over, label[1].1 != BROUGHT);
        };
        let at = UNIX_EPOCH + Duration::from_micros(at.as_micros());
        let hits = CounterWithExemplar::<[(&str, String); 1]>::default();
        let count = self.hits_over.load(Ordering::Relaxed);
        hits.inc_by(count, Some([("trace_id", trace)]), Some(at));
        hits.encode(family.encode_family(label)?)
    }

    fn configure(&self, limit: &Limit) {
        let requests = limit.requests_per_unit.into();
        self.limit.store(requests, Ordering::Relaxed);
        self.window.store(limit.window, Ordering::Relaxed);
        let is_bucket = matches!(limit.quota, Quota::TokenBucket { .. });
        self.is_bucket.store(is_bucket.into(), Ordering::Relaxed);
    }
}

impl Collector for Decisions {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let rules = self.0.rules.read().unwrap_or_else(PoisonError::into_inner);
        let generation = self.generation();
        let rows = || {
            rules.iter().map(|(name, metrics)| {
                let label = [("domain", &*name.domain), ("rule", &*name.rule)];
                (label, &**metrics)
            })
        };

        encoder
            .encode_descriptor(
                "palang_rules_generation",
                "How often this process has put rules in force",
                None,
                MetricType::Gauge,
            )?
            .encode_gauge(&generation)?;
        let mut family = encoder.encode_descriptor(
            "palang_decisions",
            "Decided descriptors, by rule, code and who decided",
            None,
            MetricType::Counter,
        )?;
        for ([domain, rule], metrics) in rows() {
            for code in Code::ALL {
                for mode in Mode::ALL {
                    let count = &metrics.decisions[code as usize][mode as usize];
                    let label = [domain, rule, ("code", code.name()), ("mode", mode.name())];
                    let needed = code == Code::Ok && mode == Mode::Store && rule.1 != BROUGHT;
                    counter(&mut family, &label, count, needed)?;
                }
            }
        }

        let mut family = encoder.encode_descriptor(
            "palang_rate_limit_exceeded",
            "Hits refused, by rule",
            None,
            MetricType::Counter,
        )?;
        for (label, metrics) in rows() {
            metrics.encode_hits_over(&mut family, &label)?;
        }

        for (name, help, of_bucket) in [
            (
                "palang_token_bucket_utilization_ratio",
                "Share of the bucket that is taken after a decision, by rule with a token bucket",
                1,
            ),
            (
                "palang_limit_utilization_ratio",
                "Share of the limit that is taken after a decision, by rule with another algorithm",
                0,
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
            for (label, metrics) in rows() {
                let fits = metrics.is_bucket.load(Ordering::Relaxed) == of_bucket;
                if fits && !metrics.utilization.is_empty() {
                    metrics.utilization.encode(family.encode_family(&label)?)?;
                }
            }
        }

        let configured = || {
            rows().filter(|(label, metrics)| {
                label[1].1 != BROUGHT && metrics.generation.load(Ordering::Relaxed) == generation
            })
        };
        let mut family = encoder.encode_descriptor(
            "palang_configured_limit",
            "Requests that a rule in force allows in one unit or window",
            None,
            MetricType::Gauge,
        )?;
        for (label, metrics) in configured() {
            let limit = metrics.limit.load(Ordering::Relaxed);
            family.encode_family(&label)?.encode_gauge(&limit)?;
        }
        let mut family = encoder.encode_descriptor(
            "palang_configured_window_seconds",
            "Unit or window of a rule in force",
            None,
            MetricType::Gauge,
        )?;
        for (label, metrics) in configured() {
            let window = metrics.window.load(Ordering::Relaxed) as f64 / 1e6;
            family.encode_family(&label)?.encode_gauge(&window)?;
        }
        Ok(())
    }
}

/// One series, unless it is zero and not `needed`: most rules never meet most of what could be counted.
fn counter(
    family: &mut MetricEncoder<'_>,
    label: &impl EncodeLabelSet,
    count: &AtomicU64,
    needed: bool,
) -> Result<(), fmt::Error> {
    let count = count.load(Ordering::Relaxed);
    if count == 0 && !needed {
        return Ok(());
    }
    family
        .encode_family(label)?
        .encode_counter::<NoLabelSet, u64, f64>(&count, None)
}
