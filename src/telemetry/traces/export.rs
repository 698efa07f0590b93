//! Sends spans to a collector, beside everything else: a call puts its span into a bounded box and goes on. A collector
//! that is slow or gone costs the spans, never a call, and one line of the log a minute.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use opentelemetry::InstrumentationScope;
use opentelemetry_otlp::{
    Protocol as Encoding, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use tokio::{
    sync::mpsc::{self, Receiver, Sender},
    task::JoinHandle,
    time::{sleep, timeout},
};

use super::{Args, Traces};
use crate::{
    telemetry::{
        otlp::{self, Collector, NotStarted, PATIENCE, Protocol, Sender as Who},
        throttle::Throttle,
    },
    time::Clock,
};

/// Most spans that wait to be sent.
const ROOM: usize = 4_096;

/// Most spans in one message.
const BATCH: usize = 512;

/// How long the first span of a message waits for others.
const GATHER: Duration = Duration::from_millis(500);

/// Spans on their way out.
#[derive(Debug)]
pub(super) struct Outbox {
    spans: Sender<SpanData>,
    pub(super) scope: InstrumentationScope,
    pub(super) exported: AtomicU64,
    pub(super) dropped: AtomicU64,
    pub(super) failed: AtomicU64,
}

/// The task that sends.
#[derive(Debug)]
pub struct Exporting {
    task: JoinHandle<()>,
    stop: Sender<()>,
}

impl Outbox {
    pub(super) fn send(&self, span: SpanData) {
        if self.spans.try_send(span).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Traces {
    /// Starts to send traces, on this runtime.
    ///
    /// # Errors
    /// A collector that cannot be one.
    pub fn start(
        args: &Args,
        otlp: &otlp::Args,
        sender: &Who,
    ) -> Result<(Arc<Self>, Exporting), NotStarted> {
        let collector = otlp.of_traces(args.tracing_exporter_protocol);
        let mut exporter = exporter(&collector)?;
        exporter.set_resource(&sender.0);
        let (spans, waiting) = mpsc::channel(ROOM);
        let (stop, stopped) = mpsc::channel(1);
        let clock = Clock::system();
        let outbox = Arc::new(Outbox {
            spans,
            scope: InstrumentationScope::builder("palang")
                .with_version(env!("CARGO_PKG_VERSION"))
                .build(),
            exported: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        });
        let task = tokio::spawn(run(
            exporter,
            waiting,
            stopped,
            Arc::clone(&outbox),
            Throttle::by_the_minute(clock.clone()),
        ));
        let traces = Arc::new(Self {
            outbox,
            rate: args.tracing_sampling_rate,
            clock,
        });
        Ok((traces, Exporting { task, stop }))
    }
}

impl Exporting {
    /// Sends what waits, for so long at most, and ends.
    pub async fn finish(mut self, patience: Duration) {
        // An error says the same: it has ended.
        let _ = self.stop.try_send(());
        if timeout(patience, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }
}

async fn run(
    exporter: SpanExporter,
    mut waiting: Receiver<SpanData>,
    mut stopped: Receiver<()>,
    outbox: Arc<Outbox>,
    complaints: Throttle,
) {
    let mut is_last = false;
    while !is_last {
        let mut batch = Vec::new();
        tokio::select! {
            _ = stopped.recv() => is_last = true,
            Some(first) = waiting.recv() => {
                batch.push(first);
                tokio::select! {
                    _ = stopped.recv() => is_last = true,
                    () = sleep(GATHER) => {}
                }
            }
        }
        loop {
            while batch.len() < BATCH
                && let Ok(span) = waiting.try_recv()
            {
                batch.push(span);
            }
            let count = batch.len() as u64;
            if count == 0 {
                break;
            }
            let sent = timeout(PATIENCE, exporter.export(std::mem::take(&mut batch))).await;
            let cause = match sent {
                Ok(Ok(())) => {
                    outbox.exported.fetch_add(count, Ordering::Relaxed);
                    continue;
                }
                Ok(Err(cause)) => cause.to_string(),
                Err(_) => "no answer in time".to_owned(),
            };
            outbox.failed.fetch_add(count, Ordering::Relaxed);
            if complaints.pass().is_some() {
                let lost = outbox.failed.load(Ordering::Relaxed);
                tracing::warn!(cause, lost, "traces do not reach their collector");
            }
        }
    }
}

fn exporter(collector: &Collector) -> Result<SpanExporter, NotStarted> {
    match collector.protocol() {
        Protocol::Grpc => Ok(SpanExporter::builder()
            .with_tonic()
            .with_timeout(PATIENCE)
            .with_channel(collector.channel()?)
            .with_metadata(collector.metadata()?)
            .build()?),
        Protocol::Http => Ok(SpanExporter::builder()
            .with_http()
            .with_protocol(Encoding::HttpBinary)
            .with_timeout(PATIENCE)
            .with_endpoint(collector.endpoint())
            .with_http_client(collector.http()?)
            .with_headers(collector.headers().iter().cloned().collect())
            .build()?),
    }
}
