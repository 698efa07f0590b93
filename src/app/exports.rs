//! What is sent to collectors: spans and metrics, where they are asked for.

use std::{sync::Arc, time::Duration};

use anyhow::Context as _;

use crate::{
    settings::Settings,
    telemetry::{
        metrics::Metrics,
        otlp::{Pushing, Sender},
        traces::{Exporting, Traces},
    },
};

/// Longest time that the last spans and metrics may take to reach their collectors.
const LAST: Duration = Duration::from_secs(1);

/// What is being sent. Runs beside the admin ports.
#[derive(Debug)]
pub(super) struct Exports {
    spans: Option<Exporting>,
    metrics: Option<Pushing>,
}

impl Exports {
    /// Starts to send what the settings ask for.
    ///
    /// # Errors
    /// A collector that cannot be one.
    pub(super) fn start(settings: &Settings, metrics: &Arc<Metrics>) -> anyhow::Result<Self> {
        let (traces, otlp) = (&settings.traces, &settings.otlp);
        // One process is one resource, whatever it sends.
        let sender = Sender::new(traces);
        let spans = if traces.tracing_enabled {
            let (traces, exporting) =
                Traces::start(traces, otlp, &sender).context("cannot send traces")?;
            metrics.follow(traces);
            Some(exporting)
        } else {
            None
        };
        let pushing = otlp.otel_metrics_exporter.otlp.then(|| {
            let protocol = traces.tracing_exporter_protocol;
            Pushing::start(otlp, protocol, &sender, Arc::clone(metrics))
        });
        Ok(Self {
            spans,
            metrics: pushing.transpose().context("cannot send metrics")?,
        })
    }

    /// Sends what is left.
    pub(super) async fn finish(self) {
        let spans = async {
            if let Some(spans) = self.spans {
                spans.finish(LAST).await;
            }
        };
        let metrics = async {
            if let Some(metrics) = self.metrics {
                metrics.finish(LAST).await;
            }
        };
        tokio::join!(spans, metrics);
    }
}
