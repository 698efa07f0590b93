//! What became of spans, as metrics.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
};

use super::Traces;

/// Counts of the spans, where traces are on.
#[derive(Debug)]
pub(in crate::telemetry) struct SpanCounts(pub(in crate::telemetry) Arc<OnceLock<Arc<Traces>>>);

impl Collector for SpanCounts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(traces) = self.0.get() else {
            return Ok(());
        };
        let mut family = encoder.encode_descriptor(
            "palang_spans",
            "Spans of traces, by what became of them",
            None,
            MetricType::Counter,
        )?;
        for (result, count) in traces.spans() {
            family
                .encode_family(&[("result", result)])?
                .encode_counter::<NoLabelSet, u64, f64>(&count, None)?;
        }
        Ok(())
    }
}
