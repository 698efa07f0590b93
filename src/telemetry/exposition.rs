//! The reference's counters as text: under its Prometheus names, and under its statsd names.

use std::{
    collections::BTreeMap,
    fmt::{Display, Write},
    sync::atomic::Ordering,
};

use super::{
    buckets::Examples,
    metrics::{Method, Metrics},
    names::{Label, sanitised},
    process,
    series::{NAMES, Sums},
    store,
};
use crate::shown::Escaped;

/// What each of [`NAMES`] counts.
const HELP: [&str; NAMES.len()] = [
    "Hits asked of the rule",
    "Hits over the rule's limit",
    "Hits within the limit but near it",
    "Hits within the limit",
    "Hits over the limit of a rule in shadow mode",
    "Hits refused without asking the store",
    "Hits given back",
];

/// Writes the counters in the Prometheus text format.
pub(super) fn prometheus(metrics: &Metrics) -> String {
    let mut text = String::with_capacity(4096);
    // Deeper levels are summed into the first two, as the reference's mapping does.
    let mut series: BTreeMap<(String, String, String), Sums> = BTreeMap::new();
    metrics.catalogue.each(|domain, levels, sums| {
        let level = |index: usize| {
            levels
                .get(index)
                .map_or_else(String::new, |text| sanitised(text))
        };
        let total = series
            .entry((sanitised(domain), level(0), level(1)))
            .or_default();
        for (total, sum) in total.iter_mut().zip(sums) {
            *total += sum;
        }
    });
    for (index, name) in NAMES.iter().enumerate() {
        let name = format!("ratelimit_service_rate_limit_{name}");
        head(&mut text, &name, HELP[index]);
        for ((domain, key1, key2), sums) in &series {
            let _ = write!(
                text,
                "{name}{{domain=\"{}\",key1=\"{}\"",
                Label(domain),
                Label(key1)
            );
            if !key2.is_empty() {
                let _ = write!(text, ",key2=\"{}\"", Label(key2));
            }
            let _ = writeln!(text, "}} {}", sums[index]);
        }
    }
    let name = "ratelimit_service_should_rate_limit_error";
    head(&mut text, name, "Calls that were not decided");
    for (kind, errors) in [
        ("redis_error", &metrics.store_errors),
        ("service_error", &metrics.service_errors),
    ] {
        let errors = errors.load(Ordering::Relaxed);
        let _ = writeln!(text, "{name}{{err_type=\"{kind}\"}} {errors}");
    }
    let name = "ratelimit_service_total_requests";
    head(&mut text, name, "Calls that arrived");
    for method in Method::GRPC {
        let calls = metrics.calls[method as usize].load(Ordering::Relaxed);
        let _ = writeln!(text, "{name}{{grpc_method=\"{}\"}} {calls}", method.name());
    }
    for (name, help, value) in [
        (
            "ratelimit_service_config_load_success",
            "Loads of rules that were put in force",
            metrics.own.loads.load(Ordering::Relaxed),
        ),
        (
            "ratelimit_service_config_load_error",
            "Loads of rules that were refused",
            metrics.own.refused_loads.load(Ordering::Relaxed),
        ),
        (
            "ratelimit_service_global_shadow_mode",
            "Refusals that the global shadow mode turned into OK",
            metrics.shadowed.load(Ordering::Relaxed),
        ),
        (
            "ratelimit_service_domain_not_found",
            "Descriptors of domains without rules",
            metrics.catalogue.unknown_domains().values().sum(),
        ),
        (
            "palang_series_dropped_total",
            "Decisions counted under other, because request text had made too many series",
            metrics.catalogue.dropped(),
        ),
    ] {
        head(&mut text, name, help);
        line(&mut text, name, value);
    }
    let pools = metrics.figures.pools();
    for (kind, figures) in [("gauge", pools.gauges), ("untyped", pools.counters)] {
        for (name, value) in figures {
            let name = name.replace('.', "_");
            typed_head(&mut text, &name, "Connections to Redis", kind);
            line(&mut text, &name, value);
        }
    }
    metrics.sources.prometheus(&mut text);
    store::write(&mut text, metrics);
    process::write(&mut text);
    text
}

/// Writes how long decisions and the store take, in the Prometheus text format or, with examples, in OpenMetrics.
pub(super) fn latencies(text: &mut String, metrics: &Metrics, examples: Examples) {
    for (name, help, times) in [
        (
            "palang_decision_duration_seconds",
            "Time to decide a request: rules, store and accounting",
            &metrics.own.decision_time,
        ),
        (
            "palang_store_duration_seconds",
            "Time the store took for a request, waiting for its turn included",
            &metrics.own.store_time,
        ),
    ] {
        times.write(text, name, help, examples);
    }
}

/// The counters under their statsd names.
pub(super) fn counters(metrics: &Metrics) -> BTreeMap<String, u64> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    metrics.catalogue.each(|domain, levels, sums| {
        let mut key = format!("ratelimit.service.rate_limit.{}", sanitised(domain));
        for level in levels {
            key.push('.');
            key.push_str(&sanitised(level));
        }
        for (name, sum) in NAMES.iter().zip(sums) {
            *lines.entry(format!("{key}.{name}")).or_default() += sum;
        }
    });
    for (domain, count) in metrics.catalogue.unknown_domains() {
        let domain = sanitised(&domain);
        let name = format!("ratelimit.service.rate_limit.{domain}.domain_not_found");
        *lines.entry(name).or_default() += count;
    }
    for (name, counter) in [
        ("call.should_rate_limit.redis_error", &metrics.store_errors),
        (
            "call.should_rate_limit.service_error",
            &metrics.service_errors,
        ),
        ("config_load_success", &metrics.own.loads),
        ("config_load_error", &metrics.own.refused_loads),
        ("global_shadow_mode", &metrics.shadowed),
    ] {
        lines.insert(
            format!("ratelimit.service.{name}"),
            counter.load(Ordering::Relaxed),
        );
    }
    for method in Method::GRPC {
        lines.insert(
            format!("ratelimit_server.{}.total_requests", method.name()),
            metrics.calls[method as usize].load(Ordering::Relaxed),
        );
    }
    lines.extend(metrics.figures.pools().counters);
    lines
}

/// The gauges under their statsd names.
pub(super) fn gauges(metrics: &Metrics) -> Vec<(String, u64)> {
    let mut gauges = metrics.sources.gauges();
    gauges.extend(metrics.figures.pools().gauges);
    gauges
}

/// Writes the counters under their statsd names.
pub(super) fn stats(metrics: &Metrics) -> String {
    let mut text = String::new();
    for (name, value) in counters(metrics) {
        // A name is part of a line: what would end it early is shown, not written.
        let name = name.replace(['\n', '\r'], "_");
        let _ = writeln!(text, "{}: {value}", Escaped(&name));
    }
    text
}

/// The lines that introduce a counter. The reference's names lack the ending that a counter's name should have, and
/// dashboards ask for them by these names: those are said to be of no type, which queries do not mind and checkers pass.
pub(super) fn head(text: &mut String, name: &str, help: &str) {
    let kind = if name.ends_with("_total") {
        "counter"
    } else {
        "untyped"
    };
    typed_head(text, name, help, kind);
}

/// The lines that introduce a metric of type `kind`.
pub(super) fn typed_head(text: &mut String, name: &str, help: &str, kind: &str) {
    let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}");
}

/// One sample without labels.
pub(super) fn line(text: &mut String, name: &str, value: impl Display) {
    let _ = writeln!(text, "{name} {value}");
}
