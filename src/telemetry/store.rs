//! The figures of the stores' guards.

use std::{fmt::Write, sync::PoisonError};

use super::{
    exposition::{head, typed_head},
    metrics::Metrics,
};
use crate::store::guard::State;

/// Writes them in the Prometheus text format; nothing where counters live in this process.
pub(super) fn write(text: &mut String, metrics: &Metrics) {
    let stores = metrics
        .stores
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    if stores.is_empty() {
        return;
    }
    let name = "palang_store_errors_total";
    head(text, name, "Counters that the store could not decide");
    for (store, guard) in &stores {
        for (kind, count) in guard.errors() {
            let _ = writeln!(text, "{name}{{store=\"{store}\",kind=\"{kind}\"}} {count}");
        }
    }
    let name = "palang_store_breaker";
    let help = "1 for the state the circuit breaker is in";
    typed_head(text, name, help, "gauge");
    for (store, guard) in &stores {
        let now = guard.breaker().state();
        for state in State::ALL {
            let _ = writeln!(
                text,
                "{name}{{store=\"{store}\",state=\"{}\"}} {}",
                state.name(),
                u8::from(state == now)
            );
        }
    }
    let name = "palang_store_breaker_opened_total";
    head(text, name, "Times the circuit breaker opened");
    for (store, guard) in &stores {
        let opened = guard.breaker().times_opened();
        let _ = writeln!(text, "{name}{{store=\"{store}\"}} {opened}");
    }
    let name = "palang_local_keys";
    typed_head(text, name, "Counters this replica keeps by itself", "gauge");
    for (store, guard) in &stores {
        let keys = guard.local_keys();
        let _ = writeln!(text, "{name}{{store=\"{store}\"}} {keys}");
    }
    let name = "palang_replicas";
    let help = "Replicas that share a limit while each counts by itself";
    typed_head(text, name, help, "gauge");
    let replicas = stores.iter().map(|(_, guard)| guard.replicas().count());
    let _ = writeln!(text, "{name} {}", replicas.max().unwrap_or(1));
}
