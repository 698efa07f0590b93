//! Settings of the traces, under the reference's names.

use opentelemetry::trace::TraceId;

use crate::{
    go_values::{self, Malformed},
    telemetry::otlp::{Protocol, protocol},
};

/// Settings of the traces.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[group(skip)]
#[command(next_help_heading = "Traces")]
pub struct Args {
    /// Send traces to a collector.
    #[arg(long, env = "TRACING_ENABLED", default_value = "false", value_parser = go_values::boolean,
          action = clap::ArgAction::Set, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub tracing_enabled: bool,
    /// http (OTLP over HTTP, protobuf) or grpc.
    #[arg(long, env = "TRACING_EXPORTER_PROTOCOL", default_value = "http", value_parser = protocol)]
    pub tracing_exporter_protocol: Protocol,
    /// service.name.
    #[arg(long, env = "TRACING_SERVICE_NAME", default_value = "RateLimit")]
    pub tracing_service_name: String,
    /// service.namespace.
    #[arg(long, env = "TRACING_SERVICE_NAMESPACE", default_value = "")]
    pub tracing_service_namespace: String,
    /// service.instance.id. Empty: one is made up.
    #[arg(long, env = "TRACING_SERVICE_INSTANCE_ID", default_value = "")]
    pub tracing_service_instance_id: String,
    /// Share of the calls that are followed where their caller does not say, 0 to 1.
    #[arg(long, env = "TRACING_SAMPLING_RATE", default_value = "1", value_parser = rate)]
    pub tracing_sampling_rate: Rate,
}

/// A share of all traces. The same ones are in it everywhere, because it goes by their ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u64);

/// Trace ids are random in their low 63 bits at least.
const WHOLE: u64 = 1 << 63;

impl Rate {
    pub(super) fn holds(self, trace: TraceId) -> bool {
        let low = u128::from_be_bytes(trace.to_bytes()) as u64;
        low >> 1 < self.0
    }
}

fn rate(text: &str) -> Result<Rate, Malformed> {
    text.parse::<f64>()
        .ok()
        .filter(|rate| (0.0..=1.0).contains(rate))
        .map(|rate| Rate((rate * WHOLE as f64) as u64))
        .ok_or_else(|| Malformed::new("expected a number from 0 to 1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_ids_is_followed() {
        let id = |low: u64| TraceId::from_bytes(u128::from(low).to_be_bytes());
        let half = rate("0.5").unwrap();
        assert!(half.holds(id(1)) && !half.holds(id(u64::MAX)));
        for low in [0, 1, u64::MAX] {
            assert!(rate("1").unwrap().holds(id(low)));
            assert!(!rate("0").unwrap().holds(id(low)));
        }
        for nonsense in ["2", "-1", "NaN", "", "all"] {
            assert!(rate(nonsense).is_err(), "{nonsense}");
        }
    }
}
