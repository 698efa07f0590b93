//! The figures of the store's guard.

use std::fmt::Write;

use super::exposition::{head, line, typed_head};
use crate::store::guard::{Shared, State};

/// Writes them in the Prometheus text format.
pub(super) fn write(text: &mut String, guard: &Shared) {
    let name = "palang_store_errors_total";
    head(text, name, "Counters that the store could not decide");
    for (kind, count) in guard.errors() {
        let _ = writeln!(text, "{name}{{kind=\"{kind}\"}} {count}");
    }
    let name = "palang_store_breaker";
    typed_head(
        text,
        name,
        "1 for the state the circuit breaker is in",
        "gauge",
    );
    let now = guard.breaker().state();
    for state in State::ALL {
        let _ = writeln!(
            text,
            "{name}{{state=\"{}\"}} {}",
            state.name(),
            u8::from(state == now)
        );
    }
    let name = "palang_store_breaker_opened_total";
    head(text, name, "Times the circuit breaker opened");
    line(text, name, guard.breaker().times_opened());
    for (name, help, value) in [
        (
            "palang_local_keys",
            "Counters this replica keeps by itself",
            guard.local_keys(),
        ),
        (
            "palang_replicas",
            "Replicas that share a limit while each counts by itself",
            guard.replicas().count(),
        ),
    ] {
        typed_head(text, name, help, "gauge");
        line(text, name, value);
    }
}
